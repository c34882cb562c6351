//! `sts-plus-birth`: a set that a PhasedRollout targets is claimed and held from its first moment.

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::Ground;

use super::stage::{HOLD, Stage, Who, annotation, partition, web};
use crate::rig::on_both_minors;

on_both_minors!(
    a_targeted_set_is_claimed_and_held_from_birth_and_starts,
    a_partition_in_the_manifest_is_not_granted_at_birth,
    the_same_name_in_another_namespace_is_left_alone,
    a_set_of_another_name_is_left_alone,
    a_rollout_with_skip_check_holds_no_set_from_birth,
    a_rollout_that_is_being_deleted_holds_no_set_from_birth,
    a_set_of_another_strategy_is_left_alone,
    a_set_controlled_by_one_of_our_kinds_is_left_alone,
    what_an_exported_manifest_says_of_us_does_not_count,
    of_two_rollouts_on_a_set_one_claims_it_from_birth,
    a_set_deleted_with_orphan_and_made_anew_with_another_template_moves_no_pod,
);

fn rollout(name: &str, target: &str) -> Value {
    json!({
        "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "metadata": { "name": name },
        "spec": { "targetRef": target, "check": { "query": { "expr": "up{}", "url": "prom:9090" } } },
    })
}

/// Creates the rollouts, and waits until the API server has read them.
async fn with_rollouts(ground: &'static Ground, rollouts: &[Value]) -> Stage {
    let stage = Stage::new(ground).await;
    for rollout in rollouts {
        stage.create(rollout).await;
    }
    stage.create(&rollout("marker", "marker")).await;
    stage.scene.ground.until_born_held(&stage.scene.namespace, "marker").await;
    stage
}

async fn left_alone(stage: &Stage) {
    let web = stage.web().await;
    assert_eq!(annotation(&web, names::CLAIM), None);
    assert_ne!(partition(&web), Some(HOLD));
}

// spec: hold
async fn a_targeted_set_is_claimed_and_held_from_birth_and_starts(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    stage.create(&web(3, "app:1")).await;
    let born = stage.web().await;
    assert_eq!((annotation(&born, names::CLAIM), partition(&born)), (Some("gate"), Some(HOLD)));
    stage.ready(3).await;
}

async fn a_partition_in_the_manifest_is_not_granted_at_birth(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    let strategies = [
        json!({ "type": "RollingUpdate" }),
        json!({ "rollingUpdate": { "partition": 1 } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": {} }),
    ];
    for strategy in strategies {
        let mut set = web(0, "app:1");
        set["spec"]["updateStrategy"] = strategy;
        stage.must(Who::Person, &["apply", "--server-side", "-f", "-"], &set.to_string()).await;
        assert_eq!(stage.partition().await, Some(HOLD));
        stage.must(Who::Person, &["delete", "statefulset", "web", "--wait=false"], "").await;
        stage.scene.until("it is gone", |world| world.sets.is_empty()).await;
    }
}

async fn the_same_name_in_another_namespace_is_left_alone(ground: &'static Ground) {
    with_rollouts(ground, &[rollout("gate", "web")]).await;
    let stage = with_rollouts(ground, &[]).await;
    stage.create(&web(0, "app:1")).await;
    left_alone(&stage).await;
}

async fn a_set_of_another_name_is_left_alone(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("web", "other")]).await;
    stage.create(&web(0, "app:1")).await;
    left_alone(&stage).await;
}

async fn a_rollout_with_skip_check_holds_no_set_from_birth(ground: &'static Ground) {
    for field in ["skipCheck", "standardRollingUpdate"] {
        let mut skipping = rollout("gate", "web");
        skipping["spec"][field] = true.into();
        let stage = with_rollouts(ground, &[skipping]).await;
        stage.create(&web(0, "app:1")).await;
        left_alone(&stage).await;
    }
}

async fn a_rollout_that_is_being_deleted_holds_no_set_from_birth(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    let mut deleted = rollout("gate", "web");
    deleted["metadata"]["finalizers"] = json!(["sts.plus/test"]);
    stage.create(&deleted).await;
    stage.must(Who::Person, &["delete", "phasedrollout", "gate", "--wait=false"], "").await;
    stage.create(&rollout("marker", "marker")).await;
    stage.scene.ground.until_born_held(&stage.scene.namespace, "marker").await;
    stage.create(&web(0, "app:1")).await;
    left_alone(&stage).await;
    let free = r#"{"metadata":{"finalizers":null}}"#;
    stage.must(Who::Person, &["patch", "phasedrollout", "gate", "--type=merge", "-p", free], "").await;
}

async fn a_set_of_another_strategy_is_left_alone(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    stage.create(&set).await;
    left_alone(&stage).await;
}

async fn a_set_controlled_by_one_of_our_kinds_is_left_alone(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    let uid = stage.scene.get("phasedrollout/marker").await["metadata"]["uid"].clone();
    let mut set = web(0, "app:1");
    // ExtendedStatefulSet is not there yet; the rule is about the group.
    set["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "name": "marker", "uid": uid, "controller": true },
    ]);
    stage.create(&set).await;
    left_alone(&stage).await;
}

async fn what_an_exported_manifest_says_of_us_does_not_count(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    let mut set = web(0, "app:1");
    set["metadata"]["annotations"] = json!({
        names::CLAIM: "gone", names::HOLD_SWITCH: "off", names::WRITTEN_PARTITION: "r/0", names::REFUSED_PARTITION: "0",
        names::RELEASE: "true", "other": "kept",
    });
    stage.create(&set).await;
    let born = stage.web().await;
    assert_eq!(born["metadata"]["annotations"], json!({ names::CLAIM: "gate", "other": "kept" }));
    assert_eq!(partition(&born), Some(HOLD));
}

async fn of_two_rollouts_on_a_set_one_claims_it_from_birth(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("one", "web"), rollout("two", "web")]).await;
    stage.create(&web(0, "app:1")).await;
    let born = stage.web().await;
    assert!(matches!(annotation(&born, names::CLAIM), Some("one" | "two")));
    assert_eq!(partition(&born), Some(HOLD));
}

async fn a_set_deleted_with_orphan_and_made_anew_with_another_template_moves_no_pod(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    stage.create(&web(3, "app:1")).await;
    stage.ready(3).await;
    let before = stage.pods().await;
    let uid = stage.web().await["metadata"]["uid"].clone();
    stage.must(Who::Person, &["delete", "statefulset", "web", "--cascade=orphan", "--wait=false"], "").await;
    stage.scene.until("it is gone", |world| world.sets.is_empty()).await;
    stage.create(&web(3, "app:2")).await;
    let born = stage.web().await;
    assert_ne!(born["metadata"]["uid"], uid);
    assert_eq!((annotation(&born, names::CLAIM), partition(&born)), (Some("gate"), Some(HOLD)));
    stage.ready(3).await;
    super::pods::nothing_moved(&stage, &before).await;
}
