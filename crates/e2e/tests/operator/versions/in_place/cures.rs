//! A pod of the version in charge that does not come up holds the next version: each way out that the message names is taken.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{VersionPhase, names};
use sts_plus_e2e::{Scene, View, moves, objects};

use super::{all_at, carried, plain};

/// What the message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// "mend it".
    Mend,
    /// "set spec.updateStrategy.updateNotReady to true".
    Pass,
    /// "annotate StatefulSet db with …, then set its partition to … and delete pod …".
    Allow,
}

/// Version 2 waits for db-1 of version 1, which is broken; and what is said.
async fn held(name: &str, policy: &str) -> (Scene, String) {
    let db = objects::with(plain(), "/spec/template/spec/podManagementPolicy", policy);
    let scene = Scene::with_versions(name, &db).await;
    scene.stage("db-1", Some("broken")).await;
    scene.until_versions("db-1 is not Ready", |view| !view.world.is_ready_on("db-1", "app:1")).await;
    scene.release_version("app:2").await;
    let told = |view: &View| view.is(VersionPhase::Held) && view.status.message.contains("mend it");
    let view = scene.until_versions("it is told", told).await;
    assert_eq!(carried(&view).values().filter(|at| *at == "2").count(), 0, "nothing rolls");
    (scene, view.status.message)
}

// spec: es§1, cure-broken-pod-in-place
#[rstest]
#[case(Way::Mend, "OrderedReady")]
#[case(Way::Allow, "OrderedReady")]
#[case(Way::Mend, "Parallel")]
#[case(Way::Pass, "Parallel")]
#[case(Way::Allow, "Parallel")]
#[tokio::test]
async fn a_broken_pod_of_the_version_in_charge_is_dealt_with_as_the_message_says(
    #[case] way: Way,
    #[case] policy: &str,
) {
    let (scene, message) = held("cure", policy).await;
    let before = scene.view();
    let offers = message.contains("or set spec.updateStrategy.updateNotReady to true");
    assert_eq!(offers, policy == "Parallel", "{message}");
    match way {
        Way::Mend => scene.stage("db-1", None).await,
        Way::Pass => scene.change(&json!({ "spec": { "updateStrategy": { "updateNotReady": true } } })).await,
        Way::Allow => {
            let cure = format!(
                "replace the pods from db-1 up without checks: annotate StatefulSet db with {}: \"1\", then set its \
                partition to 1 and delete pod db-1",
                names::ALLOW_PARTITION
            );
            assert!(message.contains(&cure), "{message}");
            scene.kubectl_ok(&["annotate", "statefulset", "db", &format!("{}=1", names::ALLOW_PARTITION)], "").await;
            let open = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}"#;
            scene.kubectl_ok(&["patch", "statefulset", "db", "--type=merge", "-p", open], "").await;
            // With Parallel the controller deletes it too, and may come first.
            scene.kubectl_ok(&["delete", "pod", "db-1", "--wait=false", "--ignore-not-found"], "").await;
        }
    }
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2), "{:?}", carried(&after));
    let moved = moves::of(&scene.tape.entries());
    if way == Way::Allow {
        let at = |pod: &str| moved.iter().find(|moved| moved.pod == pod && moved.to == "app:2").map(|moved| moved.left);
        assert!(at("db-1") < at("db-0") && at("db-2") < at("db-0"), "the last one waits for the others: {moved:?}");
    } else {
        moves::assert_allowed(&scene.tape.entries(), "app:1");
    }
    assert_ne!(before.uids("db-0"), after.uids("db-0"));
    scene.end().await;
}
