//! Fix and revert are never locked out by the pods that they repair (phased-rollout §4.9, §6, §10).
//!
//! A pod that has left the last good revision may move to the wanted one without the gate; a pod still on it may not. The number
//! of pods off the last good revision never grows here.

use sts_plus_api::{Reason, StuckPods};

use crate::{
    hold::Wish,
    observed::PodView,
    pods::{describe_broken, is_ready, is_stuck},
    roll::{memory::Activity, round::Round},
    slots::Slots,
    units::{Partition, PodIndex},
    why::Why,
};

/// Begins and ends the time in which there is no availability to protect: no pod is Ready at all (§10). A pod on the old
/// revision that becomes Ready ends it, and what was opened is held again.
pub(super) fn note_health(round: &mut Round) -> Option<Why> {
    let Some(pod) = round.slots.old_ready() else {
        round.memory.never_healthy |= round.slots.count_ready() == 0 && is_down(&round.slots);
        return None;
    };
    if !std::mem::take(&mut round.memory.never_healthy) || round.slots.in_flight().is_none() {
        return None;
    }
    round.memory.activity = Activity::Idle;
    round.wish = Wish::Full;
    Some(Why::rolling(format!(
        "{} is Ready on the old revision; held for the checks of {}",
        pod.name, round.slots.wanted
    )))
}

/// Every pod on an old revision is broken. One that is leaving, starting, or about to be recreated may still be healthy.
fn is_down(slots: &Slots) -> bool {
    let Some((lowest, _)) = slots.off().next() else { return false };
    let mut below = (0..lowest.0).map(PodIndex);
    slots.off().all(|(_, pod)| slots.is_broken(pod)) && below.all(|index| slots.pod(index).is_some())
}

/// Indexes that need not be available: broken pods of a set that was never healthy, or that are not waited for by request.
/// `OrderedReady` rolls nothing while any pod is broken, whatever is requested.
pub(super) fn exempt(round: &Round) -> Vec<PodIndex> {
    let by_request = round.policy.passes_broken && round.slots.set.parallel;
    let passes = round.memory.never_healthy || by_request;
    let is_waived = |(_, pod): &(PodIndex, &PodView)| passes && round.slots.is_broken(pod);
    round.slots.off().filter(is_waived).map(|(index, _)| index).collect()
}

/// The next move of a repair; `None` if there is nothing to repair and the gate decides.
pub(super) fn next(round: &mut Round) -> Option<Why> {
    let repair = Repair::new(round);
    // One write may open several pods: each that has moved is progress, where that is asked for.
    let has_moved = round.slots.count_wanted() > round.memory.updated && round.policy.progress_deadline.is_some();
    if matches!(round.memory.activity, Activity::Repair(_)) && has_moved {
        round.memory.progress(round.now);
    }
    if let Some(index) = repair.unmade(&round.slots) {
        let name = round.slots.pod_name(index);
        return Some(repair.open(round, index, index, &name));
    }
    let Some(lowest) = repair.candidates.first().copied() else { return close(round) };
    if repair.is_blocked_by_good_pod(round, lowest) {
        return repair.replace_under_hold(round, lowest);
    }
    if let Some(broken) = repair.first_broken(&round.slots) {
        if repair.is_revert && round.slots.has_flipped() {
            return Some(delete(round, lowest, broken));
        }
        if !round.slots.set.parallel {
            return Some(repair.open_and_delete(round, lowest, broken));
        }
    }
    Some(repair.step(round, lowest))
}

/// The checks before the first pod are refused while a pod that has left the last good revision has passed there once: it may not pass any
/// more, and a fix is not kept out by what it replaces. The pod, if there is one; it is repaired from now on.
pub(super) fn disowned(round: &mut Round) -> Option<String> {
    let (slots, good) = (&round.slots, round.last_good());
    let has_left = |pod: &PodView| pod.revision.as_deref() != Some(&good);
    let mut passed = slots.off().filter(|(index, pod)| has_left(pod) && round.memory.has_passed(*index, pod));
    let (_, pod) = passed.next_back()?;
    round.memory.passed.retain(|passed| Some(&passed.revision) != pod.revision.as_ref());
    round.memory.activity = Activity::Idle;
    Some(pod.name.clone())
}

