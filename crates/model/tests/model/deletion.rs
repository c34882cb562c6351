//! The end of a PhasedRollout, and sets that change hands (§7, §8).

use sts_plus_api::{DeletionPolicy, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, World};

use crate::story::*;

fn free(world: &World, name: &str) -> bool {
    world.sets[name].annotations.keys().all(|key| !key.starts_with("sts.plus/"))
}

/// Deletes the PhasedRollout and runs until it is gone.
fn delete(world: &mut World) {
    world.delete_rollout(ROLLOUT);
    settle(world);
    assert!(world.rollouts.is_empty(), "deletion ends");
}

// spec: pr§8, L161
#[test]
fn at_rest_it_is_released_and_nothing_rolls() {
    for policy in [None, Some(DeletionPolicy::Release)] {
        let mut world = with(world(GOOD), |spec| spec.deletion_policy = policy);
        let before = uids(&world);
        delete(&mut world);
        assert_eq!((set(&world).partition, uids(&world)), (None, before));
        assert!(free(&world, SET));
    }
}

#[test]
fn an_explicit_hold_holds_at_rest_too() {
    let mut world = with(world(GOOD), |spec| spec.deletion_policy = Some(DeletionPolicy::Hold));
    delete(&mut world);
    assert_eq!(set(&world).partition, Some(3));
    assert!(free(&world, SET));
}

// spec: pr§8, L092
#[test]
fn while_rolling_the_hold_stays() {
    for policy in [None, Some(DeletionPolicy::Hold)] {
        let mut world = with(world(GOOD), |spec| spec.deletion_policy = policy);
        template(&mut world, 2);
        until_checked(&mut world, 2);
        delete(&mut world);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2");
        assert!(free(&world, SET));
        assert_eq!(events(&world, "Released"), 1, "{}", world.tale.long_story());
    }
}

#[test]
fn while_rolling_release_lets_the_rest_roll() {
    let mut world = with(world(GOOD), |spec| spec.deletion_policy = Some(DeletionPolicy::Release));
    template(&mut world, 2);
    until_checked(&mut world, 2);
    delete(&mut world);
    assert_eq!((set(&world).partition, set(&world).layout().as_str()), (None, "0:2 1:2 2:2"));
}

// spec: pr§8
#[test]
fn deletion_ends_with_the_target_gone() {
    let mut world = world(GOOD);
    world.sets.clear();
    settle(&mut world);
    assert_eq!(reason(&world), "TargetNotFound");
    delete(&mut world);
}

/// §7: the old set is released first; at rest its partition goes.
// spec: pr§7, L030
#[test]
fn target_ref_changed_at_rest() {
    for exists in [true, false] {
        let mut world = world(GOOD);
        if exists {
            world.add_set("db", 2, 1);
            world.settle(LONG);
        }
        world.configure(ROLLOUT, "targetRef db", |spec| spec.target_ref = "db".into());
        settle(&mut world);
        assert!(free(&world, SET), "{}", world.tale.long_story());
        assert_eq!(set(&world).partition, None, "{}", world.tale.long_story());
        if exists {
            assert_eq!(world.sets["db"].annotations.get(names::CLAIM).map(String::as_str), Some(ROLLOUT));
            assert_eq!(world.sets["db"].partition, Some(2));
        }
        still(&mut world);
    }
}

// spec: pr§7, L030
#[test]
fn target_ref_changed_in_mid_rollout() {
    let mut world = world(GOOD);
    world.add_set("db", 2, 1);
    world.settle(LONG);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.configure(ROLLOUT, "targetRef db", |spec| spec.target_ref = "db".into());
    settle(&mut world);
    assert!(free(&world, SET));
    assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "held while rolling");
    assert_eq!(world.sets["db"].partition, Some(2));
    assert_eq!(status(&world).target.as_deref(), Some("db"));
}

/// The older one wins; the other says so and takes over, with the partition as it is, whatever deletionPolicy says.
// spec: pr§7
#[test]
fn rivals() {
    for policy in [None, Some(DeletionPolicy::Hold), Some(DeletionPolicy::Release)] {
        let mut world = with(world(GOOD), |spec| spec.deletion_policy = policy);
        world.pass(1);
        world.add_rollout("other", SET);
        settle(&mut world);
        let other = &world.rollouts["other"].status;
        let accepted = other.conditions.iter().find(|c| c.type_ == "TargetAccepted").unwrap();
        assert_eq!((accepted.status.as_str(), accepted.reason.as_str()), ("False", "Conflict"));
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.delete_rollout(ROLLOUT);
        world.run(LONG, |world| world.rollouts.len() == 1);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
        assert!(count(&world, |d| matches!(d, Deed::Partition { to: None, .. })) == 0, "{}", world.tale.long_story());
        world.settle(LONG);
        lawful(&world);
        assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
        let status = &world.rollouts["other"].status;
        assert_eq!(status.phase, sts_plus_api::Phase::Completed, "{}", world.tale.long_story());
    }
}
