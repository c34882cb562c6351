//! The status of an ExtendedStatefulSet: what a person reads and what the operator needs to go on after a restart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::phased_rollout::Conditions;
use crate::status::{CheckRecord, Current, PhasedRolloutStatus, without_defaults};

/// What the operator saw and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct ExtendedStatefulSetStatus {
    /// `metadata.generation` of the ExtendedStatefulSet that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word.
    pub phase: VersionPhase,
    /// One sentence.
    pub message: String,
    /// Pods of the version that is in charge; with zones that have as many each, those of the first zone.
    pub replicas: i32,
    /// Pods of the version that is in charge that are Ready.
    pub ready_replicas: i32,
    /// `readyReplicas/wanted`, over all zones, for the printer column.
    pub ready: String,
    /// The selector of the pods that `replicas` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The version that is in charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<i32>,
    /// The version that is to take its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_version: Option<i32>,
    /// The highest number that was ever used. No number is used twice.
    pub last_version: i32,
    /// The versions that exist, and whether at least one pod of each is Ready.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, bool>,
    /// More about each of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<VersionDetail>,
    /// If the template is written in another way than that of a version, and comes to the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<Rewritten>,
    /// The upgrade that is going on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// InPlace: where the rolling update of each StatefulSet stands, by name. As the status of a PhasedRollout.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rollouts: BTreeMap<String, PhasedRolloutStatus>,
    /// When the version that is in charge took over from another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion_time: Option<Timestamp>,
    /// The value of the retry annotation that was honoured last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// The Services whose selectors may name a version, noted before that is written: they are let go when no field names them any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// The last 5 verdicts, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub checks: Vec<CheckRecord>,
    /// See the reference for types and reasons.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Conditions,
}

impl ExtendedStatefulSetStatus {
    /// What is noted of the StatefulSet `name`; in place that is once for each version.
    pub fn sets_named<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s VersionSet> {
        self.details.iter().flat_map(|detail| &detail.sets).filter(move |set| set.name == name)
    }
}

/// A template that comes to that of a version, once the API server has filled in what is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct Rewritten {
    /// Digest of the template as it is written.
    pub written: String,
    /// Digest of the version that it comes to.
    pub hash: String,
}

/// One version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct VersionDetail {
    /// Its number.
    pub version: i32,
    /// Digest of what makes it a version: pod template and what cannot be changed in place.
    pub hash: String,
    /// Its pods.
    pub replicas: i32,
    /// Those that are Ready.
    pub ready: i32,
    /// True if its upgrade failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Its StatefulSets.
    pub sets: Vec<VersionSet>,
}

/// One StatefulSet of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct VersionSet {
    /// Its name.
    pub name: String,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its pods.
    pub replicas: i32,
    /// Those that are Ready.
    pub ready: i32,
    /// `metadata.generation` after the operator's last write: another one is somebody else's write.
    pub generation: i64,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// The version that is to take over.
    pub version: i32,
    /// Its digest.
    pub hash: String,
    /// What is going on.
    pub step: UpgradeStep,
    /// Tries that failed.
    #[serde(default)]
    pub failures: i32,
    /// When the step began; errors of Prometheus push it into the future by the time that they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The check cycle of the canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<Current>,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The steps of an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeStep {
    /// Nothing of it runs yet.
    #[default]
    Waiting,
    /// Its canaries run.
    Canary,
    /// All of its pods are started, or rolled in place, zone by zone.
    Rolling,
    /// The pods of a try that failed are removed.
    Clearing,
    /// It has failed for good.
    Stale,
}

/// One word for where an ExtendedStatefulSet stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionPhase {
    /// The first pods come up, or those of a version that is in charge are not all there.
    #[default]
    Progressing,
    /// One version, with all its pods.
    Ready,
    /// A new version is on its way.
    Upgrading,
    /// The canaries of a new version are watched.
    Canary,
    /// A version is removed.
    CleaningUp,
    /// It waits for something that comes by itself.
    Held,
    /// spec.paused.
    Paused,
    /// The new version is stale.
    Failed,
    /// It cannot go on until a person does something.
    Blocked,
}

impl VersionPhase {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Progressing,
        Self::Ready,
        Self::Upgrading,
        Self::Canary,
        Self::CleaningUp,
        Self::Held,
        Self::Paused,
        Self::Failed,
        Self::Blocked,
    ];
}
