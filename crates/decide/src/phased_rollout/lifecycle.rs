//! From the first look at a PhasedRollout to its end, around the rollout itself: the finalizer, which set may be taken, the
//! switch to the normal rolling update, and letting go.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{DeletionPolicy, Reason, names};

use crate::{
    claim::{self, claimed_by},
    conditions::is_ready_for,
    observed::{Observed, SetView, Target},
    phased_rollout::draft::Draft,
    plan::{Action, EventTarget, NewPartition, Plan, Severity},
    slots::Slots,
    units::Partition,
    why::Why,
};

/// The finalizer comes first: nothing is held before it is sure that it can be let go again.
pub(crate) fn guard(mut draft: Draft) -> Plan {
    draft.act(Action::AddFinalizer);
    draft.wake_now();
    draft.unchanged()
}

/// The set that may be taken, or why none may.
pub(crate) fn accept(observed: &Observed) -> Result<&SetView, Why> {
    let name = &observed.rollout.spec.target_ref;
    let refuse = |reason, message: String| Err(Why::refused(reason, message));
    if let Some(winner) = older_rival(observed) {
        return refuse(
            Reason::Conflict,
            format!(
                "spec.targetRef: StatefulSet {name} belongs to the older PhasedRollout {winner}; delete one of the two"
            ),
        );
    }
    let Target::Found(set) = &observed.target else {
        return refuse(
            Reason::TargetNotFound,
            format!(
                "spec.targetRef: StatefulSet {name} does not exist in this namespace; it is picked up when it appears"
            ),
        );
    };
    if let Some((kind, owner)) = set.controller.as_ref().filter(|(kind, _)| kind == "ExtendedStatefulSet") {
        return refuse(
            Reason::ControlledElsewhere,
            format!(
                "spec.targetRef: {kind} {owner} controls StatefulSet {name}; put the check into its updateStrategy.check"
            ),
        );
    }
    claim::refusal(set, &observed.rollout.name).map_or(Ok(set), Err)
}

/// The other PhasedRollouts of a set, the oldest first.
fn rivals<'a>(observed: &'a Observed, set: &str) -> impl Iterator<Item = (Timestamp, &'a str)> {
    let of_it = observed.rivals.iter().filter(|rival| rival.target == set);
    let mut of_it: Vec<_> = of_it.map(|rival| (rival.created, rival.name.as_str())).collect();
    of_it.sort_unstable();
    of_it.into_iter()
}

fn older_rival(observed: &Observed) -> Option<&str> {
    let me = (observed.rollout.created, observed.rollout.name.as_str());
    let first = rivals(observed, &observed.rollout.spec.target_ref).next()?;
    (first < me).then_some(first.1)
}

/// skipCheck: the normal rolling update is resumed once; afterwards the partition is the user's.
pub(crate) fn skip<'a>(mut draft: Draft<'a>, set: &'a SetView) -> Plan {
    let wanted = set.update_revision.as_deref().unwrap_or_default();
    let slots = Slots::new(set, &draft.observed.pods, wanted, draft.now);
    let is_off = set.annotations.get(names::HOLD_SWITCH).is_some_and(|switch| switch == "off");
    if !is_off || claimed_by(set) != Some(draft.name()) {
        draft.patch_set(
            set,
            NewPartition::Remove,
            BTreeMap::from([
                (names::CLAIM, Some(draft.name().to_owned())),
                (names::HOLD_SWITCH, Some("off".to_owned())),
                (names::WRITTEN_PARTITION, None),
                (names::REFUSED_PARTITION, None),
                (names::ALLOW_PARTITION, None),
            ]),
        );
    }
    if !draft.actions.is_empty() || !is_ready_for(&draft.before().conditions, Reason::SkipCheck) {
        let note = "spec.skipCheck: the normal rolling update is resumed and the partition is removed";
        draft.normal(Reason::SkipCheck, note);
    }
    draft.memory.bind(set);
    draft.memory.settle_unchecked(wanted);
    // The last good revision is found anew from the pods when the gate comes back.
    draft.memory.good = None;
    draft.memory.partition = set.partition.filter(|_| draft.actions.is_empty());
    let is_rolled = slots.all_wanted() && set.is_seen();
    if !is_rolled {
        // The latch of RolledOut belongs to a revision that every pod carries.
        draft.memory.wanted = None;
    }
    draft.wake = slots.next_change();
    draft.finish(set, wanted, Some(Vec::new()), &Why::skip_check(is_rolled))
}

