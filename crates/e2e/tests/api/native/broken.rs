//! Broken pods: what heals by itself and what has to be deleted.

use serde_json::json;
use testcluster::Minor;

use super::place::{HOLD, spec_of_partition};
use super::{Place, everywhere};

/// A broken pod 2 on `app:2-broken`, the others on `app:1`, at this partition.
async fn with_broken_canary(place: &Place, policy: &str, partition: i32) {
    place.start(policy, 3, 3).await;
    place.release("app:2-broken", spec_of_partition(2)).await;
    place.until_layout("0:1 1:1 2:2-broken!").await;
    place.set_partition(partition).await;
}

/// B12.6, B12.9, O8: a revert does not cure a broken pod, and the status says that all is well.
// spec: native§7
#[tokio::test]
async fn with_ordered_ready_a_broken_pod_survives_the_revert_until_it_is_deleted() {
    everywhere(async |place: &Place| {
        with_broken_canary(place, "OrderedReady", 2).await;
        place.release("app:1", json!({})).await;
        let state = place.stays("0:1 1:1 2:2-broken!").await;
        assert!(state.has_flipped(), "looks finished");
        place.set_partition(3).await;
        place.stays("0:1 1:1 2:2-broken!").await;
        place.delete_pod("web-2").await;
        place.until_layout("0:1 1:1 2:1").await;
    })
    .await;
}

/// B12.7, O9
// spec: native§7
#[tokio::test]
async fn with_parallel_a_broken_pod_follows_the_revert_by_itself() {
    everywhere(async |place: &Place| {
        with_broken_canary(place, "Parallel", 2).await;
        place.release("app:1", json!({})).await;
        if place.gate && place.minor == Minor::V1_36 {
            place.stays("0:1 1:1 2:2-broken!").await;
        } else {
            place.until_layout("0:1 1:1 2:1").await;
        }
    })
    .await;
}

/// O39: a fix does not reach a broken pod with OrderedReady, but it does with Parallel.
// spec: native§7
#[tokio::test]
async fn a_fix_reaches_a_broken_pod_when_it_is_deleted_and_with_parallel_by_itself() {
    everywhere(async |place: &Place| {
        with_broken_canary(place, "OrderedReady", HOLD).await;
        place.release("app:3", json!({})).await;
        place.set_partition(2).await;
        place.stays("0:1 1:1 2:2-broken!").await;
        place.delete_pod("web-2").await;
        place.until_layout("0:1 1:1 2:3").await;
    })
    .await;
}

/// O39
// spec: native§7
#[tokio::test]
async fn with_parallel_a_fix_reaches_a_broken_pod_by_itself() {
    everywhere(async |place: &Place| {
        with_broken_canary(place, "Parallel", HOLD).await;
        place.release("app:3", json!({})).await;
        place.stays("0:1 1:1 2:2-broken!").await;
        place.set_partition(2).await;
        if place.gate && place.minor == Minor::V1_36 {
            place.stays("0:1 1:1 2:2-broken!").await;
        } else {
            place.until_layout("0:1 1:1 2:3").await;
        }
    })
    .await;
}

/// O40: opened down to a healthy old pod, the loop goes on one by one.
// spec: native§5
#[tokio::test]
async fn opened_below_a_broken_pod_the_next_one_follows_it() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 4, 4).await;
        place.release("app:2-broken", spec_of_partition(3)).await;
        place.until_layout("0:1 1:1 2:1 3:2-broken!").await;
        place.release("app:3", spec_of_partition(2)).await;
        place.stays("0:1 1:1 2:1 3:2-broken!").await;
        place.delete_pod("web-3").await;
        place.until_layout("0:1 1:1 2:3 3:3").await;
    })
    .await;
}

/// O41: after a revert broken pods come back on it under the hold, and healthy ones when they are opened.
// spec: native§7
#[tokio::test]
async fn after_a_revert_a_deleted_pod_comes_back_on_it_under_the_full_hold() {
    for policy in ["OrderedReady", "Parallel"] {
        everywhere(async |place: &Place| {
            place.start(policy, 4, 4).await;
            place.release("app:4", spec_of_partition(2)).await;
            place.until_layout("0:1 1:1 2:4 3:4").await;
            place.release("app:4-broken", spec_of_partition(3)).await;
            place.until_layout("0:1 1:1 2:4 3:4-broken!").await;
            place.release("app:1", spec_of_partition(HOLD)).await;
            let state = place.stays("0:1 1:1 2:4 3:4-broken!").await;
            assert!(state.has_flipped());
            place.delete_pod("web-3").await;
            place.until_layout("0:1 1:1 2:4 3:1").await;
            place.set_partition(2).await;
            place.until_layout("0:1 1:1 2:1 3:1").await;
        })
        .await;
    }
}
