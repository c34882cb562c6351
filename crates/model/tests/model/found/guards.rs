//! What more than one guard keeps from happening: each of them by itself.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{CheckRecord, OnFailure, Phase, Verdict, names};
use sts_plus_decide::{CheckKey, Observed, Try, decide};
use sts_plus_model::world::{ROLLOUT, SET, stamp};
use sts_plus_model::{Deed, Metric, Release, Shared, Stop, Who, World};

use super::{carried, on_failure};
use crate::story::*;

/// Template 2 is held, and the two lower pods carry it all the same.
fn slipped_under_the_hold(start: World) -> World {
    let mut world = with(start, |_| {});
    template(&mut world, 2);
    until(&mut world, |world| set(world).partition == Some(HOLD));
    for ordinal in [0, 1] {
        "web-r2".clone_into(&mut set_mut(&mut world).pods.get_mut(&ordinal).unwrap().revision);
    }
    world
}

/// A pod that is rolled takes its approval away, too. The next step of the operator may be a long time coming.
// spec: pr§4, L072
#[test]
fn an_approval_goes_with_its_step() {
    let mut world = with(world(GOOD), |spec| spec.pause_before = vec![2]);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Paused);
    world.annotate(ROLLOUT, names::APPROVE, "web-r2/2");
    until(&mut world, |world| set(world).partition == Some(2));
    assert!(world.rollouts[ROLLOUT].annotations.is_empty(), "{}", world.tale.long_story());
}

/// The word of a person was for the revision that was wanted then. It goes before anything is opened for the next one, also where no policy
/// takes it away.
// spec: hold
#[test]
fn an_allowance_under_the_hold_is_gone_when_another_revision_is_wanted() {
    let mut world = world(GOOD);
    world.policy = false;
    template(&mut world, 2);
    until(&mut world, |world| set(world).partition == Some(HOLD));
    world.edit(SET, "allows 0", |set| {
        set.annotations.insert(names::ALLOW_PARTITION.to_owned(), "0".to_owned());
    });
    template(&mut world, 3);
    until(&mut world, |world| status(world).target_revision.as_deref() == Some("web-r3"));
    assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
    assert!(!set(&world).annotations.contains_key(names::ALLOW_PARTITION), "{}", world.tale.long_story());
}

/// Two operators have asked, one when the other was about to take over. The second answer comes a moment before the next check is due, and is
/// none of the passes in a row.
// spec: pr§3
#[test]
fn an_answer_from_before_its_check_was_due_does_not_count() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let observed = world.observe(ROLLOUT).unwrap();
    let (current, record) = (status(&world).current.clone().unwrap(), status(&world).checks.last().unwrap().clone());
    let due = current.next_check_time.unwrap();
    let request = CheckKey { revision: set(&world).wanted(), index: current.index, step: current.step };
    let makes_a_step = |time: Timestamp| {
        let (request, records) = (request.clone(), vec![record.clone()]);
        let tried = Try { request, time, records, config: vec![], warnings: vec![] };
        !decide(&Observed { tried: Some(tried), ..observed.clone() }, due).actions.is_empty()
    };
    assert!(makes_a_step(due), "{}", world.tale.long_story());
    assert!(!makes_a_step(due - SignedDuration::from_secs(1)));
}

/// Of two operators that have asked at the same time one was told a pass and the other none, which comes second. There is no streak.
// spec: pr§3
#[test]
fn what_is_no_pass_and_comes_before_its_check_was_due_ends_the_streak() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let observed = world.observe(ROLLOUT).unwrap();
    let (current, mut record) =
        (status(&world).current.clone().unwrap(), status(&world).checks.last().unwrap().clone());
    let due = current.next_check_time.unwrap();
    let request = CheckKey { revision: set(&world).wanted(), index: current.index, step: current.step };
    let passes_after = |record: CheckRecord| {
        let tried = Try {
            request: request.clone(),
            time: record.time,
            records: vec![record],
            config: vec![],
            warnings: vec![],
        };
        let plan = decide(&Observed { tried: Some(tried), ..observed.clone() }, due);
        plan.status.current.map(|current| (current.consecutive_passes, current.tries))
    };
    assert_eq!(
        passes_after(record.clone()),
        Some((current.consecutive_passes, current.tries)),
        "it was counted already"
    );
    for verdict in [Verdict::Data, Verdict::Error] {
        (record.verdict, record.passed) = (verdict, false);
        assert_eq!(passes_after(record.clone()), Some((0, 0)), "{verdict:?}");
    }
}

