//! Fix and revert are never locked out by the pods that they repair (phased-rollout §4.9, §6, §10).
//!
//! A pod that has left the last good revision may move to the wanted one without the gate; a pod still on it may not. The number
//! of pods off the last good revision never grows here.

use sts_plus_api::{Phase, Reason, Step, StuckPods};

use super::{
    draft::Draft,
    facts::{self, Facts, is_ready},
    gate, memory,
    report::{Motion, Stand},
};
use crate::{
    Action, PodView,
    units::{Partition, PodIndex},
};

/// Begins and ends the time in which there is no availability to protect: no pod is Ready at all (§10). A pod on the old
/// revision that becomes Ready ends it, and what was opened is held again.
pub(crate) fn note_health(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    let Some(pod) = facts.old_ready() else {
        draft.status.never_healthy |= facts.count_ready() == 0 && is_down(facts);
        return None;
    };
    if !std::mem::take(&mut draft.status.never_healthy) || facts.in_flight().is_none() {
        return None;
    }
    draft.status.current = None;
    draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    let message = format!("{} is Ready on the old revision; held for the checks of {}", pod.name, facts.wanted);
    Some(Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

/// Every pod on an old revision is broken. One that is leaving, starting, or about to be made anew may still be healthy.
fn is_down(facts: &Facts) -> bool {
    let Some((lowest, _)) = facts.off().next() else { return false };
    let below = (0..lowest.0).map(PodIndex);
    facts.off().all(|(_, pod)| facts.is_broken(pod)) && below.map(|index| facts.pod(index)).all(|pod| pod.is_some())
}

/// Indexes that need not be available: broken pods of a set that was never healthy, or that are not waited for by request.
/// `OrderedReady` rolls nothing while any pod is broken, whatever is requested.
pub(crate) fn exempt(draft: &Draft, facts: &Facts) -> Vec<PodIndex> {
    let by_request = draft.observed.rollout.passes_broken && facts.set.parallel;
    let passes = draft.status.never_healthy || by_request;
    let waived = |(_, pod): &(PodIndex, &PodView)| passes && facts.is_broken(pod);
    facts.off().filter(waived).map(|(index, _)| index).collect()
}

/// The next move of a repair; `None` if there is nothing to repair and the gate decides.
pub(crate) fn next(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    let repair = Repair::new(draft, facts);
    let Some(lowest) = repair.candidates.first().copied() else {
        return close(draft, facts);
    };
    if repair.is_blocked_by_good_pod(draft, lowest) {
        return repair.replace_under_hold(draft);
    }
    if let Some(broken) = repair.first_broken() {
        if repair.is_revert && facts.has_flipped() {
            return Some(repair.delete(draft, broken));
        }
        if !facts.set.parallel {
            return Some(repair.open_and_delete(draft, lowest, broken));
        }
    }
    Some(repair.step(draft, lowest))
}

/// Ends a repair that is over. What it opened and what is not rolled yet is held again.
fn close(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    draft.status.current.as_ref().filter(|current| current.step == Step::Repair)?;
    if let Some(index) = facts.being_replaced() {
        let message = format!("{} is made anew", facts.pod_name(index));
        return Some(repairing(message));
    }
    let last_good = draft.last_good(facts);
    let opened = |(index, _): &(PodIndex, &PodView)| facts.partition().opens(*index);
    let is_good = |(_, pod): (PodIndex, &PodView)| pod.revision.as_deref() == Some(&last_good);
    if facts.off().any(|entry| opened(&entry)) && !facts.off().filter(opened).any(is_good) {
        // All that is open has left the last good revision: it moves on, one by one.
        return Some(repairing(format!("the repair goes on: {}", what_is_awaited(facts))));
    }
    draft.status.current = None;
    facts.in_flight()?;
    draft.set_partition(facts.set, facts.wanted, Partition::HOLD);
    draft.wake_now();
    let message =
        format!("the repair is over; pods that are still on the last good revision are held for {}", facts.wanted);
    Some(Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

struct Repair<'f, 'a> {
    facts: &'f Facts<'a>,
    last_good: String,
    is_revert: bool,
    /// In ascending order.
    candidates: Vec<PodIndex>,
    /// Indexes that need not be available: candidates, and broken pods of a set that was never healthy.
    waived: Vec<PodIndex>,
}

impl<'f, 'a> Repair<'f, 'a> {
    fn new(draft: &Draft<'a>, facts: &'f Facts<'a>) -> Self {
        let last_good = draft.last_good(facts);
        let is_revert = last_good == facts.wanted;
        // A set that was never healthy and is OrderedReady has only its first pods: one write opens everything.
        let all_broken = draft.status.never_healthy && !facts.set.parallel;
        let has_passed = |index: PodIndex, pod: &PodView| {
            pod.revision.as_deref().is_some_and(|revision| memory::has_passed(&draft.status, revision, index.0))
        };
        let is_candidate = |(index, pod): &(PodIndex, &PodView)| {
            let left_good = pod.revision.as_deref() != Some(&last_good);
            is_revert
                || (left_good && (facts.is_broken(pod) || !has_passed(*index, pod)))
                || (all_broken && facts.is_broken(pod))
        };
        let candidates: Vec<_> = facts.off().filter(is_candidate).map(|(index, _)| index).collect();
        let waived = exempt(draft, facts).into_iter().chain(candidates.iter().copied()).collect();
        Self { facts, last_good, is_revert, candidates, waived }
    }

    fn pod(&self, index: PodIndex) -> Option<&'a PodView> {
        self.facts.pod(index)
    }

    fn first_broken(&self) -> Option<&'a PodView> {
        self.candidates.iter().filter_map(|index| self.pod(*index)).find(|pod| self.facts.is_broken(pod))
    }

    /// One at a time: a candidate is on its way out.
    fn is_one_leaving(&self) -> bool {
        self.candidates.iter().filter_map(|index| self.pod(*index)).any(|pod| pod.deleting)
    }

    /// A pod above the lowest candidate that is still on the last good revision must not be opened with it, nor a slot that is
    /// not filled yet: its pod would start on the wanted revision.
    fn is_blocked_by_good_pod(&self, draft: &Draft, lowest: PodIndex) -> bool {
        let on_good = |pod: &PodView| pod.revision.as_deref() == Some(&self.last_good);
        // Those that the partition opens start on the wanted revision anyway.
        let above = lowest.0.saturating_add(1)..self.facts.replicas().min(self.facts.partition().0);
        let unborn = |index: PodIndex| self.pod(index).is_none();
        let good = || {
            let mut off = self.facts.off();
            off.any(|(index, pod)| index > lowest && on_good(pod) && !self.candidates.contains(&index))
        };
        let would_be_good = !draft.status.never_healthy && self.comes_back_good();
        !self.is_revert && (good() || (would_be_good && above.map(PodIndex).any(unborn)))
    }

    /// What is made under the hold starts on the last good revision.
    fn comes_back_good(&self) -> bool {
        self.facts.set.current_revision.as_deref() == Some(&self.last_good)
    }

    /// Nothing is opened: candidates come back at the current revision, which is the last good or the wanted one. If it is neither,
    /// only a broken one is made anew, once: it was off the last good revision before and is so after (ADR 0009).
    fn replace_under_hold(&self, draft: &mut Draft) -> Option<Stand> {
        if !self.comes_back_good() && !self.facts.has_flipped() {
            return self.make_anew_once(draft);
        }
        if self.facts.partition() != Partition::HOLD {
            self.remember(draft);
            draft.set_partition(self.facts.set, self.facts.wanted, Partition::HOLD);
            return Some(repairing("held; failed pods come back at the current revision".to_owned()));
        }
        let healthy = || self.candidates.first().filter(|_| self.facts.obstacle(&self.candidates).is_none());
        let pod = self.first_broken().or_else(|| healthy().and_then(|index| self.pod(*index)));
        Some(match pod {
            Some(pod) if !self.is_one_leaving() => self.delete(draft, pod),
            _ => self.wait(draft),
        })
    }

    /// The current revision is a failed one that all pods carried once, so a pod of it can start. One that does not is left to a person.
    fn make_anew_once(&self, draft: &mut Draft) -> Option<Stand> {
        // Creation times have whole seconds.
        let since = draft.status.remade_since.map_or(i64::MAX, jiff::Timestamp::as_second);
        let is_next = |pod: &&PodView| self.facts.is_broken(pod) && pod.created.as_second() < since;
        let next = self.candidates.iter().filter_map(|index| self.pod(*index)).find(is_next)?;
        if self.facts.partition() != Partition::HOLD {
            self.remember(draft);
            draft.set_partition(self.facts.set, self.facts.wanted, Partition::HOLD);
            return Some(repairing("held; a broken pod comes back at the current revision".to_owned()));
        }
        if self.is_one_leaving() {
            return Some(self.wait(draft));
        }
        draft.status.remade_since.get_or_insert(draft.now);
        Some(self.delete(draft, next))
    }

    /// `OrderedReady` never replaces a broken pod by itself: open down to the lowest candidate, then delete the broken ones.
    fn open_and_delete(&self, draft: &mut Draft, lowest: PodIndex, broken: &PodView) -> Stand {
        let down_to = if draft.status.never_healthy { PodIndex(0) } else { lowest };
        if !self.facts.partition().opens(down_to) {
            self.open(draft, Partition::opening(down_to));
            return repairing(format!("partition {}: {} is replaced without checks", down_to.0, broken.name));
        }
        self.delete(draft, broken)
    }

    /// One index at a time, from the top, each awaited until available.
    fn step(&self, draft: &mut Draft, lowest: PodIndex) -> Stand {
        let in_flight = self.facts.off().map(|(index, _)| index).find(|index| self.facts.partition().opens(*index));
        let next = self.facts.off().map(|(index, _)| index).rfind(|index| *index >= lowest);
        if let Some(pod) = in_flight.and_then(|index| self.pod(index)).filter(|pod| self.is_left(pod)) {
            return self.delete(draft, pod);
        }
        let (Some(next), None) = (next, in_flight) else { return self.wait(draft) };
        // `OrderedReady` rolls nothing while any pod is not available.
        let must_be_available: &[PodIndex] = if self.facts.set.parallel { &self.waived } else { &[] };
        if self.is_one_leaving() || self.facts.obstacle(must_be_available).is_some() {
            return self.wait(draft);
        }
        self.open(draft, Partition::opening(next));
        repairing(format!("partition {}: {} is replaced without checks", next.0, self.facts.pod_name(next)))
    }

    /// An opened pod that the controller does not replace: a broken one with 1.35.0–1.35.3, and one that is left standing.
    fn is_left(&self, pod: &PodView) -> bool {
        self.facts.is_broken(pod) || is_left_standing(self.facts, pod, &self.waived)
    }

    fn open(&self, draft: &mut Draft, partition: Partition) {
        self.remember(draft);
        draft.set_partition(self.facts.set, self.facts.wanted, partition);
        draft.status.last_progress_time = Some(draft.now);
        let why = if self.is_revert { "are off the wanted revision" } else { "have not passed their checks" };
        draft.normal(
            Reason::Repairing,
            &format!("partition {}: pods that {why} move to {} without checks", partition.0, self.facts.wanted),
        );
    }

    fn delete(&self, draft: &mut Draft, pod: &PodView) -> Stand {
        self.remember(draft);
        delete_stuck(draft, self.facts, pod)
    }

    fn wait(&self, draft: &mut Draft) -> Stand {
        self.remember(draft);
        match self.facts.obstacle(&self.waived) {
            Some(obstacle) if obstacle.is_stubborn() => {
                let what = obstacle.describe(self.facts);
                Stand::new(Motion::Held, Phase::Held, Reason::BlockedByPod, format!("the repair waits: {what}"))
            }
            Some(obstacle) => repairing(format!("the repair waits: {}", obstacle.describe(self.facts))),
            None => repairing(format!("the repair waits: {}", what_is_awaited(self.facts))),
        }
    }

    fn remember(&self, draft: &mut Draft) {
        if let Some(lowest) = self.candidates.first() {
            draft.status.current = Some(gate::fresh(self.facts, Step::Repair, *lowest));
        }
    }
}

/// The first pod that is not available; else it is the controller's turn.
fn what_is_awaited(facts: &Facts) -> String {
    let obstacle = facts.obstacle(&[]).map(|obstacle| obstacle.describe(facts));
    obstacle.unwrap_or_else(|| "the StatefulSet controller moves the next pod".to_owned())
}

fn repairing(message: String) -> Stand {
    Stand::new(Motion::Moving, Phase::Rolling, Reason::Repairing, message)
}

/// A healthy pod that was opened, and that the controller does not replace while another one, which is not waited for, uses up maxUnavailable:
/// Parallel, from 1.35 on (native-statefulset B9).
fn is_left_standing(facts: &Facts, pod: &PodView, waived: &[PodIndex]) -> bool {
    facts.set.parallel && is_ready(pod) && facts.obstacle(&[]).is_some() && facts.obstacle(waived).is_none()
}

/// In a normal step: the pod that was opened is stuck on its old revision, which `OrderedReady` never replaces (§6), or it is left standing.
pub(crate) fn unstick(draft: &mut Draft, facts: &Facts) -> Option<Stand> {
    let exempt = exempt(draft, facts);
    let mut opened = facts.off().filter(|(index, _)| facts.partition().opens(*index));
    let is_in_the_way = |(index, pod): &(PodIndex, &PodView)| facts::is_stuck(pod) || exempt.contains(index);
    if let Some((_, pod)) = opened.clone().find(is_in_the_way) {
        return Some(delete_stuck(draft, facts, pod));
    }
    let (_, pod) = opened.find(|(_, pod)| is_left_standing(facts, pod, &exempt))?;
    let name = &pod.name;
    draft.act(Action::DeletePod { name: name.clone(), uid: pod.uid.clone() });
    let note =
        format!("{name} is rolled by its deletion: the StatefulSet controller leaves it while another pod is broken");
    draft.normal(Reason::PodDeleted, &note);
    let message = format!("{name} is being rolled to {}", facts.wanted);
    Some(Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

/// Deletes a pod so that it is made anew, if that is allowed.
fn delete_stuck(draft: &mut Draft, facts: &Facts, pod: &PodView) -> Stand {
    let what = if facts.is_broken(pod) {
        facts::describe_broken(pod)
    } else {
        format!("{} has not passed its checks", pod.name)
    };
    if draft.observed.rollout.spec.stuck_pods == StuckPods::Wait {
        let message = format!("{what}; spec.stuckPods is Wait: delete pod {} to go on", pod.name);
        return Stand::new(Motion::Held, Phase::Held, Reason::BlockedByPod, message);
    }
    draft.act(Action::DeletePod { name: pod.name.clone(), uid: pod.uid.clone() });
    draft.normal(Reason::PodDeleted, &format!("{what}; it is deleted so that it is made anew"));
    repairing(format!("{} is made anew", pod.name))
}
