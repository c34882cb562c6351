//! Scaling in every phase (§4.7), and sets without pods.

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, Stop, World};

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
// spec: pr§4, L149
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
// spec: pr§4, L053
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

// spec: pr§4, L033
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

fn warnings_of_no_pods(world: &World) -> Vec<String> {
    let note = |deed: &Deed| match deed {
        Deed::Event("PR", reason, note) if reason == "NoPods" => Some(note.clone()),
        _ => None,
    };
    world.tale.deeds().filter_map(note).collect()
}

/// Rolled back, and then scaled to 0.
fn rejected_and_scaled_to_zero(world: World) -> World {
    let mut world = with(world, |spec| {
        spec.check.on_failure = OnFailure::Rollback;
        spec.check.preflight = false;
    });
    template(&mut world, 2);
    until_phase(&mut world, Phase::RolledBack);
    world.scale(SET, 0);
    settle(&mut world);
    world
}

/// Without pods Kubernetes makes the rejected template the current one. The operator cannot keep it from that, and says it once.
#[test]
fn without_pods_it_is_told_that_a_scale_up_starts_what_was_rejected() {
    let bad = Release { metric: Metric::FailAt(1), ..GOOD };
    everywhere(bad, |start| {
        let mut world = rejected_and_scaled_to_zero(start);
        let message = "StatefulSet web has no pods left: Kubernetes starts all pods on web-r2, which was rejected, when it is scaled up; put \
                       the template of web-r1 back before that";
        assert_eq!(status(&world).message, message);
        assert_eq!(warnings_of_no_pods(&world), [message]);
        assert_eq!(reason(&world), "NoPods");
        still(&mut world);
        // Done as it says.
        template(&mut world, 1);
        settle(&mut world);
        assert!(status(&world).message.contains("nothing was checked"), "{}", status(&world).message);
        world.scale(SET, 3);
        settle(&mut world);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
        at_rest_on(&mut world, 1);
    });
}

/// What was not rejected and has not passed is told as that; what comes after it as well.
#[test]
fn without_pods_it_is_told_that_a_scale_up_starts_what_was_not_checked() {
    let mut world = world(GOOD);
    world.scale(SET, 0);
    settle(&mut world);
    assert_eq!(warnings_of_no_pods(&world), [""; 0], "what runs is what runs again");
    for pending in [2, 3] {
        template(&mut world, pending);
        settle(&mut world);
        let told = format!("starts all pods on web-r{pending}, which has not passed its checks, when");
        assert!(status(&world).message.contains(&told), "{}", status(&world).message);
    }
    assert_eq!(warnings_of_no_pods(&world).len(), 2);
    template(&mut world, 1);
    settle(&mut world);
    assert_eq!(warnings_of_no_pods(&world).len(), 2);
    template(&mut world, 2);
    settle(&mut world);
    world.scale(SET, 3);
    settle(&mut world);
    // What came over zero is the last good revision, and nobody claims to have checked it.
    at_rest_on(&mut world, 2);
    assert_eq!(status(&world).previous_revision.as_deref(), Some("web-r2"));
    assert_eq!(status(&world).verified_revision, None);
}

/// A rejected revision that all pods carry: it is told as that, held for the next template, and neither fix nor revert waits for its checks.
#[test]
fn scaled_up_on_a_rejected_revision_and_out_of_it_again() {
    let bad = Release { metric: Metric::FailAt(1), ..GOOD };
    everywhere(bad, |start| {
        for next in [1, 3] {
            let mut world = rejected_and_scaled_to_zero(start.clone());
            world.scale(SET, 3);
            settle(&mut world);
            assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
            let message = &status(&world).message;
            assert!(message.contains("web-r2 was rejected and nothing can hold it"), "{message}");
            assert!(
                message.contains("3 of 3 pods carry it; change the template back to web-r1 or to a mended one"),
                "{message}"
            );
            assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Held, "RevisionRejected"));
            assert!(condition(&world, "Stalled") && !condition(&world, "RolledOut"));
            assert_eq!(set(&world).partition, Some(HOLD), "for the template that comes next");
            still(&mut world);
            template(&mut world, next);
            completed(&mut world, next);
        }
    });
}

/// The retry makes the checks that were not made.
#[test]
fn scaled_up_on_a_rejected_revision_and_tried_again() {
    let mut world = rejected_and_scaled_to_zero(world(Release { metric: Metric::FailAt(1), ..GOOD }));
    world.scale(SET, 3);
    settle(&mut world);
    world.releases.insert(2, BAD_METRIC);
    world.annotate(ROLLOUT, names::RETRY, "1");
    until_phase(&mut world, Phase::Failed);
    assert_eq!(reason(&world), "ChecksFailed");
    world.releases.insert(2, GOOD);
    completed(&mut world, 2);
    assert_eq!(status(&world).verified_revision.as_deref(), Some("web-r2"));
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
// spec: pr§4, L154
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
