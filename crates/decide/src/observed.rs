//! What was seen: the input of a decision. Views hold only what decisions need; the operator fills them from the API server.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use sts_plus_api::{CheckRecord, PhasedRolloutSpec, PhasedRolloutStatus, Reason, names};

use crate::text::cut;

/// How much of a retry token is kept.
const RETRY_BYTES: usize = 64;

/// Everything that one decision looks at, read at about the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The PhasedRollout.
    pub rollout: RolloutView,
    /// Other PhasedRollouts of the namespace that have the same targetRef, or that of a former target, and are not being deleted.
    pub rivals: Vec<Rival>,
    /// The StatefulSet that targetRef names.
    pub target: Target,
    /// Other StatefulSets of the namespace whose claim annotation names this PhasedRollout.
    pub former_targets: Vec<SetView>,
    /// The pods that the target StatefulSet controls (controller ownerReference with its UID), in any order.
    pub pods: Vec<PodView>,
    /// What is wrong with the checks as configured, found without asking Prometheus.
    pub config: Vec<ConfigProblem>,
    /// Whether the API server itself keeps the hold.
    pub hold: HoldState,
    /// The try that was made just now because the last plan asked for it.
    pub tried: Option<Try>,
}

/// The kind of object that a rollout belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeper {
    /// A PhasedRollout.
    #[default]
    PhasedRollout,
    /// An ExtendedStatefulSet whose versions take each other's place in one StatefulSet.
    ExtendedStatefulSet,
}

impl SetView {
    /// Its controller has seen what is written there.
    pub(crate) fn is_seen(&self) -> bool {
        self.observed_generation >= self.generation
    }
}

impl Keeper {
    /// The annotation of the object that lets a failed revision be tried again.
    #[must_use]
    pub fn retry_annotation(self) -> &'static str {
        match self {
            Self::PhasedRollout => names::RETRY,
            Self::ExtendedStatefulSet => names::RETRY_VERSION,
        }
    }

    /// Its value, as it is kept: its beginning and end if it is long. An annotation may have 256 KiB.
    pub(crate) fn retry_given(self, annotations: &BTreeMap<String, String>) -> Option<String> {
        let given = annotations.get(self.retry_annotation())?;
        let end = given.ceil_char_boundary(given.len().saturating_sub(RETRY_BYTES / 2));
        Some(match given.get(end..) {
            Some(tail) if given.len() > RETRY_BYTES => cut(given, RETRY_BYTES / 2) + tail,
            _ => given.clone(),
        })
    }
}

/// As it is written in `kind`.
impl fmt::Display for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The PhasedRollout as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Creation time, which decides between rivals.
    pub created: Timestamp,
    /// True if a deletionTimestamp is set.
    pub deleting: bool,
    /// True if our finalizer is there.
    pub has_finalizer: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Spec, with the defaults of the schema.
    pub spec: PhasedRolloutSpec,
    /// Status as written last; default if there is none.
    pub status: PhasedRolloutStatus,
}

/// Another PhasedRollout on the same StatefulSet, or on one that waits to be let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Name.
    pub name: String,
    /// Its targetRef.
    pub target: String,
    /// Creation time.
    pub created: Timestamp,
}

/// The StatefulSet that targetRef names.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// It does not exist.
    Missing,
    /// It exists.
    Found(Box<SetView>),
}

