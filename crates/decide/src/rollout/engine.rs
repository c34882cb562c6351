//! The rollout of one claimed set: the hold first, then what revision is wanted, then rest or motion.

use jiff::SignedDuration;
use sts_plus_api::{Current, Phase, Reason, Step, names};

use super::{
    draft::Draft,
    empty,
    facts::{Facts, later},
    failure, gate, lifecycle, memory, repair,
    report::{Motion, Stand},
    step,
};
use crate::{
    EventTarget, Plan, PodView, SetView, Severity,
    units::{Partition, PodIndex},
};

/// How long the StatefulSet controller may take to see a change before that is told.
const PATIENCE: SignedDuration = SignedDuration::from_secs(1);

/// Decides for a set that may be held.
pub(crate) fn roll<'a>(mut draft: Draft<'a>, set: &'a SetView) -> Plan {
    memory::bind(&mut draft.status, set);
    let is_new = lifecycle::claimed_by(set) != Some(draft.name()) || draft.status.target_revision.is_none();
    let was_off = set.annotations.contains_key(names::HOLD_SWITCH);
    let seen = set.observed_generation >= set.generation;
    let wanted = set.update_revision.as_deref().filter(|_| seen);
    match wanted {
        None => unseen(draft, set, is_new || was_off),
        Some(wanted) => {
            let facts = Facts::new(set, &draft.observed.pods, wanted, draft.now);
            if is_new || was_off {
                return claim(draft, &facts);
            }
            if let Some(plan) = undo_drift(&mut draft, &facts) {
                return draft.finish(&facts, &plan);
            }
            seen_revision(draft, &facts)
        }
    }
}

/// The StatefulSet controller has not yet seen the latest change, so nobody knows what is wanted. Only holding is safe.
fn unseen<'a>(mut draft: Draft<'a>, set: &'a SetView, must_claim: bool) -> Plan {
    let known = draft.status.target_revision.clone().unwrap_or_default();
    let facts = Facts::new(set, &draft.observed.pods, &known, draft.now);
    if must_claim && is_held_for(&draft, set) {
        return draft.unchanged();
    }
    if must_claim {
        draft.set_partition(set, &known, Partition::HOLD);
        let stand = Stand::new(
            Motion::Moving,
            Phase::Rolling,
            Reason::AwaitingController,
            format!("StatefulSet {} is claimed and held; its controller has not yet seen the latest change", set.name),
        );
        return draft.finish(&facts, &stand);
    }
    if let Some(stand) = undo_drift(&mut draft, &facts) {
        return draft.finish(&facts, &stand);
    }
    // The controller answers within milliseconds. If it does not, what the status says may be about another template.
    let patience = set.changed.map(|changed| later(changed, PATIENCE));
    if let Some(end) = patience.filter(|end| *end > draft.now && !draft.observed.rollout.status.conditions.is_empty()) {
        draft.wake_at(end);
        return draft.unchanged();
    }
    let message = format!("the controller of StatefulSet {} has not yet seen the latest change", set.name);
    let stand = Stand::new(Motion::Moving, Phase::Rolling, Reason::AwaitingController, message);
    draft.finish(&facts, &stand)
}

/// True if the claim and the full hold are written already.
fn is_held_for(draft: &Draft, set: &SetView) -> bool {
    lifecycle::claimed_by(set) == Some(draft.name())
        && set.partition == Some(names::HOLD)
        && !set.annotations.contains_key(names::HOLD_SWITCH)
}

