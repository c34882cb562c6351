//! Checks that fail, that cannot be made, and what each onFailure does about it.

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_decide::{Observed, Stray, Target, decide};
use sts_plus_model::world::{ROLLOUT, SET, stamp};
use sts_plus_model::{Deed, Ended, Metric, Release, Who, World};

use crate::story::*;

fn failing_at(index: i32) -> Release {
    Release { metric: Metric::FailAt(index), ..GOOD }
}

fn on_failure(world: World, policy: OnFailure) -> World {
    with(world, |spec| {
        spec.check.on_failure = policy;
        spec.check.preflight = false;
    })
}

// spec: pr§5
#[test]
fn hold_and_go_on_when_it_passes_again() {
    let mut world = on_failure(world(failing_at(1)), OnFailure::Hold);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    assert!(condition(&world, "Stalled"));
    world.pass(60);
    assert_eq!(set(&world).partition, Some(HOLD), "the hold while Stalled");
    assert_eq!(events(&world, "ChecksFailed"), 1, "{}", world.tale.long_story());
    world.releases.insert(2, GOOD);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

// spec: pr§5
#[test]
fn pause_until_retry() {
    let mut world = on_failure(world(failing_at(1)), OnFailure::Pause);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.releases.insert(2, GOOD);
    world.pass(100);
    assert_eq!(phase(&world), Phase::Failed);
    assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
    world.annotate(ROLLOUT, names::RETRY, "1");
    completed(&mut world, 2);
}

// spec: pr§5, L081, L086
#[test]
fn rollback_of_two_pods() {
    everywhere(failing_at(1), |world| {
        let mut world = on_failure(world, OnFailure::Rollback);
        let untouched = uids(&world)[0];
        template(&mut world, 2);
        settle(&mut world);
        assert_eq!(phase(&world), Phase::RolledBack, "{}", world.tale.long_story());
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
        assert_eq!(uids(&world)[0], untouched);
        assert_eq!(set(&world).partition, Some(HOLD));
        assert_eq!(status(&world).rejected_revisions, ["web-r2"]);
        let deleted = count(&world, |deed| matches!(deed, Deed::Deleted(Who::Operator, _)));
        assert_eq!(deleted, 2);
        still(&mut world);
        world.releases.insert(2, GOOD);
        world.annotate(ROLLOUT, names::RETRY, "again");
        completed(&mut world, 2);
        assert!(status(&world).rejected_revisions.is_empty());
    });
    let mut world = on_failure(world(failing_at(1)), OnFailure::Rollback);
    template(&mut world, 2);
    settle(&mut world);
    insta::assert_snapshot!(world.tale.story());
}

/// A Ready pod goes back only while all others are available. Whoever waits is told for which.
#[test]
fn a_rollback_that_waits_names_the_pod_it_waits_for() {
    everywhere(failing_at(1), |world| {
        let mut world = on_failure(world, OnFailure::Rollback);
        template(&mut world, 2);
        until_phase(&mut world, Phase::RollingBack);
        world.break_pod(SET, 0);
        until(&mut world, |world| {
            status(world).message.contains("pods of web-r2 go back to web-r1; waiting: web-0 is not Ready")
        });
        world.heal_pod(SET, 0);
        until_phase(&mut world, Phase::RolledBack);
        settle(&mut world);
    });
}

/// L079: a crash-looping pod counts as maxTries used up after maxTries times periodSeconds.
#[test]
fn rollback_of_a_crashing_pod() {
    everywhere(CRASHING, |world| {
        let mut world = on_failure(world, OnFailure::Rollback);
        template(&mut world, 2);
        settle(&mut world);
        assert_eq!(phase(&world), Phase::RolledBack, "{}", world.tale.long_story());
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
        template(&mut world, 3);
        completed(&mut world, 3);
    });
}

/// Whatever fails, and however often: what is remembered of it is bounded, and the last ones are what is kept.
// spec: pr§5, pr§9, L114
#[test]
fn fifty_rejected_releases_leave_a_bounded_record() {
    let mut world = on_failure(world(GOOD), OnFailure::Rollback);
    for release in 2..52 {
        world.releases.insert(release, failing_at(2));
        template(&mut world, release);
        settle(&mut world);
        assert_eq!(phase(&world), Phase::RolledBack, "{}", status(&world).message);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    }
    let status = status(&world);
    let kept: Vec<_> = (42..52).map(|release| format!("web-r{release}")).collect();
    assert_eq!(status.rejected_revisions, kept);
    assert!(status.passed.len() <= 8 && status.checks.len() <= 5, "{} {}", status.passed.len(), status.checks.len());
}

/// A rejected revision that comes back later is held until retry; this stands before any repair.
// spec: pr§5, L081
#[test]
fn a_rejected_revision_comes_back() {
    let mut world = on_failure(world(failing_at(2)), OnFailure::Rollback);
    template(&mut world, 2);
    settle(&mut world);
    template(&mut world, 3);
    completed(&mut world, 3);
    let before = uids(&world);
    template(&mut world, 2);
    settle(&mut world);
    assert_eq!(reason(&world), "RevisionRejected");
    assert_eq!(set(&world).partition, Some(HOLD));
    world.scale(SET, 4);
    settle(&mut world);
    assert_eq!(uids(&world)[..3], before[..]);
    assert_eq!(set(&world).layout(), "0:3 1:3 2:3 3:3");
    template(&mut world, 3);
    completed(&mut world, 3);
}

// spec: pr§5
#[test]
fn rollback_acts_as_hold_during_preflight() {
    let mut world = with(world(BAD_METRIC), |spec| spec.check.on_failure = OnFailure::Rollback);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    assert!(status(&world).rejected_revisions.is_empty());
    assert_eq!(steps(&world), [0; 0]);
    world.releases.insert(2, GOOD);
    completed(&mut world, 2);
}

#[test]
fn rollback_after_the_last_pod_needs_a_template() {
    let mut world = on_failure(world(Release { metric: Metric::FailAfter, ..GOOD }), OnFailure::Rollback);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.pass(60);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
    assert!(status(&world).message.contains("template"), "{}", status(&world).message);
    template(&mut world, 1);
    completed(&mut world, 1);
}

#[test]
fn proceed_all_the_same() {
    everywhere(BAD_METRIC, |world| {
        let mut world = on_failure(world, OnFailure::Proceed);
        template(&mut world, 2);
        completed(&mut world, 2);
        assert_eq!(steps(&world), [2, 1, 0, 3]);
        assert_eq!(events(&world, "ChecksIgnored"), 3);
    });
}

/// Proceed ignores checks, not pods that are not there: one pod per step all the same.
#[test]
fn proceed_does_not_run_ahead_of_its_pods() {
    everywhere(CRASHING, |world| {
        let mut world = on_failure(world, OnFailure::Proceed);
        template(&mut world, 2);
        world.settle(LONG);
        lawful(&world);
        assert_ne!(phase(&world), Phase::Completed, "{}", world.tale.long_story());
        let off = set(&world).pods.iter().filter(|(_, pod)| pod.revision == "web-r1");
        let below = off.filter(|(ordinal, _)| **ordinal >= set(&world).threshold()).count();
        assert!(below <= 1, "{}", world.tale.long_story());
    });
}

// spec: pr§5
#[test]
fn preflight_holds_while_a_backup_runs() {
    let mut world = world(Release { metric: Metric::FailBefore, ..GOOD });
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.pass(60);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    assert_eq!(set(&world).partition, Some(HOLD));
    world.releases.insert(2, GOOD);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

#[test]
fn the_final_check_fails() {
    let mut world = world(Release { metric: Metric::FailAfter, ..GOOD });
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
    assert!(!condition(&world, "RolledOut"));
    world.releases.insert(2, GOOD);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

/// An error is never a pass, breaks the streak, uses up no try, and gives those of the streak back.
// spec: pr§3, L066
#[test]
fn prometheus_is_down_for_a_while() {
    for missing in [Metric::Error, Metric::Missing] {
        let mut world = world(GOOD);
        template(&mut world, 2);
        until_checked(&mut world, 1);
        world.releases.insert(2, Release { metric: missing, ..GOOD });
        world.pass(300);
        assert_eq!(phase(&world), Phase::Held, "{}", world.tale.long_story());
        let current = status(&world).current.clone().unwrap();
        assert_eq!((current.tries, current.consecutive_passes, current.failed), (0, 0, false));
        assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
        world.releases.insert(2, GOOD);
        completed(&mut world, 2);
    }
}

/// An outage of minutes is noticed to be over within seconds, however rarely the checks are made.
// spec: pr§3
#[test]
fn an_error_is_tried_again_after_a_period_and_after_30_seconds_at_most() {
    for (period, expected) in [(5, 5), (29, 29), (31, 30), (600, 30)] {
        for verdict in [Metric::Error, Metric::Missing] {
            let mut world = with(world(Release { metric: verdict, ..GOOD }), |spec| spec.check.period_seconds = period);
            template(&mut world, 2);
            world.pass(300);
            let checks = |world: &World| -> Vec<i64> {
                let is_check = |deed: &Deed| matches!(deed, Deed::Checked(..));
                world.tale.lines().filter(|(_, deed)| is_check(deed)).map(|(at, _)| *at).collect()
            };
            let tries = checks(&world);
            assert!(tries.len() >= 10, "{period} {tries:?}");
            assert!(tries.windows(2).all(|pair| pair[1] - pair[0] == expected), "{period} {tries:?}");
            // What is an answer is followed by a whole period.
            world.releases.insert(2, GOOD);
            until(&mut world, |world| checks(world).len() >= tries.len() + 2);
            let answers = checks(&world).split_off(tries.len());
            assert_eq!(answers[1] - answers[0], i64::from(period), "{answers:?}");
        }
    }
}

/// L071, L045: a configuration that cannot be used holds, fails nothing, and is visible.
#[test]
fn a_query_that_cannot_be_used() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 1);
    world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = true;
    world.pass(300);
    assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Blocked, "InvalidQuery"));
    assert!(!condition(&world, "ChecksValid"));
    assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
    world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = false;
    completed(&mut world, 2);
}

