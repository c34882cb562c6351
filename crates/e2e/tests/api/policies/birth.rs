//! `sts-plus-birth`: a set that a PhasedRollout targets is claimed and held from its first moment, or by the first write that could let
//! it roll.

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::Ground;

use super::stage::{HOLD, Stage, Who, annotation, image, partition, rolling, web};
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
    a_write_that_could_let_an_unclaimed_set_roll_claims_and_holds_it,
    a_write_that_lets_nothing_roll_claims_nothing,
    a_set_whose_hold_is_switched_off_is_held_for_its_own_rollout_with_checks,
    a_released_set_is_left_alone_until_its_release_is_taken_back,
    what_the_operator_writes_to_an_unclaimed_set_is_left_alone,
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
    read_by_the_policies(&stage, rollouts).await;
    stage
}

async fn read_by_the_policies(stage: &Stage, rollouts: &[Value]) {
    for rollout in rollouts {
        stage.create(rollout).await;
    }
    stage.create(&rollout("marker", "marker")).await;
    stage.scene.ground.until_born_held(&stage.scene.namespace, "marker").await;
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

/// Each of them by a person, to a set with `partition` 3 or OnDelete.
fn wakers() -> [(Value, Value); 4] {
    let (at_three, on_delete) = (rolling(3), json!({ "updateStrategy": { "type": "OnDelete" } }));
    let becomes = |rolling: Value| json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
    [
        (at_three.clone(), json!({ "template": image("app:2") })),
        (at_three.clone(), rolling(0)),
        (at_three, json!({ "updateStrategy": { "rollingUpdate": null } })),
        (on_delete, becomes(json!({ "partition": 1 }))),
    ]
}

/// A set `web` without pods, with this in its spec.
async fn web_with(stage: &Stage, spec: &Value) {
    let mut set = web(0, "app:1");
    json_patch::merge(&mut set["spec"], spec);
    stage.create(&set).await;
}

// spec: hold
async fn a_write_that_could_let_an_unclaimed_set_roll_claims_and_holds_it(ground: &'static Ground) {
    for (before, spec) in wakers() {
        let stage = Stage::new(ground).await;
        web_with(&stage, &before).await;
        let left_over =
            json!({ "metadata": { "annotations": { names::WRITTEN_PARTITION: "r/0", names::HOLD_SWITCH: "off" } } });
        stage.merge(Who::Person, &left_over).await;
        read_by_the_policies(&stage, &[rollout("gate", "web"), rollout("two", "web"), rollout("other", "x")]).await;
        let reply = stage.merge(Who::Person, &json!({ "spec": spec })).await;
        let web = stage.web().await;
        assert_eq!(partition(&web), Some(HOLD), "{spec}");
        assert!(matches!(annotation(&web, names::CLAIM), Some("gate" | "two")), "{spec}");
        assert_eq!((annotation(&web, names::WRITTEN_PARTITION), annotation(&web, names::HOLD_SWITCH)), (None, None));
        assert_eq!(reply.warnings().len(), 1, "the writer is told: {reply:?}");
    }
}

async fn a_write_that_lets_nothing_roll_claims_nothing(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    web_with(&stage, &rolling(3)).await;
    read_by_the_policies(&stage, &[rollout("gate", "web")]).await;
    for spec in [
        json!({ "replicas": 1 }),
        rolling(4),
        json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } }),
    ] {
        stage.merge(Who::Person, &json!({ "spec": spec, "metadata": { "labels": { "a": "b" } } })).await;
        left_alone(&stage).await;
    }
    stage.must(Who::Person, &["scale", "statefulset", "web", "--replicas=0"], "").await;
    left_alone(&stage).await;
}

async fn a_set_whose_hold_is_switched_off_is_held_for_its_own_rollout_with_checks(ground: &'static Ground) {
    for (owner, held) in [("gate", true), ("elder", false)] {
        let stage = Stage::new(ground).await;
        web_with(&stage, &rolling(3)).await;
        let off = json!({ "metadata": { "annotations": { names::CLAIM: owner, names::HOLD_SWITCH: "off" } } });
        stage.merge(Who::Operator, &off).await;
        let mut skipping = rollout("elder", "web");
        skipping["spec"]["skipCheck"] = true.into();
        read_by_the_policies(&stage, &[skipping, rollout("gate", "web")]).await;
        stage.ask(0).await;
        let web = stage.web().await;
        assert_eq!(partition(&web), Some(if held { HOLD } else { 0 }), "claimed by {owner}");
        assert_eq!((annotation(&web, names::CLAIM), annotation(&web, names::HOLD_SWITCH)), (Some(owner), Some("off")));
    }
}

async fn a_released_set_is_left_alone_until_its_release_is_taken_back(ground: &'static Ground) {
    let stage = with_rollouts(ground, &[rollout("gate", "web")]).await;
    stage.create(&web(0, "app:1")).await;
    let released = |release: Value, claim: Value| json!({ "metadata": { "annotations": { names::RELEASE: release, names::CLAIM: claim } } });
    let mut body = released("true".into(), Value::Null);
    body["spec"] = rolling(1);
    stage.merge(Who::Person, &body).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    stage.ask(0).await;
    let left = stage.web().await;
    assert_eq!((annotation(&left, names::CLAIM), partition(&left)), (None, Some(0)));
    stage.merge(Who::Person, &json!({ "metadata": { "annotations": { names::RELEASE: null } } })).await;
    let taken = stage.web().await;
    assert_eq!((annotation(&taken, names::CLAIM), partition(&taken)), (Some("gate"), Some(HOLD)));
}

async fn what_the_operator_writes_to_an_unclaimed_set_is_left_alone(ground: &'static Ground) {
    let stage = Stage::new(ground).await;
    web_with(&stage, &rolling(3)).await;
    read_by_the_policies(&stage, &[rollout("gate", "web")]).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(1) })).await;
    let web = stage.web().await;
    assert_eq!((annotation(&web, names::CLAIM), partition(&web)), (None, Some(1)));
    stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(HOLD), "a person is none");
}
