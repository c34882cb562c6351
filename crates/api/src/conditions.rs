//! Conditions and reasons: one table. A reason stands for one state, so that `kubectl describe` and alerts can tell states apart.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// The condition types of a PhasedRollout. `Ready`, `Reconciling` and `Stalled` follow kstatus: the last two are never both true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Every pod carries the wanted revision, is available, and the gate is content or was not asked.
    Ready,
    /// The operator works on it or waits for something that comes by itself.
    Reconciling,
    /// Nothing moves until a person does something, or until failing checks pass.
    Stalled,
    /// The partition keeps pods from rolling, and why.
    Held,
    /// The API server itself keeps the hold (admission policies), shown by a dry run.
    HoldEnforced,
    /// The StatefulSet exists, is claimed, and has a strategy that can be held.
    TargetAccepted,
    /// Queries, variables and credentials are usable.
    ChecksValid,
    /// Every pod carries the target revision and the checks of this revision have passed. A latch per revision.
    RolledOut,
}

impl ConditionType {
    /// All types, in the order in which they are written.
    pub const ALL: [Self; 8] = [
        Self::Ready,
        Self::Reconciling,
        Self::Stalled,
        Self::Held,
        Self::HoldEnforced,
        Self::TargetAccepted,
        Self::ChecksValid,
        Self::RolledOut,
    ];
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// True if a condition of this type is there, with status `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

/// The condition types of an ExtendedStatefulSet. The first three are as those of a PhasedRollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionCondition {
    /// One version, with all its pods available, and no other is wanted.
    Ready,
    /// The operator works on it or waits for something that comes by itself.
    Reconciling,
    /// Nothing moves until a person does something.
    Stalled,
    /// The version that is wanted failed.
    Stale,
    /// The API server accepts the template.
    TemplateValid,
    /// The number of replicas was brought to the nearest allowed one.
    ScalingLimited,
    /// The number of replicas is written, so `/scale` and autoscalers work.
    Scalable,
    /// Some zone is carried by no node.
    ZoneUnschedulable,
    /// What is written and has no effect in this release.
    WithoutEffect,
    /// The Services follow the versions. Missing: none is named.
    ServicesFollow,
}

impl VersionCondition {
    /// All types, in the order in which they are written.
    pub const ALL: [Self; 10] = [
        Self::Ready,
        Self::Reconciling,
        Self::Stalled,
        Self::Stale,
        Self::TemplateValid,
        Self::ScalingLimited,
        Self::Scalable,
        Self::ZoneUnschedulable,
        Self::WithoutEffect,
        Self::ServicesFollow,
    ];
}

