//! Sets that change hands, and a rollout that is complete.

use sts_plus_api::{DeletionPolicy, Phase, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Stop, World};

use crate::story::*;

const HEIR: &str = "other";

/// Two PhasedRollouts for web, the older one in charge, and a set to which its targetRef will go.
fn with_heir(policy: Option<DeletionPolicy>) -> World {
    let mut world = with(world(GOOD), |spec| spec.deletion_policy = policy);
    world.add_set("db", 2, 1);
    world.pass(5);
    world.add_rollout(HEIR, SET);
    settle(&mut world);
    world
}

fn claim(world: &World) -> Option<&str> {
    set(world).annotations.get(names::CLAIM).map(String::as_str)
}

const POLICIES: [Option<DeletionPolicy>; 3] = [None, Some(DeletionPolicy::Hold), Some(DeletionPolicy::Release)];

/// In mid-rollout the older PhasedRollout was pointed at another set, with deletionPolicy Release. Its set was let go, the partition removed, and
/// the pods rolled unchecked until the operator of the one that waited had taken it.
// spec: pr§7, pr§8, L030
#[test]
fn a_set_goes_to_the_one_that_waits_for_it_with_its_hold_when_target_ref_changes() {
    for policy in POLICIES {
        let mut world = with_heir(policy);
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.configure(ROLLOUT, "targetRef db", |spec| spec.target_ref = "db".into());
        // The operator of the older one alone: the controller comes next, and then the heir.
        world.operate(ROLLOUT, Stop::Never);
        assert_eq!(claim(&world), Some(HEIR), "{policy:?} {}", world.tale.long_story());
        world.sync(SET);
        world.settle(LONG);
        lawful(&world);
        let story = world.tale.long_story();
        assert_eq!(count(&world, |deed| matches!(deed, Deed::Partition { to: None, .. })), 0, "{policy:?} {story}");
        assert_eq!(world.rollouts[HEIR].status.phase, Phase::Completed, "{policy:?} {story}");
        assert_eq!((set(&world).layout().as_str(), set(&world).partition), ("0:2 1:2 2:2", Some(3)), "{story}");
        assert_eq!(world.sets["db"].annotations.get(names::CLAIM).map(String::as_str), Some(ROLLOUT));
    }
}

/// At rest: between the two owners there was no hold, and a template that came then rolled unchecked.
// spec: pr§7, pr§8
#[test]
fn at_rest_it_goes_to_the_one_that_waits_with_its_hold_too() {
    for policy in POLICIES {
        let mut world = with_heir(policy);
        world.configure(ROLLOUT, "targetRef db", |spec| spec.target_ref = "db".into());
        world.operate(ROLLOUT, Stop::Never);
        assert_eq!((claim(&world), set(&world).partition), (Some(HEIR), Some(3)), "{policy:?}");
        template(&mut world, 2);
        world.sync(SET);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1", "{policy:?}");
        world.settle(LONG);
        lawful(&world);
        assert_eq!(world.rollouts[HEIR].status.phase, Phase::Completed, "{policy:?} {}", world.tale.long_story());
    }
}

/// One PhasedRollout leaves web for db while another one leaves db for web.
// spec: pr§7
#[test]
fn two_that_change_places_take_each_others_set_with_its_hold() {
    let mut world = with(world(GOOD), |spec| spec.deletion_policy = Some(DeletionPolicy::Release));
    world.add_set("db", 2, 1);
    world.add_rollout(HEIR, "db");
    world.rollouts.get_mut(HEIR).unwrap().spec.deletion_policy = Some(DeletionPolicy::Release);
    settle(&mut world);
    world.tale.clear();
    world.configure(ROLLOUT, "targetRef db", |spec| spec.target_ref = "db".into());
    world.configure(HEIR, "targetRef web", |spec| spec.target_ref = SET.into());
    world.settle(LONG);
    lawful(&world);
    let freed = count(&world, |deed| matches!(deed, Deed::Partition { to: None, .. }));
    assert_eq!((freed, claim(&world)), (0, Some(HEIR)), "{}", world.tale.long_story());
    assert_eq!(world.sets["db"].annotations.get(names::CLAIM).map(String::as_str), Some(ROLLOUT));
}

/// A tool that knows only its own annotations stripped the claim. The operator took the set again, and what had been Completed and verified said
/// Idle and not verified.
// spec: pr§4, pr§9
#[test]
fn complete_stays_complete_when_the_claim_is_stripped() {
    everywhere(GOOD, |mut world| {
        world.policy = false;
        template(&mut world, 2);
        completed(&mut world, 2);
        world.edit(SET, "strips the claim", |set| drop(set.annotations.remove(names::CLAIM)));
        settle(&mut world);
        assert_eq!(claim(&world), Some(ROLLOUT), "{}", world.tale.long_story());
        assert_eq!(
            (phase(&world), reason(&world).as_str()),
            (Phase::Completed, "Completed"),
            "{}",
            world.tale.long_story()
        );
        assert_eq!(status(&world).verified_revision.as_deref(), Some("web-r2"));
        at_rest_on(&mut world, 2);
    });
}