/// Takes a set. Pods that have all reached the wanted revision are at rest; otherwise everything is held.
fn claim<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    let set = facts.set;
    // What is known from before a set was made anew is worth more than its currentRevision, which is lost then (observed O38).
    let known =
        draft.status.previous_revision.take().filter(|known| facts.carries(known) || facts.off().next().is_none());
    // What nobody can say any more is found out: also pods that are all at the revision are checked.
    let is_unproven = draft.is_edited || known.as_ref().is_some_and(|known| known != facts.wanted);
    let last_good = known.unwrap_or_else(|| memory::last_good_from_pods(facts).to_owned());
    draft.status.never_healthy = false;
    draft.status.current = None;
    let rolled = facts.off().next().is_none();
    let partition = if rolled && !is_unproven {
        memory::settle_unchecked(&mut draft.status, facts.wanted);
        // Raised before the flip, a dying pod would come back at the old revision.
        if facts.has_flipped() { Partition(facts.replicas()) } else { facts.partition() }
    } else {
        memory::begin(&mut draft.status, facts.wanted, draft.now);
        draft.status.previous_revision = Some(last_good);
        // All at the revision: the partition is as after the last pod.
        if rolled { facts.partition() } else { Partition::HOLD }
    };
    draft.set_partition(set, facts.wanted, partition);
    draft.wake_now();
    if draft.is_edited {
        let what = "the status was edited by hand and is not believed; every pod is checked anew";
        draft.warn(Reason::StatusEdited, what);
    }
    let taken = format!("StatefulSet {} is claimed, partition {}", set.name, partition.0);
    if rolled && !is_unproven {
        draft.normal(Reason::Claimed, &taken);
        return draft.finish(facts, &rest(facts, false));
    }
    let carried = facts.count_wanted();
    let message =
        format!("{taken}; {carried} of {} pods carry the pending revision {}", facts.replicas(), facts.wanted);
    if carried > 0 && !draft.is_edited {
        draft.warn(Reason::PodsSlipped, &format!("{message}; they are checked before anything else moves"));
    }
    announce(&mut draft, facts);
    draft.finish(facts, &Stand::new(Motion::Moving, Phase::Checking, Reason::RolloutStarted, message))
}

/// Somebody else lowered the partition: it is put back, unless a person allowed exactly that.
fn undo_drift(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    let set = facts.set;
    let asked = facts.partition();
    if draft.status.target_revision.as_deref() != Some(facts.wanted) {
        // A new revision is held as a whole; see `begin`.
        return None;
    }
    let (revision, expected) = match memory::written(set) {
        // Nothing was opened for the wanted revision yet.
        Some((revision, _)) if revision != facts.wanted && facts.off().next().is_some() => {
            (facts.wanted, Partition::HOLD)
        }
        Some(written) => written,
        None => (facts.wanted, draft.status.partition.map_or(asked, Partition)),
    };
    if asked >= expected {
        return None;
    }
    let allowed = set.annotations.get(names::ALLOW_PARTITION).and_then(|value| value.parse().ok()).map(Partition);
    if allowed == Some(asked) {
        draft.set_partition(set, facts.wanted, asked);
        let note = format!(
            "{} allowed partition {} for {}; indexes from {} up may roll",
            names::ALLOW_PARTITION,
            asked.0,
            facts.wanted,
            asked.0
        );
        // A person's word ends a failed cycle, or its hold would take the word back.
        draft.status.current = None;
        draft.warn(Reason::PartitionAllowed, &note);
        return Some(Stand::new(Motion::Moving, Phase::Rolling, Reason::PartitionAllowed, note));
    }
    let writer = set.partition_manager.as_deref().unwrap_or("another writer");
    let message = format!(
        "{writer} lowered the partition of StatefulSet {} to {}; it is put back to {}",
        set.name, asked.0, expected.0
    );
    draft.set_partition(set, revision, expected);
    if let Some(current) = &mut draft.status.current {
        (current.since, current.consecutive_passes) = (None, 0);
    }
    draft.wake_now();
    Some(Stand::new(Motion::Held, Phase::Held, Reason::PartitionDrift, message))
}

/// The wanted revision is known.
fn seen_revision<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    if facts.replicas() == 0 {
        return empty::no_pods(draft, facts);
    }
    empty::forget_good(&mut draft.status);
    if draft.status.previous_revision.is_none() && facts.pods().next().is_some() {
        draft.status.previous_revision = Some(memory::last_good_from_pods(facts).to_owned());
    }
    let rolled = facts.off().next().is_none();
    let is_news = draft.status.target_revision.as_deref() != Some(facts.wanted);
    let strayed = !rolled && memory::is_settled(&draft.status);
    if is_news || strayed {
        return begin(draft, facts);
    }
    if step::forget_used_approval(&mut draft, facts) {
        return draft.unchanged();
    }
    failure::honour_retry(&mut draft, facts);
    announce_births(&mut draft, facts);
    announce_slipped(&mut draft, facts);
    if let Some(stand) = failure::rejected(&mut draft, facts) {
        return draft.finish(facts, &stand);
    }
    if failure::is_rolling_back(&draft) && !draft.observed.rollout.spec.paused {
        return failure::roll_back(draft, facts);
    }
    if rolled { all_at_revision(draft, facts) } else { in_motion(draft, facts) }
}

