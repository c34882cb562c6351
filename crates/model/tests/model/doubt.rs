//! What looks like an approval and is none: a set made anew, a left-over annotation, passes of an older spec or of another pod.

use sts_plus_api::{Phase, PhasedRolloutStatus, Step, names};
use sts_plus_decide::{CheckKey, Observed, Try, decide};
use sts_plus_model::world::{ROLLOUT, SET, stamp};
use sts_plus_model::{Deed, Release, Shared, World};

use crate::story::*;

/// Failed on template 2 with one pod there, in every kind of loop.
fn failed_on_the_first_pod(test: impl Fn(World)) {
    everywhere(BAD_METRIC, |world| {
        let mut world = with(world, |spec| spec.check.preflight = false);
        template(&mut world, 2);
        until_phase(&mut world, Phase::Failed);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2");
        test(world);
    });
}

#[test]
fn a_set_made_anew_in_mid_rollout_approves_nothing() {
    failed_on_the_first_pod(|mut world| {
        world.remake(SET, 2);
        world.run(LONG, |_| false);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
    });
}

/// The current revision is lost, and so is what the PhasedRollout knew.
#[test]
fn a_claim_without_memory_approves_nothing() {
    failed_on_the_first_pod(|mut world| {
        set_mut(&mut world).status.current = set(&world).status.update.clone();
        world.rollouts.get_mut(ROLLOUT).unwrap().status = Shared::default();
        world.run(LONG, |_| false);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
    });
}

/// The controller has lost the old template (native-statefulset B2): a pod that dies under the hold comes back on the pending one.
#[test]
fn a_pod_that_slips_in_under_the_hold_approves_nothing() {
    everywhere(BAD_METRIC, |world| {
        let mut world = with(world, |spec| spec.paused = true);
        template(&mut world, 2);
        until_phase(&mut world, Phase::Paused);
        set_mut(&mut world).status.current = set(&world).status.update.clone();
        world.delete_pod(SET, 0);
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
        world.run(LONG, |_| false);
        assert_eq!(set(&world).layout(), "0:2 1:1 2:1", "{}", world.tale.long_story());
        assert_eq!(phase(&world), Phase::Failed);
    });
}

#[test]
fn an_allowance_is_for_the_revision_that_was_pending() {
    for policy in [true, false] {
        let mut world = world(BAD_METRIC);
        world.policy = policy;
        world.edit(SET, "allows 0 at rest", |set| {
            set.annotations.insert(names::ALLOW_PARTITION.to_owned(), "0".to_owned());
        });
        template(&mut world, 2);
        until_phase(&mut world, Phase::Failed);
        let layout = set(&world).layout();
        assert!(!set(&world).annotations.contains_key(names::ALLOW_PARTITION));
        world.set_partition(SET, Some(0));
        world.operate(ROLLOUT, sts_plus_model::Stop::Never);
        world.run(60, |_| false);
        assert_eq!(set(&world).layout(), layout, "{}", world.tale.long_story());
    }
}

/// Without the policies nobody but the operator compares the two numbers.
#[test]
fn an_allowance_is_for_one_partition_and_no_other() {
    failed_on_the_first_pod(|mut world| {
        world.policy = false;
        world.edit(SET, "allows 1 and writes 0", |set| {
            set.annotations.insert(names::ALLOW_PARTITION.to_owned(), "1".to_owned());
            set.partition = Some(0);
        });
        world.operate(ROLLOUT, sts_plus_model::Stop::Never);
        world.run(60, |_| false);
        assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
        assert_eq!(events(&world, "PartitionAllowed"), 0);
    });
}

/// Two pods have passed on template 2 and wait for an approval: template 3 gets the gate all the same.
// spec: pr§4, L072
#[test]
fn pods_that_passed_need_the_gate_for_the_next_revision() {
    everywhere(GOOD, |start| {
        for third in [GOOD, BAD_METRIC] {
            let mut world = with(start.clone(), |spec| {
                spec.pause_before = vec![0];
                spec.check.preflight = false;
            });
            world.releases.insert(3, third);
            template(&mut world, 2);
            until_phase(&mut world, Phase::Paused);
            assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
            template(&mut world, 3);
            if third == BAD_METRIC {
                until_phase(&mut world, Phase::Failed);
                world.run(LONG, |_| false);
                assert_eq!(set(&world).layout(), "0:1 1:2 2:3", "{}", world.tale.long_story());
            } else {
                until_phase(&mut world, Phase::Paused);
                assert_eq!(events(&world, "Repairing"), 0, "{}", world.tale.long_story());
            }
        }
    });
}