/// Somebody takes the claim off and lowers the partition in one write, while the controller waits for a pod: it is claimed again with the
/// partition that was approved.
// spec: hold
#[test]
fn a_claim_that_is_put_back_brings_its_hold_along() {
    let mut world = with(world(CRASHING), |spec| spec.check.preflight = false);
    template(&mut world, 2);
    until(&mut world, |world| carried(world, 2) == "web-r2");
    world.policy = false;
    world.edit(SET, "strips the claim and lowers the partition", |set| {
        set.annotations.remove(names::CLAIM);
        set.partition = Some(0);
    });
    world.sync(SET);
    assert_eq!(set(&world).status.observed_generation, set(&world).generation);
    world.operate(ROLLOUT, Stop::Never);
    assert_eq!(set(&world).partition, Some(2), "{}", world.tale.long_story());
}

/// A set that is to be claimed, and whose controller has not seen the latest template, is held before that is known.
// spec: pr§4
#[test]
fn a_set_is_held_before_its_controller_has_seen_the_template() {
    let mut world = with(world(GOOD), |_| {});
    world.policy = false;
    world.edit(SET, "strips the claim and lowers the partition, template 2", |set| {
        set.annotations.remove(names::CLAIM);
        (set.partition, set.template) = (Some(0), 2);
    });
    world.operate(ROLLOUT, Stop::Never);
    assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
    completed(&mut world, 2);
}

/// A pod below the partition cannot be made: the next one is not rolled beside it, however long the checks pass.
// spec: pr§4
#[test]
fn no_pod_is_rolled_beside_one_that_is_missing() {
    everywhere(GOOD, |start| {
        let mut world = with(start, |_| {});
        template(&mut world, 2);
        until_checked(&mut world, 2);
        world.quota = Some(2);
        world.delete_pod(SET, 0);
        world.pass(400);
        assert_eq!(set(&world).layout(), "1:1 2:2", "{}", world.tale.long_story());
        lawful(&world);
        world.quota = None;
        completed(&mut world, 2);
    });
}

/// The pod that the preflight has asked about is scaled away while nobody looks: the next one has all its checks.
// spec: pr§3, L072
#[test]
fn passes_of_a_pod_that_was_scaled_away_are_not_those_of_the_next() {
    let mut world = with(world(GOOD), |spec| spec.check.success_threshold = 2);
    template(&mut world, 2);
    until(&mut world, |world| {
        status(world).current.as_ref().is_some_and(|current| (current.index, current.consecutive_passes) == (2, 1))
    });
    let set = set_mut(&mut world);
    (set.replicas, set.generation) = (2, set.generation + 1);
    set.status.observed_generation = set.generation;
    set.pods.remove(&2);
    until(&mut world, |world| world.sets[SET].partition == Some(1));
    let made = count(&world, |deed| matches!(deed, Deed::Checked(cycle, "pass") if cycle == "Preflight 1 at web-r2"));
    assert_eq!(made, 2, "{}", world.tale.long_story());
}

/// A pod was away for a moment after the question: the answer says nothing about it as it is now.
// spec: pr§3
#[test]
fn an_answer_from_before_a_pod_came_back_does_not_count() {
    let mut world = with(world(GOOD), |spec| spec.check.success_threshold = 3);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let (current, record) = (status(&world).current.clone().unwrap(), status(&world).checks.last().unwrap().clone());
    let due = current.next_check_time.unwrap();
    let request = CheckKey { revision: set(&world).wanted(), index: current.index, step: current.step };
    let tried = Try { request, time: due, records: vec![record], config: vec![], warnings: vec![] };
    let passes = |back: Timestamp| {
        let mut observed = Observed { tried: Some(tried.clone()), ..world.observe(ROLLOUT).unwrap() };
        observed.pods[0].ready_since = Some(back);
        decide(&observed, due + SignedDuration::from_secs(2)).status.current.unwrap().consecutive_passes
    };
    assert_eq!(passes(Timestamp::UNIX_EPOCH), current.consecutive_passes + 1);
    assert_eq!(passes(due + SignedDuration::from_secs(1)), 0);
}

