//! What was seen of an ExtendedStatefulSet: the input of a decision.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{ExtendedStatefulSetSpec, ExtendedStatefulSetStatus};

use crate::observed::{ConfigProblem, PodView, RefusedPod, SetView, Try};

/// Everything that one decision looks at, read at about the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionsObserved {
    /// The ExtendedStatefulSet.
    pub owner: OwnerView,
    /// What its template comes to.
    pub template: TemplateView,
    /// The StatefulSets that it controls, in any order.
    pub children: Vec<ChildView>,
    /// Versions whose templates are kept, with their digests.
    pub kept: BTreeMap<i32, String>,
    /// StatefulSets that carry its marks and that nobody controls: it was deleted and they stayed.
    pub orphans: Vec<OrphanView>,
    /// Pods that carry its marks, and that no StatefulSet controls: theirs was deleted with orphan, and its version is not wanted any more.
    pub abandoned: Vec<String>,
    /// Names of StatefulSets that are in the way: a child would have this name, and it is not one of ours.
    pub foreign: Vec<String>,
    /// The Service of activeService, if one is named.
    pub active: Option<ServiceView>,
    /// The Service of previewService, if one is named.
    pub preview: Option<ServiceView>,
    /// Services of the status that no field names any more.
    pub former: Vec<ServiceView>,
    /// True if its StatefulSets stay when it goes: it is deleted so, or its definition or the operator goes.
    pub keeps_children: bool,
    /// False if the API server cannot fill in a missing number of replicas; looked at only where it is missing.
    pub serves_policies: bool,
    /// What is wrong with the checks as configured, found without asking Prometheus.
    pub config: Vec<ConfigProblem>,
    /// Zones that no node carries.
    pub empty_zones: Vec<String>,
    /// The try that was made just now because the last plan asked for it.
    pub tried: Option<Try>,
}

/// The ExtendedStatefulSet as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// True if a deletionTimestamp is set.
    pub deleting: bool,
    /// True if it has our finalizer.
    pub has_finalizer: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Spec, with the defaults of the schema.
    pub spec: ExtendedStatefulSetSpec,
    /// Status as written last; default if there is none.
    pub status: ExtendedStatefulSetStatus,
}

/// The template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateView {
    /// Digest of what makes a version: pod template and what cannot be changed in place. That of the version which it comes to, if it is
    /// written in another way only.
    pub hash: String,
    /// Digest of the same as it is written.
    pub written: String,
    /// Digest of what can be changed in place.
    pub settings: String,
    /// `minReadySeconds`.
    pub min_ready_seconds: i32,
    /// True if it has volumeClaimTemplates.
    pub has_claims: bool,
    /// Why the API server refuses it, in its own words.
    pub problem: Option<String>,
}

/// A StatefulSet of a version.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Its zone.
    pub zone: Option<String>,
    /// Its version.
    pub version: i32,
    /// Digest of what makes it a version.
    pub hash: String,
    /// Digest of what can be changed in place, as it was written.
    pub settings: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// True if a deletionTimestamp is set.
    pub deleting: bool,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.minReadySeconds`.
    pub min_ready_seconds: i32,
    /// The selector of its pods.
    pub selector: String,
    /// Why it is stale, if it is marked so.
    pub stale: Option<String>,
    /// Its pods.
    pub pods: Vec<PodView>,
    /// The first pod that its controller could not make.
    pub refused: Option<RefusedPod>,
    /// When its spec was changed last.
    pub changed: Option<Timestamp>,
    /// A pod that is not its own and has the name of the next one that it would make, and the cure.
    pub in_the_way: Option<String>,
    /// InPlace: a pod that says another version than its revision, and the cure.
    pub mislabelled: Option<String>,
    /// InPlace: what the rollout engine looks at.
    pub set: Option<Box<SetView>>,
}

/// A StatefulSet of a version that belongs to nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrphanView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A Service whose selector follows a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// Name.
    pub name: String,
    /// False if it does not exist.
    pub exists: bool,
    /// The version that its selector names, as written.
    pub version: Option<String>,
    /// True if it carries our mark: the selector is ours to write.
    pub is_ours: bool,
    /// True if somebody else wrote that version.
    pub is_foreign: bool,
}
