//! The one place that computes a partition. The hold is lowered for one reason only: a step of the engine asks for one more pod.

use std::collections::BTreeMap;

use sts_plus_api::names;

use crate::{
    observed::SetView,
    plan::{Action, NewPartition},
    slots::Slots,
    units::{Partition, PodIndex},
    why::Motion,
};

/// What a decision asks of the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// As it is.
    Keep,
    /// Nothing is rolled, and what is created starts on the current revision.
    Full,
    /// The pod at this index is the next one. The only way down.
    Open(PodIndex),
    /// All pods are at the revision, and it is the current one.
    Rest,
    /// Somebody else lowered it: back to this.
    PutBack(Partition),
    /// A person allowed what is there: it is taken over as our own.
    TakeOver,
    /// There are no pods: all that come start on the revision.
    Empty,
}

/// What else bears upon it.
pub(crate) struct Circumstances {
    pub(crate) motion: Motion,
    /// The wanted revision was rejected.
    pub(crate) is_rejected: bool,
    pub(crate) is_settled: bool,
    /// The API server refuses a template change under a partition that opens something.
    pub(crate) refuses_templates: bool,
}

/// The partition to write, if it has to be written.
pub(crate) fn partition(wish: Wish, slots: &Slots, around: &Circumstances) -> Option<Partition> {
    let is = slots.partition();
    match wish {
        Wish::Keep => must_be_full(slots, around).then_some(Partition::HOLD).filter(|hold| *hold != is),
        Wish::Full => Some(Partition::HOLD),
        Wish::Open(index) => Some(Partition::opening(index)),
        Wish::Rest => Some(Partition(slots.replicas())),
        Wish::PutBack(before) => Some(before),
        Wish::TakeOver => Some(is),
        Wish::Empty => Some(Partition(0)),
    }
}

/// While stalled, so that a scale-up starts pods on the current revision; and where a fix would be refused as well, while nothing moves. A
/// pod on its way is waited for: under the hold it would come back at the old revision.
fn must_be_full(slots: &Slots, around: &Circumstances) -> bool {
    let is_replacing = slots.being_replaced().is_some();
    let is_on_its_way = slots.in_flight().is_some();
    // What is open for a rejected revision a person has opened.
    let may_close = !(is_on_its_way || around.is_rejected && is_replacing);
    let is_pending = !slots.has_flipped() && may_close && !around.is_settled;
    // One that came over zero replicas: all new pods start on it, and the hold is for the template that comes next.
    let came_over_zero = around.is_rejected && slots.has_flipped() && slots.off().next().is_none();
    let is_stalled = around.motion == Motion::Stalled && (is_pending || came_over_zero);
    let opens = slots.partition().0 < slots.replicas();
    let nothing_moves = matches!(around.motion, Motion::Held | Motion::Stalled) && !is_on_its_way && !is_replacing;
    is_stalled || (around.refuses_templates && nothing_moves && opens)
}

/// One patch of the set: the partition for `revision`, whose it is, and the record of it in the same write.
pub(crate) fn patch(set: &SetView, owner: &str, revision: &str, partition: Partition) -> Action {
    Action::PatchSet {
        set: set.name.clone(),
        uid: set.uid.clone(),
        generation: set.generation,
        partition: NewPartition::Set(partition.0),
        annotations: BTreeMap::from([
            (names::CLAIM, Some(owner.to_owned())),
            (names::WRITTEN_PARTITION, Some(format!("{revision}/{}", partition.0))),
            (names::HOLD_SWITCH, None),
            (names::REFUSED_PARTITION, None),
            (names::ALLOW_PARTITION, None),
        ]),
    }
}

/// The partition that the operator wrote last, and for which revision.
pub(crate) fn written(set: &SetView) -> Option<(&str, Partition)> {
    let (revision, partition) = set.annotations.get(names::WRITTEN_PARTITION)?.rsplit_once('/')?;
    Some((revision, Partition(partition.parse().ok()?)))
}

/// The index that was opened last for the wanted revision, if the partition still stands there.
pub(crate) fn opened(slots: &Slots) -> Option<PodIndex> {
    let (revision, partition) = written(slots.set)?;
    let is_index = (0..slots.replicas()).contains(&partition.0);
    (is_index && revision == slots.wanted && partition == slots.partition()).then_some(PodIndex(partition.0))
}

/// The partition that a person allows with the break-glass annotation (admission-hold.md).
pub(crate) fn allowed(set: &SetView) -> Option<Partition> {
    set.annotations.get(names::ALLOW_PARTITION)?.parse().ok().map(Partition)
}

/// The partition that another write of the set has to carry: as it is, or as the operator wrote it last if somebody else lowered it
/// without a person's permission.
pub(crate) fn kept(set: &SetView) -> i32 {
    let Some(seen) = set.partition else { return names::HOLD };
    let is_allowed = allowed(set) == Some(Partition(seen));
    let last = written(set).filter(|_| !is_allowed).map_or(seen, |(_, partition)| partition.0);
    seen.max(last)
}
