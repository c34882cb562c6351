//! What the status says, and when it is not the truth.

use serde_json::json;

use super::place::{HOLD, State, set, spec_of_partition};
use super::{Place, everywhere};
use sts_plus_e2e::objects;

/// B12.17: a terminating pod still counts as ready.
// spec: native§6
#[tokio::test]
async fn a_pod_that_is_being_rolled_counts_as_ready_while_it_stops() {
    everywhere(async |place: &Place| {
        let set = objects::image(set("OrderedReady", 2, 2), "app:1-stop-after-6s");
        let set = objects::with(set, "/spec/template/spec/terminationGracePeriodSeconds", 30);
        place.start_with(&set).await;
        place.release("app:2", spec_of_partition(1)).await;
        place.until("web-1 stops", |state| state.pods.len() == 2 && state.pod(1).going).await;
        // What is counted in this run is written with the generation that it has seen.
        place.patch(json!({ "spec": { "revisionHistoryLimit": 9 } })).await;
        let state = place.until("counted again", State::is_seen).await;
        assert!(state.pods.len() == 2 && state.pod(1).going, "{}", state.layout());
        assert_eq!(state.status().ready_replicas, Some(2));
        place.until_layout("0:1-stop-after-6s 1:2").await;
    })
    .await;
}

/// B12.18, B10
// spec: native§6
#[tokio::test]
async fn kubectl_rollout_status_says_done_at_a_hold() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, 3).await;
        place.release("app:2", json!({})).await;
        place.stays("0:1 1:1 2:1").await;
        let reply = place.scene.kubectl_ok(&["rollout", "status", "statefulset/web", "--timeout=10s"], "").await;
        assert!(reply.stdout.contains("complete"), "{reply:?}");
    })
    .await;
}

/// B6: the flip looks at counters alone, not at the partition.
// spec: native§6
#[tokio::test]
async fn the_current_revision_flips_when_all_pods_are_ready_on_the_update_revision_whatever_the_partition() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 2, 2).await;
        place.release("app:2-ready-after-8s", spec_of_partition(0)).await;
        place
            .until("both are rolled", |state| {
                state.pods.len() == 2 && state.pods.iter().all(|pod| pod.image.contains('2'))
            })
            .await;
        place.set_partition(HOLD).await;
        let held = place.until("held", State::is_seen).await;
        assert!(!held.has_flipped(), "not before both are Ready: {}", held.layout());
        let flipped = place.until("flipped", State::has_flipped).await;
        assert_eq!(flipped.partition(), Some(HOLD));
    })
    .await;
}

/// B6, #136831: the flip does not wait for minReadySeconds.
// spec: native§6
#[tokio::test]
async fn the_current_revision_flips_before_the_last_pod_is_available() {
    everywhere(async |place: &Place| {
        place.start_with(&objects::with(set("OrderedReady", 1, 1), "/spec/minReadySeconds", 12)).await;
        place.release("app:2", spec_of_partition(0)).await;
        let rolled = |state: &State| state.layout() == "0:2" && state.is_seen() && state.has_flipped();
        let state = place.until("flipped", rolled).await;
        assert_eq!(state.status().available_replicas.unwrap_or(0), 0, "not available yet");
    })
    .await;
}

/// B6: each partition write is a new generation, which the controller has to see first.
// spec: native§6
#[tokio::test]
async fn a_partition_write_is_a_new_generation() {
    everywhere(async |place: &Place| {
        let before = place.start("OrderedReady", 1, 1).await;
        place.set_partition(5).await;
        let after = place.until("seen", State::is_seen).await;
        assert_eq!(after.set.metadata.generation, before.set.metadata.generation.map(|generation| generation + 1));
        // O14: a pod that is recreated is no new generation, but a new resource version.
        place.delete_pod("web-0").await;
        let recreated = |state: &State| state.layout() == "0:1" && state.pod(0).uid != before.pod(0).uid;
        let healed = place
            .until("recreated, and counted", |state| {
                let version = &state.set.metadata.resource_version;
                recreated(state) && *version != after.set.metadata.resource_version
            })
            .await;
        assert_eq!(healed.set.metadata.generation, after.set.metadata.generation);
    })
    .await;
}
