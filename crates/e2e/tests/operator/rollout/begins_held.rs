//! Every way in which a set that a PhasedRollout names becomes rollable begins held: what was released before it could be held moves no
//! pod before the gate, with the operator and without one. Most of them are the cure that a message names, followed.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{approve, assert_gated_after, gate, gate_that_waits_before, is_awaiting, release_until_awaited};

type Uids = BTreeMap<String, String>;

/// How the strategy of a set becomes RollingUpdate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Both fields that the message names, in one write.
    Cure,
    /// The type alone.
    Type,
    /// `kubectl apply` of a manifest that pins partition 0.
    Apply,
    /// `kubectl replace` of a manifest that says nothing about it.
    Replace,
}

fn strategy(kind: &str, rolling: impl Into<Value>) -> Value {
    json!({ "spec": { "updateStrategy": { "type": kind, "rollingUpdate": rolling.into() } } })
}

fn partition(partition: impl Into<Value>) -> Value {
    json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": partition.into() } } } })
}

/// A set on `app:1` that nobody has claimed, with this strategy.
async fn unclaimed(name: &str, strategy: Value) -> Scene {
    let scene = Scene::new(name).await;
    scene.create(&objects::with(objects::set(3), "/spec/updateStrategy", strategy)).await;
    scene.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
    scene
}

/// `app:2` is in the template, and no pod moves: its strategy or its owner's partition keeps them. The pods.
async fn pending(scene: &Scene) -> Uids {
    let before = scene.world().update_revision();
    scene.release("app:2").await;
    let is_seen = |world: &World| world.update_revision() != before;
    let seen = scene.until_settled("the controller has seen it", is_seen).await;
    assert!(seen.all_on("app:1"), "nothing rolls yet");
    seen.uids()
}

/// A set with OnDelete, of which every rollout has said that it cannot be held, and a release that is pending.
async fn pending_on_delete(name: &str, rollouts: &[Value]) -> (Scene, Uids) {
    let mut scene = unclaimed(name, json!({ "type": "OnDelete" })).await;
    for rollout in rollouts {
        scene.create(rollout).await;
    }
    scene.start_operator();
    let message = refused(&scene, "gate", "UnsupportedStrategy").await;
    let cure =
        "set it to RollingUpdate, and spec.updateStrategy.rollingUpdate.partition to 2147483647 in the same write";
    assert!(message.contains(cure), "{message}");
    let born = pending(&scene).await;
    (scene, born)
}

/// Waits until the rollout says that it cannot take its set, and why.
async fn refused(scene: &Scene, rollout: &str, reason: &str) -> String {
    let is_refused =
        |world: &World| world.condition_of(rollout, ConditionType::TargetAccepted) == format!("False/{reason}");
    scene.until(reason, is_refused).await.message_of(rollout, ConditionType::TargetAccepted)
}

/// The policies know the PhasedRollouts as they are now. They look at them once in a while.
async fn until_policies_have_read(scene: &Scene) {
    let marker = objects::with(Scene::quick_gate().await, "/metadata/name", "marker");
    scene.create(&objects::with(marker, "/spec/targetRef", "marker")).await;
    scene.ground.until_born_held(&scene.namespace, "marker").await;
}

/// Without an operator: the write itself has claimed and held the set, and no pod has moved. Then one is started.
async fn held_without_an_operator(scene: &mut Scene, born: &Uids) {
    let seen = scene.until_settled("the controller has seen it", |_| true).await;
    assert!(seen.is_held(), "partition {:?}", seen.partition());
    assert!(seen.annotation(names::CLAIM).is_some(), "it is claimed");
    scene.until_looked_at_again().await;
    assert_eq!(&scene.world().uids(), born, "no pod has moved");
    scene.start_operator();
}

/// It completes by this rollout, and each pod has moved once, for a step that came after a check.
async fn ends_gated(scene: Scene, rollout: &str) {
    let is_complete = |world: &World| {
        world.status_of(rollout).phase == Phase::Completed
            && world.all_on("app:2")
            && world.annotation(names::CLAIM) == Some(rollout)
    };
    scene.until_settled("complete", is_complete).await;
    assert_eq!(moves::assert_gated(&scene, "app:1", 1).len(), 3, "each pod has moved once");
    scene.end().await;
}

