//! A fix is never kept out by a pod that it would replace, and a revert has nothing to check that did not move.

use sts_plus_api::Phase;
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, World};

use super::{carried, of_pods};
use crate::story::*;

/// What a metric of the whole application says: it is refused while web-4 runs template 2.
const BESIDE_TWO: Release = Release { metric: Metric::FailBeside(4, 2), ..GOOD };

/// Template 2 has passed on all pods above `next`, which waits for an approval.
fn passed_above(next: i32) -> World {
    let mut world = with(of_pods(5), |spec| spec.pause_before = vec![next]);
    template(&mut world, 2);
    until(&mut world, |world| phase(world) == Phase::Paused && carried(world, next + 1) == "web-r2");
    world.releases.insert(3, BESIDE_TWO);
    world
}

/// Template 3 comes, and replaces web-4 before anything is asked.
fn the_fix_goes_through(mut world: World) {
    world.configure(ROLLOUT, "no approvals", |spec| spec.pause_before.clear());
    let good = uids(&world)[..3].to_vec();
    template(&mut world, 3);
    world.run(600, |world| carried(world, 4) == "web-r3");
    assert_eq!(carried(&world, 4), "web-r3", "{}", world.tale.long_story());
    assert_eq!(uids(&world)[..3], good, "{}", world.tale.long_story());
    completed(&mut world, 3);
}

/// The template goes back to A until web-4 has gone back to it, and then to B again, which fails on web-4 now.
fn back_and_forth(mut world: World) -> World {
    template(&mut world, 1);
    until(&mut world, |world| carried(world, 4) == "web-r1" && set(world).pods[&4].is_healthy());
    assert_ne!(phase(&world), Phase::Completed, "the revert is not over yet");
    template(&mut world, 2);
    until(&mut world, |world| carried(world, 4) == "web-r2");
    world.releases.insert(2, BESIDE_TWO);
    until_phase(&mut world, Phase::Failed);
    world
}

/// B had passed on web-4 and web-3. The template went to A and, when web-4 was back on it, to B again. Now web-4 failed on B, and its errors kept
/// the fix C out: C had to pass its preflight first, since everything from web-3 up "had passed" on B.
// spec: pr§4, L103
#[test]
fn what_passed_at_an_index_once_keeps_no_fix_out() {
    the_fix_goes_through(back_and_forth(passed_above(2)));
}

/// The same with web-4 alone.
// spec: pr§4, L103
#[test]
fn what_passed_at_the_highest_index_once_keeps_no_fix_out() {
    the_fix_goes_through(back_and_forth(passed_above(3)));
}

/// B had passed on web-4, and a drain brought web-4 back on another node, where it failed. The fix C was kept out by its errors.
// spec: pr§4, L097, L103
#[test]
fn a_pod_that_came_back_has_not_passed() {
    let mut world = passed_above(3);
    world.releases.insert(2, BESIDE_TWO);
    world.delete_pod(SET, 4);
    until_phase(&mut world, Phase::Failed);
    assert_eq!(carried(&world, 4), "web-r2");
    the_fix_goes_through(world);
}

/// A backup ran, the preflight of B was refused, and the template went back to A before any pod had moved. Then A was Failed for as long as the
/// backup ran, with the partition at rest: a final cycle was made for pods that had never moved.
// spec: pr§4, pr§9
#[test]
fn a_revert_before_any_pod_moved_has_nothing_to_check() {
    everywhere(BAD_METRIC, |mut world| {
        world.releases.insert(1, BAD_METRIC);
        let before = uids(&world);
        template(&mut world, 2);
        until_phase(&mut world, Phase::Failed);
        nothing_was_rolled(world, &before);
    });
}

/// The same before the preflight had failed, and while Prometheus is down.
// spec: pr§4, pr§9
#[test]
fn a_revert_before_any_answer_has_nothing_to_check() {
    for moment in [0, 1, 3, 60] {
        let mut world = world(GOOD);
        let before = uids(&world);
        world.prometheus_down = true;
        template(&mut world, 2);
        world.pass(moment);
        nothing_was_rolled(world, &before);
    }
}

fn nothing_was_rolled(mut world: World, before: &[u64]) {
    template(&mut world, 1);
    world.pass(10);
    let story = world.tale.long_story();
    lawful(&world);
    let finals = count(&world, |deed| matches!(deed, Deed::Checked(cycle, _) if cycle.starts_with("Final")));
    assert_eq!(finals, 0, "{story}");
    assert!(condition(&world, "Ready") && condition(&world, "RolledOut"), "{:?} {story}", phase(&world));
    assert!(matches!(phase(&world), Phase::Completed | Phase::Idle), "{:?} {story}", phase(&world));
    assert_eq!(uids(&world), before, "{story}");
    at_rest_on(&mut world, 1);
}
