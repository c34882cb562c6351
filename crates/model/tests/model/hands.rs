//! What people do to a rollout: pause, approve, skip, lower the partition, allow it, claim a set at any time.

use sts_plus_api::{Phase, names};
use sts_plus_decide::Strategy;
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, Who, World};

use crate::story::*;

#[test]
fn pause_and_go_on_at_any_moment() {
    everywhere(GOOD, |start| {
        for moment in 0..32 {
            let mut world = start.clone();
            template(&mut world, 2);
            world.pass(moment);
            world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
            world.pass(8);
            let layout = set(&world).layout();
            let checks = count(&world, |deed| matches!(deed, Deed::Checked(..)));
            world.pass(100);
            assert_eq!(set(&world).layout(), layout, "{}", world.tale.long_story());
            assert_eq!(count(&world, |deed| matches!(deed, Deed::Checked(..))), checks);
            world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
            completed(&mut world, 2);
        }
    });
}

/// Paused after the last pod: the hold is put in place all the same, so that the next template waits (without the policy too).
#[test]
fn paused_after_the_last_pod() {
    let mut world = world(GOOD);
    world.policy = false;
    template(&mut world, 2);
    until(&mut world, |world| set(world).partition == Some(0));
    world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
    world.settle(LONG);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
    assert_eq!(set(&world).partition, Some(3), "{}", world.tale.long_story());
    template(&mut world, 3);
    world.settle(LONG);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
}

/// While paused, a lowered partition is put back.
#[test]
fn drift_while_paused() {
    let mut world = world(GOOD);
    world.policy = false;
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
    world.pass(5);
    let before = set(&world).partition;
    world.set_partition(SET, Some(0));
    world.operate(ROLLOUT, sts_plus_model::Stop::Never);
    assert_eq!(set(&world).partition, before, "{}", world.tale.long_story());
}

/// Paused, and the pod that stands for the revision is scaled away: held in full, or a scale-up would start pods on it.
#[test]
fn paused_and_scaled_away() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
    world.pass(1);
    world.scale(SET, 2);
    world.pass(10);
    assert_eq!(set(&world).partition, Some(HOLD), "{}", world.tale.long_story());
    world.scale(SET, 3);
    world.pass(10);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    completed(&mut world, 2);
}

#[test]
fn a_pause_does_not_use_up_the_deadline() {
    let mut world = with(world(GOOD), |spec| spec.progress_deadline_seconds = Some(30));
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.configure(ROLLOUT, "paused", |spec| spec.paused = true);
    world.pass(100);
    assert!(!condition(&world, "Stalled"));
    world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    world.pass(1);
    assert!(!condition(&world, "Stalled"), "{}", world.tale.long_story());
    completed(&mut world, 2);
}

#[test]
fn pause_before() {
    let mut world = with(world(GOOD), |spec| spec.pause_before = vec![2, 0]);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Paused);
    world.pass(100);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    assert_eq!(reason(&world), "AwaitingApproval");
    world.annotate(ROLLOUT, names::APPROVE, "web-r1/2");
    world.pass(100);
    assert!(status(&world).message.contains("web-r1/2"), "{}", status(&world).message);
    assert_eq!(set(&world).layout(), "0:1 1:1 2:1");
    world.annotate(ROLLOUT, names::APPROVE, "web-r2/2");
    until(&mut world, |world| set(world).layout() == "0:1 1:2 2:2" && phase(world) == Phase::Paused);
    assert!(world.rollouts[ROLLOUT].annotations.is_empty());
    world.pass(100);
    assert_eq!(set(&world).layout(), "0:1 1:2 2:2");
    world.annotate(ROLLOUT, names::APPROVE, "web-r2/0");
    completed(&mut world, 2);
    assert!(world.rollouts[ROLLOUT].annotations.is_empty());
}

