//! Rollouts in which nothing goes wrong.

use sts_plus_api::Phase;
use sts_plus_model::world::SET;
use sts_plus_model::{Deed, Who, World};

use crate::story::*;

#[test]
fn three_pods() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world), [2, 1, 0, 3]);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§4
#[test]
fn every_loop_and_policy() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        completed(&mut world, 2);
        assert_eq!(steps(&world), [2, 1, 0, 3]);
        assert_eq!(count(&world, |deed| matches!(deed, Deed::Deleted(..))), 3);
    });
}

/// §9: one partition patch and at most successThreshold + 1 statuses and one event for each pod.
// spec: pr§9
#[test]
fn few_writes() {
    for threshold in 1..5 {
        let mut world = with(world(GOOD), |spec| {
            (spec.check.success_threshold, spec.check.max_tries) = (threshold, 9);
        });
        template(&mut world, 2);
        completed(&mut world, 2);
        let cycles = 5; // preflight, three pods (the last one's is the final cycle), and the rest state
        let statuses = count(&world, |deed| matches!(deed, Deed::Status(..)));
        assert!(
            statuses <= (cycles - 1) * (usize::try_from(threshold).unwrap() + 1) + 1,
            "{threshold}: {statuses}\n{}",
            world.tale.story()
        );
        assert_eq!(events(&world, "PartitionLowered"), 3);
        assert_eq!(count(&world, |deed| matches!(deed, Deed::Event("PR", ..))), 5, "{}", world.tale.story());
        assert_eq!(count(&world, |deed| matches!(deed, Deed::Event("STS", ..))), 2);
    }
}

#[test]
fn no_delay_no_preflight_no_final() {
    let mut world = with(world(GOOD), |spec| {
        let check = &mut spec.check;
        (check.initial_delay_seconds, check.preflight, check.final_check) = (0, false, false);
    });
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world), [2, 1, 0, 3]);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§4, L108
#[test]
fn ordinals_start_at_five() {
    let mut world = World::empty();
    world.add_set(SET, 3, 1);
    set_mut(&mut world).start = 5;
    world.settle(LONG);
    world.add_rollout("gate", SET);
    world.settle(LONG);
    world.tale.clear();
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world), [2, 1, 0, 3]);
    let gone: Vec<_> = world
        .tale
        .deeds()
        .filter_map(|deed| match deed {
            Deed::Deleted(Who::Native, pod) => Some(pod.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(gone, ["web-7", "web-6", "web-5"]);
}

#[test]
fn min_ready_seconds() {
    let mut world = world(GOOD);
    set_mut(&mut world).min_ready = 30;
    world.settle(LONG);
    world.tale.clear();
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world), [2, 1, 0, 3]);
    insta::assert_snapshot!(world.tale.story());
}

#[test]
fn two_rollouts_one_after_the_other() {
    let mut world = world(GOOD);
    for next in 2..5 {
        template(&mut world, next);
        completed(&mut world, next);
        assert_eq!(status(&world).verified_revision.as_deref(), Some(set(&world).wanted().as_str()));
    }
}

#[test]
fn a_single_pod() {
    let mut world = World::new(1);
    template(&mut world, 2);
    completed(&mut world, 2);
    assert_eq!(steps(&world), [0, 1]);
}

// spec: pr§4, L077
#[test]
fn a_new_revision_in_mid_rollout() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 1);
    template(&mut world, 3);
    completed(&mut world, 3);
    insta::assert_snapshot!(world.tale.story());
}

/// The same at every moment of the first rollout, with and without the policy.
// spec: pr§4, L077
#[test]
fn a_new_revision_at_any_moment() {
    everywhere(GOOD, |start| {
        for moment in 0..40 {
            let mut world = start.clone();
            template(&mut world, 2);
            world.pass(moment);
            template(&mut world, 3);
            completed(&mut world, 3);
        }
    });
}

#[test]
fn back_under_the_hold_before_anything_moved() {
    let mut world = with(world(BAD_METRIC), |_| {});
    let before = uids(&world);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    template(&mut world, 1);
    settle(&mut world);
    assert_eq!(phase(&world), Phase::Idle, "{}", world.tale.long_story());
    assert!(condition(&world, "RolledOut"));
    at_rest_on(&mut world, 1);
    assert_eq!(uids(&world), before);
    insta::assert_snapshot!(world.tale.story());
}
