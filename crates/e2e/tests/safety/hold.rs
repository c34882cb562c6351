//! Writes of others in mid-rollout, with the policies installed: the operator running, stopped, and killed in the middle.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::Phase;
use sts_plus_api::names::{self, HOLD};
use sts_plus_e2e::{Scene, moves, objects};

/// What somebody writes in mid-rollout.
#[derive(Clone, Copy, Debug)]
enum Write {
    /// Another template.
    Template,
    /// Another template and two more replicas in one write.
    TemplateAndScale,
    /// `kubectl apply` of a manifest that pins partition 0, first with the template that is there, then with another.
    PinnedByApply,
    /// The same by `kubectl replace`, which also drops our annotations.
    PinnedByReplace,
    /// The same by a forced server-side apply of another field manager.
    PinnedByForcedServerSideApply,
}

/// What the operator does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Running,
    Stopped,
    Killed,
}

#[rstest]
#[tokio::test]
async fn a_write_in_mid_rollout_moves_no_pod_unapproved(
    #[values(
        Write::Template,
        Write::TemplateAndScale,
        Write::PinnedByApply,
        Write::PinnedByReplace,
        Write::PinnedByForcedServerSideApply
    )]
    write: Write,
    #[values(Operator::Running, Operator::Stopped, Operator::Killed)] operator: Operator,
) {
    let mut scene = Scene::at_rest("hold", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    if operator == Operator::Killed {
        // In the middle: the step is written, its pod is on its way.
        scene.until("the first step", |world| world.partition() == Some(2)).await;
        scene.kill_operator();
    } else {
        scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;
    }
    if operator == Operator::Stopped {
        assert!(scene.stop_operator().await.success());
    }
    let before = match operator {
        Operator::Running => None,
        _ => Some(scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await.uids()),
    };

    make(&scene, write).await;

    if let Some(before) = before {
        let after = scene.until("the controller has seen it", |world| world.controller_has_seen() && world.is_held());
        let after = after.await;
        assert!(before.iter().all(|(pod, uid)| after.uids().get(pod) == Some(uid)), "a pod has moved");
        scene.start_operator();
    }
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let entries = scene.tape.entries();
    moves::assert_allowed(&entries, "app:1");
    // Of a step whose operator is killed before it writes the status, the last verdict is not on record.
    moves::assert_gated(&entries, "app:1", if operator == Operator::Killed { 1 } else { 2 });
    scene.end().await;
}

/// A person's word is for the revision that is pending: the next template takes the annotation away, used or not.
#[tokio::test]
async fn an_allowance_from_before_a_release_does_not_open_it() {
    let scene = Scene::at_rest("allowance", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: "0" } } });
    scene.patch("statefulset/web", &allow).await;
    scene.release("app:2-errors").await;
    let failed = scene.until("failed", |world| world.image("web-2") == "app:2-errors" && world.is(Phase::Failed)).await;
    assert_eq!(failed.annotation(names::ALLOW_PARTITION), None);
    let opened = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } });
    let written = scene.patch("statefulset/web", &opened).await;
    assert_eq!(partition(&written.data), json!(HOLD), "not granted");
    let now = scene.world().uids();
    assert!(["web-0", "web-1"].iter().all(|pod| now[*pod] == born[*pod]), "{born:?} {now:?}");
    scene.end().await;
}

async fn make(scene: &Scene, write: Write) {
    let next = objects::image(objects::set(3), "app:3");
    match write {
        Write::Template => scene.release("app:3").await,
        Write::TemplateAndScale => {
            let spec = json!({ "spec": { "replicas": 5, "template": next["spec"]["template"] } });
            let written = scene.patch("statefulset/web", &spec).await;
            assert_eq!(partition(&written.data), json!(HOLD), "held in the same write");
        }
        Write::PinnedByApply => pin(scene, &["apply", "-f", "-"]).await,
        Write::PinnedByReplace => pin(scene, &["replace", "-f", "-"]).await,
        Write::PinnedByForcedServerSideApply => {
            pin(scene, &["apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"]).await;
        }
    }
}

/// Pins partition 0, with the template that is there and then with another.
async fn pin(scene: &Scene, args: &[&str]) {
    let args = [args, &["-o", "json"]].concat();
    let pinned = |image: &str| {
        let set = objects::with(objects::set(3), "/spec/updateStrategy/type", "RollingUpdate");
        objects::image(objects::with(set, "/spec/updateStrategy/rollingUpdate/partition", 0), image).to_string()
    };
    let kept: Value = stored(scene, &args, &pinned("app:2")).await;
    assert!(partition(&kept).as_i64() > Some(0), "not granted: {}", partition(&kept));
    let held: Value = stored(scene, &args, &pinned("app:3")).await;
    assert_eq!(partition(&held), json!(HOLD), "held in the same write");
}

async fn stored(scene: &Scene, args: &[&str], manifest: &str) -> Value {
    let reply = scene.kubectl_ok(args, manifest).await;
    serde_json::from_str(&reply.stdout).expect("kubectl prints JSON")
}

fn partition(set: &Value) -> Value {
    set.pointer("/spec/updateStrategy/rollingUpdate/partition").cloned().unwrap_or_default()
}
