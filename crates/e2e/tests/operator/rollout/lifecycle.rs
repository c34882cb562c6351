//! skipCheck, paused, two PhasedRollouts, another target, a graceful stop.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Asked, Scene, Seen, World, moves, objects};

use super::{assert_gated_after, gate_that_fails_after, gate_that_waits_before, release_until_awaited};

// spec: pr§1, pr§4
#[rstest]
#[tokio::test]
async fn skip_check_resumes_the_normal_rolling_update(#[values("skipCheck", "standardRollingUpdate")] field: &str) {
    let scene = Scene::at_rest("skip", 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;
    let checked = scene.asked().len();
    scene.configure(&json!({ field: true })).await;
    let off =
        |world: &World| world.all_on("app:2") && is_open(world) && world.annotation(names::HOLD_SWITCH) == Some("off");
    scene.until("the others roll without checks", off).await;
    // No hold: the next template rolls at once.
    scene.release("app:3").await;
    scene.until("all on the next", |world| world.all_on("app:3") && is_open(world)).await;
    assert_eq!(scene.asked().len(), checked, "no check was made after that");

    scene.configure(&json!({ field: false, "pauseBefore": null })).await;
    let back = |world: &World| world.is(Phase::Idle) && world.partition() == Some(3);
    let back = scene.until("the gate is back", back).await;
    assert_eq!(back.annotation(names::HOLD_SWITCH), None);
    scene.release("app:4").await;
    scene.until("complete", |world| world.is_complete("app:4")).await;
    moves::assert_gated(&scene, "app:3", 1);
    scene.end().await;
}

/// A partition that is removed reads as 0.
fn is_open(world: &World) -> bool {
    world.partition().unwrap_or(0) == 0
}

// spec: pr§1
#[tokio::test]
async fn paused_rolls_nothing_and_checks_nothing_until_it_is_taken_back() {
    let scene = Scene::at_rest("paused", 3, &gate_that_fails_after(1000).await).await;
    let born = scene.world().uids();
    scene.configure(&json!({ "paused": true })).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let paused = scene.until("paused", |world| world.is(Phase::Paused) && world.is_told()).await;
    assert!(paused.is_held() && paused.condition(ConditionType::Held) == "True/Paused");
    assert_eq!(paused.uids(), born);
    assert!(scene.asked().is_empty(), "nothing was checked");
    scene.configure(&json!({ "paused": false })).await;
    let is_checked = |world: &World| world.status().current.is_some_and(|current| current.tries > 0);
    scene.until("web-2 is rolled and checked", |world| world.is_ready_on("web-2", "app:2") && is_checked(world)).await;

    scene.configure(&json!({ "paused": true })).await;
    let paused = scene.until("paused in mid-rollout", |world| world.is(Phase::Paused)).await;
    let checked = moves::tries(&scene.tape.entries()).len();
    // The checks would pass now.
    scene.errors(false).await;
    scene.configure(&json!({ "stuckPods": "Wait" })).await;
    let still = scene.until("reconciled again", |world| world.is(Phase::Paused)).await;
    assert_eq!((still.partition(), still.uids()), (paused.partition(), paused.uids()));
    assert_eq!(moves::tries(&scene.tape.entries()).len(), checked, "nothing more was checked");
    assert!(!scene.asked().iter().any(Asked::has_passed), "nor asked");
    scene.configure(&json!({ "paused": false })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_gated_after("web-2", &scene, "app:1");
    scene.end().await;
}

// spec: pr§7
#[tokio::test]
async fn of_two_rollouts_on_one_set_the_older_wins_and_the_other_takes_over_held() {
    let scene = Scene::at_rest("two", 3, &gate_that_waits_before(1).await).await;
    scene.create(&objects::with(Scene::quick_gate().await, "/metadata/name", "later")).await;
    let refused = |world: &World| world.condition_of("later", ConditionType::TargetAccepted) == "False/Conflict";
    let message = scene.until("the later one is refused", refused).await.status_of("later").message;
    assert!(message.contains("spec.targetRef") && message.contains("older PhasedRollout gate"), "{message}");
    let before = release_until_awaited(&scene, "app:2").await;
    assert_eq!(before.condition_of("later", ConditionType::TargetAccepted), "False/Conflict");

    scene.delete("phasedrollout/gate").await;
    let taken = |world: &World| {
        let status = world.status_of("later");
        world.annotation(names::CLAIM) == Some("later") && status.phase == Phase::Completed && world.all_on("app:2")
    };
    scene.until_settled("the other takes over and completes it", taken).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§7, L030
#[tokio::test]
async fn another_target_is_claimed_after_the_first_is_released() {
    let scene = Scene::at_rest("target", 2, &Scene::quick_gate().await).await;
    scene.create(&objects::named(objects::set(1), "other")).await;
    scene.until("its pod is Ready", |world| world.is_ready_on("other-0", "app:1")).await;
    let born = scene.world().uids();
    scene.configure(&json!({ "targetRef": "other" })).await;
    let moved = |world: &World| {
        let claimed = world.sets.get("other").and_then(|set| set.metadata.annotations.as_ref()?.get(names::CLAIM));
        claimed.is_some() && world.partition_of("other") == Some(1) && world.is(Phase::Idle)
    };
    let now = scene.until("the other is claimed", moved).await;
    assert_eq!((now.annotation(names::CLAIM), now.partition().unwrap_or(0)), (None, 0), "the first is released");
    assert_eq!(now.uids(), born, "no pod has moved");
    let entries = scene.tape.entries();
    let claims = |set: &'static str, claim: Option<&'static str>| {
        entries.iter().filter_map(move |entry| match &entry.seen {
            Seen::Set(seen) if seen.metadata.name.as_deref() == Some(set) => {
                let is = seen.metadata.annotations.as_ref().and_then(|all| all.get(names::CLAIM)).map(String::as_str);
                (is == claim).then_some(entry.version)
            }
            _ => None,
        })
    };
    let (last, first) = (claims("web", Some("gate")).max(), claims("other", Some("gate")).min());
    assert!(last.is_some() && last < first, "web is claimed until {last:?}, other from {first:?}");
    scene.end().await;
}

// spec: pr§4
#[tokio::test]
async fn a_graceful_stop_ends_with_success_and_the_next_operator_resumes() {
    let mut scene = Scene::at_rest("stop", 3, &Scene::quick_gate().await).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(2)).await;
    assert!(scene.stop_operator().await.success());
    assert!(scene.log().contains("sts-plus has stopped"));
    scene.start_operator();
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    let events = scene.until_events(Reason::Completed, 2).await;
    assert_eq!(events.len(), 2, "on the PhasedRollout and on the set");
    scene.end().await;
}
