//! A rollback during which the revision to go back to is no longer the current one: what is deleted now would not come back on it.

use std::collections::BTreeSet;

use sts_plus_api::{OnFailure, Phase};
use sts_plus_model::world::SET;
use sts_plus_model::{Deed, Metric, Release, Who, World};

use crate::story::*;

/// Longer than two pods take to go back.
const MOMENTS: i64 = 12;

/// The pods 2 and 1 go back to template 1.
fn going_back(start: &World) -> World {
    let mut world = with(start.clone(), |spec| {
        (spec.check.on_failure, spec.check.preflight) = (OnFailure::Rollback, false);
    });
    template(&mut world, 2);
    until_phase(&mut world, Phase::RollingBack);
    assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
    world
}

/// The controller takes `revision` for the current one; without one, it has lost the `ControllerRevision` (native-statefulset B2).
fn moves_to(world: &mut World, revision: Option<&str>) {
    let set = set_mut(world);
    if let Some(revision) = revision {
        set.revisions.insert(revision.to_owned());
        set.status.current = Some(revision.to_owned());
    } else {
        set.revisions.remove("web-r1");
    }
    world.sync(SET);
}

fn deletions(world: &World) -> usize {
    count(world, |deed| matches!(deed, Deed::Deleted(Who::Operator, _)))
}

/// Whatever the moment: no pod is deleted from then on, the hold stands, and the status says what is wrong.
// spec: pr§5, L083, L113
#[test]
fn no_pod_goes_back_once_the_current_revision_has_moved() {
    for revision in [None, Some("web-r7")] {
        let mut said = BTreeSet::new();
        everywhere(Release { metric: Metric::FailAt(1), ..GOOD }, |start| {
            for moment in 0..MOMENTS {
                let mut world = going_back(&start);
                let untouched = uids(&world)[0];
                world.pass(moment);
                moves_to(&mut world, revision);
                let deleted = deletions(&world);
                settle(&mut world);
                let story = world.tale.long_story();
                assert_eq!((deletions(&world), set(&world).partition), (deleted, Some(HOLD)), "{moment} {story}");
                assert_eq!(uids(&world)[0], untouched);
                let is_back = set(&world).layout() == "0:1 1:1 2:1";
                let expected = if is_back { Phase::RolledBack } else { Phase::RollingBack };
                assert_eq!((phase(&world), condition(&world, "Stalled")), (expected, true), "{moment} {story}");
                let new = revision.unwrap_or("web-r2");
                let words = [
                    (format!("carries {new} and not web-r1; the rollback is stopped and held"), "came back"),
                    (format!("{new} is the current revision: going back to web-r1 needs a template change"), "moved"),
                    ("all pods are back on web-r1".into(), "was over"),
                ];
                let message = &status(&world).message;
                let told = words.iter().find(|(words, _)| message.contains(words));
                let (_, told) = told.unwrap_or_else(|| panic!("{moment} {message}\n{story}"));
                assert_eq!(*told == "was over", is_back, "{moment} {message}");
                said.insert(*told);
                still(&mut world);
                // The way out is a template: the one before, or the next.
                for next in [1, 3] {
                    let mut world = world.clone();
                    template(&mut world, next);
                    completed(&mut world, next);
                }
            }
        });
        assert_eq!(said.len(), 3, "not every case came up: {said:?}");
    }
}
