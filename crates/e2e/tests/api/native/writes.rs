//! Writes of the partition and of what is around it.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::place::{HOLD, set, spec_of_partition};
use super::{Place, everywhere};
use sts_plus_e2e::objects;

fn code(outcome: Result<impl std::fmt::Debug, kube::Error>) -> u16 {
    match outcome {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused: {other:?}"),
    }
}

/// O12, O13: how the API server tells a step that is too late.
// spec: native§8
#[tokio::test]
async fn a_step_bound_to_a_generation_is_refused_the_second_time() {
    everywhere(async |place: &Place| {
        let state = place.start("OrderedReady", 3, 3).await;
        let step = json!([
            { "op": "test", "path": "/metadata/generation", "value": state.set.metadata.generation },
            { "op": "replace", "path": "/spec/updateStrategy/rollingUpdate/partition", "value": 2 },
        ]);
        place.json_patch(step.clone()).await.expect("the first one");
        assert_eq!(code(place.json_patch(step).await), 422);
        let outdated = json!({ "metadata": { "resourceVersion": state.set.metadata.resource_version }, "spec": spec_of_partition(1) });
        assert_eq!(code(place.try_patch(outdated).await), 409);
    })
    .await;
}

/// B12.15, B8: there may be no rollingUpdate to replace anything in.
// spec: native§8
#[tokio::test]
async fn a_strategy_without_rolling_update_takes_a_merge_patch_and_no_json_replace() {
    everywhere(async |place: &Place| {
        let set = objects::with(set("OrderedReady", 1, 1), "/spec/updateStrategy", json!({ "type": "RollingUpdate" }));
        let state = place.start_with(&set).await;
        assert_eq!(state.partition(), None);
        let replace = json!([{ "op": "replace", "path": "/spec/updateStrategy/rollingUpdate/partition", "value": 2 }]);
        assert_eq!(code(place.json_patch(replace).await), 422);
        place.set_partition(2).await;
        assert_eq!(place.state().await.partition(), Some(2));
    })
    .await;
}

/// O17: who applies from a file without the partition leaves ours alone; who has it in the file takes it by force only.
// spec: native§8
#[tokio::test]
async fn server_side_apply_keeps_a_partition_of_another_manager_unless_it_is_forced() {
    everywhere(async |place: &Place| {
        let manifest = |image: &str, partition: Option<i32>| {
            let set = objects::without(objects::image(set("OrderedReady", 2, 2), image), "/spec/updateStrategy");
            match partition {
                None => set,
                Some(partition) => {
                    objects::with(set, "/spec/updateStrategy", spec_of_partition(partition)["updateStrategy"].clone())
                }
            }
        };
        let apply = async |manager: &str, body: Value, force: bool| {
            let params = PatchParams { force, field_manager: Some(manager.to_owned()), ..PatchParams::default() };
            let applied = place.sets.patch("web", &params, &Patch::Apply(body)).await;
            place.scene.catch_up().await;
            applied
        };
        apply("gitops", manifest("app:1", None), false).await.expect("made");
        place.until_layout("0:1 1:1").await;
        let ours = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec_of_partition(2) });
        apply("hold", ours, true).await.expect("held");
        apply("gitops", manifest("app:2", None), false).await.expect("applied");
        place.stays("0:1 1:1").await;
        assert_eq!(code(apply("gitops", manifest("app:2", Some(0)), false).await), 409);
        apply("gitops", manifest("app:2", Some(0)), true).await.expect("forced");
        place.until_layout("0:2 1:2").await;
    })
    .await;
}

/// O18: a client-side apply keeps what it never wrote; a replace does not.
// spec: native§8
#[tokio::test]
async fn a_replace_without_the_field_lets_everything_roll() {
    everywhere(async |place: &Place| {
        let manifest =
            |image: &str| objects::without(objects::image(set("OrderedReady", 2, 2), image), "/spec/updateStrategy");
        place.scene.apply(&manifest("app:1")).await;
        place.until_layout("0:1 1:1").await;
        place.set_partition(HOLD).await;
        place.scene.apply(&manifest("app:2")).await;
        assert_eq!(place.stays("0:1 1:1").await.partition(), Some(HOLD));
        place.scene.kubectl_ok(&["replace", "-f", "-"], &manifest("app:2").to_string()).await;
        let state = place.until_layout("0:2 1:2").await;
        assert_ne!(state.partition(), Some(HOLD));
    })
    .await;
}

/// O19, B8
// spec: native§8
#[tokio::test]
async fn on_delete_and_back_the_partition_is_lost_and_pods_roll() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 2, HOLD).await;
        place.release("app:2", json!({})).await;
        place.stays("0:1 1:1").await;
        assert_eq!(code(place.try_patch(json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } })).await), 422);
        place.patch(json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } })).await;
        place.stays("0:1 1:1").await;
        place.patch(json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } })).await;
        place.until_layout("0:2 1:2").await;
    })
    .await;
}

/// O21
// spec: native§11
#[tokio::test]
async fn what_no_partition_can_be_is_refused() {
    everywhere(async |place: &Place| {
        place.start("OrderedReady", 1, 1).await;
        for spec in [
            spec_of_partition(-1),
            json!({ "updateStrategy": { "rollingUpdate": { "partition": 2_147_483_648_i64 } } }),
            json!({ "updateStrategy": { "type": "Recreate", "rollingUpdate": null } }),
            json!({ "serviceName": "another" }),
            json!({ "podManagementPolicy": "Parallel" }),
        ] {
            let refused = code(place.try_patch(json!({ "spec": spec })).await);
            assert!(matches!(refused, 400 | 422), "{spec}: {refused}");
        }
    })
    .await;
}