/// How many pods are away, at most, on the way to the end.
fn most_away(world: &mut World) -> usize {
    let most = Cell::new(0);
    world.run(LONG, |world| {
        let pods = &set(world).pods;
        most.set(most.get().max(3 - pods.values().filter(|pod| pod.is_healthy()).count()));
        false
    });
    most.get()
}

/// Two pods of an older release that nobody has checked stand below one that is still good, and a fix is wanted: they come back on the good
/// revision one after the other.
// spec: pr§4
#[test]
fn pods_that_come_back_under_the_hold_do_so_one_by_one() {
    everywhere(GOOD, |start| {
        let mut world = slipped_under_the_hold(start);
        template(&mut world, 3);
        assert_eq!(most_away(&mut world), 1, "{}", world.tale.long_story());
        let back = count(
            &world,
            |deed| matches!(deed, Deed::Created(pod, _, revision) if pod != "web-2" && revision == "web-r1"),
        );
        assert_eq!(back, 2, "{}", world.tale.long_story());
        completed(&mut world, 3);
    });
}

/// Back to the release before with two pods to go back: the second is not opened before the first is there.
// spec: pr§4
#[test]
fn a_revert_opens_the_next_pod_when_the_one_before_is_available() {
    everywhere(GOOD, |start| {
        let mut world = with(start, |_| {});
        template(&mut world, 2);
        until(&mut world, |world| set(world).layout() == "0:1 1:2 2:2");
        template(&mut world, 1);
        until(&mut world, |world| set(world).partition == Some(1));
        let first = set(&world).pods.get(&2).filter(|pod| pod.is_healthy());
        assert_eq!(first.map(|pod| pod.revision.as_str()), Some("web-r1"), "{}", world.tale.long_story());
        completed(&mut world, 1);
    });
}

/// The same with pods that are broken: no second one is deleted while the first is on its way out.
// spec: pr§4
#[test]
fn broken_pods_that_come_back_under_the_hold_do_so_one_by_one() {
    everywhere(GOOD, |start| {
        let mut world = slipped_under_the_hold(start);
        for ordinal in [0, 1] {
            world.break_pod(SET, ordinal);
        }
        template(&mut world, 3);
        let most = Cell::new(0);
        world.run(LONG, |world| {
            most.set(most.get().max(set(world).pods.values().filter(|pod| pod.gone_at.is_some()).count()));
            false
        });
        assert_eq!(most.get(), 1, "{}", world.tale.long_story());
        completed(&mut world, 3);
    });
}

/// All pods are down and everything is open for the fix. One of the old pods is well again while another one is replaced: what was
/// opened is held at once.
// spec: pr§10
#[test]
fn an_old_pod_that_is_well_again_is_held_at_once() {
    let mut world = world(GOOD);
    (0..3).for_each(|ordinal| world.break_pod(SET, ordinal));
    world.pass(70);
    template(&mut world, 2);
    until(&mut world, |world| set(world).pods.values().any(|pod| pod.gone_at.is_some()));
    assert_eq!(set(&world).partition, Some(0));
    world.heal_pod(SET, 1);
    world.now += 1;
    world.live();
    world.operate(ROLLOUT, Stop::Never);
    assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
}

/// Stopped by onFailure Pause, and then all pods break: nothing is opened for what has failed, though there is no availability left to protect.
// spec: pr§5
#[test]
fn a_set_that_goes_down_as_a_whole_ends_no_pause() {
    everywhere(BAD_METRIC, |start| {
        let mut world = with(start, |spec| (spec.check.on_failure, spec.check.preflight) = (OnFailure::Pause, false));
        template(&mut world, 2);
        until(&mut world, |world| phase(world) == Phase::Failed && carried(world, 2) == "web-r2");
        (0..3).for_each(|ordinal| world.break_pod(SET, ordinal));
        world.pass(400);
        assert_eq!((carried(&world, 0), carried(&world, 1)), ("web-r1", "web-r1"), "{}", world.tale.long_story());
    });
}

