//! A check cycle: everything available, a delay, then checks until enough consecutive ones have passed. An error of Prometheus
//! is never a pass, breaks the streak, and uses up no try.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Check, CheckRecord, Current, Phase, Reason, Step, Verdict};

use super::{
    draft::Draft,
    facts::{Facts, Obstacle, after, later},
    failure,
    report::{self, Motion, Stand, clock},
    step,
};
use crate::{CheckKey, CheckRequest, ConfigProblem, Plan, Try, units::PodIndex};

/// An error, or a configuration that cannot be used, is looked at again after this long at most.
const RETRY: SignedDuration = SignedDuration::from_secs(30);
/// A pass older than a period and this much does not allow a step any more.
const STALE: SignedDuration = SignedDuration::from_secs(60);

/// A cycle with nothing counted.
pub(crate) fn fresh(facts: &Facts, step: Step, index: PodIndex) -> Current {
    Current::new(step, index.0, facts.pod_name(index))
}

/// The cycle as far as it has come.
pub(crate) fn resume(draft: &Draft, facts: &Facts, step: Step, index: PodIndex) -> Current {
    let same = |current: &&Current| current.step == step && current.index == index.0;
    draft.status.current.as_ref().filter(same).cloned().unwrap_or_else(|| fresh(facts, step, index))
}

/// Notes which cycle is going on while its pods are awaited.
pub(crate) fn remember(draft: &mut Draft, facts: &Facts, step: Step, index: PodIndex) {
    let mut current = resume(draft, facts, step, index);
    reset_streak(&mut current);
    draft.status.current = Some(current);
}

fn reset_streak(current: &mut Current) {
    current.since = None;
    current.consecutive_passes = 0;
    current.next_check_time = None;
}

/// One round of the cycle of `step` and `index`. The pods in `exempt` need not be available.
pub(crate) fn run<'a>(
    mut draft: Draft<'a>,
    facts: &Facts<'a>,
    step: Step,
    index: PodIndex,
    exempt: &[PodIndex],
) -> Plan {
    let mut current = resume(&draft, facts, step, index);
    if let Some(obstacle) = obstacle(&draft, facts, step, exempt) {
        return obstructed(draft, facts, current, obstacle);
    }
    if draft.observed.rollout.spec.check.all_queries().next().is_none() {
        return step::advance(draft, facts, &current, "no checks");
    }
    start_clock(&draft, facts, &mut current);
    take_up_spec(&draft, &mut current);
    let mut error = None;
    match answer(&draft, facts, &current) {
        Some(tried) => {
            report::keep_checks(&mut draft.status.checks, &tried.records);
            warn_once(&mut draft, facts, &current, tried);
            if let Some(problem) = tried.config.first() {
                retry_later(&draft.observed.rollout.spec.check, &mut current, tried.time);
                return unusable(draft, facts, current, problem);
            }
            error = count_try(&draft.observed.rollout.spec.check, &mut current, tried);
        }
        None => {
            if let Some(problem) = report::config_problem(draft.observed, &current, draft.now) {
                current.consecutive_passes = 0;
                return unusable(draft, facts, current, &problem);
            }
        }
    }
    judge(draft, facts, current, error)
}

/// Since when the pods of the cycle are all there. An interruption that nobody saw shows in the pods' own times.
fn start_clock(draft: &Draft, facts: &Facts, current: &mut Current) {
    let interrupted = match (current.since, facts.all_available_since()) {
        (Some(since), _) if since > draft.now => true,
        (Some(since), Some(available)) => available > since && available <= draft.now,
        (since, _) => since.is_none(),
    };
    if interrupted {
        reset_streak(current);
        current.since = Some(draft.now);
    }
}

/// A changed spec may ask for something else, or at other times: passes of the old one do not count.
fn take_up_spec(draft: &Draft, current: &mut Current) {
    if draft.observed.rollout.status.observed_generation != Some(draft.observed.rollout.generation) {
        current.consecutive_passes = 0;
        current.next_check_time = current.last_check_time.map(|last| later(last, period(draft)));
    }
}

