//! Fix and revert are never locked out by the pods that they repair (§4.9, §6, §10).

use sts_plus_api::{Phase, StuckPods};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Loop, Metric, Pod, Release, Who, World};

use crate::story::*;

/// The first pod fails on template 2, then comes `next`; the pods that were on template 1 must not move before the gate.
fn first_pod_fails_then(start: World, next: u32) -> World {
    let mut world = start;
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    let good = uids(&world)[..2].to_vec();
    template(&mut world, next);
    let repaired = set(&world).revision_of(next);
    until(&mut world, |world| set(world).pods.get(&2).is_some_and(|pod| pod.revision == repaired && pod.is_healthy()));
    assert_eq!(uids(&world)[..2], good, "{}", world.tale.long_story());
    if next == 1 {
        completed(&mut world, 1);
        assert_eq!(uids(&world)[..2], good, "{}", world.tale.long_story());
    } else {
        completed(&mut world, next);
    }
    world
}

/// After the preflight, so that a pod is rolled.
const FAILS: Release = Release { metric: Metric::FailAt(2), ..GOOD };

fn after_preflight(world: World) -> World {
    with(world, |spec| spec.check.preflight = false)
}

// spec: pr§4
#[test]
fn fix_after_a_failed_metric() {
    everywhere(FAILS, |world| drop(first_pod_fails_then(after_preflight(world), 3)));
    let world = first_pod_fails_then(after_preflight(world(FAILS)), 3);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§4
#[test]
fn revert_after_a_failed_metric() {
    everywhere(FAILS, |world| drop(first_pod_fails_then(after_preflight(world), 1)));
    let world = first_pod_fails_then(after_preflight(world(FAILS)), 1);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§4, L025, L103
#[test]
fn fix_after_a_crash() {
    everywhere(CRASHING, |world| drop(first_pod_fails_then(world, 3)));
    let world = first_pod_fails_then(world(CRASHING), 3);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§4, L101, L103
#[test]
fn revert_after_a_crash() {
    everywhere(CRASHING, |world| drop(first_pod_fails_then(world, 1)));
    let world = first_pod_fails_then(world(CRASHING), 1);
    insta::assert_snapshot!(world.tale.story());
}

/// Not Ready and silent about it: broken after 60 s.
#[test]
fn fix_and_revert_after_silence() {
    everywhere(SILENT, |world| drop(first_pod_fails_then(world.clone(), 3)));
    everywhere(SILENT, |world| drop(first_pod_fails_then(world.clone(), 1)));
}

/// At any moment of a rollout that goes wrong somewhere, a fix or a revert goes through without a person.
// spec: pr§4, L103
#[test]
fn fix_and_revert_at_any_moment() {
    for second in [GOOD, CRASHING, BAD_METRIC, Release { metric: Metric::FailAt(1), ..GOOD }] {
        everywhere(second, |start| {
            for next in [3, 1] {
                for moment in 0..45 {
                    let mut world = after_preflight(start.clone());
                    template(&mut world, 2);
                    world.pass(moment);
                    template(&mut world, next);
                    completed(&mut world, next);
                }
            }
        });
    }
}

/// A fix that is broken itself, and then a fix of the fix, or a revert.
#[test]
fn a_broken_fix() {
    everywhere(CRASHING, |start| {
        for last in [4, 1] {
            let mut world = start.clone();
            world.releases.insert(3, CRASHING);
            template(&mut world, 2);
            until_phase(&mut world, Phase::Failed);
            template(&mut world, 3);
            until_phase(&mut world, Phase::Failed);
            let good = uids(&world)[..2].to_vec();
            template(&mut world, last);
            world.run(5, |_| false);
            assert_eq!(uids(&world)[..2], good, "{}", world.tale.long_story());
            completed(&mut world, last);
        }
    });
}

/// Two pods on template 2, the second one broken, then a revert: both come back, the third never moves.
// spec: pr§4, L039
#[test]
fn revert_of_two_pods() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        until_checked(&mut world, 1);
        world.break_pod(SET, 1);
        let first = uids(&world)[0];
        template(&mut world, 1);
        completed(&mut world, 1);
        assert_eq!(uids(&world)[0], first);
    });
}

/// The revision has flipped, the final check fails, the template goes back: all pods are off, and all go back without the gate.
#[test]
fn revert_after_the_last_pod() {
    everywhere(Release { metric: Metric::FailAfter, ..GOOD }, |mut world| {
        template(&mut world, 2);
        until_phase(&mut world, Phase::Failed);
        assert!(set(&world).status.current == set(&world).status.update);
        template(&mut world, 1);
        completed(&mut world, 1);
    });
}

// spec: pr§6, L047
#[test]
fn stuck_pods_wait() {
    let mut world = with(world(CRASHING), |spec| spec.stuck_pods = StuckPods::Wait);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    template(&mut world, 3);
    settle(&mut world);
    assert_eq!(reason(&world), "BlockedByPod", "{}", world.tale.long_story());
    assert!(status(&world).message.contains("web-2"), "{}", status(&world).message);
    assert_eq!(count(&world, |deed| matches!(deed, Deed::Deleted(Who::Operator, _))), 0);
    world.delete_pod(SET, 2);
    completed(&mut world, 3);
    insta::assert_snapshot!(world.tale.story());
}