// spec: pr§3
#[test]
fn passes_of_another_spec_do_not_count() {
    let mut world = with(world(GOOD), |spec| spec.check.success_threshold = 3);
    template(&mut world, 2);
    until(&mut world, |world| {
        status(world).current.as_ref().is_some_and(|current| current.index == 2 && current.consecutive_passes == 2)
            && set(world).layout() == "0:1 1:1 2:2"
    });
    let made = |world: &World| count(world, |deed| matches!(deed, Deed::Checked(..)));
    let before = made(&world);
    world.configure(ROLLOUT, "another query", |spec| spec.check.query.as_mut().unwrap().expr = "down".to_owned());
    until(&mut world, |world| set(world).partition == Some(1));
    assert_eq!(made(&world) - before, 3, "{}", world.tale.long_story());
}

/// The answer that was awaited when the pod, its step or the revision was another one. One pass is missing.
// spec: pr§4, L072
#[test]
fn an_answer_to_another_question_does_not_count() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let observed = world.observe(ROLLOUT).unwrap();
    let (current, record) = (status(&world).current.clone().unwrap(), status(&world).checks.last().unwrap().clone());
    let now = current.next_check_time.unwrap();
    let key = CheckKey { revision: set(&world).wanted(), index: current.index, step: current.step };
    let makes_a_step = |key: CheckKey| {
        let tried = Try { request: key, time: now, records: vec![record.clone()], config: vec![], warnings: vec![] };
        !decide(&Observed { tried: Some(tried), ..observed.clone() }, now).actions.is_empty()
    };
    assert!(makes_a_step(key.clone()), "{}", world.tale.long_story());
    assert!(!makes_a_step(CheckKey { index: 1, ..key.clone() }));
    assert!(!makes_a_step(CheckKey { step: Step::Preflight, ..key.clone() }));
    assert!(!makes_a_step(CheckKey { revision: set(&world).revision_of(1), ..key }));
}

/// A pod that was away for a moment while nobody looked: what passed before says nothing about it.
// spec: pr§3
#[test]
fn passes_from_before_an_interruption_that_nobody_saw_do_not_count() {
    everywhere(GOOD, |start| {
        let mut world = with(start, |spec| spec.check.success_threshold = 3);
        template(&mut world, 2);
        until(&mut world, |world| {
            status(world).current.as_ref().is_some_and(|current| current.index == 2 && current.consecutive_passes == 2)
                && set(world).layout() == "0:1 1:1 2:2"
        });
        world.now += 1;
        let now = world.now;
        set_mut(&mut world).pods.get_mut(&0).unwrap().since = now;
        let made = |world: &World| count(world, |deed| matches!(deed, Deed::Checked(..)));
        let before = made(&world);
        until(&mut world, |world| set(world).partition == Some(1));
        assert_eq!(made(&world) - before, 3, "{}", world.tale.long_story());
    });
}

/// A higher partition brings a pod that dies back at the current revision, and that is the old one until the controller has said otherwise.
#[test]
fn the_partition_stays_open_until_the_controller_has_made_the_revision_the_current_one() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        until(&mut world, |world| set(world).layout() == "0:2! 1:2 2:2");
        world.controller_down = true;
        world.run(LONG, |_| false);
        assert_eq!((set(&world).layout().as_str(), set(&world).partition), ("0:2 1:2 2:2", Some(0)));
        world.delete_pod(SET, 1);
        world.run(LONG, |_| false);
        world.controller_down = false;
        completed(&mut world, 2);
        let back = |deed: &Deed| matches!(deed, Deed::Created(_, _, revision) if revision == "web-r1");
        assert_eq!(count(&world, back), 0, "{}", world.tale.long_story());
    });
}

#[test]
fn corrected_times_are_taken_up() {
    let mut world = with(world(GOOD), |spec| {
        spec.check.preflight = false;
        spec.check.initial_delay_seconds = 3600;
        spec.check.period_seconds = 3600;
    });
    template(&mut world, 2);
    world.run(60, |_| false);
    world.configure(ROLLOUT, "short times", |spec| {
        spec.check.initial_delay_seconds = 1;
        spec.check.period_seconds = 1;
    });
    world.run(120, |world| phase(world) == Phase::Completed);
    completed(&mut world, 2);
}

/// A next check that another clock has noted far ahead is not waited for.
#[test]
fn a_time_from_another_clock_is_not_waited_for() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    let ahead = stamp(1_000_000);
    let status = &mut world.rollouts.get_mut(ROLLOUT).unwrap().status;
    let current = status.current.as_mut().unwrap();
    (current.since, current.next_check_time) = (Some(ahead), Some(ahead));
    status.put_seal();
    world.run(300, |world| phase(world) == Phase::Completed);
    completed(&mut world, 2);
}