/// The try that was just made, if it belongs to this cycle and was made since its pods are all there.
fn answer<'a>(draft: &Draft<'a>, facts: &Facts, current: &Current) -> Option<&'a Try> {
    let key = key(facts, current);
    let since = current.since.unwrap_or(Timestamp::MAX);
    draft.observed.tried.as_ref().filter(|tried| tried.request == key && tried.time >= since)
}

fn key(facts: &Facts, current: &Current) -> CheckKey {
    CheckKey { revision: facts.wanted.to_owned(), index: current.index, step: current.step }
}

/// Warnings of a try are told once in a rollout, not at every check.
fn warn_once(draft: &mut Draft, facts: &Facts, current: &Current, tried: &Try) {
    let passed_before = draft.status.passed.iter().any(|passed| passed.revision == facts.wanted);
    if current.last_check_time.is_some() || passed_before {
        return;
    }
    for (reason, note) in &tried.warnings {
        draft.warn(*reason, note);
    }
}

/// Counts one try. Gives the record that is in the way, if the try could not be counted.
pub(crate) fn count_try<'t>(check: &Check, current: &mut Current, tried: &'t Try) -> Option<&'t CheckRecord> {
    current.last_check_time = Some(tried.time);
    // The pods were there for long enough to be asked about, even if Prometheus did not answer.
    current.broken_since = None;
    let refused = tried.records.iter().any(|record| !record.passed && is_answer(record));
    let error = tried.records.iter().find(|record| !record.passed && !is_answer(record));
    if let (Some(error), false) = (error, refused) {
        retry_later(check, current, tried.time);
        return Some(error);
    }
    current.tries = current.tries.saturating_add(1);
    current.consecutive_passes = if refused { 0 } else { current.consecutive_passes.saturating_add(1) };
    current.next_check_time = Some(after(tried.time, check.period_seconds));
    None
}

fn is_answer(record: &CheckRecord) -> bool {
    matches!(record.verdict, Verdict::Data | Verdict::NoData)
}

/// A try that cannot be counted breaks the streak and is repeated.
pub(crate) fn retry_later(check: &Check, current: &mut Current, time: Timestamp) {
    current.consecutive_passes = 0;
    current.next_check_time = Some(retry_time(check, time));
}

/// When an error, or a configuration that cannot be used, is looked at again.
pub(crate) fn retry_time(check: &Check, time: Timestamp) -> Timestamp {
    later(time, SignedDuration::from_secs(i64::from(check.period_seconds)).min(RETRY))
}

/// Passed, failed, or on with it.
fn judge<'a>(draft: Draft<'a>, facts: &Facts<'a>, mut current: Current, error: Option<&CheckRecord>) -> Plan {
    let check = &draft.observed.rollout.spec.check;
    let enough = current.consecutive_passes >= check.success_threshold;
    if enough && is_stale(&draft, &current) {
        current.consecutive_passes = check.success_threshold.saturating_sub(1);
        current.next_check_time = Some(draft.now);
    } else if enough && failure::may_clear(&draft, &current) {
        current.failed = false;
        let verdict = passed_note(&draft, &current);
        return step::advance(draft, facts, &current, &verdict);
    }
    if error.is_none() && current.tries >= check.max_tries && !current.failed {
        let message = format!(
            "{}{}: {} checks without {} consecutive passes; {}",
            cycle_words(current.step),
            current.pod,
            current.tries,
            check.success_threshold,
            last_words(&draft)
        );
        return failure::fail(draft, facts, current, Reason::ChecksFailed, &message);
    }
    go_on(draft, facts, current)
}

fn is_stale(draft: &Draft, current: &Current) -> bool {
    let limit = later(current.last_check_time.unwrap_or(Timestamp::MIN), period(draft));
    later(limit, STALE) < draft.now
}

fn passed_note(draft: &Draft, current: &Current) -> String {
    format!("{} consecutive checks passed for {}: {}", current.consecutive_passes, current.pod, last_words(draft))
}