/// An error beside a pass, and an answer without any verdict: neither is one of the passes in a row.
// spec: pr§3
#[test]
fn only_verdicts_of_all_queries_count() {
    let mut world = with(world(GOOD), |spec| spec.check.success_threshold = 3);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let (current, record) = (status(&world).current.clone().unwrap(), status(&world).checks.last().unwrap().clone());
    let due = current.next_check_time.unwrap();
    let request = CheckKey { revision: set(&world).wanted(), index: current.index, step: current.step };
    let passes = |records: Vec<CheckRecord>| {
        let tried = Try { request: request.clone(), time: due, records, config: vec![], warnings: vec![] };
        let observed = Observed { tried: Some(tried), ..world.observe(ROLLOUT).unwrap() };
        decide(&observed, due).status.current.unwrap().consecutive_passes
    };
    let error = CheckRecord { passed: false, verdict: Verdict::Error, ..record.clone() };
    assert_eq!(passes(vec![record.clone(), record.clone()]), current.consecutive_passes + 1);
    assert_eq!(passes(vec![record.clone(), error.clone()]), 0);
    assert_eq!(passes(vec![error, record]), 0);
    assert_eq!(passes(Vec::new()), 0);
}

/// A person has taken the set back: it is not claimed again, and no partition is written to it.
// spec: pr§8
#[test]
fn a_set_that_a_person_took_back_is_left_alone() {
    let mut world = with(world(GOOD), |_| {});
    world.edit(SET, "takes it back", |set| {
        set.annotations.insert(names::RELEASE.to_owned(), "true".to_owned());
        set.annotations.remove(names::CLAIM);
        set.partition = None;
    });
    world.pass(60);
    template(&mut world, 2);
    world.pass(60);
    assert_eq!((set(&world).partition, reason(&world).as_str()), (None, "Released"), "{}", world.tale.long_story());
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
}

/// A pod was broken before a pause, and may be mended in it: the time of the pause is not held against it.
// spec: pr§5
#[test]
fn a_pause_is_not_held_against_a_broken_pod() {
    let mut world = with(world(CRASHING), |spec| spec.check.preflight = false);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Held);
    world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
    world.pass(100);
    world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    world.pass(2);
    assert_eq!(phase(&world), Phase::Held, "{}", world.tale.long_story());
    until_phase(&mut world, Phase::Failed);
}

/// Who presses stop in a rollback is not asked what was going on; it ends when it goes on.
// spec: pr§5
#[test]
fn a_rollback_stands_still_while_it_is_paused() {
    let second = Release { metric: Metric::FailAt(1), ..GOOD };
    everywhere(second, |start| {
        let mut world = on_failure(start, OnFailure::Rollback);
        template(&mut world, 2);
        until_phase(&mut world, Phase::RollingBack);
        world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
        world.pass(60);
        assert_eq!(set(&world).layout(), "0:1 1:2 2:2", "{}", world.tale.long_story());
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
        settle(&mut world);
        assert_eq!((set(&world).layout().as_str(), phase(&world)), ("0:1 1:1 2:1", Phase::RolledBack));
    });
}

/// A revision fails under the full hold, where its pods could be deleted at once: that it has failed is in the status before.
// spec: pr§5
#[test]
fn no_pod_is_deleted_before_the_failure_is_in_the_status() {
    let mut world = on_failure(world(GOOD), OnFailure::Rollback);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.releases.insert(2, BAD_METRIC);
    world.rollouts.get_mut(ROLLOUT).unwrap().status = Shared::default();
    world.restart_operator();
    until(&mut world, |world| set(world).partition == Some(HOLD));
    settle(&mut world);
    let first = |is: &dyn Fn(&Deed) -> bool| world.tale.deeds().position(is);
    let told = first(&|deed| matches!(deed, Deed::Status(_, reason, _) if reason == "RollingBack"));
    let deleted = first(&|deed| matches!(deed, Deed::Deleted(Who::Operator, _)));
    assert!(told.is_some() && told < deleted, "{}", world.tale.long_story());
}

