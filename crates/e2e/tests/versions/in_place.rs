//! InPlace: one StatefulSet, whose pods go to the next version one at a time, each behind the check.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sts_plus_api::{VersionPhase, names};
use sts_plus_e2e::{Scene, objects};

use crate::story::{Story, View, db};
use crate::zones::{label_nodes, zone_label};

/// `db` in one StatefulSet, without a check.
pub fn plain() -> Value {
    objects::with(db(), "/spec/updateStrategy", json!({ "type": "InPlace" }))
}

/// With a check each second, two in a row, three at most.
pub async fn checked(more: &Value) -> Value {
    let url = Scene::prometheus().await;
    let mut check = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 3,
        "query": { "expr": objects::ERRORS, "url": url },
    });
    json_patch::merge(&mut check, more);
    objects::with(plain(), "/spec/updateStrategy/check", check)
}

/// The versions of the pods by their names.
pub fn carried(view: &View) -> BTreeMap<String, String> {
    let pods = view.world.pods.values();
    let label = |pod: &k8s_openapi::api::core::v1::Pod| pod.metadata.labels.clone()?.get(names::VERSION).cloned();
    pods.filter_map(|pod| Some((pod.metadata.name.clone()?, label(pod)?))).collect()
}

pub fn all_at(view: &View, version: i32) -> bool {
    let carried = carried(view);
    carried.len() == 3 && carried.values().all(|at| *at == version.to_string())
}

#[tokio::test]
async fn each_pod_goes_to_the_next_version_behind_its_check() {
    let story = Story::at_rest("in-place", &checked(&json!({})).await).await;
    let before = story.view().await;
    assert_eq!(carried(&before).keys().cloned().collect::<Vec<_>>(), ["db-0", "db-1", "db-2"]);
    story.release("app:2").await;
    let middle =
        story.until("the last pod is on version 2", |view| carried(view).get("db-2").is_some_and(|at| at == "2")).await;
    assert_eq!(middle.status.versions.keys().cloned().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!((middle.status.current_version, middle.status.update_version), (Some(1), Some(2)));
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2), "{:?}", carried(&after));
    // Two for each pod, two before the first.
    let log = story.scene.log();
    assert!(log.matches("check: ").count() >= 8, "{log}");
    // The versions are what the StatefulSet controller keeps, under the same numbers.
    let theirs =
        ["get", "controllerrevisions", "-l", "controller.kubernetes.io/hash", "-L", names::VERSION, "--no-headers"];
    let kept = story.scene.kubectl_ok(&theirs, "").await;
    let mut numbers: Vec<_> = kept.stdout.lines().filter_map(|line| line.split_whitespace().last()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["1", "2"], "{}", kept.stdout);
    assert_eq!(story.trace(), ["db 3"]);
    story.end().await;
}

#[tokio::test]
async fn without_a_check_the_pods_go_as_they_become_available() {
    let story = Story::at_rest("plain", &plain()).await;
    story.release("app:2").await;
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2));
    // Back: a new number, since version 1 is gone.
    story.release("app:1").await;
    let back = story.until("version 3 alone", |view| view.is_only(3)).await;
    assert!(all_at(&back, 3));
    story.end().await;
}

#[tokio::test]
async fn a_failed_check_holds_and_the_old_template_brings_the_old_version_back() {
    let story = Story::at_rest("held", &checked(&json!({ "preflight": false })).await).await;
    let before = story.view().await;
    story.release("app:2-errors").await;
    let failed = story.until("failed", |view| view.is(VersionPhase::Failed)).await;
    assert_eq!(failed.condition("Stalled"), "True/ChecksFailed");
    assert_eq!(carried(&failed).values().filter(|at| *at == "2").count(), 1);
    assert_eq!(failed.status.versions, BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), true)]));
    story.release("app:1").await;
    let back = story.until("version 1 alone", |view| view.is_only(1)).await;
    let stayed = |name: &str| before.uids(name) == back.uids(name);
    assert!(stayed("db-0") && stayed("db-1") && !stayed("db-2"));
    assert_eq!(back.status.last_version, 2);
    story.end().await;
}

