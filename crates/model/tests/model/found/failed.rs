//! A rollout that has failed: what keeps it so, and that every pod of the failed revision goes back.

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_decide::Strategy;
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Health, Metric, Release, World};

use super::{carried, of_pods, on_failure, uid};
use crate::story::*;

fn failing_at(index: i32) -> Release {
    Release { metric: Metric::FailAt(index), ..GOOD }
}

/// What comes and goes while a person is awaited.
type Happening = fn(&mut World);

const HAPPENINGS: [(&str, Happening); 13] = [
    ("the failed pod is deleted", |world| world.delete_pod(SET, 1)),
    ("the pod above it is deleted", |world| world.delete_pod(SET, 2)),
    ("the pod below it is deleted", |world| world.delete_pod(SET, 0)),
    ("both rolled pods are deleted", |world| {
        world.delete_pod(SET, 1);
        world.delete_pod(SET, 2);
    }),
    ("the failed pod cannot be made for a while", |world| {
        world.quota = Some(2);
        world.delete_pod(SET, 1);
        world.pass(30);
        world.quota = None;
    }),
    ("the pod below it cannot be made for a while", |world| {
        world.quota = Some(2);
        world.delete_pod(SET, 0);
        world.pass(30);
        world.quota = None;
    }),
    ("the failed pod breaks and recovers", |world| {
        world.break_pod(SET, 1);
        world.pass(20);
        world.heal_pod(SET, 1);
    }),
    ("up and down", |world| {
        world.scale(SET, 5);
        world.pass(20);
        world.scale(SET, 3);
    }),
    ("down and up", |world| {
        world.scale(SET, 1);
        world.pass(20);
        world.scale(SET, 3);
    }),
    ("paused and resumed", |world| {
        world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
        world.pass(5);
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    }),
    ("the operator starts again", World::restart_operator),
    ("OnDelete and back", |world| {
        world.edit(SET, "OnDelete", |set| set.strategy = Strategy::Other("OnDelete".into()));
        world.pass(5);
        world.edit(SET, "RollingUpdate", |set| set.strategy = Strategy::RollingUpdate);
    }),
    ("the claim is stripped", |world| {
        world.policy = false;
        world.edit(SET, "strips the claim", |set| drop(set.annotations.remove(names::CLAIM)));
    }),
];

/// Lets it happen to a rollout that has failed with Pause and whose checks pass by now. What is wrong with what becomes of it, if anything is.
fn what_ends_the_pause(failed: &World, happens: Happening) -> Option<String> {
    let mut world = failed.clone();
    world.releases.insert(2, GOOD);
    happens(&mut world);
    world.pass(400);
    lawful(&world);
    // None but those that were there before it failed.
    let rolled = |world: &World| -> Vec<i32> {
        let pods = set(world).pods.iter().filter(|(_, pod)| pod.revision == "web-r2");
        pods.map(|(ordinal, _)| *ordinal).collect()
    };
    let more = rolled(&world).iter().any(|ordinal| !rolled(failed).contains(ordinal));
    let layout = set(&world).layout();
    if more || phase(&world) != Phase::Failed || !condition(&world, "Stalled") {
        return Some(format!("{:?}, {layout}: {}", phase(&world), status(&world).message));
    }
    world.annotate(ROLLOUT, names::RETRY, "now");
    completed(&mut world, 2);
    None
}

