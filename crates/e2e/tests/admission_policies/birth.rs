//! `sts-plus-birth`: a set that a PhasedRollout targets is claimed and held from its first moment.

use anyhow::ensure;
use serde_json::{Value, json};
use sts_plus_api::names;

use crate::{
    rig::{Rig, eventually, is_born_held, on_both_minors},
    scene::{HOLD, Scene, Who, annotation, partition, web},
};

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
async fn with_rollouts(rig: &'static Rig, rollouts: &[Value]) -> anyhow::Result<Scene> {
    let scene = Scene::new(rig).await?;
    for rollout in rollouts {
        scene.create(rollout).await?;
    }
    scene.create(&rollout("marker", "marker")).await?;
    eventually("the rollouts are read", async || is_born_held(scene.cluster, &scene.namespace, "marker").await).await?;
    Ok(scene)
}

async fn left_alone(scene: &Scene) -> anyhow::Result<()> {
    let web = scene.web().await?;
    assert_eq!(annotation(&web, names::CLAIM), None);
    assert_ne!(partition(&web), Some(HOLD));
    Ok(())
}

async fn a_targeted_set_is_claimed_and_held_from_birth_and_starts(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    scene.create(&web(3, "app:1")).await?;
    let born = scene.web().await?;
    assert_eq!((annotation(&born, names::CLAIM), partition(&born)), (Some("gate"), Some(HOLD)));
    scene.ready(3).await
}

async fn a_partition_in_the_manifest_is_not_granted_at_birth(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    let strategies = [
        json!({ "type": "RollingUpdate" }),
        json!({ "rollingUpdate": { "partition": 1 } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": {} }),
    ];
    for strategy in strategies {
        let mut set = web(0, "app:1");
        set["spec"]["updateStrategy"] = strategy;
        scene.must(Who::Person, &["apply", "--server-side", "-f", "-"], &set.to_string()).await?;
        assert_eq!(scene.partition().await?, Some(HOLD));
        scene.must(Who::Person, &["delete", "statefulset", "web", "--wait=false"], "").await?;
        eventually("it is gone", async || {
            ensure!(scene.web().await.is_err(), "not yet");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn the_same_name_in_another_namespace_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    with_rollouts(rig, &[rollout("gate", "web")]).await?;
    let scene = with_rollouts(rig, &[]).await?;
    scene.create(&web(0, "app:1")).await?;
    left_alone(&scene).await
}

async fn a_set_of_another_name_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("web", "other")]).await?;
    scene.create(&web(0, "app:1")).await?;
    left_alone(&scene).await
}

async fn a_rollout_with_skip_check_holds_no_set_from_birth(rig: &'static Rig) -> anyhow::Result<()> {
    for field in ["skipCheck", "standardRollingUpdate"] {
        let mut skipping = rollout("gate", "web");
        skipping["spec"][field] = true.into();
        let scene = with_rollouts(rig, &[skipping]).await?;
        scene.create(&web(0, "app:1")).await?;
        left_alone(&scene).await?;
    }
    Ok(())
}

async fn a_rollout_that_is_being_deleted_holds_no_set_from_birth(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut deleted = rollout("gate", "web");
    deleted["metadata"]["finalizers"] = json!(["sts.plus/test"]);
    scene.create(&deleted).await?;
    scene.must(Who::Person, &["delete", "phasedrollout", "gate", "--wait=false"], "").await?;
    scene.create(&rollout("marker", "marker")).await?;
    eventually("the rollouts are read", async || is_born_held(scene.cluster, &scene.namespace, "marker").await).await?;
    scene.create(&web(0, "app:1")).await?;
    left_alone(&scene).await?;
    let free = r#"{"metadata":{"finalizers":null}}"#;
    scene.must(Who::Person, &["patch", "phasedrollout", "gate", "--type=merge", "-p", free], "").await?;
    Ok(())
}

async fn a_set_of_another_strategy_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "OnDelete" });
    scene.create(&set).await?;
    left_alone(&scene).await
}

async fn a_set_controlled_by_one_of_our_kinds_is_left_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    let reply =
        scene.must(Who::Person, &["get", "phasedrollout", "marker", "-o", "jsonpath={.metadata.uid}"], "").await?;
    let mut set = web(0, "app:1");
    // ExtendedStatefulSet is not there yet; the rule is about the group.
    set["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "name": "marker", "uid": reply.stdout, "controller": true },
    ]);
    scene.create(&set).await?;
    left_alone(&scene).await
}

async fn what_an_exported_manifest_says_of_us_does_not_count(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    let mut set = web(0, "app:1");
    set["metadata"]["annotations"] = json!({
        names::CLAIM: "gone", names::HOLD_SWITCH: "off", names::WRITTEN_PARTITION: "r/0", names::REFUSED_PARTITION: "0",
        names::RELEASE: "true", "other": "kept",
    });
    scene.create(&set).await?;
    let born = scene.web().await?;
    assert_eq!(born["metadata"]["annotations"], json!({ names::CLAIM: "gate", "other": "kept" }));
    assert_eq!(partition(&born), Some(HOLD));
    Ok(())
}

async fn of_two_rollouts_on_a_set_one_claims_it_from_birth(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("one", "web"), rollout("two", "web")]).await?;
    scene.create(&web(0, "app:1")).await?;
    let born = scene.web().await?;
    assert!(matches!(annotation(&born, names::CLAIM), Some("one" | "two")));
    assert_eq!(partition(&born), Some(HOLD));
    Ok(())
}

async fn a_set_deleted_with_orphan_and_made_anew_with_another_template_moves_no_pod(
    rig: &'static Rig,
) -> anyhow::Result<()> {
    let scene = with_rollouts(rig, &[rollout("gate", "web")]).await?;
    scene.create(&web(3, "app:1")).await?;
    scene.ready(3).await?;
    let before = scene.pods().await?;
    let uid = scene.web().await?["metadata"]["uid"].clone();
    scene.must(Who::Person, &["delete", "statefulset", "web", "--cascade=orphan", "--wait=false"], "").await?;
    eventually("it is made anew", async || {
        ensure!(scene.web().await.is_err(), "the old one is still there");
        scene.create(&web(3, "app:2")).await?;
        Ok(())
    })
    .await?;
    let born = scene.web().await?;
    assert_ne!(born["metadata"]["uid"], uid);
    assert_eq!((annotation(&born, names::CLAIM), partition(&born)), (Some("gate"), Some(HOLD)));
    scene.ready(3).await?;
    crate::pods::nothing_moved(&scene, &before).await
}