/// The state while approval is awaited: nothing is written again and again.
#[test]
fn waiting_for_approval_is_quiet() {
    let mut world = with(world(GOOD), |spec| spec.pause_before = vec![1]);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Paused);
    world.settle(LONG);
    let before = world.tale.lines().count();
    world.pass(1000);
    assert_eq!(world.tale.lines().count(), before, "{}", world.tale.long_story());
}

#[test]
fn skip_check_and_back() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.configure(ROLLOUT, "skipCheck", |spec| spec.skip_check = true);
    settle(&mut world);
    assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
    assert_eq!(set(&world).partition, None);
    template(&mut world, 3);
    settle(&mut world);
    assert_eq!(set(&world).layout(), "0:3 1:3 2:3");
    still(&mut world);
    world.configure(ROLLOUT, "gate again", |spec| spec.skip_check = false);
    settle(&mut world);
    at_rest_on(&mut world, 3);
    template(&mut world, 4);
    completed(&mut world, 4);
    insta::assert_snapshot!(world.tale.story());
}

/// skipCheck ends in mid-rollout: held at once, and what had not moved waits for its checks.
#[test]
fn skip_check_ends_in_mid_rollout() {
    for moment in 0..8 {
        let mut world = world(GOOD);
        world.configure(ROLLOUT, "skipCheck", |spec| spec.skip_check = true);
        settle(&mut world);
        template(&mut world, 2);
        world.pass(moment);
        world.configure(ROLLOUT, "gate again", |spec| spec.skip_check = false);
        settle(&mut world);
        assert_eq!(set(&world).layout(), "0:2 1:2 2:2");
        at_rest_on(&mut world, 2);
    }
}

#[test]
fn drift_under_the_policy() {
    everywhere(GOOD, |mut world| {
        template(&mut world, 2);
        until_checked(&mut world, 2);
        let before = uids(&world);
        world.set_partition(SET, Some(0));
        world.set_partition(SET, None);
        world.pass(1);
        assert_eq!(uids(&world), before);
        completed(&mut world, 2);
    });
}

/// Without the policy pods slip; they are no credit: checked before anything else moves.
#[test]
fn drift_without_the_policy() {
    let mut world = world(GOOD);
    world.policy = false;
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.set_partition(SET, Some(0));
    world.sync(SET);
    world.settle(LONG);
    assert_eq!(phase(&world), Phase::Completed, "{}", world.tale.long_story());
    assert_eq!(events(&world, "PartitionDrift"), 1, "{}", world.tale.long_story());
    let drift = world.tale.deeds().find(|d| matches!(d, Deed::Event("PR", r, _) if r == "PartitionDrift")).unwrap();
    assert!(format!("{drift:?}").contains("kubectl"), "{drift:?}");
}

#[test]
fn break_glass() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    until_checked(&mut world, 2);
    world.break_glass(SET, 1);
    until(&mut world, |world| set(world).layout() == "0:1 1:2 2:2");
    assert!(!set(&world).annotations.contains_key(names::ALLOW_PARTITION), "honoured once, then removed");
    assert_eq!(events(&world, "PartitionAllowed"), 1);
    completed(&mut world, 2);
    insta::assert_snapshot!(world.tale.story());
}

/// The same while the rollout is Stalled, or the revision rejected: a person's word stands.
#[test]
fn break_glass_while_failed() {
    for policy in [sts_plus_api::OnFailure::Hold, sts_plus_api::OnFailure::Pause, sts_plus_api::OnFailure::Rollback] {
        everywhere(Release { metric: Metric::FailAt(2), ..GOOD }, |start| {
            let mut world = with(start, |spec| (spec.check.preflight, spec.check.on_failure) = (false, policy));
            template(&mut world, 2);
            until(&mut world, |world| condition(world, "Stalled"));
            world.pass(5);
            world.break_glass(SET, 0);
            world.pass(60);
            lawful(&world);
            assert_eq!(set(&world).layout(), "0:2 1:2 2:2", "{policy:?} {}", world.tale.long_story());
        });
    }
}

