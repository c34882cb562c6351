//! The beginnings: the controller has not seen the latest change, the set is claimed, somebody else lowered the partition, another revision is
//! wanted; and what is reported of pods that others started.

use jiff::SignedDuration;
use sts_plus_api::{Reason, names};

use crate::{
    hold::{self, Wish},
    observed::PodView,
    roll::{
        memory::{Activity, Memory, good_from_pods},
        round::Round,
    },
    slots::Slots,
    time::later,
    units::{Partition, PodIndex},
    why::Why,
};

/// How long the StatefulSet controller may take to see a change before that is reported.
const PATIENCE: SignedDuration = SignedDuration::from_secs(1);

/// The StatefulSet controller has not yet seen the latest change, so nobody knows what is wanted. Only holding is safe. `None` if
/// there is nothing to say yet.
pub(super) fn unseen(round: &mut Round, must_claim: bool) -> Option<Why> {
    let set = round.slots.set;
    if must_claim {
        if round.policy.is_ours && set.partition == Some(names::HOLD) {
            return None;
        }
        round.wish = Wish::Full;
        return Some(Why::awaiting_controller(&set.name, true));
    }
    if let Some(why) = undo_drift(round) {
        return Some(why);
    }
    // The controller answers within milliseconds. If it does not, what the status says may be about another template.
    let patience = set.changed.map(|changed| later(changed, PATIENCE));
    if let Some(end) = patience.filter(|end| *end > round.now && round.before.is_known) {
        round.wake_at(end);
        return None;
    }
    Some(Why::awaiting_controller(&set.name, false))
}

/// Takes a set. Pods that have all reached the wanted revision are at rest; otherwise everything is held.
pub(super) fn claim(round: &mut Round) -> Why {
    let (set, wanted) = (round.slots.set, round.slots.wanted);
    if let Some(why) = claim_again(round) {
        return why;
    }
    let has_off = round.slots.off().next().is_some();
    // What is known from before a set was recreated is worth more than its currentRevision, which is lost then (observed O38).
    let known = round.memory.good.take().filter(|known| !has_off || round.slots.carries(known));
    // What nobody can say any more is found out: also pods that are all at the revision are checked.
    let is_unproven = round.before.is_edited || known.as_ref().is_some_and(|known| known != wanted);
    let good = known.unwrap_or_else(|| good_from_pods(&round.slots).to_owned());
    // A slot that nobody has filled comes back on the current revision: it is no pod at the wanted one.
    let is_rolled = !has_off && (round.slots.missing().is_none() || round.slots.has_flipped());
    let is_settled = is_rolled && !is_unproven;
    // Raised before the flip, a dying pod would come back at the old revision.
    let partition = match (is_rolled, is_settled && round.slots.has_flipped()) {
        (true, true) => Wish::Rest,
        // All at the revision: the partition is as after the last pod.
        (true, false) => Wish::TakeOver,
        (false, _) => Wish::Full,
    };
    round.wish = partition;
    if is_settled {
        round.memory.settle_unchecked(wanted);
    } else {
        round.memory.begin(wanted, round.now);
        round.memory.good = Some(good);
    }
    round.checks.to_mut().clear();
    round.wake_now();
    if round.before.is_edited {
        let what = "the status was edited by hand and is not believed; every pod is checked anew";
        round.warn(Reason::StatusEdited, what);
    }
    let written = match partition {
        Wish::Rest => Partition(round.slots.replicas()),
        Wish::Full => Partition::HOLD,
        _ => round.slots.partition(),
    };
    let taken = format!("StatefulSet {} is claimed, partition {}", set.name, written.0);
    if is_settled {
        round.normal(Reason::Claimed, &taken);
        return Why::at_rest(&round.slots, false);
    }
    let carried = round.slots.count_wanted();
    let message = format!("{taken}; {carried} of {} pods carry the pending revision {wanted}", round.slots.replicas());
    if carried > 0 && !round.before.is_edited {
        round.warn(Reason::PodsSlipped, &format!("{message}; they are checked before anything else moves"));
    }
    announce(round);
    Why::started(message)
}

