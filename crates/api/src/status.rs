//! The status of a PhasedRollout: what a person reads and what the operator needs to go on after a restart. It is bounded: no
//! number of checks makes it larger than 16 KiB.

use jiff::Timestamp;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::{OnFailure, Reason, phased_rollout::Conditions};

/// What the operator saw and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = without_defaults)]
pub struct PhasedRolloutStatus {
    /// `metadata.generation` of the PhasedRollout that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word.
    pub phase: Phase,
    /// One sentence: the pod, the value, and when the next thing happens.
    pub message: String,
    /// Name of the StatefulSet to which revisions and counters below belong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// UID of that StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_uid: Option<String>,
    /// The revision that is wanted (`status.updateRevision` of the StatefulSet).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_revision: Option<String>,
    /// The last good revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_revision: Option<String>,
    /// The revision whose final checks passed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_revision: Option<String>,
    /// Revisions that failed and were rolled back, newest last, at most 10.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub rejected_revisions: Vec<String>,
    /// Pods that the StatefulSet wants.
    pub replicas: i32,
    /// Pods that carry the target revision, counted from the pods.
    pub updated_replicas: i32,
    /// Pods that are Ready and not terminating, counted from the pods.
    pub ready_replicas: i32,
    /// `updatedReplicas/replicas`, for the printer column.
    pub updated: String,
    /// The partition of the StatefulSet. 2147483647 is the full hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// When the rollout of the target revision began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When the rollout of the target revision was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    /// When a pod was last rolled or a step last ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress_time: Option<Timestamp>,
    /// The step that is going on; missing at rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Current>,
    /// Why the target revision has failed; only a retry, a new revision, a person's permission or (onFailure Hold) enough passes end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Which pods have passed a check cycle where they are, by revision, newest last, at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub passed: Vec<Passed>,
    /// True while no pod was ever healthy, so that broken pods are let through without the gate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_healthy: bool,
    /// Since when broken pods of a failed revision that is the current one were made anew on it; younger ones are left to a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remade_since: Option<Timestamp>,
    /// The value of `sts.plus/retry` that was honoured last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<String>,
    /// Digest of what decisions rest on. A status that was edited by hand does not match it, and is not believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// The last 5 verdicts, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub checks: Vec<CheckRecord>,
    /// See the reference for types and reasons.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Conditions,
}

impl PhasedRolloutStatus {
    /// True if nobody but the operator wrote what decisions rest on. A status that was never written is nobody's.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.seal.as_deref() == Some(self.digest().as_str()) || *self == Self::default()
    }

    /// Writes the seal for what the status says now.
    pub fn put_seal(&mut self) {
        self.seal = Some(self.digest());
    }

    /// 16 hexadecimal digits over what says which pods may move: FNV-1a, 64 bits. It finds out what was written by hand or restored
    /// in parts; it is no protection against somebody who reads this.
    fn digest(&self) -> String {
        let mut rests_on = serde_json::json!([
            self.target_uid,
            self.target_revision,
            self.previous_revision,
            self.verified_revision,
            self.rejected_revisions,
            self.partition,
            self.start_time,
            self.completion_time,
            self.current,
            self.passed,
            self.never_healthy,
            self.remade_since,
            self.retry,
        ]);
        // A status of a build that did not know it has the seal that it had there.
        if let (Some(failure), Some(rests_on)) = (&self.failure, rests_on.as_array_mut()) {
            rests_on.push(serde_json::json!(failure));
        }
        fingerprint(&rests_on)
    }
}

/// 16 hexadecimal digits over a value as JSON: FNV-1a, 64 bits. The same in every release.
#[must_use]
pub fn fingerprint(value: &serde_json::Value) -> String {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // A value has text for keys, and the hash takes whatever is written.
    let written = serde_json::to_writer(&mut hash, value);
    debug_assert!(written.is_ok());
    format!("{:016x}", hash.0)
}

/// What is written into it is hashed and forgotten.
struct Fnv(u64);

impl std::io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The API server must not fill in a status: what is missing there has not been observed.
pub(crate) fn without_defaults(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut);
    for property in properties.into_iter().flat_map(|p| p.values_mut()) {
        if let Some(property) = property.as_object_mut() {
            property.remove("default");
        }
    }
}

/// One word for where a rollout stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing is pending.
    #[default]
    Idle,
    /// A pod is being rolled.
    Rolling,
    /// Delay or checks are in progress.
    Checking,
    /// Held, and it goes on by itself when the cause is gone.
    Held,
    /// Held by a person: spec.paused or pauseBefore.
    Paused,
    /// Checks failed; see onFailure.
    Failed,
    /// Pods go back to the last good revision.
    RollingBack,
    /// All pods are back; the revision is rejected.
    RolledBack,
    /// All pods carry the target revision and the final checks passed.
    Completed,
    /// It cannot go on until a person does something.
    Blocked,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 10] = [
        Self::Idle,
        Self::Rolling,
        Self::Checking,
        Self::Held,
        Self::Paused,
        Self::Failed,
        Self::RollingBack,
        Self::RolledBack,
        Self::Completed,
        Self::Blocked,
    ];
}