fn nothing_ends_the_pause(second: Release, preflight: bool) {
    let mut wrong = Vec::new();
    for is_parallel in [false, true] {
        let start = if is_parallel { parallel(second) } else { world(second) };
        let mut world =
            with(start, |spec| (spec.check.on_failure, spec.check.preflight) = (OnFailure::Pause, preflight));
        template(&mut world, 2);
        until_phase(&mut world, Phase::Failed);
        for (what, happens) in HAPPENINGS {
            wrong.extend(
                what_ends_the_pause(&world, happens).map(|how| format!("{what}, parallel {is_parallel}: {how}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two of three pods were rolled, the second one failed, and onFailure Pause had stopped the rollout for a person. Somebody deleted the failed
/// pod: it came back on the old revision, and a minute later it was rolled to the failed one again, without a retry and without an approval.
// spec: pr§5, L081
#[test]
fn whatever_pods_come_and_go_a_pause_after_a_failed_pod_stands() {
    nothing_ends_the_pause(failing_at(1), false);
}

/// The last pod was rolled, the checks after it failed, and a node was drained: the rollout called itself Completed without a retry.
// spec: pr§5, L081
#[test]
fn whatever_pods_come_and_go_a_pause_after_the_final_checks_stands() {
    nothing_ends_the_pause(Release { metric: Metric::FailAfter, ..GOOD }, false);
}

/// The preflight had failed, and somebody scaled the set: the first pod was rolled without a retry.
// spec: pr§5, L081
#[test]
fn whatever_pods_come_and_go_a_pause_after_the_preflight_stands() {
    nothing_ends_the_pause(Release { metric: Metric::FailBefore, ..GOOD }, true);
}

/// A rollback had begun. Somebody changed the update strategy for a moment, and the pods of the rejected revision stayed where they were.
// spec: pr§5, L081
#[test]
fn whatever_comes_and_goes_a_rollback_that_has_begun_ends() {
    let mut wrong = Vec::new();
    for is_parallel in [false, true] {
        let start = if is_parallel { parallel(failing_at(1)) } else { world(failing_at(1)) };
        let mut begun = on_failure(start, OnFailure::Rollback);
        template(&mut begun, 2);
        until_phase(&mut begun, Phase::RollingBack);
        for (what, happens) in HAPPENINGS {
            let mut world = begun.clone();
            happens(&mut world);
            world.settle(LONG);
            lawful(&world);
            if phase(&world) != Phase::RolledBack || set(&world).layout() != "0:1 1:1 2:1" {
                let (layout, message) = (set(&world).layout(), &status(&world).message);
                wrong.push(format!("{what}, parallel {is_parallel}: {:?}, {layout}: {message}", phase(&world)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// web-4 runs C, which failed with Pause; web-3 still runs B, which passed there, and the others A. web-3 broke, was brought to C as a repair,
/// and with that the failure was forgotten: the pods on A went on to C.
// spec: pr§4, pr§5
#[test]
fn the_repair_of_another_pod_ends_no_pause() {
    let mut world = after_two_of_b(OnFailure::Pause, failing_at(4));
    until_phase(&mut world, Phase::Failed);
    let good = uids(&world)[..3].to_vec();
    world.configure(ROLLOUT, "no approvals", |spec| spec.pause_before.clear());
    world.releases.insert(3, GOOD);
    world.break_pod(SET, 3);
    world.pass(400);
    lawful(&world);
    assert_eq!(uids(&world)[..3], good, "{}", world.tale.long_story());
    assert_eq!(phase(&world), Phase::Failed, "{}", world.tale.long_story());
    world.annotate(ROLLOUT, names::RETRY, "now");
    completed(&mut world, 3);
}

/// A runs on 0, 1 and 2, B has passed on 4 and 3, and then comes C.
fn after_two_of_b(policy: OnFailure, c: Release) -> World {
    let mut world = with(on_failure(of_pods(5), policy), |spec| spec.pause_before = vec![2]);
    world.releases.insert(3, c);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Paused);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1 3:2 4:2");
    template(&mut world, 3);
    world
}

/// A good, B passed on web-4 and web-3, C failed on web-4 and was to be rolled back. web-3 on B, which had never moved to C, was taken for a pod
/// that came back wrong: "the rollback is stopped", and web-4 stayed on the failed C.
// spec: pr§5
#[test]
fn pods_that_never_moved_do_not_stop_a_rollback() {
    for is_parallel in [false, true] {
        let mut world = after_two_of_b(OnFailure::Rollback, failing_at(4));
        set_mut(&mut world).parallel = is_parallel;
        let kept = uid(&world, 3);
        until_phase(&mut world, Phase::RollingBack);
        settle(&mut world);
        let story = world.tale.long_story();
        assert_eq!((carried(&world, 4), uid(&world, 3)), ("web-r1", kept), "{story}");
        // It is over, and nobody says of web-3 that it is back on A.
        assert!(matches!(phase(&world), Phase::RolledBack | Phase::Held), "{:?} {story}", phase(&world));
        assert_eq!(reason(&world), "RevisionRejected", "{story}");
        assert!(!story.contains("all pods of StatefulSet web are back"), "{story}");
        assert!(!story.contains("all pods are back"), "{story}");
        still(&mut world);
    }
}

/// The new web-2 crashed, and web-0 of the old revision was broken too. The status named web-0 alone, and the failure of the release was never
/// counted: neither told, nor paused, nor rolled back.
// spec: pr§5, pr§6
#[test]
fn a_broken_pod_of_the_old_revision_does_not_hide_one_of_the_new() {
    for policy in [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback] {
        everywhere(CRASHING, |start| {
            let mut world = on_failure(start, policy);
            template(&mut world, 2);
            until(&mut world, |world| carried(world, 2) == "web-r2");
            world.break_pod(SET, 0);
            world.pass(200);
            let story = world.tale.long_story();
            if policy == OnFailure::Rollback {
                assert_eq!(status(&world).rejected_revisions, ["web-r2"], "{story}");
                assert_ne!(carried(&world, 2), "web-r2", "{story}");
                world.heal_pod(SET, 0);
                until_phase(&mut world, Phase::RolledBack);
            } else {
                assert_eq!(phase(&world), Phase::Failed, "{policy:?} {story}");
                assert!(status(&world).message.contains("web-2"), "{policy:?} {} {story}", status(&world).message);
            }
        });
    }
}

/// Pods take 12 s to start, and the deadline without progress is 30 s.
fn slow(replicas: i32, second: Release) -> World {
    let mut world = of_pods(replicas);
    world.releases.insert(1, Release { health: Health::ReadyAfter(12), ..GOOD });
    world.releases.insert(2, Release { health: Health::ReadyAfter(12), ..second });
    on_failure(with(world, |spec| spec.progress_deadline_seconds = Some(30)), OnFailure::Rollback)
}

/// Four pods went back one after the other, each within 13 s, and in the middle of it the status said `ProgressDeadlineExceeded`: no progress.
// spec: pr§1, pr§5
#[test]
fn each_pod_that_goes_back_is_progress() {
    let mut world = slow(5, failing_at(1));
    template(&mut world, 2);
    until_phase(&mut world, Phase::RolledBack);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1 3:1 4:1");
    assert_eq!(events(&world, "ProgressDeadlineExceeded"), 0, "{}", world.tale.long_story());
}

/// Four pods were on the new revision, one of them broken, and a fix came. One write opened all of them, the controller brought one after the
/// other to the fix, each within 13 s, and in the middle of it the status said `ProgressDeadlineExceeded`: no progress. A revert writes for each pod.
// spec: pr§1, pr§4
#[test]
fn each_pod_that_a_repair_moves_is_progress() {
    for (next, is_parallel) in [(3, false), (3, true), (1, false), (1, true)] {
        let mut world = slow(5, GOOD);
        set_mut(&mut world).parallel = is_parallel;
        world.releases.insert(3, Release { health: Health::ReadyAfter(12), ..GOOD });
        template(&mut world, 2);
        until_checked(&mut world, 1);
        world.break_pod(SET, 1);
        template(&mut world, next);
        completed(&mut world, next);
        assert_eq!(events(&world, "ProgressDeadlineExceeded"), 0, "{next} {is_parallel} {}", world.tale.long_story());
    }
}

/// All pods were back. Somebody changed minReadySeconds, the controller was slow to see it, and from then on the phase said Held for what had
/// been `RolledBack`.
// spec: pr§5, pr§9
#[test]
fn rolled_back_stays_rolled_back_after_the_controller_was_awaited() {
    everywhere(failing_at(1), |start| {
        let mut world = on_failure(start, OnFailure::Rollback);
        template(&mut world, 2);
        until_phase(&mut world, Phase::RolledBack);
        settle(&mut world);
        world.controller_down = true;
        world.edit(SET, "minReadySeconds 1", |set| set.min_ready = 1);
        world.pass(5);
        assert_eq!(reason(&world), "AwaitingController", "{}", world.tale.long_story());
        world.controller_down = false;
        settle(&mut world);
        assert_eq!((phase(&world), reason(&world).as_str()), (Phase::RolledBack, "RevisionRejected"));
        assert!(status(&world).message.contains("all pods are back on web-r1"), "{}", status(&world).message);
    });
}