/// Somebody took the claim off a set of which all is known: it is put back with its hold, and nothing else is news.
fn claim_again(round: &mut Round) -> Option<Why> {
    let slots = &round.slots;
    let is_known = round.before.set.as_ref().is_some_and(|(_, uid)| *uid == slots.set.uid)
        && round.memory.wanted.as_deref() == Some(slots.wanted)
        && !slots.set.annotations.contains_key(names::HOLD_SWITCH);
    // A settled set whose pods differ has been rolled meanwhile by somebody else.
    if !is_known || (round.memory.is_settled() && !slots.all_wanted()) {
        return None;
    }
    round.wish = Wish::PutBack(slots.partition().max(expected(round)));
    if let Some(cycle) = round.memory.activity.cycle_mut() {
        cycle.interrupt();
    }
    round.wake_now();
    round.normal(Reason::Claimed, &format!("StatefulSet {} is claimed again", round.slots.set.name));
    Some(if round.memory.is_settled() {
        Why::at_rest(&round.slots, round.memory.is_completed())
    } else {
        Why::pending(&round.slots)
    })
}

/// The partition as it should be by what was written last.
fn expected(round: &Round) -> Partition {
    let slots = &round.slots;
    match hold::written(slots.set) {
        // Nothing was opened for the wanted revision yet.
        Some((revision, _)) if revision != slots.wanted && slots.off().next().is_some() => Partition::HOLD,
        Some((_, partition)) => partition,
        None => round.memory.partition.map_or(slots.partition(), Partition),
    }
}

/// Somebody else lowered the partition: it is put back, unless a person allowed exactly that.
pub(super) fn undo_drift(round: &mut Round) -> Option<Why> {
    let slots = &round.slots;
    let is = slots.partition();
    if round.memory.wanted.as_deref() != Some(slots.wanted) {
        // A new revision is held as a whole; see `begin`.
        return None;
    }
    let expected = expected(round);
    if is >= expected {
        return None;
    }
    if hold::allowed(slots.set) == Some(is) {
        if !slots.set.is_seen() {
            // It is for a revision that nobody knows yet.
            return None;
        }
        let why = Why::partition_allowed(slots);
        round.wish = Wish::TakeOver;
        // A person's word ends a failed cycle, or its hold would take the word back.
        (round.memory.activity, round.memory.failure) = (Activity::Idle, None);
        round.memory.progress(round.now);
        round.warn(Reason::PartitionAllowed, &why.message);
        return Some(why);
    }
    let why = Why::partition_drift(slots, expected);
    round.wish = Wish::PutBack(expected);
    if let Some(cycle) = round.memory.activity.cycle_mut() {
        cycle.interrupt();
    }
    round.wake_now();
    Some(why)
}

/// A revision that was not wanted before: hold at once, counters of the old one are void.
pub(super) fn begin(round: &mut Round) -> Why {
    let wanted = round.slots.wanted;
    if is_untouched_revert(round) {
        return return_to_good(round);
    }
    round.memory.begin(wanted, round.now);
    round.checks.to_mut().clear();
    // What a person allowed was for another revision; the write takes it away.
    let is_allowed = round.slots.set.annotations.contains_key(names::ALLOW_PARTITION);
    if round.slots.off().next().is_some() && (round.slots.partition() != Partition::HOLD || is_allowed) {
        round.wish = Wish::Full;
    }
    announce(round);
    round.wake_now();
    Why::pending(&round.slots)
}

/// The template is back at the last good revision before any pod has moved.
fn is_untouched_revert(round: &Round) -> bool {
    let slots = &round.slots;
    let start = round.memory.start().filter(|_| !round.memory.is_settled());
    // Creation times have whole seconds: one of the same second may have moved.
    let has_moved =
        |pod: &PodView| pod.deleting || start.is_none_or(|start| pod.created.as_second() >= start.as_second());
    round.memory.good.as_deref() == Some(slots.wanted)
        && slots.all_wanted()
        && slots.has_flipped()
        && !slots.pods().any(|(_, pod)| has_moved(pod))
}