/// Before the first pod too, where no check is asked for: after it nothing could be checked.
#[test]
fn a_query_that_cannot_be_used_holds_without_a_preflight() {
    let mut world = with(world(GOOD), |spec| spec.check.preflight = false);
    world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = true;
    template(&mut world, 2);
    world.pass(300);
    assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Blocked, "InvalidQuery"));
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = false;
    completed(&mut world, 2);
}

// spec: pr§1
#[test]
fn progress_deadline() {
    let mut world = with(world(GOOD), |spec| spec.progress_deadline_seconds = Some(30));
    world.prometheus_down = true;
    template(&mut world, 2);
    world.pass(29);
    assert!(!condition(&world, "Stalled"));
    world.pass(2);
    assert!(condition(&world, "Stalled"), "{}", world.tale.long_story());
    assert_eq!(reason(&world), "ProgressDeadlineExceeded");
    world.pass(100);
    assert_eq!(events(&world, "ProgressDeadlineExceeded"), 1);
    assert!(count(&world, |deed| matches!(deed, Deed::Checked(..))) > 3, "checks go on");
    world.prometheus_down = false;
    completed(&mut world, 2);
    assert_eq!(world.settle(LONG), Ended::Quiet);
}

/// A crash-looping pod reaches the deadline as well (L079), also when each check errors (L078).
// spec: pr§1, L079
#[test]
fn progress_deadline_with_a_crashing_pod() {
    everywhere(CRASHING, |world| {
        let mut world = with(world, |spec| {
            (spec.progress_deadline_seconds, spec.check.max_tries) = (Some(30), 1000);
        });
        template(&mut world, 2);
        world.pass(45);
        assert_eq!(reason(&world), "ProgressDeadlineExceeded", "{}", world.tale.long_story());
        template(&mut world, 3);
        completed(&mut world, 3);
    });
}

