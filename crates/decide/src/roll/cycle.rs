//! The check cycle of a step: the pods are awaited, then asked about.

use jiff::Timestamp;
use sts_plus_api::{FailureReason, OnFailure};

use crate::{
    checks::{self, Cycle, Sight, Turn},
    observed::Try,
    plan::CheckRequest,
    roll::{memory::Activity, round::Round},
    slots::Obstacle,
    time::clock,
    units::PodIndex,
    why::{Kind, WaitsFor, Why},
};

/// What a cycle has come to.
pub(super) enum Judged {
    /// It allows the next step; with the last verdict in words.
    Passed(String),
    /// It has failed: reason and sentence.
    Failed(FailureReason, String),
    Stands(Why),
    Asks(CheckRequest),
}

/// One round of the cycle of `kind` at `index`. The pods in `exempt` need not be available.
pub(super) fn run(round: &mut Round, kind: Kind, index: PodIndex, exempt: &[PodIndex]) -> Judged {
    let mut cycle = round.take_cycle(kind, index);
    if let Some(obstacle) = round.obstacle(kind, exempt) {
        return obstructed(round, kind, index, cycle, obstacle);
    }
    let check = round.policy.check;
    if check.all_queries().next().is_none() {
        round.put_cycle(kind, index, cycle);
        return Judged::Passed("no checks".to_owned());
    }
    let key = round.key(kind, index);
    let answer = round.answer.filter(|answer| answer.request == key);
    if let Some(answer) = answer {
        hear(round, &cycle, answer);
    }
    let sight = Sight {
        check,
        // In the preflight nothing was rolled, so there is nothing fresh to wait for.
        delay: if kind == Kind::Preflight { 0 } else { check.initial_delay_seconds },
        whole_since: round.slots.whole_since(),
        config: round.policy.config.first(),
        answer,
        now: round.now,
    };
    let turn = cycle.next(&sight);
    match turn {
        Turn::Passed if may_pass(round) => {
            round.memory.failure = None;
            let words = format!(
                "{} consecutive checks passed for {}: {}",
                cycle.passes,
                round.slots.pod_name(index),
                round.last_words()
            );
            round.put_cycle(kind, index, cycle);
            Judged::Passed(words)
        }
        Turn::Refused if may_fail(round) => {
            cycle.schedule(&sight);
            let message = format!(
                "{}{}: {} checks without {} consecutive passes; {}",
                kind.words(),
                round.slots.pod_name(index),
                cycle.tries,
                check.success_threshold,
                round.last_words()
            );
            round.put_cycle(kind, index, cycle);
            Judged::Failed(FailureReason::ChecksFailed, message)
        }
        Turn::Unusable(problem, again) => {
            round.put_cycle(kind, index, cycle);
            // A Secret that a person creates wakes nobody up, so it is looked for.
            round.wake_at(again);
            Judged::Stands(Why::unusable(&problem))
        }
        Turn::Passed | Turn::Refused | Turn::Waits => {
            let due = cycle.schedule(&sight);
            go_on(round, kind, index, cycle, due)
        }
    }
}

/// Records an answer; warnings of a try are reported once in a rollout, not at every check.
fn hear(round: &mut Round, cycle: &Cycle, answer: &Try) {
    if cycle.whole_since.is_none_or(|since| answer.time < since) {
        return;
    }
    checks::keep(round.checks.to_mut(), &answer.records);
    let has_passed = round.memory.passed.iter().any(|passed| passed.revision == round.slots.wanted);
    if cycle.last.is_some() || has_passed {
        return;
    }
    for (reason, note) in &answer.warnings {
        round.warn(*reason, note);
    }
}

/// Enough passes end a failure, but not one of onFailure Pause.
fn may_pass(round: &Round) -> bool {
    round.memory.failure.is_none() || !needs_person(round)
}

/// One that has failed does not fail again, but onFailure Proceed goes on as soon as the pods are there.
fn may_fail(round: &Round) -> bool {
    let may_proceed = round.policy.check.on_failure == OnFailure::Proceed && !needs_person(round);
    round.memory.failure.is_none() || may_proceed
}

/// Only a person ends the failure.
fn needs_person(round: &Round) -> bool {
    let was_pause = round.memory.failure.as_ref().is_some_and(|failure| failure.policy == OnFailure::Pause);
    was_pause || round.policy.check.on_failure == OnFailure::Pause
}

