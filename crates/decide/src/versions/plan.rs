//! What to do next with the versions of an ExtendedStatefulSet.

use jiff::Timestamp;
use sts_plus_api::ExtendedStatefulSetStatus;

use crate::plan::{Action, CheckRequest, Event};

/// The outcome of a decision. As the plan of a rollout: a try that is due comes alone; the actions are carried out in their order,
/// then the events are recorded, then the status is written.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionsPlan {
    /// A try is due. If set, there is nothing else.
    pub check: Option<CheckRequest>,
    /// In this order. At most one of them removes pods of the version that is in charge. Those of a try that failed go in all zones at once:
    /// they may be what does the harm, and nobody is promised that they stay.
    pub actions: Vec<VersionAction>,
    /// The status as it should read once the actions are done.
    pub status: ExtendedStatefulSetStatus,
    /// In this order.
    pub events: Vec<Event>,
    /// When to decide again if nothing happens before.
    pub wake: Option<Timestamp>,
}

/// One write. Each is safe when it happens twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionAction {
    /// Put our finalizer on the ExtendedStatefulSet.
    AddFinalizer,
    /// Take it away: the ExtendedStatefulSet may go.
    RemoveFinalizer,
    /// Keep `spec.template`, which is that of the version.
    Remember {
        /// Version.
        version: i32,
    },
    /// Drop the kept template of the version.
    Forget {
        /// Version.
        version: i32,
    },
    /// Make a StatefulSet from the template of the version.
    Create {
        /// Name.
        name: String,
        /// Zone.
        zone: Option<String>,
        /// Version.
        version: i32,
        /// Pods.
        replicas: i32,
    },
    /// Write everything of ours anew, from the template of the version, if the StatefulSet is as it was read.
    Apply {
        /// Name.
        name: String,
        /// Zone.
        zone: Option<String>,
        /// Version.
        version: i32,
        /// Pods.
        replicas: i32,
        /// The partition that goes with it, in the same write.
        partition: i32,
    },
    /// InPlace: a step of the rollout engine.
    Roll(Action),
    /// Change the number of pods, if UID and generation are these: more or fewer are right for what was seen.
    Scale {
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// `metadata.generation`.
        generation: i64,
        /// Pods.
        replicas: i32,
    },
    /// Set or remove the stale mark, if the UID is this one.
    Mark {
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// Why it is stale; missing: it is not.
        stale: Option<String>,
    },
    /// Delete a StatefulSet that has no pods any more, if the UID is this one.
    Delete {
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// Let the selector of a Service follow a version, if it is as it was read.
    Select {
        /// Name of the Service.
        service: String,
        /// The version that its selector names now.
        before: Option<String>,
        /// The version.
        version: i32,
    },
    /// Take the version out of the selector of a Service, and our mark off it, if it carries our mark.
    Free {
        /// Name of the Service.
        service: String,
    },
    /// Put our owner reference on a StatefulSet, if the UID is this one and nobody else controls it.
    Adopt {
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// Take our owner reference off every StatefulSet that it controls, also one that is no version any more: they stay when it goes.
    Orphan,
}