impl fmt::Display for VersionCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The reasons of conditions and events, in `CamelCase` as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum Reason {
    /// Nothing is pending.
    AtRest,
    /// Every pod was at the revision when the set was claimed or released; it was not checked by this operator.
    NotVerified,
    /// The rollout is complete and its final checks passed.
    Completed,
    /// The set has no replicas, so nothing was rolled and nothing was checked.
    NoPods,
    /// A new revision was seen and the set is held.
    RolloutStarted,
    /// The operator waits for a pod that is being rolled.
    PodRolling,
    /// All pods of the step are at the revision; an initial delay or checks are in progress.
    Checking,
    /// Checks before the first pod.
    Preflight,
    /// Checks after the last pod.
    FinalChecks,
    /// The partition was lowered to roll one more pod.
    PartitionLowered,
    /// Pods of a failed revision are being replaced without the gate.
    Repairing,
    /// A broken pod was deleted so that it is made anew.
    PodDeleted,
    /// Pods go back to the last good revision.
    RollingBack,
    /// All pods are back on the last good revision.
    RolledBack,
    /// maxTries was used up without enough consecutive passes.
    ChecksFailed,
    /// maxTries was used up, and onFailure Proceed went on all the same.
    ChecksIgnored,
    /// The failed revision is on the list of rejected revisions.
    RevisionRejected,
    /// A rolled pod did not become healthy in the time that the checks have.
    PodBroken,
    /// A pod stands in the way and the operator may not remove it.
    BlockedByPod,
    /// Some pod is missing, not available, or terminating.
    PodsNotAvailable,
    /// spec.paused is true.
    Paused,
    /// pauseBefore waits for the approve annotation.
    AwaitingApproval,
    /// No progress within progressDeadlineSeconds.
    ProgressDeadlineExceeded,
    /// Prometheus could not be asked, or gave an error.
    PrometheusUnreachable,
    /// A series is missing that the check needs (onMissingMetric Hold).
    MetricMissing,
    /// A check passed on a metric that does not exist.
    PassedOnMissingMetric,
    /// Somebody else lowered the partition.
    PartitionDrift,
    /// A person allowed a partition with the break-glass annotation.
    PartitionAllowed,
    /// The status was edited by hand; what it says is not believed and the pods are checked anew.
    StatusEdited,
    /// The retry annotation was set while nothing had failed.
    NothingToRetry,
    /// Pods were started on an unapproved revision.
    PodsSlipped,
    /// The StatefulSet controller has not yet seen the latest change.
    AwaitingController,
    /// The StatefulSet does not exist.
    TargetNotFound,
    /// The StatefulSet is claimed.
    Claimed,
    /// The StatefulSet was let go.
    Released,
    /// Another PhasedRollout owns the StatefulSet.
    Conflict,
    /// The update strategy of the StatefulSet is not RollingUpdate.
    UnsupportedStrategy,
    /// The StatefulSet is controlled by an object that has its own gate.
    ControlledElsewhere,
    /// The StatefulSet is being deleted.
    TargetTerminating,
    /// skipCheck: the normal rolling update is in force.
    SkipCheck,
    /// An expression is no valid PromQL, or uses an unknown or empty variable.
    InvalidQuery,
    /// A URL cannot be used.
    InvalidUrl,
    /// A Secret or a key in it is missing.
    InvalidCredentials,
    /// Token and pair are both in the Secret; the token is used.
    TokenWins,
    /// The queries are usable.
    Valid,
    /// A dry run showed that the admission policies hold this set.
    Enforced,
    /// A dry run showed that an admission policy refuses whatever would roll pods of this set unchecked.
    RefusedByPolicy,
    /// The API server does not serve `MutatingAdmissionPolicy`.
    PolicyNotServed,
    /// The policy or its binding is not installed, or did not act in a dry run.
    PolicyNotEffective,
    /// It has not been found out yet.
    Unknown,
    /// The API server refused the operator a request.
    Forbidden,

    // ExtendedStatefulSet
    /// Pods of the version that is in charge are not all there yet.
    Progressing,
    /// An upgrade to a new version began.
    UpgradeStarted,
    /// An upgrade waits until all pods of the running version are available.
    RunningVersionNotReady,
    /// The canaries of a new version are awaited.
    CanaryStarting,
    /// The canaries of a new version are checked.
    CanaryChecking,
    /// The pods of a new version are started.
    VersionRolling,
    /// The new version is in charge.
    Promoted,
    /// The new version is in charge, and nothing of it was verified: there are no pods.
    PromotedUnverified,
    /// Canaries failed, and others are tried.
    CanaryRetried,
    /// The new version failed for good.
    VersionStale,
    /// The template is back at the running version; the newer one is removed.
    UpgradeAborted,
    /// A version that is not needed any more is removed.
    VersionRemoved,
    /// No version failed.
    NoStaleVersion,
    /// The API server accepts the template.
    TemplateAccepted,
    /// The API server refuses the template.
    TemplateRefused,
    /// Not supported in this release.
    NotSupported,
    /// An object of that name belongs to somebody else.
    NameConflict,
    /// The name of the next version would be too long.
    NameTooLong,
    /// The number of replicas is written.
    CountWritten,
    /// The number of replicas is allowed as written.
    WithinLimits,
    /// The number of replicas was brought to the nearest allowed one.
    Clamped,
    /// The number of replicas is not allowed.
    OutsideLimits,
    /// A child was changed by somebody else and is put back.
    ChildDrift,
    /// A child that belonged to nobody was taken in.
    ChildAdopted,
    /// A child was deleted by somebody else.
    ChildGone,
    /// No node carries the zone.
    ZoneUnschedulable,
    /// A Service does not exist, or somebody else selects the version in it.
    ServiceUnusable,
    /// The selector of a Service follows another version now.
    ServiceSwitched,
    /// No field names the Service any more, and the version went from its selector.
    ServiceReleased,
    /// It has no effect in this release.
    WithoutEffect,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// As it is written.
impl FromStr for Reason {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text: StrDeserializer<'_, Error> = text.into_deserializer();
        Self::deserialize(text)
    }
}
