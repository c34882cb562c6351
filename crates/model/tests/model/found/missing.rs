//! A pod that is missing carries no revision: it is never settled, and never taken for one that was rolled.

use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Release, Shared, Who, World};

use super::{is_opening, lines, since};
use crate::story::*;

/// web-1 and web-0 are deleted, and a quota keeps them from being made again.
fn lose_two(world: &mut World) {
    world.quota = Some(1);
    world.delete_pod(SET, 0);
    world.delete_pod(SET, 1);
    world.pass(5);
    assert_eq!(set(world).layout(), "2:2");
}

/// The quota goes. The missing pods come back as they were, and then an ordinary cycle decides on the next one. `from` is the line of the tale
/// at which the operator took the set.
fn nothing_is_settled(mut world: World, from: usize) {
    assert!(!condition(&world, "RolledOut"), "while two pods are missing: {}", world.tale.long_story());
    world.quota = None;
    until(&mut world, |world| {
        set(world).pods.len() == 3 && set(world).pods.values().all(sts_plus_model::Pod::is_healthy)
    });
    assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
    world.settle(LONG);
    let story = world.tale.long_story();
    let checks = since(&world, from).take_while(|deed| !is_opening(deed));
    let passed = checks.filter(|deed| matches!(deed, Deed::Checked(_, "pass"))).count();
    assert!(passed >= 2, "{passed} passes before the next pod\n{story}");
    lawful(&world);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2", "{story}");
    assert!(condition(&world, "RolledOut"), "{story}");
}

/// The new release stays where it is if its checks refuse.
fn nothing_moves_unchecked(mut world: World) {
    world.releases.insert(2, BAD_METRIC);
    world.quota = None;
    world.pass(600);
    lawful(&world);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
    assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
}

/// web-2 was on the new template by a partition that a user had set, and a quota kept web-1 and web-0 away. A PhasedRollout took the set and
/// called it settled, since no pod that was there was off: after the quota was raised both came back on the new template without one check.
// spec: pr§4, pr§7, L094
#[test]
fn a_claim_settles_no_pod_that_is_missing() {
    for native in LOOPS {
        let mut world = World::empty();
        world.native = native;
        world.add_set(SET, 3, 1);
        world.settle(LONG);
        world.set_partition(SET, Some(2));
        world.set_template(SET, 2);
        world.settle(LONG);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2");
        lose_two(&mut world);
        world.tale.clear();
        world.add_rollout(ROLLOUT, SET);
        world.pass(30);
        assert_eq!(set(&world).partition, Some(HOLD), "held at the claim: {}", world.tale.long_story());
        nothing_moves_unchecked(world.clone());
        nothing_is_settled(world, 0);
    }
}

/// The same when skipCheck ended while two pods were away.
// spec: pr§4, pr§7
#[test]
fn the_end_of_skip_check_settles_no_pod_that_is_missing() {
    for native in LOOPS {
        let mut world = world(GOOD);
        world.native = native;
        world.configure(ROLLOUT, "skipCheck", |spec| spec.skip_check = true);
        settle(&mut world);
        template(&mut world, 2);
        until(&mut world, |world| set(world).layout() == "0:1 1:1 2:2!");
        lose_two(&mut world);
        let from = lines(&world);
        world.configure(ROLLOUT, "gate again", |spec| spec.skip_check = false);
        world.pass(30);
        assert_eq!(set(&world).partition, Some(HOLD), "held: {}", world.tale.long_story());
        nothing_moves_unchecked(world.clone());
        nothing_is_settled(world, from);
    }
}

/// The same when the status was lost in mid-rollout, by a restore without it.
// spec: pr§4, pr§7
#[test]
fn a_lost_status_settles_no_pod_that_is_missing() {
    for native in LOOPS {
        let mut world = world(GOOD);
        world.native = native;
        template(&mut world, 2);
        until_checked(&mut world, 2);
        lose_two(&mut world);
        let from = lines(&world);
        world.rollouts.get_mut(ROLLOUT).unwrap().status = Shared::default();
        world.restart_operator();
        world.pass(30);
        nothing_moves_unchecked(world.clone());
        nothing_is_settled(world, from);
    }
}

/// A node with the last two pods of the old revision died in mid-rollout. While they were away the rollout said that every pod was at the
/// revision and spoke of its final checks.
// spec: pr§4, pr§9
#[test]
fn in_mid_rollout_a_missing_pod_is_not_one_that_was_rolled() {
    for native in LOOPS {
        let mut world = world(Release { ..GOOD });
        world.native = native;
        template(&mut world, 2);
        until_checked(&mut world, 2);
        let from = lines(&world);
        lose_two(&mut world);
        world.pass(60);
        let is_final = |deed: &Deed| matches!(deed, Deed::Status(_, reason, _) if reason == "FinalChecks");
        assert!(!since(&world, from).any(is_final), "{}", world.tale.long_story());
        let step = status(&world).current.as_ref().map(|current| current.step);
        assert_eq!(step, Some(sts_plus_api::Step::Pod), "{} {}", status(&world).message, world.tale.long_story());
        let steps = since(&world, from).filter(|deed| matches!(deed, Deed::Partition { who: Who::Operator, .. }));
        assert_eq!(steps.count(), 0, "{}", world.tale.long_story());
        nothing_is_settled(world, from);
    }
}