async fn becomes_rolling(scene: &Scene, way: Way) {
    let manifest = |strategy: Value| {
        objects::with(objects::image(objects::set(3), "app:2"), "/spec/updateStrategy", strategy).to_string()
    };
    match way {
        Way::Cure => {
            let cure = strategy("RollingUpdate", json!({ "partition": names::HOLD }));
            scene.patch("statefulset/web", &cure).await;
        }
        Way::Type => {
            let written = scene.patch("statefulset/web", &strategy("RollingUpdate", Value::Null)).await;
            let stored = &written.data["spec"]["updateStrategy"]["rollingUpdate"]["partition"];
            assert_eq!(*stored, json!(names::HOLD), "held in the same write");
        }
        Way::Apply => {
            let pinned = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
            scene.kubectl_ok(&["apply", "-f", "-"], &manifest(pinned)).await;
        }
        Way::Replace => {
            scene.kubectl_ok(&["replace", "-f", "-"], &manifest(json!({}))).await;
        }
    }
}

// spec: pr§7, hold, L109, cure-UnsupportedStrategy
#[rstest]
#[tokio::test]
async fn a_set_with_on_delete_that_gets_rolling_update(
    #[values(Way::Cure, Way::Type, Way::Apply, Way::Replace)] way: Way,
    #[values(true, false)] runs: bool,
) {
    let (mut scene, born) = pending_on_delete("cure-strategy", &[Scene::quick_gate().await]).await;
    if !runs {
        scene.kill_operator();
    }
    becomes_rolling(&scene, way).await;
    if !runs {
        held_without_an_operator(&mut scene, &born).await;
    }
    ends_gated(scene, "gate").await;
}

// spec: pr§1, pr§7, cure-UnsupportedStrategy
#[tokio::test]
async fn a_set_with_on_delete_that_gets_rolling_update_while_its_rollout_is_paused() {
    let paused = objects::with(Scene::quick_gate().await, "/spec/paused", true);
    let (scene, born) = pending_on_delete("cure-paused", &[paused]).await;
    becomes_rolling(&scene, Way::Type).await;
    let paused = scene.until_settled("paused", |world| world.is(Phase::Paused) && world.is_told()).await;
    assert!(paused.is_held() && paused.uids() == born);
    scene.configure(&json!({ "paused": false })).await;
    ends_gated(scene, "gate").await;
}

/// The hold is switched off, so nobody has held the set; the message is the same, and so is the end of its cure.
// spec: pr§1, pr§7, hold, cure-UnsupportedStrategy
#[rstest]
#[tokio::test]
async fn a_set_with_on_delete_from_the_time_of_skip_check(#[values(true, false)] runs: bool) {
    let mut scene = skipping("cure-skipped").await;
    scene.patch("statefulset/web", &strategy("OnDelete", Value::Null)).await;
    refused(&scene, "gate", "UnsupportedStrategy").await;
    let born = pending(&scene).await;
    scene.configure(&json!({ "skipCheck": false })).await;
    until_policies_have_read(&scene).await;
    if !runs {
        scene.kill_operator();
    }
    becomes_rolling(&scene, Way::Type).await;
    if !runs {
        held_without_an_operator(&mut scene, &born).await;
    }
    ends_gated(scene, "gate").await;
}

/// A set whose hold is switched off.
async fn skipping(name: &str) -> Scene {
    let scene = Scene::at_rest(name, 3, &Scene::quick_gate().await).await;
    scene.configure(&json!({ "skipCheck": true })).await;
    let is_off = |world: &World| world.annotation(names::HOLD_SWITCH) == Some("off");
    scene.until_settled("switched off", is_off).await;
    scene
}