/// targetRef was changed: the set before it is let go first.
pub(crate) fn release_former<'a>(mut draft: Draft<'a>, former: &'a SetView) -> Plan {
    release(&mut draft, former);
    draft.wake_now();
    draft.unchanged()
}

/// The PhasedRollout goes. This always ends, also when the target is gone.
pub(crate) fn delete(mut draft: Draft) -> Plan {
    if !draft.observed.rollout.has_finalizer {
        return draft.unchanged();
    }
    let observed = draft.observed;
    let target = match &observed.target {
        Target::Found(set) => Some(set.as_ref()),
        Target::Missing => None,
    };
    for set in target.into_iter().chain(&observed.former_targets) {
        if claimed_by(set) == Some(draft.name()) {
            release(&mut draft, set);
        }
    }
    draft.act(Action::RemoveFinalizer);
    draft.unchanged()
}

/// Lets one set go: to the next PhasedRollout, held, or to the normal rolling update.
fn release(draft: &mut Draft, set: &SetView) {
    let observed = draft.observed;
    let mut annotations: BTreeMap<_, _> = names::OF_A_CLAIM.into_iter().map(|name| (name, None)).collect();
    if let Some((_, heir)) = rivals(observed, &set.name).next() {
        annotations.insert(names::CLAIM, Some(heir.to_owned()));
        annotations.remove(names::WRITTEN_PARTITION);
        annotations.remove(names::HOLD_SWITCH);
        draft.patch_set(set, NewPartition::Keep, annotations);
        draft.normal(
            Reason::Released,
            &format!("StatefulSet {} goes to PhasedRollout {heir}; the partition stays", set.name),
        );
        return;
    }
    let hold = match observed.rollout.spec.deletion_policy {
        Some(DeletionPolicy::Hold) => true,
        Some(DeletionPolicy::Release) => false,
        None => is_rolling(draft, set),
    };
    let (partition, note) = if hold {
        let partition = Partition::of(set).0;
        (
            NewPartition::Keep,
            format!(
                "StatefulSet {} is let go and keeps its partition {partition}; remove it to let pods roll",
                set.name
            ),
        )
    } else {
        (NewPartition::Remove, format!("StatefulSet {} is let go and its partition is removed", set.name))
    };
    draft.patch_set(set, partition, annotations);
    draft.normal(Reason::Released, &note);
    draft.tell(EventTarget::Set, Severity::Normal, Reason::Released, &note);
}

/// True if pods may still have to roll, or if that is not known.
fn is_rolling(draft: &Draft, set: &SetView) -> bool {
    let wanted = set.update_revision.as_deref().unwrap_or_default();
    let unseen = !set.is_seen();
    let is_known = draft.memory.set.as_ref().is_some_and(|(_, uid)| *uid == set.uid);
    // The pods that were read belong to the present target; those of a former one are not known.
    let has_pods = draft.observed.rollout.spec.target_ref == set.name;
    let pods_differ = || Slots::new(set, &draft.observed.pods, wanted, draft.now).off().next().is_some();
    let in_progress = is_known && !draft.memory.is_settled() && draft.memory.wanted.is_some();
    let exempt = set.annotations.get(names::HOLD_SWITCH).is_some_and(|switch| switch == "off");
    !exempt
        && (unseen
            || in_progress
            || set.current_revision != set.update_revision
            || Partition::of(set) == Partition::HOLD
            || (has_pods && pods_differ()))
}
