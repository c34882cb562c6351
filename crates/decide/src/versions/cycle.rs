//! The check cycle of the canaries: all of them available, a delay, then checks until enough consecutive ones have passed. An error of
//! Prometheus is never a pass, breaks the streak, uses up no try, and stops the clock of the step.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use sts_plus_api::{Check, CheckRecord, Current, Reason, Step, Upgrade, VersionPhase};

use super::{
    ChildView,
    draft::{Draft, Motion, Stand},
    world::World,
};
use crate::rollout::{after, clock, count_try, keep_checks, last_words, retry_later, retry_time};
use crate::{CheckKey, CheckRequest, ConfigProblem, Try};

pub(super) enum Outcome {
    Passed(Upgrade, String),
    Failed(Upgrade, String),
    Waits(Stand),
    Asks(CheckRequest),
}

/// Some canary is not available: delay and streak start again, not the tries.
pub(super) fn interrupt(upgrade: &mut Upgrade) {
    if let Some(cycle) = &mut upgrade.cycle {
        (cycle.since, cycle.next_check_time, cycle.consecutive_passes) = (None, None, 0);
    }
}

/// One round. All canaries are available.
pub(super) fn run(draft: &mut Draft, world: &World, mut upgrade: Upgrade, child: &ChildView, current: i32) -> Outcome {
    let Some(check) =
        draft.observed.owner.spec.update_strategy.check.as_ref().map(sts_plus_api::VersionCheck::to_check)
    else {
        return Outcome::Passed(upgrade, "no checks".to_owned());
    };
    let key = CheckKey { revision: upgrade.hash.clone(), index: upgrade.failures, step: Step::Pod };
    let mut cycle = upgrade.cycle.take().unwrap_or_else(|| fresh(child, upgrade.failures));
    let since = *cycle.since.get_or_insert(draft.now);
    let tried = draft.observed.tried.as_ref().filter(|tried| tried.request == key && tried.time >= since);
    let mut error = None;
    if let Some(tried) = tried {
        keep_checks(&mut draft.status.checks, &tried.records);
        error = count(&mut cycle, &mut upgrade, &check, tried);
    }
    let problem = tried.and_then(|tried| tried.config.first()).or(draft.observed.config.first());
    if let Some(problem) = problem {
        upgrade.cycle = Some(cycle);
        return Outcome::Waits(unusable(draft, upgrade, &check, problem));
    }
    let pod = cycle.pod.clone();
    let words = || last_words(&draft.status.checks, check.all_queries().count());
    if cycle.consecutive_passes >= check.success_threshold {
        let verdict = format!("{} consecutive checks passed for {pod}: {}", cycle.consecutive_passes, words());
        return Outcome::Passed(upgrade, verdict);
    }
    if cycle.tries >= check.max_tries {
        let why = format!(
            "{pod}: {} checks without {} consecutive passes; {}",
            cycle.tries,
            check.success_threshold,
            words()
        );
        return Outcome::Failed(upgrade, why);
    }
    let due = cycle.next_check_time.unwrap_or_else(|| after(since, check.initial_delay_seconds));
    let due = due.min(after(draft.now, check.initial_delay_seconds.max(check.period_seconds)));
    // An answer counts only for pods that were there before the question, so that is written down first.
    let noted = draft.observed.owner.status.upgrade.as_ref().and_then(|noted| noted.cycle.as_ref());
    let is_noted = noted.is_some_and(|noted| noted.since == Some(since));
    if due <= draft.now && is_noted && draft.actions.is_empty() && draft.observed.tried.is_none() {
        let variables = variables(draft, world, child, &upgrade, current);
        return Outcome::Asks(CheckRequest { key, variables });
    }
    cycle.next_check_time = Some(due);
    draft.wake_at(due);
    let stand = stand(draft, &cycle, &check, error, upgrade.version);
    upgrade.cycle = Some(cycle);
    draft.status.upgrade = Some(upgrade);
    Outcome::Waits(stand)
}

