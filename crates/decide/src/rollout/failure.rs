//! When checks fail: hold, pause, go back, or go on; rejected revisions; and what a person's retry does.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Current, OnFailure, Phase, Reason, Step};

use super::{
    draft::Draft,
    facts::{Facts, later},
    gate, memory,
    report::{self, Motion, Stand, clock},
    step,
};
use crate::{
    Action, EventTarget, HoldState, Keeper, Plan, PodView, Severity,
    units::{Partition, PodIndex},
};

/// How much of a retry token is kept.
const RETRY_BYTES: usize = 64;

/// maxTries was used up, or a rolled pod was broken for as long.
pub(crate) fn fail<'a>(
    mut draft: Draft<'a>,
    facts: &Facts<'a>,
    mut current: Current,
    reason: Reason,
    message: &str,
) -> Plan {
    current.failed = true;
    match policy(&draft, facts, &current) {
        OnFailure::Proceed => {
            draft.warn(Reason::ChecksIgnored, &format!("onFailure Proceed: {message}"));
            current.failed = false;
            step::advance(draft, facts, &current, &format!("onFailure Proceed although {message}"))
        }
        OnFailure::Rollback => {
            memory::reject(&mut draft.status, facts.wanted);
            draft.warn(reason, &format!("onFailure Rollback: {message}"));
            let back = PodIndex(current.index);
            draft.status.current = Some(gate::fresh(facts, Step::Rollback, back));
            roll_back(draft, facts)
        }
        OnFailure::Hold | OnFailure::Pause => {
            let stand = Stand::new(Motion::Stalled, Phase::Failed, reason, message);
            let due = current.next_check_time;
            if let Some(due) = due {
                draft.wake_at(due);
            }
            draft.status.current = Some(current);
            draft.finish(facts, &stand)
        }
    }
}

/// The policy that applies: there is nothing to roll back before the first pod, after the last one, and in a revert.
fn policy(draft: &Draft, facts: &Facts, current: &Current) -> OnFailure {
    let wanted = draft.observed.rollout.spec.check.on_failure;
    let can_go_back = current.step != Step::Preflight && !facts.has_flipped() && draft.last_good(facts) != facts.wanted;
    match wanted {
        OnFailure::Rollback if !can_go_back => OnFailure::Hold,
        // Checks may be ignored, pods may not: one pod per step, and complete only when all are there.
        OnFailure::Proceed if facts.in_flight().is_some() || facts.missing().is_some() => OnFailure::Hold,
        OnFailure::Proceed if current.step == Step::Final && facts.obstacle(&[]).is_some() => OnFailure::Hold,
        other => other,
    }
}

/// While stalled the partition is the full hold, so that a scale-up starts pods on the current revision. A pod on its way is
/// waited for: under the hold it would come back at the old revision.
pub(crate) fn hold_while_stalled(draft: &mut Draft, facts: &Facts, stand: &Stand) {
    // What is open for a rejected revision a person has opened.
    let allowed = is_rejected(draft, facts) && facts.being_replaced().is_some();
    let on_its_way = allowed || facts.in_flight().is_some();
    let may_hold = !facts.has_flipped() && !on_its_way && !memory::is_settled(&draft.status);
    // One that came over zero replicas: all new pods start on it, and the hold is for the template that comes next.
    let may_hold = may_hold || (is_rejected(draft, facts) && facts.has_flipped() && facts.off().next().is_none());
    if stand.motion == Motion::Stalled && may_hold && facts.partition() != Partition::HOLD && !draft.has_actions() {
        draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    }
}

/// Where the API server refuses a template change under a partition that opens something, a fix would be refused as well. So while
/// nothing moves, and nothing that was opened is on its way, the partition is the full hold: it lets every template in.
pub(crate) fn let_fixes_in(draft: &mut Draft, facts: &Facts, stand: &Stand) {
    let nothing_moves = matches!(stand.motion, Motion::Held | Motion::Stalled);
    let on_its_way = facts.in_flight().is_some() || facts.being_replaced().is_some();
    let opens = facts.partition().0 < facts.replicas();
    if draft.observed.hold == HoldState::Refusing && nothing_moves && opens && !on_its_way && !draft.has_actions() {
        draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    }
}

/// True if enough passes continue the rollout.
pub(crate) fn may_clear(draft: &Draft, current: &Current) -> bool {
    !current.failed || draft.observed.rollout.spec.check.on_failure != OnFailure::Pause
}

/// Failed, and the next check is known.
pub(crate) fn stand(draft: &Draft, current: &Current, due: jiff::Timestamp) -> Stand {
    let check = &draft.observed.rollout.spec.check;
    let goes_on = if check.on_failure == OnFailure::Pause {
        format!("it continues with {} or a new revision", retry_words(draft))
    } else {
        format!("{} of {} consecutive passes to continue", current.consecutive_passes, check.success_threshold)
    };
    let flipped = if check.on_failure == OnFailure::Rollback && current.step == Step::Final {
        "; after the last pod a rollback needs a template change"
    } else {
        ""
    };
    let message = format!(
        "{}: checks failed; {}; {goes_on}{flipped}; next check at {}",
        current.pod,
        gate::last_words(draft),
        clock(due)
    );
    Stand::new(Motion::Stalled, Phase::Failed, Reason::ChecksFailed, message)
}

