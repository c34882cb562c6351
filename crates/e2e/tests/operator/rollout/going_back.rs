//! A rollback into which something else comes: Kubernetes forgets the revision to go back to, the set is scaled to zero, or the next
//! template is written. The first pod to go back takes its time, so that all of it happens while that pod is on its way.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{RECOVERING, gate, recovers, scale};

const BAD: &str = "app:2-stop-after-3s";

/// Three pods. The checks of web-1, the second one to be rolled, fail once: it is being deleted, to come back on `app:1`.
struct GoingBack {
    scene: Scene,
    /// The revision of `app:1`, and the one that failed.
    revisions: (String, String),
    /// UIDs of the pods at rest, and while web-1 is being deleted.
    born: BTreeMap<String, String>,
    leaving: BTreeMap<String, String>,
}

impl GoingBack {
    async fn new(name: &str) -> Self {
        let check = json!({ "successThreshold": 1, "maxTries": 1, "onFailure": "Rollback" });
        let gate = objects::with(gate(check).await, "/spec/check/query/expr", RECOVERING);
        let scene = Scene::at_rest(name, 3, &gate).await;
        recovers(&scene, "web-1", true).await;
        let rest = scene.world();
        scene.release(BAD).await;
        let leaves = |world: &World| {
            let pod = world.pods.get("web-1").filter(|_| world.image("web-1") == BAD);
            pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
        };
        let leaving = scene.until("web-1 goes back", leaves).await;
        assert!(leaving.is_held() && leaving.is(Phase::RollingBack), "{:?}", leaving.status());
        let revisions = (rest.update_revision(), leaving.update_revision());
        Self { scene, revisions, born: rest.uids(), leaving: leaving.uids() }
    }
}

/// The StatefulSet controller takes the update revision for the current one where it does not find the current one, and no hold keeps
/// a pod off that.
// spec: pr§5, L083
#[tokio::test]
async fn a_pod_that_comes_back_on_another_revision_stops_the_rollback() {
    let back = GoingBack::new("forgotten").await;
    let (scene, (good, bad)) = (&back.scene, back.revisions.clone());
    let revisions: Api<ControllerRevision> = Api::namespaced(scene.client.clone(), &scene.namespace);
    revisions.delete(&good, &DeleteParams::default()).await.expect("it can be deleted");

    let said = format!("web-1 carries {bad} and not {good}; the rollback is stopped and held");
    let stopped = |world: &World| world.is_ready_on("web-1", BAD) && world.status().message.contains(&said);
    let stopped = scene.until("it is said", stopped).await;
    assert_ne!(stopped.uids()["web-1"], back.leaving["web-1"], "made while the revision was gone");
    assert_eq!(stopped.condition(ConditionType::Stalled), "True/RollingBack");
    assert!(stopped.is_held() && stopped.is(Phase::RollingBack), "{:?}", stopped.status());
    // A sign that the operator has looked again: another spec is observed.
    scene.configure(&json!({ "stuckPods": "Wait" })).await;
    let still = scene.until("looked at again", |world| world.is(Phase::RollingBack)).await;
    assert!(still.is_held() && still.status().message.contains(&said), "{:?}", still.status());
    assert_eq!(still.uids(), stopped.uids());
    assert_eq!(scene.deleted(), ["web-1"], "no other pod is sent the same way");

    // The way out is the template.
    recovers(scene, "web-1", false).await;
    scene.release("app:1").await;
    let end = scene.until("complete", |world| world.is_complete("app:1")).await;
    assert_eq!((end.update_revision(), &end.uids()["web-0"]), (good, &back.born["web-0"]));
    back.scene.end().await;
}

/// At 0 replicas the rejected revision becomes the current one: nothing goes back any more, and that is said.
// spec: pr§5, L105
#[tokio::test]
async fn scaled_to_zero_in_mid_rollback_the_rejected_release_is_told_and_not_fought() {
    let back = GoingBack::new("back-zero").await;
    let (scene, (good, bad)) = (&back.scene, back.revisions.clone());
    scale(scene, 0).await;
    let danger = format!("Kubernetes starts all pods on {bad}, which was rejected, when it is scaled up");
    scene.until("it is told", |world| world.pods.is_empty() && world.status().message.contains(&danger)).await;
    let deleted = scene.deleted();
    scale(scene, 3).await;
    let way_out = format!("3 of 3 pods carry it; change the template back to {good}");
    let runs = |world: &World| world.all_on(BAD) && world.status().message.contains(&way_out) && world.is_held();
    let runs = scene.until("the rejected release runs", runs).await;
    assert_eq!(runs.condition(ConditionType::Stalled), "True/RevisionRejected");
    assert_eq!(runs.status().rejected_revisions, [bad]);
    assert_eq!(scene.deleted(), deleted, "under the hold they would only come back on it");
    scene.release("app:1").await;
    let end = scene.until("complete", |world| world.is_complete("app:1")).await;
    assert_eq!(end.update_revision(), good);
    back.scene.end().await;
}

// spec: pr§5, L077
#[tokio::test]
async fn a_template_written_in_mid_rollback_goes_through_the_gate() {
    let back = GoingBack::new("back-next").await;
    let (scene, (good, bad)) = (&back.scene, back.revisions.clone());
    recovers(scene, "web-1", false).await;
    scene.release("app:3").await;
    let end = scene.until("complete", |world| world.is_complete("app:3")).await;
    assert_eq!(end.status().rejected_revisions, [bad], "still on record");
    let moved = moves::assert_gated(scene, "app:1", 1);
    let told: Vec<_> = moved.iter().map(|moved| (moved.pod.as_str(), moved.to.as_str())).collect();
    // web-1 had left already and came back on the revision that it was deleted for.
    let way = [
        ("web-2", BAD),
        ("web-1", BAD),
        ("web-1", "app:1"),
        ("web-2", "app:3"),
        ("web-1", "app:3"),
        ("web-0", "app:3"),
    ];
    assert_eq!(told, way, "{}", scene.story());
    assert_eq!(scene.deleted(), ["web-1"], "the rollback of {good}'s successor was over");
    back.scene.end().await;
}
