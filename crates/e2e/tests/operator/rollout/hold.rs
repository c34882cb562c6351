//! Writes of others in mid-rollout, with the policies installed, while the operator runs and while it does not.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::Phase;
use sts_plus_api::names::{self, HOLD};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{approve, gate_that_fails_after, gate_that_waits_before, is_awaiting, release_until_awaited};

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

// spec: hold, pr§4, L077, L149
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
    #[values(true, false)] runs: bool,
) {
    let mut scene = Scene::at_rest("hold", 3, &gate_that_waits_before(1).await).await;
    let before = release_until_awaited(&scene, "app:2").await.uids();
    if !runs {
        assert!(scene.stop_operator().await.success());
    }

    make(&scene, write).await;

    if !runs {
        let after = scene.until_settled("the controller has seen it", World::is_held).await;
        assert!(before.iter().all(|(pod, uid)| after.uids().get(pod) == Some(uid)), "a pod has moved");
        scene.start_operator();
    }
    let awaited = |world: &World| is_awaiting(world) && world.is_ready_on("web-2", "app:3");
    let awaited = scene.until_settled("a person is awaited again", awaited).await;
    assert!(["web-0", "web-1"].iter().all(|pod| awaited.uids().get(*pod) == before.get(*pod)), "they have not moved");
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let entries = scene.tape.entries();
    moves::assert_allowed(&entries, "app:1");
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

/// A person's word is for the revision that is pending: the next template takes the annotation away, used or not.
// spec: hold, pr§4
#[tokio::test]
async fn an_allowance_from_before_a_release_does_not_open_it() {
    let scene = Scene::at_rest("allowance", 3, &gate_that_fails_after(1).await).await;
    let born = scene.world().uids();
    let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: "0" } } });
    scene.patch("statefulset/web", &allow).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.image("web-2") == "app:2" && world.is(Phase::Failed)).await;
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