/// A pod that is evicted in its cycle and takes longer to start than all tries would: it is waited for, not failed.
#[test]
fn one_slow_restart_is_no_failure() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.releases.insert(2, Release { health: sts_plus_model::Health::ReadyAfter(30), ..GOOD });
        world.delete_pod(SET, 2);
        // The operator is away while the pod goes and comes: what it sees next is an interruption.
        world.live();
        world.sync(SET);
        world.now += 1;
        world.live();
        world.sync(SET);
        completed(&mut world, 2);
        assert_eq!(events(&world, "PodBroken"), 0, "{}", world.tale.long_story());
    });
}

/// A pod that was away for a moment, and then a Prometheus that is down: held, never failed, no rollback.
#[test]
fn an_interruption_and_an_outage_are_no_failure() {
    let mut world = on_failure(world(GOOD), OnFailure::Rollback);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.break_pod(SET, 2);
    world.pass(1);
    world.heal_pod(SET, 2);
    world.prometheus_down = true;
    world.pass(600);
    assert_eq!(phase(&world), Phase::Held, "{}", world.tale.long_story());
    world.break_pod(SET, 2);
    world.pass(1);
    world.heal_pod(SET, 2);
    world.pass(60);
    assert_eq!(phase(&world), Phase::Held, "{}", world.tale.long_story());
    world.prometheus_down = false;
    completed(&mut world, 2);
}

