//! When a revision has failed: hold, pause, go back, or go on; and what a person's retry does.

use sts_plus_api::{Failure, FailureReason, OnFailure, Reason};

use crate::{
    roll::{memory::Activity, round::Round},
    units::PodIndex,
    why::{Kind, WaitsFor, Why},
};

/// What follows from a failed cycle.
pub(super) enum Outcome {
    /// onFailure Proceed: as if it had passed.
    Proceed(String),
    RollBack,
    Stands(Why),
}

/// maxTries was used up, or a pod of the revision was broken for as long. It stays failed, whatever pods come and go.
pub(super) fn fail(round: &mut Round, kind: Kind, index: PodIndex, reason: FailureReason, message: &str) -> Outcome {
    let policy = policy(round, kind);
    if policy == OnFailure::Proceed {
        round.memory.failure = None;
        round.warn(Reason::ChecksIgnored, &format!("onFailure Proceed: {message}"));
        return Outcome::Proceed(format!("onFailure Proceed although {message}"));
    }
    let revision = round.slots.wanted.to_owned();
    round.memory.failure = Some(Failure { revision: revision.clone(), reason, policy });
    if policy == OnFailure::Rollback {
        round.memory.reject(&revision);
        round.warn(reason.into(), &format!("onFailure Rollback: {message}"));
        round.memory.activity = Activity::RollingBack(index, None);
        return Outcome::RollBack;
    }
    if let Some(due) = round.memory.activity.cycle().and_then(|cycle| cycle.next) {
        round.wake_at(due);
    }
    let waits_for = if policy == OnFailure::Pause { WaitsFor::Person } else { WaitsFor::Check };
    Outcome::Stands(Why::failed(reason.into(), waits_for, message.to_owned()))
}

/// The policy that applies: there is nothing to roll back before the first pod, after the last one, and in a revert.
fn policy(round: &Round, kind: Kind) -> OnFailure {
    let slots = &round.slots;
    let can_go_back = kind != Kind::Preflight && !slots.has_flipped() && round.last_good() != slots.wanted;
    match round.policy.check.on_failure {
        OnFailure::Rollback if !can_go_back => OnFailure::Hold,
        // Checks may be ignored, pods may not: one pod per step, and complete only when all are there.
        OnFailure::Proceed if slots.in_flight().is_some() || slots.obstacle(&[]).is_some() => OnFailure::Hold,
        other => other,
    }
}

/// A new value of the retry annotation takes the revision off the list and starts the counters again.
pub(super) fn honour_retry(round: &mut Round) {
    if round.policy.retry == round.memory.retry {
        return;
    }
    round.memory.retry.clone_from(&round.policy.retry);
    let Some(given) = &round.policy.retry else { return };
    let annotation = round.policy.words.keeper.retry_annotation();
    let wanted = round.slots.wanted;
    if !round.is_rejected() && round.memory.failure.is_none() {
        // It allows nothing in advance, and whoever set it hears that.
        let note = format!(
            "{annotation}: {given} was set while nothing had failed; a later failure is tried again for another value"
        );
        round.normal(Reason::NothingToRetry, &note);
        return;
    }
    round.memory.rejected.retain(|revision| revision != wanted);
    (round.memory.activity, round.memory.failure) = (Activity::Idle, None);
    if round.memory.is_settled() {
        // No rollout brought the pods to it (zero replicas did): its checks are made now.
        round.memory.begin(wanted, round.now);
        round.checks.to_mut().clear();
    }
    round.memory.progress(round.now);
    round.normal(Reason::RolloutStarted, &format!("{annotation} was set: {wanted} is tried again"));
}

/// A rejected revision is held until a person retries it. This stands before any repair.
pub(super) fn rejected(round: &mut Round) -> Why {
    round.memory.activity = Activity::Idle;
    let failure = round.memory.failure.as_ref();
    let went_back = failure.is_some_and(|failure| failure.policy == OnFailure::Rollback);
    let good = round.last_good();
    Why::rejected(&round.slots, round.policy.words, round.memory.retry.as_deref(), &good, went_back)
}