/// Ends a repair that is over. What it opened and what is not rolled yet is held again.
fn close(round: &mut Round) -> Option<Why> {
    let Activity::Repair(_) = round.memory.activity else { return None };
    let slots = &round.slots;
    if let Some(index) = slots.being_replaced() {
        return Some(Why::repairing(format!("{} is recreated", slots.pod_name(index))));
    }
    let good = round.last_good();
    let is_open = |(index, _): &(PodIndex, &PodView)| slots.partition().opens(*index);
    let is_good = |(_, pod): (PodIndex, &PodView)| pod.revision.as_deref() == Some(&good);
    if slots.off().any(|entry| is_open(&entry)) && !slots.off().filter(is_open).any(is_good) {
        // All that is open has left the last good revision: it moves on, one by one.
        return Some(Why::repairing(format!("the repair goes on: {}", what_is_awaited(slots))));
    }
    let wanted = slots.wanted;
    let is_open = slots.in_flight().is_some();
    round.memory.activity = Activity::Idle;
    if !is_open {
        return None;
    }
    round.wish = Wish::Full;
    round.wake_now();
    Some(Why::rolling(format!(
        "the repair is over; pods that are still on the last good revision are held for {wanted}"
    )))
}

struct Repair {
    good: String,
    is_revert: bool,
    /// In ascending order.
    candidates: Vec<PodIndex>,
    /// Indexes that need not be available: broken candidates, and broken pods of a set that was never healthy.
    waived: Vec<PodIndex>,
}

impl Repair {
    fn new(round: &Round) -> Self {
        let (slots, memory) = (&round.slots, &round.memory);
        let good = round.last_good();
        let is_revert = good == slots.wanted;
        // A set that was never healthy and is OrderedReady has only its first pods: one write opens everything.
        let is_all_broken = memory.never_healthy && !slots.set.parallel;
        let is_candidate = |(index, pod): &(PodIndex, &PodView)| {
            let has_left = pod.revision.as_deref() != Some(&good);
            is_revert
                || (has_left && (slots.is_broken(pod) || !memory.has_passed(*index, pod)))
                || (is_all_broken && slots.is_broken(pod))
        };
        let candidates: Vec<_> = slots.off().filter(is_candidate).map(|(index, _)| index).collect();
        let is_broken = |index: &PodIndex| slots.pod(*index).is_some_and(|pod| slots.is_broken(pod));
        let waived = exempt(round).into_iter().chain(candidates.iter().copied().filter(is_broken)).collect();
        Self { good, is_revert, candidates, waived }
    }

    /// A slot under the hold whose pod cannot be made, on a current revision that is neither the last good one nor the wanted one: to open it
    /// costs no pod of the last good revision, and a fix would be kept out by it for ever.
    fn unmade(&self, slots: &Slots) -> Option<PodIndex> {
        let index = slots.missing().filter(|index| !slots.partition().opens(*index))?;
        let is_lost = !self.comes_back_good(slots) && !slots.has_flipped() && slots.refusal(index).is_some();
        let is_good = |pod: &PodView| pod.revision.as_deref() == Some(&self.good);
        let costs = slots.off().any(|(other, pod)| other > index && is_good(pod));
        (is_lost && !costs).then_some(index)
    }