/// Failed, and something keeps checks from being made.
pub(crate) fn stand_with(draft: &Draft, current: &Current, what: &str) -> Stand {
    let message = format!("{}: failed; {what}; a new revision or a healthy pod continues the rollout", current.pod);
    let before = &draft.observed.rollout.status.conditions;
    let was_broken = before.iter().any(|c| c.type_ == "Ready" && c.reason == Reason::PodBroken.to_string());
    let reason = if was_broken { Reason::PodBroken } else { Reason::ChecksFailed };
    Stand::new(Motion::Stalled, Phase::Failed, reason, message)
}

/// A new value of the retry annotation takes the revision off the list and starts the counters again.
pub(crate) fn honour_retry(draft: &mut Draft, facts: &Facts) {
    let given = retry_given(draft.observed.rollout.keeper, &draft.observed.rollout.annotations);
    if given == draft.status.retry {
        return;
    }
    draft.status.retry.clone_from(&given);
    let Some(given) = given else { return };
    let rejected = is_rejected(draft, facts);
    draft.status.rejected_revisions.retain(|revision| revision != facts.wanted);
    if rejected || draft.status.current.as_ref().is_some_and(|current| current.failed) {
        draft.status.current = None;
        if memory::is_settled(&draft.status) {
            // No rollout brought the pods to it (zero replicas did): its checks are made now.
            memory::begin(&mut draft.status, facts.wanted, draft.now);
        }
        draft.status.last_progress_time = Some(draft.now);
        draft.normal(
            Reason::RolloutStarted,
            &format!("{} was set: {} is tried again", retry_annotation(draft), facts.wanted),
        );
    } else {
        // It allows nothing in advance, and whoever set it hears that.
        let note = format!(
            "{}: {} was set while nothing had failed; a later failure is tried again for another value",
            retry_annotation(draft),
            given
        );
        draft.normal(Reason::NothingToRetry, &note);
    }
}

/// The value of the retry annotation, as it is kept.
pub(crate) fn retry_given(keeper: Keeper, annotations: &BTreeMap<String, String>) -> Option<String> {
    annotations.get(keeper.retry_annotation()).map(|token| token_of(token))
}

/// The token as it is kept: its beginning and end if it is long. An annotation may have 256 KiB.
fn token_of(given: &str) -> String {
    let end = given.ceil_char_boundary(given.len().saturating_sub(RETRY_BYTES / 2));
    match given.get(end..) {
        Some(tail) if given.len() > RETRY_BYTES => report::cut(given, RETRY_BYTES / 2) + tail,
        _ => given.to_owned(),
    }
}

/// `the annotation sts.plus/retry`, and which value of it has been used up.
fn retry_words(draft: &Draft) -> String {
    match &draft.status.retry {
        Some(used) => {
            format!("the annotation {} (with another value than {used})", retry_annotation(draft))
        }
        None => format!("the annotation {}", retry_annotation(draft)),
    }
}

fn retry_annotation(draft: &Draft) -> &'static str {
    draft.observed.rollout.keeper.retry_annotation()
}

/// A rejected revision is held until a person retries it. This stands before any repair.
pub(crate) fn rejected(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    if !is_rejected(draft, facts) || is_rolling_back(draft) {
        return None;
    }
    draft.status.current = None;
    Some(rejected_stand(draft, facts))
}

/// Rolled back only if that is what happened: pods went back and all of them are there. A rejected revision that is merely written
/// again, or that a person let some pods have, is held.
fn rejected_stand(draft: &Draft, facts: &Facts) -> Stand {
    let last_good = draft.last_good(facts);
    let before = draft.observed.rollout.status.phase;
    let went_back = matches!(before, Phase::RollingBack | Phase::RolledBack);
    let all_back = facts.pods().all(|(_, pod)| pod.revision.as_deref() == Some(&last_good));
    let (phase, pods) = if went_back && all_back {
        (Phase::RolledBack, format!("all pods are back on {last_good}"))
    } else {
        (Phase::Held, format!("{} of {} pods carry it", facts.count_wanted(), facts.replicas()))
    };
    let keeper = draft.observed.rollout.keeper;
    let retry = retry_words(draft);
    let wanted = facts.wanted;
    let message = if facts.has_flipped() {
        let back = if last_good == wanted { String::new() } else { format!(" back to {last_good} or") };
        format!(
            "{wanted} was rejected and nothing can hold it, it is the current revision of the StatefulSet; {pods}; change the template{back} \
             to a mended one, or set {retry} on the {keeper} to have it checked again"
        )
    } else {
        format!(
            "{wanted} was rejected and is held; {pods}; change the template, or set {retry} on the {keeper} to try it again"
        )
    };
    Stand::new(Motion::Stalled, phase, Reason::RevisionRejected, message)
}

fn is_rejected(draft: &Draft, facts: &Facts) -> bool {
    memory::is_rejected(&draft.status, facts.wanted)
}