/// A StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct SetView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`; 0 if absent.
    pub observed_generation: i64,
    /// When something other than the status was written last, in whole seconds, from managedFields.
    pub changed: Option<Timestamp>,
    /// True if a deletionTimestamp is set.
    pub deleting: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec.replicas`; 1 if absent.
    pub replicas: i32,
    /// `spec.ordinals.start`; 0 if absent.
    pub start: i32,
    /// `spec.updateStrategy.type`.
    pub strategy: Strategy,
    /// True if `spec.updateStrategy.rollingUpdate` is there.
    pub has_rolling_update: bool,
    /// `spec.updateStrategy.rollingUpdate.partition`.
    pub partition: Option<i32>,
    /// True if `spec.podManagementPolicy` is Parallel.
    pub parallel: bool,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// `status.currentRevision`.
    pub current_revision: Option<String>,
    /// `status.updateRevision`.
    pub update_revision: Option<String>,
    /// Kind and name of the controller ownerReference, if there is one.
    pub controller: Option<(String, String)>,
    /// The field manager that wrote the partition last and is not ours, from managedFields.
    pub partition_manager: Option<String>,
    /// Why its controller could not make pods, newest first.
    pub refused_pods: Vec<RefusedPod>,
    /// A pod that it does not own and that stands where it would make one.
    pub in_the_way: Option<Stray>,
}

/// A pod that has the name of one that a StatefulSet is to make, and is none of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Name of the pod.
    pub name: String,
    /// A clause that says why it is none, and what helps.
    pub words: String,
}

/// A pod that could not be created, from an event of the StatefulSet controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPod {
    /// Name of the pod.
    pub name: String,
    /// When that was first so.
    pub since: Timestamp,
    /// When that was last so.
    pub last: Timestamp,
    /// What the API server said.
    pub message: String,
}

/// `spec.updateStrategy.type` of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The only one that a partition can hold. Also if the type is absent.
    RollingUpdate,
    /// Anything else, as written.
    Other(String),
}

/// A pod of the target.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Ordinal: label `apps.kubernetes.io/pod-index`, else the suffix of the name.
    pub ordinal: i32,
    /// Label `controller-revision-hash`.
    pub revision: Option<String>,
    /// Creation time.
    pub created: Timestamp,
    /// True if a deletionTimestamp is set.
    pub deleting: bool,
    /// The deletionTimestamp: when its grace period ends.
    pub gone_by: Option<Timestamp>,
    /// True if the phase is Failed or Succeeded.
    pub finished: bool,
    /// Status of the Ready condition.
    pub ready: bool,
    /// lastTransitionTime of the Ready condition.
    pub ready_since: Option<Timestamp>,
    /// What keeps it from running, of the kinds of phased-rollout.md §6.
    pub problem: Option<Problem>,
    /// `spec.nodeName`.
    pub node: Option<String>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
    /// Label `fissile.cloudfoundry.org/version`.
    pub version: Option<i32>,
}

/// Why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Container name; empty if the pod is unschedulable.
    pub container: String,
    /// `CrashLoopBackOff`, `ImagePullBackOff`, … or `Unschedulable`.
    pub reason: String,
    /// The text that goes with it.
    pub message: String,
}

/// Something in the check configuration that cannot be used. It holds and never fails a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// [`Reason::InvalidQuery`], [`Reason::InvalidUrl`] or [`Reason::InvalidCredentials`].
    pub reason: Reason,
    /// A sentence that names the field and the cure.
    pub message: String,
}

/// Whether the API server itself keeps the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// Not found out yet.
    Unknown,
    /// A dry run showed it.
    Enforced,
    /// A dry run showed that it refuses changes that would roll pods unchecked: a fix too, unless the partition is raised.
    Refusing,
    /// It does not; reason and sentence.
    NotEnforced(Reason, String),
}

/// One try: every query was asked once.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    /// The request that this answers, as the plan gave it.
    pub request: CheckKey,
    /// When the last answer came.
    pub time: Timestamp,
    /// One record for each query.
    pub records: Vec<CheckRecord>,
    /// Configuration problems found on the way (a missing Secret, an empty variable).
    pub config: Vec<ConfigProblem>,
    /// Warnings for events, such as a Secret with a token and a pair.
    pub warnings: Vec<(Reason, String)>,
}

/// Identifies a check cycle, so that an answer is never counted for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckKey {
    /// The target revision.
    pub revision: String,
    /// Pod index of the cycle.
    pub index: i32,
    /// The step.
    pub step: sts_plus_api::Step,
}