    fn pods<'a>(&self, slots: &Slots<'a>) -> impl Iterator<Item = &'a PodView> {
        self.candidates.iter().filter_map(|index| slots.pod(*index))
    }

    fn first_broken<'a>(&self, slots: &Slots<'a>) -> Option<&'a PodView> {
        self.pods(slots).find(|pod| slots.is_broken(pod))
    }

    /// One at a time: a candidate is on its way out.
    fn is_one_leaving(&self, slots: &Slots) -> bool {
        self.pods(slots).any(|pod| pod.deleting)
    }

    /// A pod above the lowest candidate that is still on the last good revision must not be opened with it, nor a slot that is
    /// not filled yet: its pod would start on the wanted revision.
    fn is_blocked_by_good_pod(&self, round: &Round, lowest: PodIndex) -> bool {
        let slots = &round.slots;
        let is_good = |pod: &PodView| pod.revision.as_deref() == Some(&self.good);
        // Those that the partition opens start on the wanted revision anyway.
        let above = lowest.0.saturating_add(1)..slots.replicas().min(slots.partition().0);
        let is_unborn = |index: PodIndex| slots.pod(index).is_none();
        let has_good =
            || slots.off().any(|(index, pod)| index > lowest && is_good(pod) && !self.candidates.contains(&index));
        let would_be_good = !round.memory.never_healthy && self.comes_back_good(slots);
        !self.is_revert && (has_good() || (would_be_good && above.map(PodIndex).any(is_unborn)))
    }

    /// What is created under the hold starts on the last good revision.
    fn comes_back_good(&self, slots: &Slots) -> bool {
        slots.set.current_revision.as_deref() == Some(&self.good)
    }

    /// Nothing is opened: candidates come back at the current revision, which is the last good or the wanted one. If it is neither,
    /// only a broken one is recreated, once: it was off the last good revision before and is so after (ADR 0009).
    fn replace_under_hold(&self, round: &mut Round, lowest: PodIndex) -> Option<Why> {
        if !self.comes_back_good(&round.slots) && !round.slots.has_flipped() {
            return self.recreate_once(round, lowest);
        }
        if round.slots.partition() != Partition::HOLD {
            return Some(hold(round, lowest, "held; failed pods come back at the current revision"));
        }
        let slots = &round.slots;
        let healthy = || self.pods(slots).next().filter(|_| slots.obstacle(&self.candidates).is_none());
        let pod = self.first_broken(slots).or_else(healthy).filter(|_| !self.is_one_leaving(slots));
        Some(match pod {
            Some(pod) => delete(round, lowest, pod),
            None => self.wait(round, lowest),
        })
    }

    /// The current revision is a failed one that all pods carried once, so a pod of it can start. One that does not is left to a person.
    fn recreate_once(&self, round: &mut Round, lowest: PodIndex) -> Option<Why> {
        // Creation times have whole seconds.
        let since = round.memory.remade_since.map_or(i64::MAX, jiff::Timestamp::as_second);
        let is_next = |pod: &&PodView| round.slots.is_broken(pod) && pod.created.as_second() < since;
        let next = self.pods(&round.slots).find(is_next)?;
        if round.slots.partition() != Partition::HOLD {
            return Some(hold(round, lowest, "held; a broken pod comes back at the current revision"));
        }
        if self.is_one_leaving(&round.slots) {
            return Some(self.wait(round, lowest));
        }
        round.memory.remade_since.get_or_insert(round.now);
        Some(delete(round, lowest, next))
    }

    /// `OrderedReady` never replaces a broken pod by itself: open down to the lowest candidate, then delete the broken ones.
    fn open_and_delete(&self, round: &mut Round, lowest: PodIndex, broken: &PodView) -> Why {
        let down_to = if round.memory.never_healthy { PodIndex(0) } else { lowest };
        if round.slots.partition().opens(down_to) {
            return delete(round, lowest, broken);
        }
        self.open(round, lowest, down_to, &broken.name)
    }

    /// One index at a time, from the top, each awaited until available.
    fn step(&self, round: &mut Round, lowest: PodIndex) -> Why {
        let slots = &round.slots;
        let in_flight = slots.off().map(|(index, _)| index).find(|index| slots.partition().opens(*index));
        let next = slots.off().map(|(index, _)| index).rfind(|index| *index >= lowest);
        if let Some(pod) = in_flight.and_then(|index| slots.pod(index)).filter(|pod| self.is_left(slots, pod)) {
            return delete(round, lowest, pod);
        }
        let (Some(next), None) = (next, in_flight) else { return self.wait(round, lowest) };
        // `OrderedReady` rolls nothing while any pod is not available.
        let waived: &[PodIndex] = if slots.set.parallel { &self.waived } else { &[] };
        if self.is_one_leaving(slots) || slots.obstacle(waived).is_some() {
            return self.wait(round, lowest);
        }
        let name = slots.pod_name(next);
        self.open(round, lowest, next, &name)
    }

    /// An opened pod that the controller does not replace: a broken one with 1.35.0–1.35.3, and one that is left standing.
    fn is_left(&self, slots: &Slots, pod: &PodView) -> bool {
        slots.is_broken(pod) || is_left_standing(slots, pod, &self.waived)
    }

    fn open(&self, round: &mut Round, lowest: PodIndex, index: PodIndex, pod: &str) -> Why {
        round.memory.activity = Activity::Repair(lowest);
        round.memory.progress(round.now);
        round.wish = Wish::Open(index);
        let why = if self.is_revert { "are off the wanted revision" } else { "have not passed their checks" };
        let wanted = round.slots.wanted;
        round.normal(
            Reason::Repairing,
            &format!("partition {}: pods that {why} move to {wanted} without checks", index.0),
        );
        Why::repairing(format!("partition {}: {pod} is replaced without checks", index.0))
    }

    fn wait(&self, round: &mut Round, lowest: PodIndex) -> Why {
        round.memory.activity = Activity::Repair(lowest);
        let slots = &round.slots;
        match slots.obstacle(&self.waived) {
            Some(obstacle) if obstacle.is_stubborn() => {
                Why::blocked_by_pod(format!("the repair waits: {}", obstacle.describe(slots)))
            }
            Some(obstacle) => Why::repairing(format!("the repair waits: {}", obstacle.describe(slots))),
            None => Why::repairing(format!("the repair waits: {}", what_is_awaited(slots))),
        }
    }
}