/// Asks now, or says when.
fn go_on(round: &mut Round, kind: Kind, index: PodIndex, cycle: Cycle, due: Timestamp) -> Judged {
    // An answer counts only for pods that were there before the question, so that is written down first.
    let is_noted = round.before.activity.cycle().is_some_and(|noted| noted.whole_since == cycle.whole_since);
    if due <= round.now && is_noted && round.is_quiet() && round.answer.is_none() {
        return Judged::Asks(round.request(kind, index));
    }
    round.wake_at(due);
    let pod = round.slots.pod_name(index);
    let why = if round.memory.failure.is_some() {
        failing(round, kind, &pod, &cycle)
    } else if let Some(record) = checks::unanswered(&round.checks, &cycle, round.policy.check) {
        Why::unanswered(&pod, record, due)
    } else {
        Why::checking(kind, &pod, &cycle, round.policy.check, &round.checks)
    };
    round.put_cycle(kind, index, cycle);
    Judged::Stands(why)
}

fn failing(round: &Round, kind: Kind, pod: &str, cycle: &Cycle) -> Why {
    let needs_person = needs_person(round);
    let check = round.policy.check;
    let mut more = Why::way_on(round.policy.words, round.memory.retry.as_deref(), needs_person, cycle, check);
    if check.on_failure == OnFailure::Rollback && kind == Kind::Final {
        more.push_str("; after the last pod a rollback needs a template change");
    }
    Why::failing(pod, needs_person, cycle, &round.last_words(), &more)
}

/// The partition is open for a pod that is not at the revision yet.
pub(super) fn wait(round: &mut Round, index: PodIndex, exempt: &[PodIndex]) -> Judged {
    let kind = match round.memory.activity {
        Activity::Final(..) => Kind::Final,
        _ => Kind::Pod,
    };
    let opened = crate::hold::opened(&round.slots).unwrap_or(index);
    let mut cycle = round.take_cycle(kind, opened);
    if let Some(obstacle) = round.slots.obstacle(exempt) {
        return obstructed(round, kind, opened, cycle, obstacle);
    }
    cycle.interrupt();
    round.put_cycle(kind, opened, cycle);
    let slots = &round.slots;
    let message = format!("{} is about to be rolled to {}", slots.pod_name(index), slots.wanted);
    Judged::Stands(Why::rolling(message))
}

/// Something keeps the pods from all being available: delay and streak start again, not the tries.
pub(super) fn obstructed<'a>(
    round: &mut Round<'a>,
    kind: Kind,
    index: PodIndex,
    mut cycle: Cycle,
    obstacle: Obstacle<'a>,
) -> Judged {
    let was_there = cycle.whole_since.is_some();
    cycle.interrupt();
    let what = obstacle.describe(&round.slots);
    if kind != Kind::Preflight && is_unwell(round, obstacle, was_there) {
        // A broken pod, or one that comes and goes, for as long as all tries would take. One slow restart is neither.
        let (since, deadline) = cycle.broken(round.policy.check, round.now);
        if deadline > round.now {
            round.wake_at(deadline);
        } else if round.memory.failure.is_none() {
            let what = match obstacle {
                Obstacle::Unavailable(pod) => format!("{} comes and goes since {}", pod.name, clock(since)),
                _ => what,
            };
            round.put_cycle(kind, index, cycle);
            let tries = round.policy.check.max_tries;
            return Judged::Failed(FailureReason::PodBroken, format!("{what} for the time that {tries} checks take"));
        }
    }
    let why = hindered(round, kind, index, obstacle, &what);
    round.put_cycle(kind, index, cycle);
    Judged::Stands(why)
}

/// A pod at the revision is broken or cannot be made. A quota says nothing about the revision.
fn is_unwell(round: &Round, obstacle: Obstacle, was_there: bool) -> bool {
    match obstacle {
        Obstacle::Broken(pod) => round.slots.is_wanted(pod),
        Obstacle::Unavailable(pod) => round.slots.is_wanted(pod) && was_there,
        Obstacle::Missing(index) => {
            let is_refused = round.slots.refusal(index).is_some_and(|(_, is_quota)| !is_quota);
            is_refused && round.slots.partition().opens(index)
        }
        Obstacle::Lost(_) | Obstacle::Terminating(_) | Obstacle::Surplus(_) | Obstacle::Elsewhere(_) => false,
    }
}

fn hindered(round: &Round, kind: Kind, index: PodIndex, obstacle: Obstacle, what: &str) -> Why {
    let slots = &round.slots;
    if let Some(failure) = &round.memory.failure {
        let pod = slots.pod_name(index);
        let message = format!("{pod}: failed; {what}; a new revision or a healthy pod continues the rollout");
        return Why::failed(failure.reason.into(), WaitsFor::Pod, message);
    }
    match obstacle {
        Obstacle::Lost(_) => Why::blocked_by_pod(format!("{what}; the rollout waits until it is gone")),
        Obstacle::Broken(_) => Why::blocked_by_pod(format!("{what}; the rollout waits until it is available")),
        Obstacle::Elsewhere(_) => Why::pods_not_available(what.to_owned()),
        _ if kind == Kind::Preflight => Why::not_rolled_yet(slots, what),
        _ => Why::rolling(format!("waiting for the pods of the step at {}: {what}", slots.wanted)),
    }
}
