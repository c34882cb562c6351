//! A cycle fails only if an answer refused, or a pod was broken: what breaks a streak and is no refusal gives its tries back.

use sts_plus_api::{OnFailure, Phase, Step, Verdict, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, World};

use super::on_failure;
use crate::story::*;

/// As many tries as passes are needed: there is none to spare.
fn no_try_to_spare(world: World, policy: OnFailure) -> World {
    with(world, |spec| {
        spec.check.on_failure = policy;
        (spec.check.success_threshold, spec.check.max_tries) = (2, 2);
    })
}

const FAILING: [OnFailure; 3] = [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback];

/// Both checks of web-2 had passed, and a person took 70 s to approve the next pod. The passes were stale by then, one more pass was the third
/// try of two, and the release was rolled back and rejected although every check of it had passed.
// spec: pr§3, pr§5
#[test]
fn passes_that_are_stale_when_a_person_approves_are_no_failure() {
    for policy in FAILING {
        everywhere(GOOD, |start| {
            let mut world = with(no_try_to_spare(start, policy), |spec| spec.pause_before = vec![1]);
            template(&mut world, 2);
            until_phase(&mut world, Phase::Paused);
            world.pass(70);
            world.annotate(ROLLOUT, names::APPROVE, "web-r2/1");
            completed(&mut world, 2);
            assert_eq!((events(&world, "ChecksFailed"), status(&world).rejected_revisions.len()), (0, 0));
        });
    }
}

/// The same before the first pod: the rollout was Failed before anything of it had been asked and refused, with Pause until a retry.
// spec: pr§3, pr§5
#[test]
fn passes_of_a_preflight_that_are_stale_when_a_person_approves_are_no_failure() {
    for policy in FAILING {
        let mut world = with(no_try_to_spare(world(GOOD), policy), |spec| spec.pause_before = vec![2]);
        template(&mut world, 2);
        until_phase(&mut world, Phase::Paused);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
        world.pass(70);
        world.annotate(ROLLOUT, names::APPROVE, "web-r2/2");
        completed(&mut world, 2);
        assert_eq!(events(&world, "ChecksFailed"), 0, "{policy:?}");
    }
}

/// What breaks a streak of passes.
type Break = fn(&mut World);

const BREAKS: [(&str, Break); 4] = [
    ("a pause", |world| {
        world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
        world.pass(5);
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    }),
    ("an edited spec", |world| {
        world.configure(ROLLOUT, "another query", |spec| spec.check.query.as_mut().unwrap().expr = "down".into());
    }),
    ("a pod that was away for a moment", |world| {
        world.break_pod(SET, 0);
        world.pass(1);
        world.heal_pod(SET, 0);
    }),
    ("an answer that did not come", |world| {
        world.prometheus_down = true;
        world.pass(5);
        world.prometheus_down = false;
    }),
];

