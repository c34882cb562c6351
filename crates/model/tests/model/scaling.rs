//! Scaling in every phase (§4.7), and sets without pods.

use sts_plus_api::Phase;
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Metric, Release, Stop};

use crate::story::*;

/// Up, down, down to one and back, at every moment of a rollout: it completes, and no rule is broken.
#[test]
fn at_any_moment() {
    everywhere(GOOD, |start| {
        for replicas in [[5, 3], [2, 3], [1, 4]] {
            for moment in 0..34 {
                let mut world = start.clone();
                template(&mut world, 2);
                world.pass(moment);
                world.scale(SET, replicas[0]);
                world.pass(4);
                world.scale(SET, replicas[1]);
                completed(&mut world, 2);
            }
        }
    });
}

/// Template and replicas in one write, with the policy: new pods start on the old template (O2).
#[test]
fn template_and_scale_in_one_write() {
    let mut world = world(GOOD);
    world.edit(SET, "template 2, replicas 5", |set| (set.template, set.replicas) = (2, 5));
    until(&mut world, |world| set(world).pods.len() == 5);
    assert_eq!(set(&world).layout().replace('!', ""), "0:1 1:1 2:1 3:1 4:1");
    completed(&mut world, 2);
    assert_eq!(steps(&world), [4, 3, 2, 1, 0, 5]);
}

/// The operator looks after the scale-up and before the controller has seen it: the pods are told all the same, once.
#[test]
fn births_are_told_however_late_the_controller_is() {
    for late in [0, 1, 5] {
        let mut world = world(GOOD);
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.scale(SET, 5);
        for _ in 0..late {
            world.now += 1;
            world.operate(ROLLOUT, Stop::Never);
        }
        completed(&mut world, 2);
        assert_eq!(events(&world, "PodsSlipped"), 1, "{late}\n{}", world.tale.long_story());
    }
}

/// L053: the rolled pods are scaled away: nothing stands for the revision any more, so hold and preflight again.
#[test]
fn the_rolled_pods_are_scaled_away() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.scale(SET, 2);
    until(&mut world, |world| set(world).pods.len() == 2 && set(world).partition == Some(HOLD));
    world.scale(SET, 3);
    until(&mut world, |world| set(world).layout() == "0:1 1:1 2:1");
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

/// An HPA reacts to the bad release: new pods start on the current revision while the rollout is Stalled.
#[test]
fn scaled_up_while_failed() {
    let mut world = with(world(Release { metric: Metric::FailAt(2), ..GOOD }), |spec| spec.check.preflight = false);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.scale(SET, 5);
    until(&mut world, |world| set(world).layout() == "0:1 1:1 2:2 3:1 4:1");
    world.pass(30);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:2 3:1 4:1");
    template(&mut world, 3);
    completed(&mut world, 3);
    insta::assert_snapshot!(world.tale.story());
}

/// And then the template goes back, or the release is mended.
#[test]
fn scaled_up_while_failed_everywhere() {
    for bad in [CRASHING, Release { metric: Metric::FailAt(2), ..GOOD }] {
        everywhere(bad, |start| {
            for next in [1, 3] {
                let mut world = with(start.clone(), |spec| spec.check.preflight = false);
                template(&mut world, 2);
                until_phase(&mut world, Phase::Failed);
                world.scale(SET, 5);
                world.pass(10);
                template(&mut world, next);
                completed(&mut world, next);
            }
        });
    }
}

#[test]
fn to_zero_and_back_in_mid_rollout() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.scale(SET, 0);
    settle(&mut world);
    assert!(condition(&world, "RolledOut"));
    assert_eq!(reason(&world), "NoPods", "{}", world.tale.long_story());
    world.scale(SET, 3);
    settle(&mut world);
    // The native controller makes the revision current without a pod (O4): nobody could hold it, and nobody claims to have checked it.
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
    assert_eq!(phase(&world), Phase::Idle, "{}", world.tale.long_story());
    assert_eq!(status(&world).verified_revision, None);
    at_rest_on(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

#[test]
fn to_zero_and_back_at_rest() {
    let mut world = world(GOOD);
    world.scale(SET, 0);
    settle(&mut world);
    world.scale(SET, 3);
    settle(&mut world);
    at_rest_on(&mut world, 1);
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world).last(), Some(&3));
}

/// From zero, with another template in the write that scales up, or before, or just after.
#[test]
fn from_zero_with_a_template() {
    for between in [0, 1, 2, 3, 5, 60] {
        let mut world = world(GOOD);
        world.scale(SET, 0);
        settle(&mut world);
        if between == 0 {
            world.edit(SET, "template 2, replicas 3", |set| (set.template, set.replicas) = (2, 3));
        } else {
            world.scale(SET, 3);
            world.pass(between);
            template(&mut world, 2);
        }
        settle(&mut world);
        assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
        still(&mut world);
    }
}

/// Pods that die at any moment come back where the hold says, and the rollout goes on.
#[test]
fn pods_die_at_any_moment() {
    everywhere(GOOD, |start| {
        for ordinal in 0..3 {
            for moment in 0..30 {
                let mut world = start.clone();
                template(&mut world, 2);
                world.pass(moment);
                world.delete_pod(SET, ordinal);
                completed(&mut world, 2);
            }
        }
    });
}
