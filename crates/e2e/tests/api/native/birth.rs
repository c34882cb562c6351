//! On which revision a pod is made, and which revision counts as current.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::place::{HOLD, State, set, spec_of_partition};
use super::{Place, everywhere};
use sts_plus_e2e::{World, eventually, objects};

/// B12.2
// spec: native§3
#[tokio::test]
async fn below_the_partition_a_pod_comes_back_on_the_current_revision_and_above_on_the_update_revision() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, 3).await;
        place.release("app:2", spec_of_partition(2)).await;
        let state = place.until_layout("0:1 1:1 2:2").await;
        let (old, new) = (state.pod(0).uid.clone(), state.pod(2).uid.clone());
        place.delete_pod("web-0").await;
        place.until("web-0 is recreated", |state| state.layout() == "0:1 1:1 2:2" && state.pod(0).uid != old).await;
        place.delete_pod("web-2").await;
        let state = place.until("web-2 too", |state| state.layout() == "0:1 1:1 2:2" && state.pod(2).uid != new).await;
        let status = state.status();
        assert_eq!(Some(&state.pod(0).revision), status.current_revision.as_ref());
        assert_eq!(Some(&state.pod(2).revision), status.update_revision.as_ref());
    })
    .await;
}

/// B12.3, O1, O3: partition = replicas is no hold for a scale-up.
// spec: native§3
#[tokio::test]
async fn pods_of_a_scale_up_start_on_the_pending_template_at_partition_replicas() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, 3).await;
        place.release("app:2", json!({ "replicas": 5 })).await;
        place.until_layout("0:1 1:1 2:1 3:2 4:2").await;
        let state = place.until("counted", |state| state.status().updated_replicas == Some(2)).await;
        assert!(!state.has_flipped());
    })
    .await;
}

/// B12.3, O2: the full hold is one.
// spec: native§3
#[tokio::test]
async fn pods_of_a_scale_up_start_on_the_current_revision_at_the_full_hold() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, HOLD).await;
        place.release("app:2", json!({ "replicas": 5 })).await;
        let state = place.until_layout("0:1 1:1 2:1 3:1 4:1").await;
        assert_eq!(state.status().updated_replicas.unwrap_or(0), 0);
    })
    .await;
}

/// B12.12, O4: no partition holds through zero.
// spec: native§3
#[tokio::test]
async fn scaled_to_zero_and_back_all_pods_are_on_the_pending_template() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 3, HOLD).await;
        place.release("app:2", json!({})).await;
        place.stays("0:1 1:1 2:1").await;
        place.scale(0).await;
        place.until("flipped", |state| state.pods.is_empty() && state.is_seen() && state.has_flipped()).await;
        place.scale(3).await;
        place.until_layout("0:2 1:2 2:2").await;
    })
    .await;
}

/// B12.10, O7: raised before the flip, a pod that dies goes back.
// spec: native§3
#[tokio::test]
async fn held_again_before_the_flip_a_pod_that_dies_comes_back_on_the_old_revision() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 2, 2).await;
        place.release("app:2-ready-after-20s", spec_of_partition(1)).await;
        place.until("web-1 is Ready", |state| state.is_ready_on(1, "app:2-ready-after-20s")).await;
        place.set_partition(0).await;
        place.until_layout("0:2-ready-after-20s! 1:2-ready-after-20s").await;
        place.set_partition(2).await;
        place.until("seen", State::is_seen).await;
        place.delete_pod("web-0").await;
        let state = place.until_layout("0:1 1:2-ready-after-20s").await;
        assert!(!state.has_flipped());
    })
    .await;
}

/// B12.11
// spec: native§3
#[tokio::test]
async fn held_again_after_the_flip_a_pod_that_dies_comes_back_on_the_new_revision() {
    everywhere(async |place: &Place| {
        let old = place.start("OrderedReady", 2, 2).await;
        assert!(old.has_flipped());
        place.release("app:2", spec_of_partition(0)).await;
        let state =
            place.until("flipped", |state| state.layout() == "0:2 1:2" && state.is_seen() && state.has_flipped()).await;
        place.set_partition(2).await;
        place.until("seen", State::is_seen).await;
        place.delete_pod("web-0").await;
        place.until("it is back", |now| now.layout() == "0:2 1:2" && now.pod(0).uid != state.pod(0).uid).await;
    })
    .await;
}

