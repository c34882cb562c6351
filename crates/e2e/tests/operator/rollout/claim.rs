//! Sets that are created, deleted and recreated: no pod moves unapproved on the way.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{assert_gated_after, gate_that_fails_after};

// spec: pr§7, hold
#[rstest]
#[tokio::test]
async fn a_set_deleted_with_orphan_and_recreated_with_another_template_is_held(#[values(true, false)] runs: bool) {
    let mut scene = Scene::at_rest("orphan", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    if !runs {
        scene.kill_operator();
    }
    scene.kubectl_ok(&["delete", "statefulset", "web", "--cascade=orphan"], "").await;
    scene.create(&objects::image(objects::set(3), "app:2")).await;
    let adopted = scene.until("the controller has seen it", World::controller_has_seen).await;
    assert_eq!(adopted.uids(), born, "adopted, and none was rolled");
    if !runs {
        assert!(adopted.is_held(), "held from birth without an operator");
        assert_eq!(adopted.annotation(names::CLAIM), Some("gate"), "and claimed");
        scene.start_operator();
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene, "app:1", 1);
    assert_eq!(moved.len(), 3);
    scene.end().await;
}

/// The lost currentRevision, which is then that of the failing release, approves nothing; what the PhasedRollout knows does not go
/// with the set.
// spec: pr§7, L113
#[tokio::test]
async fn a_set_recreated_in_mid_rollout_moves_no_pod_unapproved() {
    let scene = Scene::at_rest("recreated", 3, &gate_that_fails_after(1).await).await;
    let born = scene.world().uids();
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = |world: &World| world.image("web-2") == "app:2" && world.is(Phase::Failed);
    scene.until("the release has failed at its first pod", failed).await;
    scene.kubectl_ok(&["delete", "statefulset", "web", "--cascade=orphan"], "").await;
    scene.create(&objects::image(objects::set(3), "app:2")).await;
    scene.until("adopted", World::controller_has_seen).await;
    let is_new = |world: &World| world.status().target_uid == world.sets["web"].metadata.uid;
    let again = scene.until("the new set has failed too", |world| is_new(world) && failed(world)).await;
    assert!(["web-0", "web-1"].iter().all(|pod| again.uids()[*pod] == born[*pod]), "{born:?} {:?}", again.uids());

    scene.release("app:3").await;
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    assert_gated_after("web-2", &scene, "app:1");
    scene.end().await;
}

// spec: pr§7, hold
#[tokio::test]
async fn a_set_created_after_its_rollout_is_picked_up_and_held_from_birth() {
    let mut scene = Scene::new("late").await;
    scene.create(&Scene::quick_gate().await).await;
    scene.start_operator();
    scene.until("reported", |world| world.condition(ConditionType::TargetAccepted) == "False/TargetNotFound").await;
    scene.ground.until_born_held(&scene.namespace, "web").await;
    scene.create(&objects::set(3)).await;
    let first = scene.until("it is there", |world| world.sets.contains_key("web")).await;
    assert!(first.is_held() || first.partition() == Some(3), "{:?}", first.partition());
    scene
        .until("at rest", |world| world.is(Phase::Idle) && world.all_on("app:1") && world.partition() == Some(3))
        .await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: hold, L037
#[rstest]
#[tokio::test]
async fn a_claim_dropped_by_a_replace_is_put_back(#[values(true, false)] runs: bool) {
    let mut scene = Scene::at_rest("replace", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    if !runs {
        scene.kill_operator();
    }
    // The manifest as its owner has it: no annotation, no partition, another image.
    let reply = scene
        .kubectl_ok(&["replace", "-o", "json", "-f", "-"], &objects::image(objects::set(3), "app:2").to_string())
        .await;
    let stored: Value = serde_json::from_str(&reply.stdout).expect("kubectl prints JSON");
    assert_eq!(stored["metadata"]["annotations"][names::CLAIM], json!("gate"));
    assert_eq!(stored["spec"]["updateStrategy"]["rollingUpdate"]["partition"], json!(names::HOLD));
    if !runs {
        let seen = scene.until("the controller has seen it", World::controller_has_seen).await;
        assert_eq!(seen.uids(), born, "no pod has moved");
        scene.start_operator();
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§7, L109
#[rstest]
#[tokio::test]
async fn a_detour_over_on_delete_moves_no_pod_unapproved(#[values(true, false)] runs: bool) {
    let mut scene = Scene::at_rest("ondelete", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    if !runs {
        scene.kill_operator();
    }
    let strategy = |kind: &str| json!({ "spec": { "updateStrategy": { "type": kind, "rollingUpdate": null } } });
    scene.patch("statefulset/web", &strategy("OnDelete")).await;
    if runs {
        let reported = |world: &World| world.condition(ConditionType::TargetAccepted) == "False/UnsupportedStrategy";
        let refused = scene.until("refused", reported).await;
        let message = refused.message(ConditionType::TargetAccepted);
        assert!(message.contains("spec.updateStrategy.type") && message.contains("RollingUpdate"), "{message}");
    }
    scene.release("app:2").await;
    scene.patch("statefulset/web", &strategy("RollingUpdate")).await;
    if !runs {
        let seen = scene.until("the controller has seen it", World::controller_has_seen).await;
        assert!(seen.is_held());
        assert_eq!(seen.uids(), born, "no pod has moved");
        scene.start_operator();
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: hold
#[tokio::test]
async fn in_mid_rollout_the_strategy_cannot_leave_rolling_update() {
    let mut scene = Scene::at_rest("type", 3, &Scene::quick_gate().await).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(2)).await;
    scene.kill_operator();
    let leave = json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } });
    let refused = scene.try_patch("statefulset/web", &leave).await.expect_err("it is refused");
    let sentence = refused.to_string();
    assert!(sentence.contains("must stay RollingUpdate") && sentence.contains("PhasedRollout gate"), "{sentence}");
    scene.start_operator();
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}
