//! What to do next: the output of a decision. The operator carries out the actions in their order, then records the events, then
//! writes the status if it differs from the one it read, and comes back at `wake`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{PhasedRolloutStatus, Reason};

use crate::{observed::CheckKey, text::plain};

const NOTE_BYTES: usize = 1000;

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// A try is due. If set, there are no actions: make the try, observe again, decide again with its answers.
    pub check: Option<CheckRequest>,
    /// In this order; at most one of them can disturb pods. If one fails, the rest and the status are not written.
    pub actions: Vec<Action>,
    /// The status as it should read once the actions are done.
    pub status: PhasedRolloutStatus,
    /// In this order, after the actions and before the status is written: what is lost in a crash is decided again.
    pub events: Vec<Event>,
    /// When to decide again if nothing happens before. Missing: only when something changes (and at the periodic wake-up).
    pub wake: Option<Timestamp>,
}

/// A try that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRequest {
    /// To be given back in the answer.
    pub key: CheckKey,
    /// Values for `${…}` in expressions, by variable name. A variable that has no value now is missing.
    pub variables: BTreeMap<&'static str, String>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Add our finalizer to the PhasedRollout.
    AddFinalizer,
    /// Remove our finalizer from the PhasedRollout; it goes. Nothing else can be written to it afterwards.
    RemoveFinalizer,
    /// Remove an annotation of the PhasedRollout.
    ConsumeAnnotation(&'static str),
    /// One patch of a StatefulSet, guarded by tests of its UID and generation: a stale one is refused (422).
    PatchSet {
        /// Name of the StatefulSet.
        set: String,
        /// Its UID.
        uid: String,
        /// Its generation as it was read.
        generation: i64,
        /// The partition to write.
        partition: NewPartition,
        /// Annotations to set (`Some`) or to remove (`None`). A removal of one that is absent does nothing.
        annotations: BTreeMap<&'static str, Option<String>>,
    },
    /// Delete a pod, with its UID as precondition.
    DeletePod {
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
}

/// What a patch of a StatefulSet does with the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewPartition {
    /// It is not part of the patch.
    Keep,
    /// It is set.
    Set(i32),
    /// It is removed.
    Remove,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// On which object.
    pub on: EventTarget,
    /// Normal or Warning.
    pub severity: Severity,
    /// Its reason.
    pub reason: Reason,
    /// Its note: at most 1 kB.
    pub note: String,
}

impl Event {
    /// The note is cut where it is too long.
    pub(crate) fn new(on: EventTarget, severity: Severity, reason: Reason, note: &str) -> Self {
        Self { on, severity, reason, note: plain(note, NOTE_BYTES) }
    }
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// The PhasedRollout.
    Rollout,
    /// The target StatefulSet.
    Set,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something that belongs to a good rollout.
    Normal,
    /// Something that a person should look at.
    Warning,
}
