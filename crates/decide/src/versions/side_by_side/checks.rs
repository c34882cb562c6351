//! The checks of the canaries: the cycle of every other check, and the clock of the step stands still while no check can be made.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Check, CheckRecord, Current, Reason, Step, Upgrade, VersionCheck, VersionPhase};

use crate::{
    checks::{self, Cycle, Sight, Turn, last_words},
    observed::{CheckKey, ConfigProblem, PodView, Try},
    plan::CheckRequest,
    pods::available_at,
    time::clock,
    versions::{
        draft::Draft,
        observed::ChildView,
        stand::{Motion, Stand},
        world::World,
    },
};

/// What becomes of the canaries.
pub(super) enum Outcome {
    Waits(Stand),
    Asks(CheckRequest),
    Passed(Upgrade, String),
    Failed(Upgrade, String),
    /// Their StatefulSet was deleted by somebody else.
    Gone(Upgrade),
    /// None are wanted any more, or no pods: there is nothing to be watched.
    Unwanted(Upgrade),
}

/// One round. All canaries are available.
pub(super) fn run(draft: &mut Draft, world: &World, mut upgrade: Upgrade, child: &ChildView, current: i32) -> Outcome {
    let observed = draft.observed;
    let Some(check) = observed.owner.spec.update_strategy.check.as_ref().map(VersionCheck::to_check) else {
        return Outcome::Passed(upgrade, "no checks".to_owned());
    };
    let key = CheckKey { revision: upgrade.hash.clone(), index: upgrade.failures, step: Step::Pod };
    let mut noted = upgrade.cycle.take().unwrap_or_else(|| fresh(child, upgrade.failures));
    let mut cycle = Cycle::from(&noted);
    let was_asked_at = cycle.last.or(cycle.whole_since);
    let available = |pod: &PodView| available_at(pod, child.min_ready_seconds, draft.now);
    let sight = Sight {
        check: &check,
        delay: check.initial_delay_seconds,
        whole_since: child.pods.iter().filter_map(available).max(),
        config: observed.config.first(),
        answer: observed.tried.as_ref().filter(|tried| tried.request == key),
        now: draft.now,
    };
    let turn = cycle.next(&sight);
    let heard = sight.answer.filter(|answer| cycle.whole_since.is_some_and(|since| answer.time >= since));
    if let Some(answer) = heard {
        checks::keep(&mut draft.status.checks, &answer.records);
        stand_still(&mut upgrade, answer, was_asked_at);
    }
    let due = cycle.schedule(&sight);
    cycle.store(&mut noted);
    let pod = noted.pod.clone();
    upgrade.cycle = Some(noted);
    let words = last_words(&draft.status.checks, &check);
    match turn {
        Turn::Passed => {
            let verdict = format!("{} consecutive checks passed for {pod}: {words}", cycle.passes);
            Outcome::Passed(upgrade, verdict)
        }
        Turn::Refused => {
            let (tries, threshold) = (cycle.tries, check.success_threshold);
            let why = format!("{pod}: {tries} checks without {threshold} consecutive passes; {words}");
            Outcome::Failed(upgrade, why)
        }
        Turn::Unusable(problem, again) => Outcome::Waits(unusable(draft, upgrade, &problem, again)),
        Turn::Waits if due <= draft.now && may_ask(draft, cycle.whole_since) => {
            let variables = variables(draft, world, child, &upgrade, current);
            Outcome::Asks(CheckRequest { key, variables })
        }
        Turn::Waits => {
            draft.wake_at(due);
            let stand = stand(draft, &cycle, &check, &pod, upgrade.version);
            draft.status.upgrade = Some(upgrade);
            Outcome::Waits(stand)
        }
    }
}

/// An answer counts only for pods that were there before the question, so that is written down first.
fn may_ask(draft: &Draft, whole_since: Option<Timestamp>) -> bool {
    let noted = draft.observed.owner.status.upgrade.as_ref().and_then(|noted| noted.cycle.as_ref());
    noted.is_some_and(|noted| noted.since == whole_since) && draft.actions.is_empty() && draft.observed.tried.is_none()
}

fn fresh(child: &ChildView, index: i32) -> Current {
    let first = child.pods.iter().min_by_key(|pod| pod.ordinal);
    Current::new(Step::Pod, index, first.map(|pod| pod.name.clone()).unwrap_or_default())
}

/// For an answer that cannot be counted.
fn stand_still(upgrade: &mut Upgrade, answer: &Try, before: Option<Timestamp>) {
    if !checks::is_counted(answer) {
        let lost = answer.time.duration_since(before.unwrap_or(answer.time)).max(SignedDuration::ZERO);
        upgrade.since = upgrade.since.map(|since| since.checked_add(lost).unwrap_or(since));
    }
}

/// The checks cannot be used as they are configured: held until a person corrects them.
fn unusable(draft: &mut Draft, mut upgrade: Upgrade, problem: &ConfigProblem, again: Timestamp) -> Stand {
    upgrade.since = Some(draft.now);
    draft.status.upgrade = Some(upgrade);
    draft.wake_at(again);
    Stand::new(Motion::Stalled, VersionPhase::Blocked, problem.reason, problem.message.clone())
}

fn stand(draft: &Draft, cycle: &Cycle, check: &Check, pod: &str, version: i32) -> Stand {
    let due = clock(cycle.next.unwrap_or(draft.now));
    if let Some(CheckRecord { endpoint, message, .. }) = checks::unanswered(&draft.status.checks, cycle, check) {
        let message =
            format!("version {version}: {pod}: no usable answer from {endpoint}: {message}; next try at {due}");
        return Stand::new(Motion::Held, VersionPhase::Held, Reason::PrometheusUnreachable, message);
    }
    let message = if cycle.last.is_none() {
        format!("version {version}: the canaries are available; first check at {due}")
    } else {
        format!(
            "version {version}: {pod}: {} of {} consecutive checks passed, {} of {} tries; {}; next check at {due}",
            cycle.passes,
            check.success_threshold,
            cycle.tries,
            check.max_tries,
            last_words(&draft.status.checks, check)
        )
    };
    Stand::moving(VersionPhase::Canary, Reason::CanaryChecking, message)
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