/// A revision that was not wanted before: hold at once, counters of the old one are void.
fn begin<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    memory::begin(&mut draft.status, facts.wanted, draft.now);
    // What a person allowed was for another revision; the write takes it away.
    let is_allowed = facts.set.annotations.contains_key(names::ALLOW_PARTITION);
    if facts.off().next().is_some() && (facts.partition() != Partition::HOLD || is_allowed) {
        draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    }
    announce(&mut draft, facts);
    draft.wake_now();
    let message = format!(
        "revision {} is pending and held; {} of {} pods carry it",
        facts.wanted,
        facts.count_wanted(),
        facts.replicas()
    );
    draft.finish(facts, &Stand::new(Motion::Moving, Phase::Checking, Reason::RolloutStarted, message))
}

fn announce(draft: &mut Draft, facts: &Facts) {
    let last_good = draft.status.previous_revision.clone().unwrap_or_default();
    let name = &facts.set.name;
    let note = if last_good == facts.wanted {
        let away = facts.off().count();
        format!(
            "the template of StatefulSet {name} is back at {last_good}, the last good revision; {away} pods go back to it"
        )
    } else {
        format!("rollout of StatefulSet {name} from {last_good} to {} started; all pods are held", facts.wanted)
    };
    draft.normal(Reason::RolloutStarted, &note);
    draft.tell(EventTarget::Set, Severity::Normal, Reason::RolloutStarted, &note);
}

/// Pods born above the partition during a rollout start on the wanted revision and count as rolled.
fn announce_births(draft: &mut Draft, facts: &Facts) {
    let before = draft.status.replicas;
    if before == 0 || facts.replicas() <= before || memory::is_settled(&draft.status) {
        return;
    }
    let first = facts.partition().0.max(before);
    if first >= facts.replicas() {
        return;
    }
    let born = (first..facts.replicas()).map(|index| facts.pod_name(PodIndex(index)));
    let names = born.take(10).collect::<Vec<_>>().join(", ");
    draft.warn(
        Reason::PodsSlipped,
        &format!("scaled from {before} to {} during the rollout: {names} start on {} and are covered by the next check cycle", facts.replicas(), facts.wanted),
    );
}

/// Pods below the partition that came back on the wanted revision: so it is when the `ControllerRevision` of the old one is lost
/// (native-statefulset B2), and with some releases of Kubernetes.
fn announce_slipped(draft: &mut Draft, facts: &Facts) {
    let status = &draft.status;
    let is_revert = status.previous_revision.as_deref() == Some(facts.wanted);
    let is_made_by_us = status.never_healthy || status.remade_since.is_some();
    let is_over = memory::is_settled(status) || facts.partition() == Partition(facts.replicas());
    if is_over || is_revert || is_made_by_us || facts.count_wanted() <= status.updated_replicas {
        return;
    }
    let is_young = |pod: &PodView| status.start_time.is_some_and(|start| pod.created > start);
    let slipped = |(index, pod): &(PodIndex, &PodView)| {
        !facts.partition().opens(*index)
            && facts.is_wanted(pod)
            && is_young(pod)
            && !memory::has_passed(status, facts.wanted, index.0)
    };
    let names = facts.pods().filter(slipped).map(|(_, pod)| pod.name.as_str()).take(10).collect::<Vec<_>>().join(", ");
    if !names.is_empty() {
        let wanted = facts.wanted;
        let note = format!(
            "{names} came back on the pending revision {wanted} although the partition holds it; checked before anything else moves"
        );
        draft.warn(Reason::PodsSlipped, &note);
    }
}

/// Every pod carries the wanted revision.
fn all_at_revision<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    let resting = Partition(facts.replicas());
    if memory::is_settled(&draft.status) {
        if facts.partition() != resting && facts.has_flipped() {
            draft.set_partition(facts.set, facts.wanted, resting);
        }
        return finish_at_rest(draft, facts);
    }
    let index = last_rolled(&draft, facts);
    let healthy = facts.obstacle(&[]).is_none();
    if healthy && facts.has_flipped() && facts.partition() != resting {
        // Hold first, status second; and only after the flip, or a dying pod would come back at the old revision.
        draft.set_partition(facts.set, facts.wanted, resting);
    }
    if draft.observed.rollout.spec.paused {
        return finish_paused(draft, facts);
    }
    if healthy && !facts.has_flipped() {
        return step::await_flip(draft, facts, index);
    }
    if healthy && !draft.observed.rollout.spec.check.final_check {
        return step::complete(draft, facts);
    }
    gate::run(draft, facts, Step::Final, index, &[])
}