/// A pod of the old revision breaks, or cannot be made, while the new one is checked: that is no failure of the new one.
// spec: pr§5
#[test]
fn a_broken_old_pod_is_no_failure_of_the_new_revision() {
    let happenings: [fn(&mut World); 2] = [
        |world| world.break_pod(SET, 0),
        |world| {
            world.refused_templates.insert(1);
            world.delete_pod(SET, 0);
        },
    ];
    for happens in happenings {
        everywhere(GOOD, |start| {
            let mut world = with(start, |spec| spec.check.preflight = false);
            template(&mut world, 2);
            until_checked(&mut world, 2);
            happens(&mut world);
            world.pass(200);
            assert_eq!(status(&world).failure, None, "{}", world.tale.long_story());
        });
    }
}

/// What was rejected stays so when the set is deleted with orphan and made anew, and when somebody edits the status.
// spec: pr§5
#[test]
fn what_was_rejected_stays_so() {
    let happenings: [fn(&mut World); 2] = [
        |world| world.remake(SET, 1),
        |world| {
            world.rollouts.get_mut(ROLLOUT).unwrap().status.never_healthy = true;
            world.restart_operator();
        },
    ];
    for happens in happenings {
        let mut world = on_failure(world(BAD_METRIC), OnFailure::Rollback);
        template(&mut world, 2);
        until_phase(&mut world, Phase::RolledBack);
        world.releases.insert(2, GOOD);
        happens(&mut world);
        world.pass(60);
        template(&mut world, 2);
        world.pass(100);
        assert_eq!(status(&world).rejected_revisions, ["web-r2"], "{}", world.tale.long_story());
        assert_eq!(set(&world).layout(), "0:1 1:1 2:1", "{}", world.tale.long_story());
    }
}

/// At rest a pod breaks: nothing is pending, and it is not ready.
// spec: pr§9
#[test]
fn at_rest_it_is_not_ready_while_a_pod_is_away() {
    let mut world = with(world(GOOD), |_| {});
    assert!(condition(&world, "Ready"));
    world.break_pod(SET, 0);
    world.pass(60);
    assert!(!condition(&world, "Ready"), "{}", world.tale.long_story());
}

/// What a person corrects outside of the objects wakes nobody: a check that cannot be made is looked at again.
// spec: pr§3
#[test]
fn a_check_that_cannot_be_made_is_looked_at_again() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.rollouts.get_mut(ROLLOUT).unwrap().misconfigured = true;
    world.pass(5);
    let now = stamp(world.now);
    let plan = decide(&world.observe(ROLLOUT).unwrap(), now);
    assert!(plan.wake.is_some_and(|wake| wake <= now + SignedDuration::from_secs(30)), "{:?}", plan.wake);
}

/// The next check was noted by an operator whose clock was far ahead: it is not waited for longer than the spec allows.
// spec: pr§3
#[test]
fn a_check_in_the_far_future_is_not_waited_for() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let status = &mut world.rollouts.get_mut(ROLLOUT).unwrap().status;
    status.current.as_mut().unwrap().next_check_time = Some(stamp(world.now + LONG));
    status.put_seal();
    world.restart_operator();
    world.run(60, |world| set(world).partition == Some(1));
    assert_eq!(set(&world).partition, Some(1), "{}", world.tale.long_story());
}

/// What a person allows while the controller is slow is for the template that it has not seen: nobody is told that it was allowed for the
/// revision before.
// spec: hold
#[test]
fn what_is_allowed_for_an_unseen_template_is_not_allowed_for_the_revision_before() {
    for is_lowered_alone in [false, true] {
        let mut world = world(GOOD);
        world.controller_down = true;
        template(&mut world, 2);
        world.pass(5);
        assert_eq!(reason(&world), "AwaitingController", "{}", world.tale.long_story());
        if is_lowered_alone {
            world.policy = false;
            world.set_partition(SET, Some(0));
        } else {
            world.break_glass(SET, 0);
        }
        world.pass(5);
        let story = world.tale.long_story();
        assert_eq!(events(&world, "PartitionAllowed"), 0, "{story}");
        assert_eq!(set(&world).partition == Some(0), !is_lowered_alone, "what nobody allowed is put back\n{story}");
    }
}