/// True while pods go back.
pub(crate) fn is_rolling_back(draft: &Draft) -> bool {
    draft.status.current.as_ref().is_some_and(|current| current.step == Step::Rollback)
}

/// Rolled pods go back one at a time, without a template edit: they are deleted under the full hold and come back at the
/// current revision (native-statefulset B7).
pub(crate) fn roll_back<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    let last_good = draft.last_good(facts);
    let moving = |message: String| Stand::new(Motion::Moving, Phase::RollingBack, Reason::RollingBack, message);
    let stuck = |message: String| Stand::new(Motion::Stalled, Phase::RollingBack, Reason::RollingBack, message);
    let begun = started(&mut draft);
    if facts.partition() != Partition::HOLD {
        draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
        let message = format!("pods of {} go back to {last_good}; the partition is raised first", facts.wanted);
        return draft.finish(facts, &moving(message));
    }
    // What is made under the full hold comes back at the current revision, unless the control plane is broken.
    let came_back_wrong = |pod: &PodView| facts.is_wanted(pod) && begun.is_some_and(|begun| pod.created > begun);
    let strange =
        |pod: &PodView| came_back_wrong(pod) || (!facts.is_wanted(pod) && pod.revision.as_deref() != Some(&last_good));
    let stranger = facts.pods().find(|(_, pod)| strange(pod) && !pod.deleting);
    if let Some((_, pod)) = stranger {
        let carried = pod.revision.as_deref().unwrap_or("no revision");
        let message = format!("{} carries {carried} and not {last_good}; the rollback is stopped and held", pod.name);
        return draft.finish(facts, &stuck(message));
    }
    let rolled: Vec<_> = facts.pods().filter(|(_, pod)| facts.is_wanted(pod)).collect();
    if rolled.is_empty() {
        return match facts.obstacle(&[]) {
            Some(obstacle) => draft.finish(facts, &moving(format!("waiting: {}", obstacle.describe(facts)))),
            None => rolled_back(draft, facts, &last_good),
        };
    }
    if facts.set.current_revision.as_deref() != Some(&last_good) {
        let current = facts.set.current_revision.as_deref().unwrap_or("no revision");
        let message = format!("{current} is the current revision: going back to {last_good} needs a template change");
        return draft.finish(facts, &stuck(message));
    }
    // A pod that is gone takes the reason with it: the failure stands in the status before the first one is deleted, or an operator
    // that comes after a crash would roll it out again.
    let mut message = format!("{} pods of {} go back to {last_good}", rolled.len(), facts.wanted);
    if begun.is_none() {
        draft.wake_now();
    } else if let Some(pod) = next_back(facts, &rolled) {
        draft.act(Action::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() });
        draft.normal(Reason::PodDeleted, &format!("{} is deleted and comes back at {last_good}", pod.name));
    } else if let Some(obstacle) = facts.obstacle(&[]) {
        message = format!("{message}; waiting: {}", obstacle.describe(facts));
    }
    draft.finish(facts, &moving(message))
}

/// When the full hold of this rollback was seen first; `None` if that is now.
fn started(draft: &mut Draft) -> Option<Timestamp> {
    let now = draft.now;
    let current = draft.status.current.as_mut()?;
    let begun = current.since;
    current.since = begun.or(Some(now));
    begun
}

/// Broken pods first, and they do not wait; a Ready one only while everything else is available.
fn next_back<'a>(facts: &Facts, rolled: &[(PodIndex, &'a PodView)]) -> Option<&'a PodView> {
    let broken = rolled.iter().find(|(_, pod)| facts.is_broken(pod));
    let healthy = || rolled.first().filter(|_| facts.obstacle(&[]).is_none());
    broken.or_else(healthy).map(|(_, pod)| *pod)
}

fn rolled_back<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, last_good: &str) -> Plan {
    draft.status.current = None;
    let note =
        format!("all pods of StatefulSet {} are back on {last_good}; {} is rejected", facts.set.name, facts.wanted);
    draft.normal(Reason::RolledBack, &note);
    draft.tell(EventTarget::Set, Severity::Normal, Reason::RolledBack, &note);
    let stand = rejected_stand(&draft, facts);
    draft.finish(facts, &stand)
}

/// No progress within progressDeadlineSeconds: told, and held for a scale-up. Checks go on, and the next progress clears it.
pub(crate) fn overdue(draft: &mut Draft, stand: &Stand) -> Option<Stand> {
    let seconds = draft.observed.rollout.spec.progress_deadline_seconds?;
    let waits_for_person = matches!(stand.reason, Reason::Paused | Reason::AwaitingApproval);
    let running = matches!(stand.motion, Motion::Moving | Motion::Held) && !waits_for_person;
    let since = draft.status.last_progress_time.filter(|_| running && !memory::is_settled(&draft.status))?;
    let deadline = later(since, SignedDuration::from_secs(i64::from(seconds)));
    if deadline > draft.now {
        draft.wake_at(deadline);
        return None;
    }
    let message =
        format!("no progress since {} (spec.progressDeadlineSeconds {seconds}); {}", clock(since), stand.message);
    Some(Stand::new(Motion::Stalled, stand.phase, Reason::ProgressDeadlineExceeded, message))
}
