//! API servers before 1.36: there the admission policy refuses what it cannot put right, a fix in mid-rollout too. So the operator
//! raises the partition to the hold whenever nothing moves, and never while something that was opened is on its way.

use sts_plus_api::{OnFailure, Phase};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, Who, World};

use crate::story::*;

fn refusing(mut world: World) -> World {
    (world.policy, world.refuses) = (false, true);
    world.settle(LONG);
    world.tale.clear();
    world
}

fn refused(world: &World) -> usize {
    count(world, |deed| matches!(deed, Deed::User(what) if what.ends_with("is refused")))
}

/// Fails unless no step of the operator was taken back while its pod was on its way.
fn never_in_between(world: &World) {
    let mut open = None;
    for deed in world.tale.deeds() {
        match deed {
            Deed::Partition { to: Some(to), who: Who::Operator, .. } if *to == HOLD => {
                assert_eq!(open, None, "raised before the pod was back\n{}", world.tale.long_story());
            }
            Deed::Partition { to, who: Who::Operator, .. } => open = to.filter(|to| *to < set(world).replicas),
            Deed::Created(pod, ..) if open.is_some_and(|index| pod.ends_with(&format!("-{index}"))) => open = None,
            _ => {}
        }
    }
}

#[test]
fn a_rollout_without_trouble_is_as_everywhere() {
    everywhere(GOOD, |world| {
        let mut world = refusing(world);
        template(&mut world, 2);
        completed(&mut world, 2);
        assert_eq!(steps(&world), [HOLD, 2, 1, 0, 3], "no write more\n{}", world.tale.long_story());
    });
}

#[test]
fn in_mid_rollout_a_template_is_refused_and_while_paused_it_is_let_in() {
    everywhere(GOOD, |world| {
        let mut world = refusing(world);
        template(&mut world, 2);
        until_checked(&mut world, 2);
        template(&mut world, 3);
        assert_eq!((refused(&world), set(&world).template), (1, 2));
        world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
        world.pass(5);
        assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
        let before = uids(&world);
        template(&mut world, 3);
        world.pass(30);
        assert_eq!((refused(&world), set(&world).template), (1, 3));
        assert_eq!(uids(&world), before, "held");
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
        completed(&mut world, 3);
        never_in_between(&world);
    });
}

#[test]
fn a_pause_at_any_moment_makes_room_and_the_rollout_goes_on_where_it_was() {
    everywhere(GOOD, |start| {
        let start = refusing(start);
        for moment in 0..32 {
            let mut world = start.clone();
            template(&mut world, 2);
            world.pass(moment);
            world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
            world.pass(60);
            let pods = set(&world);
            assert!(pods.threshold() >= pods.replicas, "at {moment}\n{}", world.tale.long_story());
            let layout = set(&world).layout();
            world.pass(60);
            assert_eq!(set(&world).layout(), layout, "at {moment}");
            never_in_between(&world);
            world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
            completed(&mut world, 2);
            let made = count(&world, |deed| matches!(deed, Deed::Created(..)));
            assert_eq!(made, 3, "each pod once, at {moment}\n{}", world.tale.long_story());
        }
    });
}

/// A failing metric, a Prometheus that is down, pods that crash: a fix goes through and repairs what is broken.
#[test]
fn a_fix_goes_through_whenever_nothing_moves() {
    let failing = Release { metric: Metric::FailAt(1), ..GOOD };
    let silent = Release { metric: Metric::Error, ..GOOD };
    for second in [failing, silent, CRASHING, SILENT] {
        for policy in [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback] {
            everywhere(second, |world| {
                let world = with(world, |spec| (spec.check.preflight, spec.check.on_failure) = (false, policy));
                let mut world = refusing(world);
                template(&mut world, 2);
                world.pass(200);
                template(&mut world, 3);
                assert_eq!(refused(&world), 0, "{second:?} {policy:?}\n{}", world.tale.long_story());
                completed(&mut world, 3);
                never_in_between(&world);
            });
        }
    }
}

#[test]
fn a_lowered_partition_is_refused_and_break_glass_is_not() {
    let mut world = refusing(world(GOOD));
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.set_partition(SET, Some(0));
    world.set_partition(SET, None);
    assert_eq!((refused(&world), set(&world).partition), (2, Some(2)));
    world.break_glass(SET, 1);
    until(&mut world, |world| set(world).layout() == "0:1 1:2 2:2");
    assert_eq!(events(&world, "PartitionAllowed"), 1);
    completed(&mut world, 2);
    assert_eq!(phase(&world), Phase::Completed);
}

/// Written in the same change, the full hold lets a template in at any time.
#[test]
fn a_template_that_brings_the_hold_is_let_in_at_any_moment() {
    everywhere(GOOD, |start| {
        let start = refusing(start);
        for moment in 0..32 {
            let mut world = start.clone();
            template(&mut world, 2);
            world.pass(moment);
            world.edit(SET, "template 3 held", |set| (set.template, set.partition) = (3, Some(HOLD)));
            assert_eq!(refused(&world), 0);
            completed(&mut world, 3);
        }
    });
}
