//! From the first look at a PhasedRollout to its end, around the rollout itself: the finalizer, which set may be taken, the
//! switch to the normal rolling update, and letting go.

use std::collections::BTreeMap;

use sts_plus_api::{DeletionPolicy, Phase, Reason, names};

use super::{
    draft::{self, Draft},
    facts::{self, Facts},
    memory,
    report::{Motion, Stand},
};
use crate::{Action, EventTarget, NewPartition, Observed, Plan, SetView, Severity, Strategy, Target, units::Partition};

/// The finalizer comes first: nothing is held before it is sure that it can be let go again.
pub(crate) fn guard(mut draft: Draft) -> Plan {
    draft.act(Action::AddFinalizer);
    draft.wake_now();
    draft.unchanged()
}

/// The set that may be taken, or why none may.
pub(crate) fn accept(observed: &Observed) -> Result<&SetView, Stand> {
    let name = &observed.rollout.spec.target_ref;
    let refuse = |phase, reason, message: String| Err(Stand::new(Motion::Refused, phase, reason, message));
    if let Some(winner) = older_rival(observed) {
        return refuse(
            Phase::Blocked,
            Reason::Conflict,
            format!(
                "spec.targetRef: StatefulSet {name} belongs to the older PhasedRollout {winner}; delete one of the two"
            ),
        );
    }
    let Target::Found(set) = &observed.target else {
        return refuse(
            Phase::Blocked,
            Reason::TargetNotFound,
            format!(
                "spec.targetRef: StatefulSet {name} does not exist in this namespace; it is picked up when it appears"
            ),
        );
    };
    if set.deleting {
        return refuse(Phase::Blocked, Reason::TargetTerminating, format!("StatefulSet {name} is being deleted"));
    }
    if let Some((kind, owner)) = set.controller.as_ref().filter(|(kind, _)| kind == "ExtendedStatefulSet") {
        return refuse(
            Phase::Blocked,
            Reason::ControlledElsewhere,
            format!(
                "spec.targetRef: {kind} {owner} controls StatefulSet {name}; put the check into its updateStrategy.check"
            ),
        );
    }
    if is_released(set) && claimed_by(set) != Some(&observed.rollout.name) {
        return refuse(
            Phase::Blocked,
            Reason::Released,
            format!(
                "StatefulSet {name} was let go by the annotation {} and has {}; remove the annotation, and it is held again",
                names::RELEASE,
                set.partition
                    .map_or_else(|| "no partition".to_owned(), |p| format!("partition {p} until you remove it"))
            ),
        );
    }
    match &set.strategy {
        Strategy::RollingUpdate => Ok(set),
        Strategy::Other(kind) => refuse(
            Phase::Blocked,
            Reason::UnsupportedStrategy,
            format!(
                "StatefulSet {name} has spec.updateStrategy.type {kind}, which no partition can hold; set it to RollingUpdate"
            ),
        ),
    }
}

fn older_rival(observed: &Observed) -> Option<&str> {
    let me = (observed.rollout.created, observed.rollout.name.as_str());
    let first = observed.rivals.iter().map(|rival| (rival.created, rival.name.as_str())).min()?;
    (first < me).then_some(first.1)
}

/// skipCheck: the normal rolling update is resumed once; afterwards the partition is the user's.
pub(crate) fn skip<'a>(mut draft: Draft<'a>, set: &'a SetView) -> Plan {
    let wanted = set.update_revision.as_deref().unwrap_or_default();
    let facts = Facts::new(set, &draft.observed.pods, wanted, draft.now);
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
    if draft.has_actions() || !draft::was_ready_for(&draft.observed.rollout.status.conditions, Reason::SkipCheck) {
        let note = "spec.skipCheck: the normal rolling update is resumed and the partition is removed";
        draft.normal(Reason::SkipCheck, note);
    }
    memory::bind(&mut draft.status, set);
    memory::settle_unchecked(&mut draft.status, wanted);
    // The last good revision is found anew from the pods when the gate comes back.
    draft.status.previous_revision = None;
    let rolled = facts.off().next().is_none() && set.observed_generation >= set.generation;
    let (motion, phase) = if rolled { (Motion::Rest, Phase::Idle) } else { (Motion::Moving, Phase::Rolling) };
    if !rolled {
        // The latch of RolledOut belongs to a revision that every pod carries.
        draft.status.target_revision = None;
    }
    let stand = Stand::new(
        motion,
        phase,
        Reason::SkipCheck,
        "spec.skipCheck is true: the normal rolling update is in force, without checks",
    );
    draft.finish(&facts, &stand)
}

/// True if a person has taken the set back.
pub(crate) fn is_released(set: &SetView) -> bool {
    set.annotations.get(names::RELEASE).is_some_and(|release| release == "true")
}

/// The PhasedRollout that a set says it belongs to.
pub(crate) fn claimed_by(set: &SetView) -> Option<&str> {
    set.annotations.get(names::CLAIM).map(String::as_str)
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
    let is_target = observed.rollout.spec.target_ref == set.name;
    if let Some(heir) = observed.rivals.iter().filter(|_| is_target).min_by_key(|rival| (rival.created, &rival.name)) {
        annotations.insert(names::CLAIM, Some(heir.name.clone()));
        annotations.remove(names::WRITTEN_PARTITION);
        annotations.remove(names::HOLD_SWITCH);
        draft.patch_set(set, NewPartition::Keep, annotations);
        draft.normal(
            Reason::Released,
            &format!("StatefulSet {} goes to PhasedRollout {}; the partition stays", set.name, heir.name),
        );
        return;
    }
    let hold = match observed.rollout.spec.deletion_policy {
        Some(DeletionPolicy::Hold) => true,
        Some(DeletionPolicy::Release) => false,
        None => is_rolling(draft, set),
    };
    let (partition, note) = if hold {
        let partition = facts::partition(set).0;
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
    let unseen = set.observed_generation < set.generation;
    let is_known = draft.status.target_uid.as_deref() == Some(&set.uid);
    // The pods that were read belong to the present target; those of a former one are not known.
    let has_pods = draft.observed.rollout.spec.target_ref == set.name;
    let pods_differ = || {
        let facts = Facts::new(set, &draft.observed.pods, wanted, draft.now);
        facts.off().next().is_some()
    };
    let in_progress = is_known && !memory::is_settled(&draft.status) && draft.status.target_revision.is_some();
    let exempt = set.annotations.get(names::HOLD_SWITCH).is_some_and(|switch| switch == "off");
    !exempt
        && (unseen
            || in_progress
            || set.current_revision != set.update_revision
            || facts::partition(set) == Partition::HOLD
            || (has_pods && pods_differ()))
}