#[test]
fn claimed_at_rest() {
    let mut world = World::empty();
    world.add_set(SET, 3, 1);
    world.settle(LONG);
    world.tale.clear();
    world.add_rollout(ROLLOUT, SET);
    settle(&mut world);
    at_rest_on(&mut world, 1);
    assert_eq!(phase(&world), Phase::Idle);
    insta::assert_snapshot!(world.tale.story());
}

/// L094: claimed while pods roll: held at once, and the rest waits for checks.
// spec: pr§7, L094
#[test]
fn claimed_in_mid_rollout() {
    for moment in 0..9 {
        let mut world = World::empty();
        world.add_set(SET, 3, 1);
        world.settle(LONG);
        world.set_template(SET, 2);
        world.pass(moment);
        world.tale.clear();
        world.add_rollout(ROLLOUT, SET);
        settle(&mut world);
        assert_eq!(set(&world).layout(), "0:2 1:2 2:2", "{}", world.tale.long_story());
        at_rest_on(&mut world, 2);
    }
}

#[test]
fn a_set_that_comes_after_its_rollout() {
    let mut world = World::empty();
    world.add_rollout(ROLLOUT, SET);
    settle(&mut world);
    assert_eq!(reason(&world), "TargetNotFound");
    world.add_set(SET, 3, 1);
    settle(&mut world);
    at_rest_on(&mut world, 1);
    template(&mut world, 2);
    completed(&mut world, 2);
}

/// O38: deleted with orphan and made anew with another template. No pod moves unapproved, and none is shown as rolled.
#[test]
fn deleted_with_orphan_and_made_anew() {
    everywhere(GOOD, |mut world| {
        let before = uids(&world);
        world.remake(SET, 2);
        world.run(LONG, |world| status(world).current.is_some());
        assert_eq!(uids(&world), before, "{}", world.tale.long_story());
        assert!(!condition(&world, "RolledOut"));
        completed(&mut world, 2);
        assert_eq!(steps(&world), [2, 1, 0, 3], "{}", world.tale.long_story());
    });
}

// spec: pr§7, L109
#[test]
fn on_delete_is_refused_before_anything_is_written() {
    let mut world = World::empty();
    world.add_set(SET, 3, 1);
    set_mut(&mut world).strategy = Strategy::Other("OnDelete".into());
    world.settle(LONG);
    world.tale.clear();
    world.add_rollout(ROLLOUT, SET);
    settle(&mut world);
    assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Blocked, "UnsupportedStrategy"));
    assert!(set(&world).annotations.is_empty());
    still(&mut world);
    world.edit(SET, "RollingUpdate", |set| set.strategy = Strategy::RollingUpdate);
    settle(&mut world);
    at_rest_on(&mut world, 1);
}

/// A release is pending when the cure of that message is followed. Nothing but the partition that it names holds the set, until the
/// operator has claimed it.
// spec: pr§7, L109, cure-UnsupportedStrategy
#[test]
fn the_cure_of_on_delete_moves_no_pod_unchecked() {
    for policy in [true, false] {
        let mut world = World::empty();
        world.policy = policy;
        world.add_set(SET, 3, 1);
        set_mut(&mut world).strategy = Strategy::Other("OnDelete".into());
        world.settle(LONG);
        world.add_rollout(ROLLOUT, SET);
        settle(&mut world);
        template(&mut world, 2);
        settle(&mut world);
        let before = uids(&world);
        world.edit(SET, "RollingUpdate, held", |set| {
            (set.strategy, set.partition) = (Strategy::RollingUpdate, Some(names::HOLD));
        });
        until(&mut world, |world| status(world).current.as_ref().is_some_and(|current| current.tries > 0));
        assert_eq!(uids(&world), before, "{}", world.tale.long_story());
        completed(&mut world, 2);
        assert_eq!(steps(&world), [2, 1, 0, 3], "{}", world.tale.long_story());
    }
}

