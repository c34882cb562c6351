//! A set without pods. Nothing is rolled and nothing is checked there, and no hold reaches through it: Kubernetes makes the pending template
//! the current one, and a scale-up starts all pods on it (native-statefulset B12.12).

use sts_plus_api::{Phase, PhasedRolloutStatus, Reason};

use super::{
    draft::Draft,
    facts::Facts,
    memory,
    report::{Motion, Stand},
};
use crate::{Keeper, Plan, units::Partition};

/// Nothing but telling can be done.
pub(crate) fn no_pods<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    // The operator writes the template of an ExtendedStatefulSet itself, before there are pods: that of the version in charge, which is the
    // last good one from now on, whatever the first pods carry. One may still leave, or start on what a hand has written.
    let is_plain = draft.observed.rollout.keeper == Keeper::PhasedRollout;
    let good = draft.status.previous_revision.take().filter(|_| is_plain);
    memory::settle_unchecked(&mut draft.status, facts.wanted);
    if is_plain || !facts.has_flipped() {
        draft.status.previous_revision.clone_from(&good);
    }
    if facts.has_flipped() && facts.partition() != Partition(0) {
        draft.set_partition(facts.set, facts.wanted, Partition(0));
    }
    let set = &facts.set.name;
    let danger = danger(&draft, facts, good.as_deref()).filter(|_| is_plain && facts.has_flipped());
    let message = match &danger {
        Some(danger) => format!("StatefulSet {set} has no pods left: {danger}"),
        None => format!("StatefulSet {set} has no replicas; nothing was rolled and nothing was checked"),
    };
    let stand = Stand::new(Motion::Rest, Phase::Idle, Reason::NoPods, message);
    if danger.is_some() && draft.observed.rollout.status.message != stand.message {
        draft.warn(stand.reason, &stand.message);
    }
    draft.finish(facts, &stand)
}

/// What a scale-up would do that no check has allowed, and what a person can do before it.
fn danger(draft: &Draft, facts: &Facts, good: Option<&str>) -> Option<String> {
    let (wanted, status) = (facts.wanted, &draft.status);
    let good = good.filter(|good| *good != wanted);
    let what = if memory::is_rejected(status, wanted) {
        "was rejected"
    } else if good.is_some() && status.verified_revision.as_deref() != Some(wanted) {
        "has not passed its checks"
    } else {
        return None;
    };
    let cure =
        good.map_or_else(|| "write another template".to_owned(), |good| format!("put the template of {good} back"));
    Some(format!("Kubernetes starts all pods on {wanted}, which {what}, when it is scaled up; {cure} before that"))
}

/// There are pods again. What they carry is the last good revision from now on, unless it was rejected: the way out of that is a fix or
/// a revert, and neither may be held up by pods that nobody wants.
pub(crate) fn forget_good(status: &mut PhasedRolloutStatus) {
    let is_kept = memory::rejects_target(status);
    if memory::is_settled(status) && status.previous_revision != status.target_revision && !is_kept {
        status.previous_revision = None;
    }
}