#[test]
fn paused_stops_a_rollout_without_checks_too() {
    let mut world = with(world(BAD_METRIC), |spec| spec.check.preflight = false);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.configure(ROLLOUT, "paused and skipped", |spec| (spec.paused, spec.skip_check) = (true, true));
    world.run(LONG, |_| false);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{}", world.tale.long_story());
    assert_eq!(phase(&world), Phase::Paused);
    world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    world.run(LONG, |_| false);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2", "{}", world.tale.long_story());
}

#[test]
fn a_set_that_never_came_up_is_not_rolled_out() {
    let mut world = World::empty();
    world.releases.insert(1, CRASHING);
    world.add_set(SET, 3, 1);
    world.add_rollout(ROLLOUT, SET);
    world.run(LONG, |_| false);
    assert!(!condition(&world, "RolledOut"), "{}", world.tale.long_story());
    assert!(condition(&world, "Reconciling"));
}

/// A pod that comes and goes can never be checked: it fails in the time that all checks would take.
#[test]
fn a_pod_that_comes_and_goes_fails() {
    let mut world = with(world(Release { ..GOOD }), |spec| spec.check.initial_delay_seconds = 5);
    template(&mut world, 2);
    until(&mut world, |world| set(world).layout() == "0:1 1:1 2:2" && set(world).pods[&2].is_healthy());
    for _ in 0..200 {
        world.run(2, |_| false);
        world.break_pod(SET, 2);
        world.run(2, |_| false);
        world.heal_pod(SET, 2);
        if phase(&world) == Phase::Failed {
            return;
        }
    }
    panic!("it never failed: {}\n{}", status(&world).message, world.tale.long_story());
}

/// What a hand writes into the status, wherever it would open something if it were believed.
type Edit = fn(&mut PhasedRolloutStatus);

const EDITS: [(&str, Edit); 7] = [
    ("the failed revision is the last good one", |status| status.previous_revision = status.target_revision.clone()),
    ("all checks have passed", |status| {
        let current = status.current.as_mut().unwrap();
        (current.consecutive_passes, current.failed, current.tries) = (99, false, 0);
    }),
    ("never healthy", |status| status.never_healthy = true),
    ("complete", |status| (status.completion_time, status.current) = (status.start_time, None)),
    ("its pods have passed", |status| {
        let revision = status.target_revision.clone().unwrap();
        status.passed = vec![sts_plus_api::Passed { since: Some(jiff::Timestamp::MAX), revision, index: 0 }];
    }),
    ("about another revision", |status| status.target_revision = status.previous_revision.clone()),
    ("nothing", |status| *status = PhasedRolloutStatus { seal: status.seal.clone(), ..PhasedRolloutStatus::default() }),
];

/// No pod moves for a status that was edited by hand, and the repair of what went wrong goes on as before.
#[test]
fn a_status_edited_by_hand_opens_nothing() {
    for (what, edit) in EDITS {
        println!("--- {what}");
        failed_on_the_first_pod(|mut world| {
            edit(&mut world.rollouts.get_mut(ROLLOUT).unwrap().status);
            world.restart_operator();
            world.run(LONG, |_| false);
            lawful(&world);
            assert_eq!(set(&world).layout(), "0:1 1:1 2:2", "{what}: {}", world.tale.long_story());
            assert_eq!(phase(&world), Phase::Failed, "{what}: {}", world.tale.long_story());
            assert_eq!(events(&world, "StatusEdited"), 1, "{what}");
            assert_eq!(status(&world).previous_revision.as_deref(), Some("web-r1"));
            template(&mut world, 3);
            completed(&mut world, 3);
        });
    }
}

/// At rest it moves nothing either: the pods are checked again where they are.
#[test]
fn a_status_edited_at_rest_is_checked_again() {
    let mut world = world(GOOD);
    let before = uids(&world);
    world.rollouts.get_mut(ROLLOUT).unwrap().status.previous_revision = Some("web-r9".to_owned());
    world.restart_operator();
    completed(&mut world, 1);
    assert_eq!(uids(&world), before);
    assert!(count(&world, |deed| matches!(deed, Deed::Checked(..))) > 0, "{}", world.tale.long_story());
}

/// What is for people only may be edited: it is written over, and nothing starts anew.
#[test]
fn an_edited_message_is_written_over() {
    failed_on_the_first_pod(|mut world| {
        let status = &mut world.rollouts.get_mut(ROLLOUT).unwrap().status;
        (status.message, status.phase, status.updated_replicas) = ("all is well".to_owned(), Phase::Completed, 3);
        world.restart_operator();
        world.run(LONG, |_| false);
        assert_eq!((phase(&world), status_words(&world)), (Phase::Failed, false), "{}", world.tale.long_story());
        assert_eq!(events(&world, "StatusEdited"), 0);
    });
}

fn status_words(world: &World) -> bool {
    status(world).message.contains("all is well")
}