/// B12.13, B2: without its object the current revision is forgotten.
// spec: native§2
#[tokio::test]
async fn without_its_controller_revision_the_update_revision_becomes_current() {
    everywhere(async |place: &Place| {
        let before = place.start("OrderedReady", 2, HOLD).await;
        place.release("app:2", json!({})).await;
        place.until("two revisions", |state| state.is_seen() && !state.has_flipped()).await;
        let current = before.status().current_revision.clone().expect("a current revision");
        place.revisions.delete(&current, &DeleteParams::default()).await.expect("it can be deleted");
        // Any change makes the controller look.
        place.delete_pod("web-1").await;
        let state = place
            .until("web-1 is back and that is in the status", |state| {
                let is_back = state.pods.len() == 2 && state.pod(1).uid != before.pod(1).uid && state.pod(1).ready;
                is_back && state.has_flipped()
            })
            .await;
        assert_eq!(state.layout(), "0:1 1:2");
    })
    .await;
}

/// B12.14, O38
// spec: native§2
#[tokio::test]
async fn orphaned_and_made_anew_with_another_template_pods_are_adopted_and_the_old_template_is_forgotten() {
    everywhere(async |place: &Place| {
        let before = place.start("OrderedReady", 3, HOLD).await;
        let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        place.sets.delete("web", &orphan).await.expect("the set can be deleted");
        place.scene.until("the set is gone", |world| world.sets.is_empty()).await;
        place.create(&objects::image(set("OrderedReady", 3, HOLD), "app:2")).await;
        let owned = |world: &World| {
            let set = world.sets.get("web").and_then(|set| set.metadata.uid.clone());
            let is_its = |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.as_ref());
            world.pods.values().all(is_its)
        };
        place.scene.until("the pods are adopted", owned).await;
        let state = place.stays("0:1 1:1 2:1").await;
        assert_eq!((state.uids(), state.has_flipped()), (before.uids(), true));
        place.delete_pod("web-1").await;
        place.until_layout("0:1 1:2 2:1").await;
    })
    .await;
}

/// B2, O10: a template that was there before has the same name of a revision again.
// spec: native§2
#[tokio::test]
async fn a_template_that_comes_back_has_its_old_revision_again() {
    everywhere(async |place: &Place| {
        let first = place.start("OrderedReady", 2, 2).await;
        place.release("app:2", json!({})).await;
        place.until("pending", |state| state.is_seen() && !state.has_flipped()).await;
        place.release("app:1", json!({})).await;
        let state = place.until("back", |state| state.is_seen() && state.has_flipped()).await;
        assert_eq!(state.status().update_revision, first.status().update_revision);
        assert_eq!((state.status().updated_replicas, state.uids()), (Some(2), first.uids()));
    })
    .await;
}

/// B12.20, O22: the name of a set plus the hash of a revision has to fit into a label.
// spec: native§11
#[tokio::test]
async fn a_name_of_52_characters_has_pods_and_one_of_58_has_none() {
    everywhere(async |place: &Place| {
        let named = |length: usize| {
            let name = "w".repeat(length);
            objects::with(objects::named(set("OrderedReady", 1, 0), &name), "/spec/serviceName", "web")
        };
        for length in [52, 53, 58, 63] {
            place.create(&named(length)).await;
        }
        let too_long: StatefulSet = serde_json::from_value(named(64)).expect("a set");
        let refused = place.sets.create(&PostParams::default(), &too_long).await;
        let made = async |length: usize| {
            place.pods.get_opt(&format!("{}-0", "w".repeat(length))).await.expect("asked").is_some()
        };
        let events: Api<Event> = Api::namespaced(place.scene.client.clone(), &place.scene.namespace);
        let failed = async |length: usize| {
            let about = format!("involvedObject.name={},reason=FailedCreate", "w".repeat(length));
            let found = events.list(&ListParams::default().fields(&about)).await.expect("events can be listed");
            found.items.iter().filter_map(|event| event.message.as_ref()).any(|said| said.contains("no more than 63"))
        };
        eventually("pods of the short ones", async || made(52).await && made(53).await).await;
        eventually("the others were tried", async || failed(58).await && failed(63).await).await;
        assert!(!made(58).await && !made(63).await);
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422));
    })
    .await;
}
