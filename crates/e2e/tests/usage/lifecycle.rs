//! skipCheck, paused, two PhasedRollouts, another target, a graceful stop.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

#[rstest]
#[tokio::test]
async fn skip_check_resumes_the_normal_rolling_update(#[values("skipCheck", "standardRollingUpdate")] field: &str) {
    let scene = Scene::at_rest("skip", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;
    let checks = scene.tape.entries();
    scene.configure(&json!({ field: true })).await;
    let off =
        |world: &World| world.all_on("app:2") && is_open(world) && world.annotation(names::HOLD_SWITCH) == Some("off");
    scene.until("the others roll without checks", off).await;
    // No hold: the next template rolls at once.
    scene.release("app:3").await;
    scene.until("all on the next", |world| world.all_on("app:3") && is_open(world)).await;
    let made = moves::tries(&scene.tape.entries()).len();
    assert!(made <= moves::tries(&checks).len() + 1, "no check was made after that: {made}");

    scene.configure(&json!({ field: false })).await;
    let back = |world: &World| world.is(Phase::Idle) && world.partition() == Some(3);
    let back = scene.until("the gate is back", back).await;
    assert_eq!(back.annotation(names::HOLD_SWITCH), None);
    scene.release("app:4").await;
    scene.until("complete", |world| world.is_complete("app:4")).await;
    moves::assert_gated(&scene.tape.entries(), "app:3", 2);
    scene.end().await;
}

/// A partition that is removed reads as 0.
fn is_open(world: &World) -> bool {
    world.partition().unwrap_or(0) == 0
}

#[tokio::test]
async fn paused_rolls_nothing_and_checks_nothing_until_it_is_taken_back() {
    let scene = Scene::at_rest("paused", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2").await;
    let paused = |world: &World| world.is(Phase::Paused) && world.is_told();
    let paused = scene.until("paused", paused).await;
    assert!(paused.is_held() && paused.condition(ConditionType::Held) == "True/Paused");
    assert_eq!(paused.uids(), born);
    assert!(moves::tries(&scene.tape.entries()).is_empty(), "nothing was checked");
    scene.configure(&json!({ "paused": false })).await;
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;

    scene.configure(&json!({ "paused": true })).await;
    let paused = scene.until("paused in mid-rollout", |world| world.is(Phase::Paused)).await;
    assert_eq!(paused.image("web-0"), "app:1");
    scene.configure(&json!({ "paused": false })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn of_two_rollouts_on_one_set_the_older_wins_and_the_other_takes_over_held() {
    let scene = Scene::at_rest("two", 3, &Scene::gate().await).await;
    scene.create(&objects::with(Scene::gate().await, "/metadata/name", "later")).await;
    let refused = |world: &World| world.condition_of("later", ConditionType::TargetAccepted) == "False/Conflict";
    let message = scene.until("the later one is refused", refused).await.status_of("later").message;
    assert!(message.contains("spec.targetRef") && message.contains("older PhasedRollout gate"), "{message}");
    scene.release("app:2").await;
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;

    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    let taken = |world: &World| {
        let status = world.status_of("later");
        world.annotation(names::CLAIM) == Some("later") && status.phase == Phase::Completed && world.all_on("app:2")
    };
    scene.until_settled("the other takes over and completes it", taken).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn another_target_is_claimed_after_the_first_is_released() {
    let scene = Scene::at_rest("target", 2, &Scene::gate().await).await;
    scene.create(&objects::named(objects::set(1), "other")).await;
    scene.until("its pod is Ready", |world| world.is_ready_on("other-0", "app:1")).await;
    let born = scene.world().uids();
    scene.configure(&json!({ "targetRef": "other" })).await;
    let moved = |world: &World| {
        let claimed = world.sets.get("other").and_then(|set| set.metadata.annotations.as_ref()?.get(names::CLAIM));
        claimed.is_some() && world.partition_of("other") == Some(1) && world.is(Phase::Idle)
    };
    let now = scene.until("the other is claimed", moved).await;
    assert_eq!((now.annotation(names::CLAIM), now.partition().unwrap_or(0)), (None, 0), "the first is let go");
    assert_eq!(now.uids(), born, "no pod has moved");
    scene.end().await;
}

#[tokio::test]
async fn a_graceful_stop_ends_well_and_the_next_operator_goes_on() {
    let mut scene = Scene::at_rest("stop", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(2)).await;
    assert!(scene.stop_operator().await.success());
    assert!(scene.log().contains("sts-plus has stopped"));
    scene.start_operator();
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 1);
    let events = scene.until_events(Reason::Completed, 2).await;
    assert_eq!(events.len(), 2, "on the PhasedRollout and on the set");
    scene.end().await;
}