#[tokio::test]
async fn rolled_back_the_version_is_stale_until_it_is_tried_again() {
    let story = Story::at_rest("back", &checked(&json!({ "preflight": false, "onFailure": "Rollback" })).await).await;
    story.release("app:2-errors").await;
    let versions = BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), false)]);
    let stale = |view: &View| {
        let is_told = view.is(VersionPhase::Failed) && view.condition("Stale") == "True/VersionStale";
        is_told && view.status.versions == versions && all_at(view, 1)
    };
    let told = story.until("stale", stale).await;
    assert!(told.message("Stale").contains("version 2: its pods failed"), "{}", told.message("Stale"));
    let marked =
        |view: &View| view.world.sets["db"].metadata.annotations.clone().is_some_and(|a| a.contains_key(names::STALE));
    story.until("marked", marked).await;
    let again = json!({ "metadata": { "annotations": { names::RETRY_VERSION: "once" } } });
    story.change(&again).await;
    story.until("tried again", |view| carried(view).values().any(|at| at == "2")).await;
    story.until("stale again", stale).await;
    story.release("app:3").await;
    let after = story.until("version 3 alone", |view| view.is_only(3)).await;
    assert!(all_at(&after, 3) && !marked(&story.until("not marked", |view| !marked(view)).await));
    story.end().await;
}

#[tokio::test]
async fn scaling_and_settings_restart_nothing_and_hand_edits_are_put_back() {
    let story = Story::at_rest("edits", &plain()).await;
    let before = story.view().await;
    story.scene.kubectl_ok(&["scale", "extendedstatefulset/db", "--replicas=4"], "").await;
    story.until("four", |view| view.is_only(1) && view.uids("db-").len() == 4).await;
    story.scene.kubectl_ok(&["scale", "statefulset/db", "--replicas=2"], "").await;
    story.scene.kubectl_ok(&["set", "image", "statefulset/db", "app=app:9"], "").await;
    story
        .scene
        .patch("statefulset/db", &json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } }))
        .await;
    let put_back = |view: &View| {
        let set = view.world.sets["db"].spec.clone().unwrap_or_default();
        let image = set.template.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        view.is_only(1) && set.replicas == Some(4) && image.as_deref() == Some("app:1") && view.uids("db-").len() == 4
    };
    let after = story.until("put back", put_back).await;
    for name in ["db-0", "db-1"] {
        assert_eq!(after.uids(name), before.uids(name));
    }
    assert!(!story.scene.tape.entries().iter().any(
        |entry| format!("{:?}", entry.seen).contains("app:9") && matches!(&entry.seen, sts_plus_e2e::Seen::Pod(_))
    ));
    story.end().await;
}

#[tokio::test]
async fn zone_by_zone_and_a_failure_in_the_second_leaves_the_first() {
    let story = Story::new("in-zones").await;
    label_nodes(&story, &["z1", "z2"]).await;
    // Errors count in the second zone only.
    let second = r#"app_errors{namespace="${namespace}",pod=~"db-z2-.*"}"#;
    let check = json!({ "preflight": false, "onFailure": "Rollback", "query": { "expr": second } });
    let db = objects::with(checked(&check).await, "/spec/az", json!(["z1", "z2"]));
    let db = objects::with(db, "/spec/template/spec/replicas", json!(2));
    let label = zone_label(&story);
    let db = objects::with(db, "/spec/zoneNodeLabel", json!(label));
    story.scene.create(&db).await;
    story.until("version 1 is there", |view| view.is_only(1)).await;
    story.release("app:2").await;
    let one = story
        .until("the first zone begins", |view| {
            carried(view).iter().any(|(name, at)| name.starts_with("db-z1-") && at == "2")
        })
        .await;
    assert!(carried(&one).iter().all(|(name, at)| name.starts_with("db-z1-") || at == "1"), "{:?}", carried(&one));
    let after = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(carried(&after).values().all(|at| at == "2"));

    story.release("app:3-errors").await;
    let at = |view: &View, zone: &str, version: &str| {
        let carried = carried(view);
        let pods: Vec<_> = carried.iter().filter(|(name, _)| name.starts_with(zone)).collect();
        pods.len() == 2 && pods.iter().all(|(_, at)| *at == version)
    };
    let failed = |view: &View| view.is(VersionPhase::Failed) && at(view, "db-z1-", "3") && at(view, "db-z2-", "2");
    let told = story.until("the second zone went back, the first stays", failed).await;
    assert!(told.message("Stalled").contains("db-z1 3, db-z2 2"), "{}", told.message("Stalled"));
    // The way back is written to both zones at once; pods that never left stay.
    story.release("app:2").await;
    let back = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(at(&back, "db-z1-", "2") && at(&back, "db-z2-", "2"));
    story.end().await;
}