fn finish_at_rest<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    if let Some(problem) = draft.observed.config.first() {
        let stand = Stand::new(Motion::Stalled, Phase::Blocked, problem.reason, problem.message.clone());
        gate::look_again(&mut draft);
        return draft.finish(facts, &stand);
    }
    let completed = draft.status.completion_time.is_some();
    draft.finish(facts, &rest(facts, completed))
}

/// Nothing is pending; a pod may still be on its way back.
pub(crate) fn rest(facts: &Facts, completed: bool) -> Stand {
    let (phase, reason) = if completed { (Phase::Completed, Reason::Completed) } else { (Phase::Idle, Reason::AtRest) };
    if let Some(obstacle) = facts.obstacle(&[]) {
        let message = format!("nothing is pending; {}", obstacle.describe(facts));
        return Stand::new(Motion::Rest, phase, Reason::PodsNotAvailable, message);
    }
    let checked = if completed { "the rollout is complete" } else { "nothing is pending" };
    Stand::new(Motion::Rest, phase, reason, format!("all {} pods carry {}; {checked}", facts.replicas(), facts.wanted))
}

fn finish_paused<'a>(draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    draft.finish(facts, &paused(facts))
}

fn paused(facts: &Facts) -> Stand {
    let message = format!(
        "spec.paused is true: {} of {} pods carry {}, no further pod is rolled and nothing is checked",
        facts.count_wanted(),
        facts.replicas(),
        facts.wanted
    );
    Stand::new(Motion::Held, Phase::Paused, Reason::Paused, message)
}

/// Some pod is off the wanted revision.
fn in_motion<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    if let Some(stand) = hold_in_full(&mut draft, facts) {
        return draft.finish(facts, &stand);
    }
    if draft.observed.rollout.spec.paused {
        if let Some(current) = &mut draft.status.current {
            (current.since, current.consecutive_passes, current.next_check_time) = (None, 0, None);
            current.broken_since = None;
        }
        return finish_paused(draft, facts);
    }
    if let Some(stand) = repair::note_health(&mut draft, facts) {
        return draft.finish(facts, &stand);
    }
    if let Some(stand) = repair::next(&mut draft, facts) {
        return draft.finish(facts, &stand);
    }
    let exempt = repair::exempt(&draft, facts);
    if let Some(index) = facts.in_flight() {
        return step::wait(draft, facts, index, &exempt);
    }
    if facts.lowest_wanted().is_none() {
        return preflight(draft, facts, &exempt);
    }
    let index = last_rolled(&draft, facts);
    gate::run(draft, facts, Step::Pod, index, &exempt)
}

/// The pods that we rolled are gone (scaled down): nothing stands for this revision any more, and a scale-up must not start pods
/// on it, paused or not.
fn hold_in_full(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    let stands = facts.lowest_wanted().is_some() || facts.in_flight().is_some();
    if stands || facts.partition() == Partition::HOLD {
        return None;
    }
    draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    draft.wake_now();
    if draft.observed.rollout.spec.paused {
        return Some(paused(facts));
    }
    let message = format!("no pod carries {} any more; it is held as a whole", facts.wanted);
    Some(Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

/// No pod carries the wanted revision: everything is held until the checks allow the first one.
fn preflight<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, exempt: &[PodIndex]) -> Plan {
    let Some(next) = facts.next_to_roll() else { return draft.unchanged() };
    // What failed stays failed when the pods that showed it are scaled away: the next one is not tried for that.
    let has_failed = draft.status.current.as_ref().is_some_and(|current| current.failed);
    if has_failed {
        let current = gate::resume(&draft, facts, Step::Preflight, next);
        draft.status.current = Some(Current { failed: true, ..current });
    }
    if (draft.observed.rollout.spec.check.preflight || has_failed) && !draft.status.never_healthy {
        return gate::run(draft, facts, Step::Preflight, next, exempt);
    }
    step::first(draft, facts, next, exempt)
}

/// The index of the pod that was rolled last; the lowest at the revision if this operator rolled none.
fn last_rolled(draft: &Draft, facts: &Facts) -> PodIndex {
    let rolled = draft.status.current.as_ref().filter(|current| matches!(current.step, Step::Pod | Step::Final));
    let at_revision = |index: &PodIndex| facts.pod(*index).is_some_and(|pod| facts.is_wanted(pod));
    // The patch of a step says it before the status does, which a crash may have kept from being written.
    let opened = memory::opened(facts).filter(at_revision);
    opened
        .or_else(|| rolled.map(|current| PodIndex(current.index)).filter(at_revision))
        .or_else(|| facts.lowest_wanted())
        .unwrap_or(PodIndex(0))
}