/// A quota keeps the pod of the step out. The first seconds are quiet; then the status says what is there and why, once, and nothing is
/// written while nothing changes.
#[test]
fn a_pod_that_cannot_be_made_is_told_with_the_reason() {
    everywhere(GOOD, |start| {
        let mut world = with(start, |spec| spec.check.preflight = false);
        world.quota = Some(2);
        template(&mut world, 2);
        until(&mut world, |world| set(world).pods.len() == 2);
        world.pass(8);
        assert_eq!(status(&world).updated, "0/3", "quiet at first: {}", world.tale.long_story());
        world.pass(5);
        let told = status(&world).clone();
        assert!(told.message.contains("web-2 cannot be created since"), "{}", told.message);
        assert!(
            told.message.contains("QuotaExceeded: pods \"web-2\" is forbidden: exceeded quota: few"),
            "{}",
            told.message
        );
        assert_eq!((told.ready_replicas, phase(&world), reason(&world).as_str()), (2, Phase::Rolling, "PodRolling"));
        let lines = world.tale.lines().count();
        world.pass(LONG);
        assert_eq!(world.tale.lines().count(), lines, "{}", world.tale.long_story());
        world.quota = None;
        world.sync(SET);
        completed(&mut world, 2);
    });
}

/// What is seen while a pod is awaited is told as well when there is no word of the controller: it is away for long.
#[test]
fn counts_and_sentence_follow_a_pod_that_is_awaited_for_long() {
    everywhere(SILENT, |mut world| {
        template(&mut world, 2);
        until(&mut world, |world| set(world).pods.get(&2).is_some_and(|pod| pod.revision == "web-r2"));
        world.pass(12);
        let told = status(&world).clone();
        assert_eq!((told.updated.as_str(), told.ready_replicas), ("1/3", 2), "{}", world.tale.long_story());
        assert!(told.message.contains("web-2 is not Ready since "), "{}", told.message);
    });
}

/// The StatefulSet controller says nothing for a second: that is told, and not sooner.
// spec: pr§9, L044
#[test]
fn a_silent_controller_is_told_after_a_second() {
    let mut world = world(GOOD);
    world.controller_down = true;
    template(&mut world, 2);
    world.pass(0);
    assert_eq!(reason(&world), "AtRest", "{}", world.tale.long_story());
    world.pass(1);
    assert_eq!(reason(&world), "AwaitingController", "{}", world.tale.long_story());
    assert!(condition(&world, "Reconciling") && !condition(&world, "Ready") && !condition(&world, "RolledOut"));
    world.controller_down = false;
    completed(&mut world, 2);
}

/// Stalled because the checks cannot be used (a Secret is gone): the full hold, so that a scale-up starts pods on the current revision.
#[test]
fn checks_that_cannot_be_used_hold_a_scale_up() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        until_checked(&mut world, 2);
        assert_eq!(set(&world).partition, Some(2));
        world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = true;
        world.pass(30);
        assert!(condition(&world, "Stalled"));
        assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
        world.scale(SET, 4);
        world.pass(30);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2 3:1", "{}", world.tale.long_story());
        world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = false;
        completed(&mut world, 2);
    });
}

/// A rejected revision that is written again was not rolled back now: it is held, and the phase says so.
#[test]
fn a_rejected_revision_written_again_is_held_and_not_rolled_back() {
    everywhere(failing_at(1), |world| {
        let mut world = on_failure(world, OnFailure::Rollback);
        template(&mut world, 2);
        settle(&mut world);
        assert_eq!((phase(&world), reason(&world).as_str()), (Phase::RolledBack, "RevisionRejected"));
        assert!(status(&world).message.contains("all pods are back on web-r1"), "{}", status(&world).message);
        template(&mut world, 3);
        completed(&mut world, 3);
        template(&mut world, 2);
        settle(&mut world);
        assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Held, "RevisionRejected"));
        assert!(status(&world).message.contains("0 of 3 pods carry it"), "{}", status(&world).message);
        still(&mut world);
    });
}

/// The controller cannot make a pod whose name is taken by one that it does not select.
#[test]
fn a_pod_that_is_in_the_way_is_told_with_what_helps() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let mut observed = world.observe(ROLLOUT).unwrap();
    observed.pods.retain(|pod| pod.name != "web-1");
    let Target::Found(set) = &mut observed.target else { panic!("it is there") };
    let words = "pod web-1 is in the way: delete it";
    set.in_the_way = Some(Stray { name: "web-1".into(), words: words.into() });
    let told = decide(&observed, stamp(world.now)).status.message;
    assert!(told.contains(&format!("StatefulSet web cannot make a pod: {words}")), "{told}");
    // About a pod that is there it says nothing any more.
    let told =
        decide(&Observed { pods: world.observe(ROLLOUT).unwrap().pods, ..observed }, stamp(world.now)).status.message;
    assert!(!told.contains("in the way"), "{told}");
}