fn hold(round: &mut Round, lowest: PodIndex, message: &str) -> Why {
    round.memory.activity = Activity::Repair(lowest);
    round.wish = Wish::Full;
    Why::repairing(message.to_owned())
}

fn delete(round: &mut Round, lowest: PodIndex, pod: &PodView) -> Why {
    round.memory.activity = Activity::Repair(lowest);
    delete_stuck(round, pod)
}

/// The first pod that is not available; else it is the controller's turn.
fn what_is_awaited(slots: &Slots) -> String {
    let obstacle = slots.obstacle(&[]).map(|obstacle| obstacle.describe(slots));
    obstacle.unwrap_or_else(|| "the StatefulSet controller moves the next pod".to_owned())
}

/// A healthy pod that was opened, and that the controller does not replace while another one, which is not waited for, uses up maxUnavailable:
/// Parallel, from 1.35 on (native-statefulset B9).
fn is_left_standing(slots: &Slots, pod: &PodView, waived: &[PodIndex]) -> bool {
    slots.set.parallel && is_ready(pod) && slots.obstacle(&[]).is_some() && slots.obstacle(waived).is_none()
}

/// In a normal step: the pod that was opened is stuck on its old revision, which `OrderedReady` never replaces (§6), or it is left standing.
pub(super) fn unstick(round: &mut Round) -> Option<Why> {
    let exempt = exempt(round);
    let slots = &round.slots;
    let opened: Vec<_> = slots.off().filter(|(index, _)| slots.partition().opens(*index)).collect();
    let is_in_the_way = |(index, pod): &&(PodIndex, &PodView)| is_stuck(pod) || exempt.contains(index);
    if let Some((_, pod)) = opened.iter().find(is_in_the_way) {
        return Some(delete_stuck(round, pod));
    }
    let (_, pod) = opened.iter().find(|(_, pod)| is_left_standing(slots, pod, &exempt))?;
    round.delete(pod);
    let name = &pod.name;
    let note =
        format!("{name} is rolled by its deletion: the StatefulSet controller leaves it while another pod is broken");
    round.normal(Reason::PodDeleted, &note);
    Some(Why::rolling(format!("{name} is being rolled to {}", round.slots.wanted)))
}

/// Deletes a pod so that it is recreated, if that is allowed.
fn delete_stuck(round: &mut Round, pod: &PodView) -> Why {
    if let Some(why) = kept_by_request(round, pod) {
        return why;
    }
    let what = what_is_wrong(round, pod);
    round.delete(pod);
    round.normal(Reason::PodDeleted, &format!("{what}; it is deleted so that it is made anew"));
    Why::repairing(format!("{} is made anew", pod.name))
}

/// stuckPods Wait: a person deletes it.
fn kept_by_request(round: &Round, pod: &PodView) -> Option<Why> {
    (round.policy.stuck_pods == StuckPods::Wait).then(|| {
        let what = what_is_wrong(round, pod);
        Why::blocked_by_pod(format!("{what}; spec.stuckPods is Wait: delete pod {} to go on", pod.name))
    })
}

fn what_is_wrong(round: &Round, pod: &PodView) -> String {
    if round.slots.is_broken(pod) { describe_broken(pod) } else { format!("{} has not passed its checks", pod.name) }
}