fn fresh(child: &ChildView, index: i32) -> Current {
    let first = child.pods.iter().min_by_key(|pod| pod.ordinal);
    Current::new(Step::Pod, index, first.map(|pod| pod.name.clone()).unwrap_or_default())
}

/// Counts one try, and stops the clock of the step for one that cannot be counted. Gives the record that is in the way.
fn count<'t>(cycle: &mut Current, upgrade: &mut Upgrade, check: &Check, tried: &'t Try) -> Option<&'t CheckRecord> {
    let before = cycle.last_check_time.or(cycle.since).unwrap_or(tried.time);
    let is_usable = tried.config.is_empty() && !tried.records.is_empty();
    let error = if is_usable {
        count_try(check, cycle, tried)
    } else {
        cycle.last_check_time = Some(tried.time);
        retry_later(check, cycle, tried.time);
        None
    };
    if error.is_some() || !is_usable {
        let lost = tried.time.duration_since(before).max(SignedDuration::ZERO);
        upgrade.since = upgrade.since.map(|since| since.checked_add(lost).unwrap_or(since));
    }
    error
}

/// The checks cannot be used as they are configured: held until a person mends them.
fn unusable(draft: &mut Draft, mut upgrade: Upgrade, check: &Check, problem: &ConfigProblem) -> Stand {
    let again = retry_time(check, draft.now);
    if let Some(cycle) = &mut upgrade.cycle {
        cycle.consecutive_passes = 0;
        // A try looks whether it was mended.
        cycle.next_check_time = Some(cycle.next_check_time.unwrap_or(again).min(again));
    }
    upgrade.since = Some(draft.now);
    draft.status.upgrade = Some(upgrade);
    draft.wake_at(again);
    Stand::new(Motion::Stalled, VersionPhase::Blocked, problem.reason, problem.message.clone())
}

fn stand(draft: &Draft, cycle: &Current, check: &Check, error: Option<&CheckRecord>, version: i32) -> Stand {
    let due = clock(cycle.next_check_time.unwrap_or(draft.now));
    let pod = &cycle.pod;
    if let Some(error) = error {
        let message = format!(
            "version {version}: {pod}: no usable answer from {}: {}; next try at {due}",
            error.endpoint, error.message
        );
        return Stand::new(Motion::Held, VersionPhase::Held, Reason::PrometheusUnreachable, message);
    }
    let message = if cycle.last_check_time.is_none() {
        format!("version {version}: the canaries are available; first check at {due}")
    } else {
        format!(
            "version {version}: {pod}: {} of {} consecutive checks passed, {} of {} tries; {}; next check at {due}",
            cycle.consecutive_passes,
            check.success_threshold,
            cycle.tries,
            check.max_tries,
            last_words(&draft.status.checks, check.all_queries().count())
        )
    };
    Stand::new(Motion::Moving, VersionPhase::Canary, Reason::CanaryChecking, message)
}

/// Values for the variables of expressions. One that has no value now is missing.
fn variables(
    draft: &Draft,
    world: &World,
    child: &ChildView,
    upgrade: &Upgrade,
    current: i32,
) -> BTreeMap<&'static str, String> {
    let first = child.pods.iter().min_by_key(|pod| pod.ordinal);
    let entries = [
        ("pod", first.map(|pod| pod.name.clone())),
        ("ordinal", first.map(|pod| pod.ordinal.to_string())),
        ("namespace", Some(draft.observed.owner.namespace.clone())),
        ("statefulset", Some(child.name.clone())),
        ("revision", Some(upgrade.hash.clone())),
        ("previousRevision", world.hash_of(current).map(str::to_owned)),
        ("zone", child.zone.clone().or_else(|| first.and_then(|pod| pod.zone.clone()))),
        ("node", first.and_then(|pod| pod.node.clone())),
    ];
    entries.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect()
}