// spec: pr§1, hold
#[rstest]
#[tokio::test]
async fn a_release_that_its_owner_kept_back_when_the_checks_come_back(#[values(true, false)] runs: bool) {
    let mut scene = skipping("checks-back").await;
    scene.patch("statefulset/web", &partition(3)).await;
    let born = pending(&scene).await;
    if !runs {
        scene.kill_operator();
    }
    scene.configure(&json!({ "skipCheck": false })).await;
    until_policies_have_read(&scene).await;
    scene.patch("statefulset/web", &partition(Value::Null)).await;
    if !runs {
        held_without_an_operator(&mut scene, &born).await;
    }
    ends_gated(scene, "gate").await;
}

/// What takes a release back.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// The annotation goes, as the message says.
    Cure,
    /// With it the partition that the message names.
    CureAndPartition,
    /// With it the strategy goes from OnDelete to RollingUpdate.
    CureAndStrategy,
}

// spec: pr§7, hold, cure-Released
#[rstest]
#[tokio::test]
async fn a_set_whose_release_is_taken_back(
    #[values(Back::Cure, Back::CureAndPartition, Back::CureAndStrategy)] back: Back,
    #[values(true, false)] runs: bool,
) {
    let mut scene = Scene::at_rest("cure-released", 3, &Scene::quick_gate().await).await;
    let release = json!({ "metadata": { "annotations": { names::CLAIM: null, names::RELEASE: "true" } } });
    scene.patch("statefulset/web", &release).await;
    let message = refused(&scene, "gate", "Released").await;
    assert!(message.contains("has partition 3 until you remove it"), "{message}");
    assert!(message.contains("remove the annotation, and it is held again"), "{message}");
    if matches!(back, Back::CureAndStrategy) {
        scene.patch("statefulset/web", &strategy("OnDelete", Value::Null)).await;
    }
    let born = pending(&scene).await;
    if !runs {
        scene.kill_operator();
    }
    let cure = json!({ "metadata": { "annotations": { names::RELEASE: null } } });
    let spec = match back {
        Back::Cure => json!({}),
        Back::CureAndPartition => partition(Value::Null)["spec"].clone(),
        Back::CureAndStrategy => strategy("RollingUpdate", Value::Null)["spec"].clone(),
    };
    scene.patch("statefulset/web", &objects::with(cure, "/spec", spec)).await;
    if !runs {
        held_without_an_operator(&mut scene, &born).await;
    }
    ends_gated(scene, "gate").await;
}

// spec: pr§7, hold
#[rstest]
#[tokio::test]
async fn another_target_with_a_release_that_its_owner_kept_back(#[values(true, false)] runs: bool) {
    let kept = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 3 } });
    let mut scene = unclaimed("retarget", kept).await;
    let born = pending(&scene).await;
    scene.create(&objects::with(Scene::quick_gate().await, "/spec/targetRef", "other")).await;
    scene.start_operator();
    refused(&scene, "gate", "TargetNotFound").await;
    if !runs {
        scene.kill_operator();
    }
    scene.configure(&json!({ "targetRef": "web" })).await;
    until_policies_have_read(&scene).await;
    scene.patch("statefulset/web", &partition(Value::Null)).await;
    if !runs {
        held_without_an_operator(&mut scene, &born).await;
    }
    ends_gated(scene, "gate").await;
}

// spec: pr§7, hold
#[tokio::test]
async fn a_template_that_is_changed_before_the_first_operator_has_come() {
    let mut scene = unclaimed("first", json!({})).await;
    let born = scene.world().uids();
    scene.create(&Scene::quick_gate().await).await;
    until_policies_have_read(&scene).await;
    scene.release("app:2").await;
    held_without_an_operator(&mut scene, &born).await;
    ends_gated(scene, "gate").await;
}

async fn later() -> Value {
    objects::with(Scene::quick_gate().await, "/metadata/name", "later")
}