/// One of two checks had passed when somebody paused for lunch (edited the query, drained a node, restarted Prometheus): the passes after it
/// did not fit into the tries that were left, and a release that no check ever refused was rolled back, or Stalled.
// spec: pr§3, pr§4, pr§5
#[test]
fn what_breaks_a_streak_and_is_no_refusal_gives_its_tries_back() {
    let mut wrong = Vec::new();
    for step in [Step::Preflight, Step::Pod, Step::Final] {
        for (what, disturb) in BREAKS {
            for policy in FAILING {
                let mut world = no_try_to_spare(world(GOOD), policy);
                template(&mut world, 2);
                until(&mut world, |world| {
                    let current = status(world).current.as_ref();
                    current.is_some_and(|current| current.step == step && current.consecutive_passes == 1)
                });
                disturb(&mut world);
                world.settle(LONG);
                lawful(&world);
                if phase(&world) != Phase::Completed || events(&world, "ChecksFailed") > 0 {
                    wrong.push(format!("{step:?}, {what}, {policy:?}: {:?} {}", phase(&world), status(&world).message));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two passes of three, and then an answer that says nothing.
const TWO_OF_THREE: [&[Verdict]; 2] =
    [&[Verdict::NoData, Verdict::NoData, Verdict::Error], &[Verdict::NoData, Verdict::NoData, Verdict::Unproven]];

fn three_of_four(world: World, policy: OnFailure) -> World {
    with(on_failure(world, policy), |spec| (spec.check.success_threshold, spec.check.max_tries) = (3, 4))
}

/// A Prometheus behind a flaky proxy answers two times of three, and three passes in a row are needed: after four answers, none of which was a
/// refusal, the release was rolled back.
// spec: pr§3, L066
#[test]
fn a_prometheus_that_answers_two_times_of_three_never_fails_a_rollout() {
    for (policy, answers) in FAILING.into_iter().flat_map(|policy| TWO_OF_THREE.map(|answers| (policy, answers))) {
        everywhere(Release { metric: Metric::InTurn(answers), ..GOOD }, |start| {
            let mut world = three_of_four(start, policy);
            template(&mut world, 2);
            until_checked(&mut world, 2);
            world.pass(600);
            assert_eq!(events(&world, "ChecksFailed"), 0, "{policy:?} {}", world.tale.long_story());
            assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{policy:?}");
            assert!(status(&world).rejected_revisions.is_empty());
            world.releases.insert(2, GOOD);
            completed(&mut world, 2);
        });
    }
}

/// Nor is it a way around a refusal: what was refused stays counted, however often Prometheus fails to answer in between.
// spec: pr§3, pr§5
#[test]
fn what_was_refused_stays_counted_between_errors() {
    const REFUSED: [&[Verdict]; 3] = [
        &[Verdict::Data, Verdict::Error],
        &[Verdict::Data, Verdict::NoData, Verdict::Error],
        &[Verdict::NoData, Verdict::NoData, Verdict::Data],
    ];
    for answers in REFUSED {
        let mut world = three_of_four(world(Release { metric: Metric::InTurn(answers), ..GOOD }), OnFailure::Rollback);
        template(&mut world, 2);
        until_phase(&mut world, Phase::RolledBack);
        assert_eq!(status(&world).rejected_revisions, ["web-r2"], "{answers:?}");
    }
}

/// An autoscaler went from three pods to four and back while a preflight was refused, again and again. Each time the pod that would be next was
/// another one, and the counters of its cycle began at zero: the rollout never failed, and nobody was told.
// spec: pr§4, pr§5
#[test]
fn an_autoscaler_between_two_sizes_does_not_keep_a_refused_preflight_from_failing() {
    everywhere(BAD_METRIC, |mut world| {
        template(&mut world, 2);
        for replicas in [4, 3].into_iter().cycle().take(20) {
            world.pass(5);
            world.scale(SET, replicas);
        }
        assert!(events(&world, "ChecksFailed") > 0, "{}", world.tale.long_story());
    });
}

/// Two of three checks had passed when the node of the operator went down for ten minutes, without anything happening to the pods. One pass after
/// that let the next pod go: what passed before said nothing about the time in between.
// spec: pr§3, pr§4
#[test]
fn passes_from_before_a_long_absence_of_the_operator_do_not_count() {
    everywhere(GOOD, |start| {
        let mut world = with(on_failure(start, OnFailure::Hold), |spec| {
            (spec.check.success_threshold, spec.check.max_tries) = (3, 20);
        });
        template(&mut world, 2);
        until(&mut world, |world| {
            status(world).current.as_ref().is_some_and(|current| current.index == 2 && current.consecutive_passes == 2)
                && set(world).layout() == "0:1 1:1 2:2"
        });
        world.now += 600;
        world.restart_operator();
        let made = |world: &World| count(world, |deed| matches!(deed, Deed::Checked(_, "pass")));
        let before = made(&world);
        until(&mut world, |world| set(world).partition == Some(1));
        assert_eq!(made(&world) - before, 3, "{}", world.tale.long_story());
    });
}