fn never_healthy(is_parallel: bool, native: Loop) -> World {
    let mut world = World::empty();
    world.native = native;
    world.releases.insert(1, CRASHING);
    world.add_rollout(ROLLOUT, SET);
    world.add_set(SET, 3, 1);
    set_mut(&mut world).parallel = is_parallel;
    world.settle(LONG);
    lawful(&world);
    world.tale.clear();
    world
}

// spec: pr§10
#[test]
fn a_set_that_was_never_healthy() {
    for native in LOOPS {
        for is_parallel in [false, true] {
            let mut world = never_healthy(is_parallel, native);
            template(&mut world, 2);
            completed(&mut world, 2);
        }
    }
    let mut world = never_healthy(false, Loop::GateOff);
    template(&mut world, 2);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§10, L155
#[test]
fn a_parallel_set_that_was_never_healthy() {
    let mut world = never_healthy(true, Loop::GateOff);
    template(&mut world, 2);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

/// Three templates until one starts.
#[test]
fn never_healthy_twice() {
    for native in LOOPS {
        for is_parallel in [false, true] {
            let mut world = never_healthy(is_parallel, native);
            world.releases.insert(2, CRASHING);
            template(&mut world, 2);
            world.settle(LONG);
            lawful(&world);
            template(&mut world, 3);
            completed(&mut world, 3);
        }
    }
}

/// A healthy set that was down as a whole is not one that was never healthy: the normal gate.
#[test]
fn down_as_a_whole_and_back() {
    everywhere(GOOD, |mut world| {
        for ordinal in 0..3 {
            world.break_pod(SET, ordinal);
        }
        template(&mut world, 2);
        world.run(1, |_| false);
        for ordinal in 0..3 {
            world.heal_pod(SET, ordinal);
        }
        completed(&mut world, 2);
    });
}

/// L056, L102: a pod below is broken before the rollout starts: nothing is rolled, and the condition names it.
#[test]
fn a_broken_pod_below_the_partition() {
    everywhere(GOOD, |mut world| {
        world.break_pod(SET, 0);
        template(&mut world, 2);
        settle(&mut world);
        assert_eq!(steps(&world), [0; 0]);
        assert!(status(&world).message.contains("web-0"), "{}", status(&world).message);
        assert_eq!(reason(&world), "BlockedByPod");
        world.heal_pod(SET, 0);
        completed(&mut world, 2);
    });
}

/// Parallel, all pods on a failed revision that is the current one, a revert that has brought back the top pod, and then a fix. Nothing
/// may be opened (the top pod is on the last good revision), so the broken pod is made anew where it is: once.
#[test]
fn a_fix_in_the_middle_of_a_revert_is_not_locked_out() {
    for native in LOOPS {
        let mut world = failed_flipped_and_half_reverted(native);
        let top = uids(&world)[2];
        template(&mut world, 3);
        until(&mut world, |world| set(world).pods.get(&0).is_some_and(Pod::is_healthy));
        assert_eq!(uids(&world)[2], top, "the pod on the last good revision waits for the gate");
        completed(&mut world, 3);
    }
}

/// The same, and the pod is broken again: it is named, and deleted no second time.
#[test]
fn a_pod_that_was_made_anew_in_vain_is_left_to_a_person() {
    let mut world = failed_flipped_and_half_reverted(Loop::GateOff);
    world.releases.insert(2, CRASHING);
    template(&mut world, 3);
    settle(&mut world);
    assert_eq!(reason(&world), "BlockedByPod", "{}", world.tale.long_story());
    assert!(status(&world).message.contains("web-0"), "{}", status(&world).message);
    let before = count(&world, |deed| matches!(deed, Deed::Deleted(Who::Operator, pod) if pod == "web-0"));
    world.pass(LONG);
    world.restart_operator();
    world.pass(LONG);
    let after = count(&world, |deed| matches!(deed, Deed::Deleted(Who::Operator, pod) if pod == "web-0"));
    assert_eq!(after, before, "{}", world.tale.long_story());
    // Back to the last good template is always open.
    template(&mut world, 1);
    completed(&mut world, 1);
}

fn failed_flipped_and_half_reverted(native: Loop) -> World {
    let mut world = parallel(Release { metric: Metric::FailAfter, ..GOOD });
    world.native = native;
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.break_pod(SET, 0);
    template(&mut world, 1);
    let is_back = |world: &World, pod: i32| set(world).pods.get(&pod).is_some_and(|pod| pod.revision == "web-r1");
    until(&mut world, |world| is_back(world, 2) && set(world).pods[&2].is_healthy());
    assert!(!is_back(&world, 0) && set(&world).status.current.as_deref() == Some("web-r2"), "{}", set(&world).layout());
    world
}