/// "Delete one of the two", whichever, of a set that nobody could hold; then what the other one says.
// spec: pr§7, cure-Conflict
#[rstest]
#[case("gate", "later")]
#[case("later", "gate")]
#[tokio::test]
async fn a_set_with_on_delete_after_one_of_two_rollouts_was_deleted(#[case] deleted: &str, #[case] stays: &str) {
    let (scene, _) = pending_on_delete("cure-rival", &[Scene::quick_gate().await, later().await]).await;
    let message = refused(&scene, "later", "Conflict").await;
    assert!(message.contains("the older PhasedRollout gate; delete one of the two"), "{message}");
    scene.delete(&format!("phasedrollout/{deleted}")).await;
    scene.until("gone", |world| !world.rollouts.contains_key(deleted)).await;
    refused(&scene, stays, "UnsupportedStrategy").await;
    becomes_rolling(&scene, Way::Cure).await;
    ends_gated(scene, stays).await;
}

/// An older rollout that switched the hold off is deleted: what its owner kept back goes to the other one, held.
// spec: pr§7, pr§8, cure-Conflict
#[tokio::test]
async fn a_release_that_its_owner_kept_back_when_the_older_rollout_goes() {
    let scene = skipping("cure-heir").await;
    scene.create(&later().await).await;
    refused(&scene, "later", "Conflict").await;
    scene.patch("statefulset/web", &partition(3)).await;
    pending(&scene).await;
    scene.delete("phasedrollout/gate").await;
    ends_gated(scene, "later").await;
}

// spec: pr§7, cure-Conflict
#[tokio::test]
async fn in_mid_rollout_the_younger_of_two_rollouts_is_deleted() {
    let scene = Scene::at_rest("cure-younger", 3, &gate_that_waits_before(1).await).await;
    scene.create(&later().await).await;
    refused(&scene, "later", "Conflict").await;
    let before = release_until_awaited(&scene, "app:2").await;
    scene.delete("phasedrollout/later").await;
    let after = scene.until("gone", |world| !world.rollouts.contains_key("later")).await;
    assert!(is_awaiting(&after) && after.partition() == before.partition() && after.uids() == before.uids());
    approve(&scene, 1).await;
    ends_gated(scene, "gate").await;
}

/// The StatefulSet of an ExtendedStatefulSet, in the middle of a version that fails: deleted with orphan, it goes to the PhasedRollout
/// that was refused before, and the version waits for that one's checks.
// spec: pr§7, es§8, cure-ControlledElsewhere
#[tokio::test]
async fn a_set_that_an_extended_stateful_set_lets_go() {
    let scene = Scene::with_operator("cure-owner").await;
    let check =
        gate(json!({ "preflight": false, "successThreshold": 1, "maxTries": 1000 })).await["spec"]["check"].clone();
    let owner =
        objects::with(objects::extended("web"), "/spec/updateStrategy", json!({ "type": "InPlace", "check": check }));
    scene.create(&owner).await;
    scene.until_settled("all pods are Ready", |world| world.all_on("app:1")).await;
    let born = scene.world().uids();
    scene
        .create(&gate(json!({ "preflight": false, "final": false, "successThreshold": 1, "maxTries": 1 })).await)
        .await;
    let message = refused(&scene, "gate", "ControlledElsewhere").await;
    assert!(message.contains("put the check into its updateStrategy.check"), "{message}");
    scene.errors(true).await;
    let pod = json!({ "containers": [{ "name": "app", "image": "app:2" }] });
    let template = json!({ "spec": { "template": { "spec": { "template": { "spec": pod } } } } });
    scene.patch("extendedstatefulset/web", &template).await;
    scene.until("its first pod has the version", |world| world.is_ready_on("web-2", "app:2")).await;

    scene.kubectl_ok(&["delete", "ests", "web", "--cascade=orphan"], "").await;
    let is_taken = |world: &World| world.annotation(names::CLAIM) == Some("gate") && world.is(Phase::Failed);
    let taken = scene.until_settled("the rollout has it, and its checks fail", is_taken).await;
    assert!(taken.is_held());
    assert!(["web-0", "web-1"].iter().all(|pod| taken.uids()[*pod] == born[*pod]), "no other pod has moved");
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_gated_after("web-2", &scene, "app:1");
    scene.end().await;
}
