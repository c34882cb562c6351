//! A pod that the API server refuses to make is a broken pod of its revision.

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_model::World;
use sts_plus_model::world::ROLLOUT;

use super::{carried, on_failure};
use crate::story::*;

const WHY: &str = "serviceaccount \"shop\" not found";

/// Template 2 names a service account that does not exist: web-2 is deleted for it, and no other is made.
fn refused(start: World, policy: OnFailure) -> World {
    let mut world = on_failure(start, policy);
    world.refused_templates.insert(2);
    template(&mut world, 2);
    until(&mut world, |world| set(world).pods.len() == 2);
    world
}

/// The status said that web-2 cannot be created, and Rolling, for ever: onFailure Rollback never began, and a replica was missing until somebody
/// looked. All tries take 8 s here.
// spec: pr§5, pr§6
#[test]
fn a_pod_that_cannot_be_made_is_rolled_back() {
    everywhere(GOOD, |start| {
        let mut world = refused(start, OnFailure::Rollback);
        world.pass(6);
        assert!(status(&world).rejected_revisions.is_empty(), "not before all tries: {}", world.tale.long_story());
        world.pass(120);
        lawful(&world);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1", "{}", world.tale.long_story());
        assert_eq!(phase(&world), Phase::RolledBack, "{}", world.tale.long_story());
        assert_eq!(status(&world).rejected_revisions, ["web-r2"]);
        still(&mut world);
    });
}

/// The other policies: it is told as failed, with what the API server said; Proceed opens nothing beside a pod that is not there.
// spec: pr§5, pr§6
#[test]
fn a_pod_that_cannot_be_made_has_failed_whatever_is_done_about_it() {
    for policy in [OnFailure::Hold, OnFailure::Pause, OnFailure::Proceed] {
        everywhere(GOOD, |start| {
            let mut world = refused(start, policy);
            world.pass(120);
            lawful(&world);
            assert_eq!(phase(&world), Phase::Failed, "{policy:?} {}", world.tale.long_story());
            assert!(condition(&world, "Stalled"));
            assert!(status(&world).message.contains(WHY), "{policy:?} {}", status(&world).message);
            // Whether web-2 is awaited or comes back as it was: the others have not moved.
            let layout = set(&world).layout();
            assert!(["0:1 1:1", "0:1 1:1 2:1"].contains(&layout.as_str()), "{policy:?} {layout}");
        });
    }
}

/// Somebody makes the service account. With Hold the rollout goes on by itself, with Pause after a retry.
// spec: pr§5, pr§6
#[test]
fn what_kept_the_pod_from_being_made_goes() {
    for policy in [OnFailure::Hold, OnFailure::Pause] {
        everywhere(GOOD, |start| {
            let mut world = refused(start, policy);
            until_phase(&mut world, Phase::Failed);
            world.refused_templates.clear();
            world.pass(120);
            if policy == OnFailure::Pause {
                assert_eq!(phase(&world), Phase::Failed, "{}", world.tale.long_story());
                world.annotate(ROLLOUT, names::RETRY, "now");
            }
            completed(&mut world, 2);
        });
    }
}

/// A fix and a revert are not kept out by a pod that is not there, before and after it counts as failed.
// spec: pr§4, pr§5
#[test]
fn a_fix_of_what_cannot_be_made_goes_through() {
    for policy in [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed] {
        everywhere(GOOD, |start| {
            for (next, moment) in [(3, 2), (3, 60), (1, 2), (1, 60)] {
                let mut world = refused(start.clone(), policy);
                world.pass(moment);
                template(&mut world, next);
                settle(&mut world);
                // A revert may have nothing to check: no pod of the failed template was ever there.
                let is_over = phase(&world) == Phase::Completed || (next == 1 && phase(&world) == Phase::Idle);
                assert!(is_over, "{policy:?} {next} {moment} {}", world.tale.long_story());
                at_rest_on(&mut world, next);
            }
        });
    }
}

/// It is the second pod: the first one has passed, and goes back too.
// spec: pr§5, pr§6
#[test]
fn a_second_pod_that_cannot_be_made_takes_the_first_one_back() {
    everywhere(GOOD, |start| {
        let mut world = on_failure(start, OnFailure::Rollback);
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.refused_templates.insert(2);
        until(&mut world, |world| set(world).pods.len() == 2);
        assert_eq!(carried(&world, 2), "web-r2");
        world.pass(200);
        lawful(&world);
        assert_eq!((set(&world).layout().as_str(), phase(&world)), ("0:1 1:1 2:1", Phase::RolledBack));
    });
}