/// The step that is going on, with the counters of its check cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Current {
    /// Pod index (ordinal minus `ordinals.start`) of the pod rolled last; in the preflight the pod to be rolled next.
    pub index: i32,
    /// Its pod name.
    pub pod: String,
    /// What is going on.
    pub step: Step,
    /// Since when all pods of the step are at the revision and available; missing while that is awaited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Checks made in this cycle, without errors of Prometheus.
    #[serde(default)]
    pub tries: i32,
    /// Consecutive passes at the end of these.
    #[serde(default)]
    pub consecutive_passes: i32,
    /// True once maxTries was used up without success; cleared by success, retry or a new revision.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Since when a pod at the revision is broken; cleared by the next check that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_since: Option<Timestamp>,
    /// When the last check was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check_time: Option<Timestamp>,
    /// When the next check is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_check_time: Option<Timestamp>,
    /// Why the last check could not be made as configured; missing once one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<CheckProblem>,
    /// Digest of the check that the counters belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
}

impl Current {
    /// A step of which nothing was counted yet.
    #[must_use]
    pub fn new(step: Step, index: i32, pod: String) -> Self {
        Self {
            index,
            pod,
            step,
            since: None,
            tries: 0,
            consecutive_passes: 0,
            failed: false,
            broken_since: None,
            last_check_time: None,
            next_check_time: None,
            problem: None,
            check: None,
        }
    }
}

/// A check that could not be made as configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckProblem {
    /// What of it.
    pub reason: ProblemReason,
    /// A sentence that names the field and the cure.
    pub message: String,
}

/// What of a check cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProblemReason {
    /// The expression.
    InvalidQuery,
    /// The URL.
    InvalidUrl,
    /// The Secret.
    InvalidCredentials,
}

/// What has failed of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailureReason {
    /// maxTries was used up without enough consecutive passes.
    ChecksFailed,
    /// A pod was broken, or could not be made, for as long as all tries take.
    PodBroken,
}

impl From<ProblemReason> for Reason {
    fn from(reason: ProblemReason) -> Self {
        match reason {
            ProblemReason::InvalidQuery => Self::InvalidQuery,
            ProblemReason::InvalidUrl => Self::InvalidUrl,
            ProblemReason::InvalidCredentials => Self::InvalidCredentials,
        }
    }
}

impl From<FailureReason> for Reason {
    fn from(reason: FailureReason) -> Self {
        match reason {
            FailureReason::ChecksFailed => Self::ChecksFailed,
            FailureReason::PodBroken => Self::PodBroken,
        }
    }
}

/// A revision that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Name of the `ControllerRevision`.
    pub revision: String,
    /// What has failed.
    pub reason: FailureReason,
    /// onFailure as it was then.
    pub policy: OnFailure,
}

/// The kinds of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Step {
    /// Checks before the first pod is touched.
    Preflight,
    /// A pod is rolled and then checked.
    Pod,
    /// Checks after the last pod.
    Final,
    /// Pods of a failed revision are replaced without the gate.
    Repair,
    /// Pods go back to the last good revision.
    Rollback,
}

/// Pods at `revision` with an index of at least `index` have passed a check cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Passed {
    /// Name of the `ControllerRevision`.
    pub revision: String,
    /// Lowest pod index that the cycle covered.
    pub index: i32,
    /// Since when the pods of the cycle were all available. One that was created later is another pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The outcome of one query of one try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckRecord {
    /// When the answer came.
    pub time: Timestamp,
    /// Name of the query.
    pub name: String,
    /// Pod for which it was asked.
    pub pod: String,
    /// The query as it was sent, cut at 512 bytes.
    pub query: String,
    /// Scheme, host, port and path, without credentials, cut at 256 bytes.
    pub endpoint: String,
    /// What the answer was.
    pub verdict: Verdict,
    /// Whether the query passed.
    pub passed: bool,
    /// One sentence, cut at 512 bytes.
    pub message: String,
    /// HTTP status of the answer, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub http_status: Option<u16>,
    /// Number of series in the answer.
    #[serde(default)]
    #[schemars(with = "i32")]
    pub series_count: u32,
    /// Up to 3 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub series: Vec<Series>,
}

/// One series of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// `{label="value",…}`, cut at 256 bytes.
    pub labels: String,
    /// The value as Prometheus wrote it (a number, `NaN`, `+Inf`), cut at 256 bytes.
    pub value: String,
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// At least one series.
    Data,
    /// No series.
    NoData,
    /// No series, and the metric does not exist (onMissingMetric Hold): never a pass.
    Unproven,
    /// No usable answer: never a pass, uses up no try.
    Error,
}
