//! The `HorizontalPodAutoscaler` controller of Kubernetes on a StatefulSet that a PhasedRollout holds. Without metrics it still brings the
//! count into its limits, which is all that is needed here.

use serde_json::{Value, json};
use sts_plus_api::Reason;
use sts_plus_e2e::{Scene, Seen, World, moves};

use super::{approve, gate_that_waits_before, is_awaiting, release_until_awaited};
use crate::autoscaling::{self, hpa};

/// The counts that the set was to have, as they changed.
fn counts(scene: &Scene) -> Vec<i32> {
    let entries = scene.tape.entries();
    let sets = entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Set(set) => set.spec.as_ref()?.replicas,
        _ => None,
    });
    let mut counts: Vec<i32> = sets.collect();
    counts.dedup();
    counts
}

async fn limit(scene: &Scene, min: i32, max: i32) {
    let limits: Value = json!({ "spec": { "minReplicas": min, "maxReplicas": max } });
    let args = ["patch", "hpa", "web", "--type=merge", "--patch", &limits.to_string()];
    scene.kubectl_ok(&args, "").await;
}

/// The StatefulSet controller has counted all pods. Its next status would be a conflict for an autoscaler that read before it, whoever holds
/// the set.
async fn until_counted(scene: &Scene) {
    let is_counted = |world: &World| {
        let set = &world.sets["web"];
        let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
        set.status.as_ref().is_some_and(|status| {
            let both = status.updated_replicas.unwrap_or(0) + status.current_replicas.unwrap_or(0);
            let has_flipped = status.current_revision == status.update_revision;
            [Some(status.replicas), status.ready_replicas, status.available_replicas]
                .iter()
                .all(|count| *count == wanted)
                && (has_flipped || Some(both) == wanted)
        })
    };
    scene.until_settled("all pods are counted", is_counted).await;
}

// spec: L141
#[tokio::test]
async fn an_autoscaler_scales_a_held_set_and_neither_swings_nor_conflicts() {
    let scene = Scene::at_rest("hpa", 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;

    until_counted(&scene).await;
    // In mid-rollout: born above the partition, on the release that has passed there, and told.
    scene.create(&hpa("apps/v1", "StatefulSet", "web", (5, 8))).await;
    let grown = |world: &World| world.is_ready_on("web-4", "app:2") && is_awaiting(world);
    let grown = scene.until("five", grown).await;
    assert_eq!((grown.image("web-1"), grown.image("web-0")), ("app:1", "app:1"), "the hold is kept");
    let slipped = scene.until_events(Reason::PodsSlipped, 1).await;
    assert!(slipped[0].note.as_deref().is_some_and(|note| note.contains("scaled from 3 to 5")), "{slipped:?}");
    until_counted(&scene).await;
    limit(&scene, 2, 4).await;
    scene.until("four", |world| world.pods.len() == 4 && world.status().updated == "2/4").await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;

    // At rest.
    until_counted(&scene).await;
    limit(&scene, 6, 8).await;
    let end = |world: &World| world.all_on("app:2") && world.pods.len() == 6 && world.partition() == Some(6);
    scene.until("six at rest", end).await;
    autoscaling::until_looked_at(&scene, "statefulsets", 10).await;
    assert_eq!(counts(&scene), [3, 5, 4, 6], "no swing");
    let written = autoscaling::writes(&scene, "statefulsets");
    assert_eq!(written, [200, 200, 200], "each change at the first try, and no other");
    let mut refused = scene.requests();
    refused.retain(|entry| entry.code == 409 || entry.code == 422);
    assert!(refused.len() <= 3, "at most one for each change of the count: {refused:?}");
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}