/// Asks now, or says when.
fn go_on<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, mut current: Current) -> Plan {
    let since = current.since.unwrap_or(draft.now);
    let delay = match current.step {
        // Nothing was rolled, so there is nothing fresh to wait for.
        Step::Preflight => SignedDuration::ZERO,
        _ => SignedDuration::from_secs(i64::from(draft.observed.rollout.spec.check.initial_delay_seconds)),
    };
    // Never later than the spec allows, whatever an older spec or another clock has noted.
    let latest = later(draft.now, delay.max(period(&draft)));
    let due = current.next_check_time.unwrap_or_else(|| later(since, delay)).min(latest);
    // An answer counts only for pods that were there before the question, so that is written down first.
    let is_noted = draft.observed.rollout.status.current.as_ref().is_some_and(|noted| noted.since == current.since);
    if due <= draft.now && is_noted && !draft.has_actions() && draft.observed.tried.is_none() {
        let variables = variables(&draft, facts, &current);
        return draft.ask(CheckRequest { key: key(facts, &current), variables });
    }
    current.next_check_time = Some(due);
    draft.wake_at(due);
    let stand = match between(&draft, &current, due) {
        Some(stand) => stand,
        None => checking(&draft, &current, due),
    };
    draft.status.current = Some(current);
    draft.finish(facts, &stand)
}

/// What is unusual while the next check is awaited.
fn between(draft: &Draft, current: &Current, due: Timestamp) -> Option<Stand> {
    if current.failed {
        return Some(failure::stand(draft, current, due));
    }
    let error = unanswered(draft, current)?;
    let (reason, what) = match error.verdict {
        Verdict::Unproven => (Reason::MetricMissing, "the metric does not exist"),
        _ => (Reason::PrometheusUnreachable, "no usable answer"),
    };
    let message =
        format!("{}: {what} from {}: {}; next try at {}", current.pod, error.endpoint, error.message, clock(due));
    Some(Stand::new(Motion::Held, Phase::Held, reason, message))
}

/// The record of the last try that could not be counted.
fn unanswered<'a>(draft: &'a Draft, current: &Current) -> Option<&'a CheckRecord> {
    current.last_check_time?;
    if current.consecutive_passes > 0 {
        return None;
    }
    let queries = draft.observed.rollout.spec.check.all_queries().count();
    let last = || draft.status.checks.iter().rev().take(queries);
    let refused = last().any(|record| !record.passed && is_answer(record));
    last().find(|record| !record.passed && !is_answer(record)).filter(|_| !refused)
}

/// Before the pod's name, which two cycles may share.
fn cycle_words(step: Step) -> &'static str {
    match step {
        Step::Preflight => "preflight: ",
        Step::Final => "final: ",
        Step::Pod | Step::Repair | Step::Rollback => "",
    }
}

fn checking(draft: &Draft, current: &Current, due: Timestamp) -> Stand {
    let check = &draft.observed.rollout.spec.check;
    let reason = match current.step {
        Step::Preflight => Reason::Preflight,
        Step::Final => Reason::FinalChecks,
        _ => Reason::Checking,
    };
    let what = cycle_words(current.step);
    let pod = &current.pod;
    let message = if current.last_check_time.is_none() {
        format!("{what}{pod} is available; first check at {}", clock(due))
    } else {
        format!(
            "{what}{pod}: {} of {} consecutive checks passed, {} of {} tries; {}; next check at {}",
            current.consecutive_passes,
            check.success_threshold,
            current.tries,
            check.max_tries,
            last_words(draft),
            clock(due)
        )
    };
    Stand::new(Motion::Moving, Phase::Checking, reason, message)
}

/// The sentence of the last try that matters most.
pub(crate) fn last_words(draft: &Draft) -> String {
    report::last_words(&draft.status.checks, draft.observed.rollout.spec.check.all_queries().count())
}

/// What keeps the next pod from being rolled, also outside of the StatefulSet. After the last one nothing is rolled, and a set of
/// which no pod is Ready loses nothing by being mended.
pub(crate) fn obstacle<'a>(
    draft: &Draft<'a>,
    facts: &Facts<'a>,
    step: Step,
    exempt: &[PodIndex],
) -> Option<Obstacle<'a>> {
    let elsewhere =
        draft.observed.rollout.elsewhere.as_deref().filter(|_| step != Step::Final && !draft.status.never_healthy);
    facts.obstacle(exempt).or(elsewhere.map(Obstacle::Elsewhere))
}