/// Nothing was rolled and nothing is to be checked. Complete is what was so before, and is all there.
fn return_to_good(round: &mut Round) -> Why {
    let wanted = round.slots.wanted;
    let is_complete = round.memory.was_completed(wanted) && round.slots.obstacle(&[]).is_none();
    let is_verified = round.memory.verified.as_deref() == Some(wanted);
    let passed = std::mem::take(&mut round.memory.passed);
    if is_complete {
        round.memory.complete(wanted, is_verified, round.now);
    } else {
        round.memory.settle_unchecked(wanted);
    }
    round.memory.passed = passed;
    round.checks.to_mut().clear();
    round.rest();
    round.wake_now();
    let name = &round.slots.set.name;
    let note = format!("the template of StatefulSet {name} is back at {wanted}, which all pods carry; none was rolled");
    round.normal(Reason::RolloutStarted, &note);
    Why::at_rest(&round.slots, is_complete)
}

fn announce(round: &mut Round) {
    let good = round.memory.good.clone().unwrap_or_default();
    let (name, wanted) = (&round.slots.set.name, round.slots.wanted);
    let note = if good == wanted {
        let away = round.slots.off().count();
        format!(
            "the template of StatefulSet {name} is back at {good}, the last good revision; {away} pods go back to it"
        )
    } else {
        format!("rollout of StatefulSet {name} from {good} to {wanted} started; all pods are held")
    };
    round.normal_on_both(Reason::RolloutStarted, &note);
}

/// Pods born above the partition during a rollout start on the wanted revision and count as rolled.
pub(super) fn announce_births(round: &mut Round) {
    let (slots, before) = (&round.slots, round.memory.replicas);
    if before == 0 || slots.replicas() <= before || round.memory.is_settled() {
        return;
    }
    let first = slots.partition().0.max(before);
    if first >= slots.replicas() {
        return;
    }
    let born = (first..slots.replicas()).map(|index| slots.pod_name(PodIndex(index)));
    let names = born.take(10).collect::<Vec<_>>().join(", ");
    let note = format!(
        "scaled from {before} to {} during the rollout: {names} start on {} and are covered by the next check cycle",
        slots.replicas(),
        slots.wanted
    );
    round.warn(Reason::PodsSlipped, &note);
}

/// Pods below the partition that came back on the wanted revision: so it is when the `ControllerRevision` of the old one is lost
/// (native-statefulset B2), and with some releases of Kubernetes.
pub(super) fn announce_slipped(round: &mut Round) {
    let (slots, memory) = (&round.slots, &round.memory);
    let is_revert = memory.good.as_deref() == Some(slots.wanted);
    let is_made_by_us = memory.never_healthy || memory.remade_since.is_some();
    let is_over = memory.is_settled() || slots.partition() == Partition(slots.replicas());
    if is_over || is_revert || is_made_by_us || slots.count_wanted() <= memory.updated {
        return;
    }
    let names = slipped(slots, memory);
    if !names.is_empty() {
        let wanted = slots.wanted;
        let note = format!(
            "{names} came back on the pending revision {wanted} although the partition holds it; checked before anything else moves"
        );
        round.warn(Reason::PodsSlipped, &note);
    }
}

fn slipped(slots: &Slots, memory: &Memory) -> String {
    // Creation times have whole seconds.
    let is_young = |pod: &PodView| memory.start().is_some_and(|start| pod.created.as_second() >= start.as_second());
    let is_slipped = |(index, pod): &(PodIndex, &PodView)| {
        !slots.partition().opens(*index) && slots.is_wanted(pod) && is_young(pod) && !memory.has_passed(*index, pod)
    };
    slots.pods().filter(is_slipped).map(|(_, pod)| pod.name.as_str()).take(10).collect::<Vec<_>>().join(", ")
}

/// The partition is open for a pod and the status does not know it: the operator was stopped in between, or did not hear the
/// answer to its write. Returns whether it is so.
pub(super) fn announce_interrupted_step(round: &mut Round) -> bool {
    let before = round.before;
    let (Some(opened), Some(partition)) = (hold::opened(&round.slots), before.partition) else { return false };
    let wanted = round.slots.wanted;
    if partition <= opened.0 || round.before.is_edited || before.wanted.as_deref() != Some(wanted) {
        return false;
    }
    let is_repair =
        matches!(round.memory.activity, Activity::Repair(_)) || round.memory.good.as_deref() == Some(wanted);
    let (reason, how) = if is_repair { (Reason::Repairing, " without checks") } else { (Reason::PartitionLowered, "") };
    let pod = round.slots.pod_name(opened);
    let note = format!("partition {partition} -> {}: {pod} is rolled to {wanted}{how}", opened.0);
    round.normal(reason, &note);
    true
}
