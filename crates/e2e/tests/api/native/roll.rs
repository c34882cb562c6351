//! What rolls under a partition, and what does not.

use std::time::Duration;

use serde_json::json;
use testcluster::Minor;

use super::place::{HOLD, State, set, spec_of_partition};
use super::{Place, everywhere};
use sts_plus_e2e::objects;

/// B12.1
async fn held(place: &Place) -> State {
    let before = place.start("OrderedReady", 3, HOLD).await;
    place.release("app:2", json!({})).await;
    let after = place.stays("0:1 1:1 2:1").await;
    assert_eq!((after.uids(), after.has_flipped()), (before.uids(), false));
    after
}

// spec: native§5
#[tokio::test]
async fn at_the_full_hold_a_template_change_moves_no_pod() {
    everywhere(async |place: &Place| drop(held(place).await)).await;
}

#[tokio::test]
#[ignore = "takes a minute"]
async fn at_the_full_hold_a_template_change_moves_no_pod_in_a_minute() {
    everywhere(async |place: &Place| {
        let state = held(place).await;
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!place.still(&state).await.has_flipped());
    })
    .await;
}

/// B12.8, O5: without our policy a second change in mid-rollout is unchecked.
// spec: native§7
#[tokio::test]
async fn a_second_change_rolls_what_is_at_or_above_the_partition_at_once() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, 3).await;
        place.release("app:2", spec_of_partition(1)).await;
        place.until_layout("0:1 1:2 2:2").await;
        place.release("app:3", json!({})).await;
        let state = place.until_layout("0:1 1:3 2:3").await;
        assert!(!state.has_flipped());
        // O6
        place.set_partition(3).await;
        place.delete_pod("web-2").await;
        place.until_layout("0:1 1:3 2:1").await;
    })
    .await;
}

/// B12.4, O11: the partition counts from the start ordinal.
// spec: native§4
#[tokio::test]
async fn a_partition_is_an_index_and_not_an_ordinal() {
    everywhere(async |place: &Place| {
        place.start_with(&objects::with(set("OrderedReady", 3, 6), "/spec/ordinals/start", 5)).await;
        place.release("app:2", json!({})).await;
        place.stays("5:1 6:1 7:1").await;
        place.set_partition(1).await;
        place.until_layout("5:1 6:2 7:2").await;
    })
    .await;
}

/// B12.16: a pod that is Ready and not yet available holds the next one back.
// spec: native§5
#[tokio::test]
async fn with_min_ready_seconds_no_pod_is_rolled_before_the_last_is_available() {
    everywhere(async |place: &Place| {
        let set = objects::with(set("OrderedReady", 2, 2), "/spec/minReadySeconds", 5);
        place.start_with(&set).await;
        place.until("available", |state| state.status().available_replicas == Some(2)).await;
        place.release("app:2", spec_of_partition(0)).await;
        place.until_layout("0:2 1:2").await;
        let world = place.scene.world();
        let made = world.pods["web-0"].metadata.creation_timestamp.as_ref().expect("it has been made").0;
        let ready = world.ready_since("web-1").expect("it is Ready");
        // Both are full seconds.
        assert!(made.duration_since(ready).as_secs() >= 4, "web-1 is Ready since {ready}, web-0 made at {made}");
    })
    .await;
}

/// B12.19, B9: what an unready pod below the partition holds back.
// spec: native§5, native§9, L158
#[tokio::test]
async fn an_unready_pod_below_the_partition() {
    everywhere(async |place: &Place| {
        place.start("Parallel", 3, 3).await;
        place.set_ready("web-0", false).await;
        place.until_layout("0:1! 1:1 2:1").await;
        place.release("app:2", spec_of_partition(2)).await;
        if place.gate {
            // It uses up the budget of one.
            place.stays("0:1! 1:1 2:1").await;
            place.set_ready("web-0", true).await;
            place.until_layout("0:1 1:1 2:2").await;
        } else {
            place.until_layout("0:1! 1:1 2:2").await;
        }
    })
    .await;
}

/// B12.5: with OrderedReady nothing rolls while any pod is not Ready, also one far below.
// spec: native§5
#[tokio::test]
async fn with_ordered_ready_a_broken_old_pod_holds_everything_back_until_it_is_deleted() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, 3).await;
        place.set_ready("web-0", false).await;
        place.until_layout("0:1! 1:1 2:1").await;
        place.release("app:2", spec_of_partition(2)).await;
        place.stays("0:1! 1:1 2:1").await;
        place.delete_pod("web-0").await;
        place.until_layout("0:1 1:1 2:2").await;
    })
    .await;
}

/// O20: the field is there with the gate only.
// spec: native§9
#[tokio::test]
async fn max_unavailable_is_dropped_without_the_gate_and_without_a_word() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 1, 1).await;
        place.patch(json!({ "spec": { "updateStrategy": { "rollingUpdate": { "maxUnavailable": 2 } } } })).await;
        let state = place.state().await;
        let kept = state.spec().update_strategy.clone().and_then(|strategy| strategy.rolling_update?.max_unavailable);
        assert_eq!(kept.is_some(), place.gate, "{}", place.minor);
    })
    .await;
}

/// With the gate on several pods go at once, as far as the partition is open.
// spec: native§9, L158
#[tokio::test]
async fn with_the_gate_max_unavailable_pods_go_at_once_but_never_below_the_partition() {
    everywhere(async |place: &Place| {
        let set = objects::with(set("Parallel", 4, 4), "/spec/updateStrategy/rollingUpdate/maxUnavailable", 3);
        place.start_with(&set).await;
        place.release("app:2-never-ready", spec_of_partition(1)).await;
        let expected = match (place.gate, place.minor) {
            (false, _) => "0:1 1:1 2:1 3:2-never-ready!",
            (true, _) => "0:1 1:2-never-ready! 2:2-never-ready! 3:2-never-ready!",
        };
        place.stays(expected).await;
    })
    .await;
}

/// B9: phase one of the loop of 1.37.
// spec: native§9
#[tokio::test]
async fn broken_pods_at_or_above_the_partition_go_together_from_1_37_on() {
    everywhere(async |place: &Place| {
        place.start("Parallel", 3, 3).await;
        place.release("app:2-broken", spec_of_partition(2)).await;
        place.until_layout("0:1 1:1 2:2-broken!").await;
        place.set_ready("web-1", false).await;
        place.until_layout("0:1 1:1! 2:2-broken!").await;
        place.release("app:3", spec_of_partition(1)).await;
        if place.gate && place.minor == Minor::V1_36 {
            place.stays("0:1 1:1! 2:2-broken!").await;
        } else {
            place.until_layout("0:1 1:3 2:3").await;
        }
    })
    .await;
}