/// The type goes to OnDelete, the template changes, and the type comes back: held.
#[test]
fn on_delete_and_back() {
    let mut world = world(GOOD);
    world.edit(SET, "OnDelete", |set| (set.strategy, set.partition) = (Strategy::Other("OnDelete".into()), None));
    settle(&mut world);
    let before = uids(&world);
    template(&mut world, 2);
    settle(&mut world);
    world.edit(SET, "RollingUpdate", |set| set.strategy = Strategy::RollingUpdate);
    until(&mut world, |world| status(world).current.as_ref().is_some_and(|current| current.tries > 0));
    assert_eq!(uids(&world), before);
    completed(&mut world, 2);
}

/// A template that goes back and forth, faster than pods move.
#[test]
fn a_template_that_toggles() {
    for pause in 0..12 {
        let mut world = world(GOOD);
        for next in [2, 1, 2, 3, 2, 1, 3] {
            template(&mut world, next);
            world.pass(pause);
        }
        completed(&mut world, 3);
    }
}

/// Nobody but the operator and the native controller touched a pod.
#[test]
fn only_one_pod_at_a_time() {
    let mut world = world(GOOD);
    template(&mut world, 2);
    let mut worst = 0;
    for _ in 0..60 {
        world.pass(1);
        let away = set(&world).pods.values().filter(|pod| !pod.is_healthy()).count();
        worst = worst.max(away + 3 - set(&world).pods.len().min(3));
    }
    assert_eq!(worst, 1);
    assert_eq!(count(&world, |deed| matches!(deed, Deed::Deleted(Who::User | Who::Operator, _))), 0);
}

/// A retry that was set before anything failed is no permission for later, and whoever set it is told.
#[test]
fn a_retry_in_advance_allows_nothing_and_is_told() {
    let failing = Release { metric: Metric::FailAt(2), ..GOOD };
    let mut world = with(world(failing), |spec| {
        (spec.check.preflight, spec.check.on_failure) = (false, sts_plus_api::OnFailure::Pause);
    });
    world.annotate(ROLLOUT, names::RETRY, "early");
    world.pass(5);
    assert_eq!(events(&world, "NothingToRetry"), 1);
    template(&mut world, 2);
    until_phase(&mut world, Phase::Failed);
    world.releases.insert(2, GOOD);
    world.pass(100);
    assert_eq!((phase(&world), set(&world).layout().as_str()), (Phase::Failed, "0:1 1:1 2:2"));
    assert!(status(&world).message.contains("another value than early"), "{}", status(&world).message);
    assert_eq!(world.rollouts[ROLLOUT].annotations[names::RETRY], "early", "it is the person's");
    world.annotate(ROLLOUT, names::RETRY, "now");
    completed(&mut world, 2);
    assert_eq!(events(&world, "NothingToRetry"), 1);
}

/// A person's word during a rollback ends it: the pods that were allowed go to the revision, no other, and it stays rejected.
#[test]
fn break_glass_during_a_rollback() {
    everywhere(Release { metric: Metric::FailAt(1), ..GOOD }, |start| {
        let mut world = with(start, |spec| {
            (spec.check.preflight, spec.check.on_failure) = (false, sts_plus_api::OnFailure::Rollback);
        });
        template(&mut world, 2);
        until(&mut world, |world| count(world, |deed| matches!(deed, Deed::Deleted(Who::Operator, _))) == 1);
        world.break_glass(SET, 1);
        world.pass(300);
        lawful(&world);
        assert_eq!(set(&world).layout(), "0:1 1:2 2:2", "{}", world.tale.long_story());
        assert_eq!((phase(&world), reason(&world).as_str()), (Phase::Held, "RevisionRejected"));
        assert_eq!(status(&world).rejected_revisions, ["web-r2"]);
        still(&mut world);
        world.releases.insert(2, GOOD);
        world.annotate(ROLLOUT, names::RETRY, "again");
        completed(&mut world, 2);
    });
}