/// Something keeps the pods from all being available: delay and streak start again, not the tries.
pub(crate) fn obstructed<'a>(
    mut draft: Draft<'a>,
    facts: &Facts<'a>,
    mut current: Current,
    obstacle: Obstacle<'a>,
) -> Plan {
    let was_there = current.since.is_some();
    reset_streak(&mut current);
    let is_unwell = match obstacle {
        Obstacle::Broken(pod) => facts.is_wanted(pod),
        Obstacle::Unavailable(pod) => facts.is_wanted(pod) && was_there,
        Obstacle::Lost(_)
        | Obstacle::Terminating(_)
        | Obstacle::Surplus(_)
        | Obstacle::Missing(_)
        | Obstacle::Elsewhere(_) => false,
    };
    // A broken pod, or one that comes and goes, for as long as all tries would take. One slow restart is neither.
    if is_unwell && current.step != Step::Preflight {
        let since = *current.broken_since.get_or_insert(draft.now);
        let deadline = later(since, all_tries(&draft));
        if deadline > draft.now {
            draft.wake_at(deadline);
        } else if !current.failed {
            let tries = draft.observed.rollout.spec.check.max_tries;
            let what = match obstacle {
                Obstacle::Unavailable(pod) => format!("{} comes and goes since {}", pod.name, clock(since)),
                _ => obstacle.describe(facts),
            };
            let message = format!("{what} for the time that {tries} checks take");
            return failure::fail(draft, facts, current, Reason::PodBroken, &message);
        }
    }
    let what = obstacle.describe(facts);
    let stand = if current.failed {
        failure::stand_with(&draft, &current, &what)
    } else if obstacle.is_stubborn() {
        let cure = match obstacle {
            Obstacle::Lost(_) => "the rollout waits until it is gone",
            _ => "the rollout waits until it is available",
        };
        Stand::new(Motion::Held, Phase::Held, Reason::BlockedByPod, format!("{what}; {cure}"))
    } else if matches!(obstacle, Obstacle::Elsewhere(_)) {
        Stand::new(Motion::Held, Phase::Held, Reason::PodsNotAvailable, what)
    } else if current.step == Step::Preflight {
        Stand::new(
            Motion::Held,
            Phase::Held,
            Reason::PodsNotAvailable,
            format!("no pod of StatefulSet {} is rolled yet: {what}", facts.set.name),
        )
    } else {
        let message = format!("waiting for the pods of the step at {}: {what}", facts.wanted);
        Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message)
    };
    draft.status.current = Some(current);
    draft.finish(facts, &stand)
}

/// The checks cannot be used as they are configured: held until a person mends them, and no try is used up.
pub(crate) fn unusable<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, current: Current, problem: &ConfigProblem) -> Plan {
    draft.status.current = Some(current);
    look_again(&mut draft);
    draft.finish(facts, &Stand::new(Motion::Stalled, Phase::Blocked, problem.reason, problem.message.clone()))
}

/// A Secret that a person creates wakes nobody up, so it is looked for.
pub(crate) fn look_again(draft: &mut Draft) {
    draft.wake_at(retry_time(&draft.observed.rollout.spec.check, draft.now));
}

/// The time that maxTries checks take.
fn all_tries(draft: &Draft) -> SignedDuration {
    let check = &draft.observed.rollout.spec.check;
    SignedDuration::from_secs(i64::from(check.max_tries) * i64::from(check.period_seconds))
}

fn period(draft: &Draft) -> SignedDuration {
    SignedDuration::from_secs(i64::from(draft.observed.rollout.spec.check.period_seconds))
}

/// Values for the variables of expressions. One that has no value now is missing.
fn variables(draft: &Draft, facts: &Facts, current: &Current) -> BTreeMap<&'static str, String> {
    let index = PodIndex(current.index);
    let pod = facts.pod(index);
    let entries = [
        ("pod", Some(current.pod.clone())),
        ("ordinal", Some(index.ordinal(facts.set.start).0.to_string())),
        ("namespace", Some(draft.observed.rollout.namespace.clone())),
        ("statefulset", Some(facts.set.name.clone())),
        ("revision", Some(facts.wanted.to_owned())),
        ("previousRevision", draft.status.previous_revision.clone()),
        ("zone", pod.and_then(|pod| pod.zone.clone())),
        ("node", pod.and_then(|pod| pod.node.clone())),
    ];
    entries.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect()
}
