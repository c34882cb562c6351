//! What `pauseBefore` does not ask about, with every loop of the controller: a fix, a revert, a set that was never healthy, a rollback.

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Metric, Release, World};

use crate::story::*;

/// It waits before each of the three pods.
fn cautious(start: &World) -> World {
    with(start.clone(), |spec| spec.pause_before = vec![0, 1, 2])
}

fn approve(world: &mut World, template: u32, index: i32) {
    until(world, |world| awaits(world, template, index));
    world.annotate(ROLLOUT, names::APPROVE, &format!("web-r{template}/{index}"));
}

fn awaits(world: &World, template: u32, index: i32) -> bool {
    let status = status(world);
    let asks = format!(": web-r{template}/{index}");
    reason(world) == "AwaitingApproval" && status.phase == Phase::Paused && status.message.contains(&asks)
}

fn asked(world: &World) -> usize {
    events(world, "AwaitingApproval")
}

/// Template 2 is approved for the first pod, which crashes.
fn crashed(start: &World) -> World {
    let mut world = cautious(start);
    template(&mut world, 2);
    approve(&mut world, 2, 2);
    until(&mut world, |world| set(world).layout() == "0:1 1:1 2:2!" && !awaits(world, 2, 2));
    assert_eq!(asked(&world), 1);
    world
}

// spec: pr§1, pr§4
#[test]
fn a_fix_is_unasked_for_the_broken_pod_and_asked_for_the_others() {
    everywhere(CRASHING, |start| {
        let mut world = crashed(&start);
        template(&mut world, 3);
        until(&mut world, |world| set(world).layout() == "0:1 1:1 2:3");
        assert_eq!(asked(&world), 1, "{}", world.tale.long_story());
        for index in [1, 0] {
            approve(&mut world, 3, index);
        }
        completed(&mut world, 3);
        assert_eq!(asked(&world), 3);
    });
}

// spec: pr§1, pr§4
#[test]
fn a_revert_is_unasked() {
    everywhere(CRASHING, |start| {
        let mut world = crashed(&start);
        template(&mut world, 1);
        completed(&mut world, 1);
        assert_eq!(asked(&world), 1, "{}", world.tale.long_story());
    });
}

// spec: pr§1, pr§10
#[test]
fn a_set_that_was_never_healthy_is_fixed_unasked() {
    for is_parallel in [false, true] {
        for native in LOOPS {
            let mut world = World::empty();
            world.native = native;
            world.releases.insert(1, CRASHING);
            world.add_set(SET, 3, 1);
            set_mut(&mut world).parallel = is_parallel;
            world.add_rollout(ROLLOUT, SET);
            let mut world = cautious(&world);
            assert!(set(&world).pods.values().all(|pod| !pod.ready));
            template(&mut world, 2);
            completed(&mut world, 2);
            assert_eq!(asked(&world), 0, "{}", world.tale.long_story());
        }
    }
}

/// The approvals are used up by then: a retry asks again.
// spec: pr§1, pr§5
#[test]
fn a_rollback_is_unasked_and_its_retry_is_asked() {
    everywhere(Release { metric: Metric::FailAt(1), ..GOOD }, |start| {
        let mut world = with(cautious(&start), |spec| {
            (spec.check.on_failure, spec.check.preflight) = (OnFailure::Rollback, false);
        });
        template(&mut world, 2);
        for index in [2, 1] {
            approve(&mut world, 2, index);
        }
        until_phase(&mut world, Phase::RolledBack);
        settle(&mut world);
        assert_eq!((set(&world).layout().as_str(), asked(&world)), ("0:1 1:1 2:1", 2), "{}", world.tale.long_story());
        let before = uids(&world);
        world.annotate(ROLLOUT, names::RETRY, "again");
        world.pass(300);
        assert!(awaits(&world, 2, 2), "{}", world.tale.long_story());
        assert_eq!(uids(&world), before);
    });
}
