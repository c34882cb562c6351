//! A set without pods. Nothing is rolled and nothing is checked there, and no hold reaches through it: Kubernetes makes the pending template
//! the current one, and a scale-up starts all pods on it (native-statefulset B12.12).

use crate::{
    hold::Wish,
    roll::{memory::Memory, round::Round},
    units::Partition,
    why::Why,
};

/// Nothing but telling can be done.
pub(super) fn no_pods(round: &mut Round) -> Why {
    let wanted = round.slots.wanted;
    // The operator writes the template of an ExtendedStatefulSet itself, before there are pods: that of the active version, which is the
    // last good one from now on, whatever the first pods carry. One may still leave, or start on what a hand has written.
    let is_plain = !round.policy.writes_template;
    let has_flipped = round.slots.has_flipped();
    let good = round.memory.good.take().filter(|_| is_plain);
    round.memory.settle_unchecked(wanted);
    if is_plain || !has_flipped {
        round.memory.good.clone_from(&good);
    }
    round.checks.to_mut().clear();
    if has_flipped && round.slots.partition() != Partition(0) {
        round.wish = Wish::Empty;
    }
    let danger = danger(&round.memory, wanted, good.as_deref()).filter(|_| is_plain && has_flipped);
    Why::no_pods(&round.slots.set.name, danger.as_deref())
}

/// What a scale-up would do that no check has allowed, and what a person can do before it.
fn danger(memory: &Memory, wanted: &str, good: Option<&str>) -> Option<String> {
    let good = good.filter(|good| *good != wanted);
    let what = if memory.is_rejected(wanted) {
        "was rejected"
    } else if good.is_some() && memory.verified.as_deref() != Some(wanted) {
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
pub(super) fn forget_good(memory: &mut Memory) {
    let is_kept = memory.wanted.as_ref().is_some_and(|wanted| memory.is_rejected(wanted));
    if memory.is_settled() && memory.good != memory.wanted && !is_kept {
        memory.good = None;
    }
}
