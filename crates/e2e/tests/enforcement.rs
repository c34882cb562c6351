//! With and without the admission policies: what the operator does alone, and that it tells the truth about who keeps the hold.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Entry, Ground, Policies, Scene, Seen, World, moves, objects};

async fn bare(name: &str) -> Scene {
    let ground = Ground::get(Policies::Missing).await;
    let mut scene = Scene::on(ground, name).await;
    let gate = objects::rollout(&ground.tap_url().await);
    scene.settle(&objects::set(3), &gate).await;
    scene
}

// spec: hold
#[tokio::test]
async fn without_the_policies_the_condition_says_so_and_why() {
    let scene = bare("told").await;
    let told = |world: &World| world.condition(ConditionType::HoldEnforced) == "False/PolicyNotEffective";
    let message = scene.until("told", told).await.message(ConditionType::HoldEnforced);
    assert!(message.contains("not installed") && message.contains("make install"), "{message}");
    scene.end().await;
}

// spec: pr§4, hold, L093
#[tokio::test]
async fn without_the_policies_the_operator_holds_a_second_template_itself() {
    let scene = bare("second").await;
    moves::assert_second_template_held(&scene).await;
    scene.end().await;
}

// spec: pr§4, hold
#[tokio::test]
async fn without_the_policies_a_lowered_partition_is_put_back_and_its_writer_is_named() {
    let scene = bare("drift").await;
    scene.configure(&json!({ "check": { "initialDelaySeconds": 2 } })).await;
    scene.release("app:2").await;
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2") && world.is(Phase::Checking)).await;
    let lowered = json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } });
    scene.patch("statefulset/web", &lowered).await;
    scene.until_entries("drift is told", |entries| entries.iter().any(|entry| message_of(entry).is_some())).await;
    let message = scene.tape.entries().iter().find_map(message_of).unwrap_or_default();
    assert!(message.contains("person lowered the partition") && message.contains("put back to 2"), "{message}");
    scene.until_events(Reason::PartitionDrift, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

/// Nothing holds it but the write that the message names.
// spec: pr§7, L109, cure-UnsupportedStrategy
#[tokio::test]
async fn without_the_policies_the_cure_for_on_delete_moves_no_pod_unchecked() {
    for runs in [true, false] {
        let ground = Ground::get(Policies::Missing).await;
        let mut scene = Scene::on(ground, "cure").await;
        scene.create(&objects::with(objects::set(3), "/spec/updateStrategy/type", "OnDelete")).await;
        scene.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
        scene.create(&objects::rollout(&ground.tap_url().await)).await;
        scene.start_operator();
        let refused = |world: &World| world.condition(ConditionType::TargetAccepted) == "False/UnsupportedStrategy";
        scene.until("it says so", refused).await;
        scene.release("app:2").await;
        let born = scene.until_settled("pending", |world| world.all_on("app:1")).await.uids();
        if !runs {
            scene.kill_operator();
        }
        let cure = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": names::HOLD } });
        scene.patch("statefulset/web", &json!({ "spec": { "updateStrategy": cure } })).await;
        if !runs {
            scene.until_looked_at_again().await;
            assert_eq!(scene.world().uids(), born, "no pod has moved");
            scene.start_operator();
        }
        scene.until("complete", |world| world.is_complete("app:2")).await;
        assert_eq!(moves::assert_gated(&scene, "app:1", 2).len(), 3);
        scene.end().await;
    }
}

/// The message of a status that tells of drift.
fn message_of(entry: &Entry) -> Option<String> {
    let Seen::Rollout(gate) = &entry.seen else { return None };
    let status = gate.status.as_ref()?;
    let told =
        status.conditions.iter().any(|c| c.type_ == "Held" && c.reason == "PartitionDrift" && c.status == "True");
    told.then(|| status.message.clone())
}

// spec: hold
#[tokio::test]
async fn hold_enforced_follows_the_policies_as_they_go_and_come_back() {
    let scene = Scene::at_rest("follow", 1, &Scene::gate().await).await;
    let says = |wanted: &'static str| move |world: &World| world.condition(ConditionType::HoldEnforced) == wanted;
    scene.until("enforced", says("True/Enforced")).await;

    let delete = async |kind: &str| {
        let deleted = scene.ground.cluster.kubectl_ok(&["delete", kind, "sts-plus-hold"]).await;
        deleted.expect("a binding can be deleted");
    };
    delete("mutatingadmissionpolicybinding").await;
    scene.until("refused instead", says("True/RefusedByPolicy")).await;
    delete("validatingadmissionpolicybinding").await;
    scene.until("not enforced", says("False/PolicyNotEffective")).await;

    scene.ground.cluster.apply(scene.ground.manifests()).await.expect("the manifests can be applied again");
    scene.until("enforced again", says("True/Enforced")).await;
    scene.end().await;
}
