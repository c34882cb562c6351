//! The PhasedRollout as a user writes it. Defaults live in the schema, so that the API server shows what is in force; what can
//! be refused without asking anybody else is refused there too, by CEL rules whose message names the field and the cure.

#![allow(clippy::duplicated_attributes, reason = "one printcolumn attribute for each column")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PhasedRolloutStatus, rules};

/// The rolling update of one StatefulSet, one pod at a time, held between pods until Prometheus checks pass.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "sts.plus",
    version = "v1alpha1",
    kind = "PhasedRollout",
    plural = "phasedrollouts",
    namespaced,
    shortname = "pr",
    category = "stsplus",
    status = "PhasedRolloutStatus",
    derive = "PartialEq",
    doc = "The rolling update of one StatefulSet, one pod at a time, held between pods until Prometheus checks pass.",
    printcolumn(name = "TARGET", type_ = "string", json_path = ".spec.targetRef"),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "UPDATED", type_ = "string", json_path = ".status.updated"),
    printcolumn(name = "PARTITION", type_ = "integer", json_path = ".status.partition"),
    printcolumn(name = "MESSAGE", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::some_query(),
    validation = rules::one_switch(),
)]
pub struct PhasedRolloutSpec {
    /// Name of the StatefulSet in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("targetRef", "StatefulSet"))]
    pub target_ref: String,
    /// True: the normal rolling update is resumed, without checks (the partition is removed). What check and pauseBefore say is kept
    /// for later. paused wins.
    #[serde(default)]
    pub skip_check: bool,
    /// Alias of skipCheck: one of the two is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_rolling_update: Option<bool>,
    /// True: no further pod is rolled and no check is made; the hold is kept.
    #[serde(default)]
    pub paused: bool,
    /// What must be true before the next pod is rolled.
    #[serde(default)]
    pub check: Check,
    /// Pod indexes before which the rollout waits for the annotation `sts.plus/approve: <revision>/<index>`. One that no pod has waits
    /// for nothing until the set is scaled up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(range(min = 0)))]
    #[x_kube(validation = rules::each_once())]
    pub pause_before: Vec<i32>,
    /// Longest time without progress while not paused, in seconds. If it is shorter than a good check cycle, each cycle counts as
    /// stalled until its next progress. Missing: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
    /// What happens with a broken pod that keeps the native controller from rolling it.
    #[serde(default)]
    pub stuck_pods: StuckPods,
    /// What happens with the hold when this object is deleted. Missing: Hold while rolling, Release at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
}

impl PhasedRolloutSpec {
    /// True if the normal rolling update is wanted, under either of its two names.
    #[must_use]
    pub fn skips_checks(&self) -> bool {
        self.skip_check || self.standard_rolling_update.unwrap_or(false)
    }
}

/// When and what Prometheus is asked, and what counts as success.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::query_or_queries(),
    validation = rules::tries_for_the_passes(),
    validation = rules::every_query_named(),
    validation = rules::no_name_twice(),
    validation = rules::some_url(),
    validation = rules::shared_url_for_tls(),
    validation = rules::url_characters(),
    validation = rules::url_scheme(),
    validation = rules::url_credentials(),
    validation = rules::url_host(),
    validation = rules::url_host_characters(),
    validation = rules::url_port(),
    validation = rules::url_query_string(),
    validation = rules::url_fragment(),
    validation = rules::url_ipv4(),
)]
pub struct Check {
    /// Wait after a pod is rolled, in seconds, so that Prometheus gathers fresh data. 0 is honoured.
    #[serde(default = "Check::default_initial_delay_seconds")]
    #[schemars(range(min = 0))]
    pub initial_delay_seconds: i32,
    /// Time between checks, in seconds.
    #[serde(default = "Check::default_period_seconds")]
    #[schemars(range(min = 1))]
    pub period_seconds: i32,
    /// Consecutive passed checks that are needed.
    #[serde(default = "Check::default_success_threshold")]
    #[schemars(range(min = 1))]
    pub success_threshold: i32,
    /// Checks per pod before the pod counts as failed. Errors of Prometheus do not count.
    #[serde(default = "Check::default_max_tries")]
    #[schemars(range(min = 1))]
    pub max_tries: i32,
    /// Shorthand for a list of one query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Query>,
    /// All of them must pass in the same try.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub queries: Vec<Query>,
    /// Prometheus for the queries that name none; see the field of a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// Secret for the queries that name none; see the field of a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("secretRef", "Secret"))]
    pub secret_ref: Option<String>,
    /// What happens when maxTries is used up.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// One check cycle before the first pod is touched. If this and final are false, only the time between two pods is checked.
    #[serde(default = "yes")]
    pub preflight: bool,
    /// One check cycle after the last pod, before the rollout counts as complete.
    #[serde(rename = "final", default = "yes")]
    pub final_check: bool,
}

impl Check {
    pub(crate) fn default_initial_delay_seconds() -> i32 {
        60
    }
    pub(crate) fn default_period_seconds() -> i32 {
        60
    }
    pub(crate) fn default_success_threshold() -> i32 {
        3
    }
    pub(crate) fn default_max_tries() -> i32 {
        10
    }

    /// The queries of one try, whichever way they were written.
    pub fn all_queries(&self) -> impl Iterator<Item = &Query> {
        self.query.iter().chain(&self.queries)
    }

    /// The URL that `query` uses: its own or the shared one.
    #[must_use]
    pub fn url_of<'a>(&'a self, query: &'a Query) -> Option<&'a str> {
        query.url.as_deref().or(self.url.as_deref())
    }

    /// The Secret that `query` uses: its own or the shared one.
    #[must_use]
    pub fn secret_of<'a>(&'a self, query: &'a Query) -> Option<&'a str> {
        query.secret_ref.as_deref().or(self.secret_ref.as_deref())
    }
}

impl Default for Check {
    fn default() -> Self {
        Self {
            initial_delay_seconds: Self::default_initial_delay_seconds(),
            period_seconds: Self::default_period_seconds(),
            success_threshold: Self::default_success_threshold(),
            max_tries: Self::default_max_tries(),
            query: None,
            queries: Vec::new(),
            url: None,
            secret_ref: None,
            on_failure: OnFailure::default(),
            preflight: true,
            final_check: true,
        }
    }
}

/// One question to Prometheus.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::missing_metric_needs_no_data(),
    validation = rules::own_url_for_tls(),
    validation = rules::url_characters(),
    validation = rules::url_scheme(),
    validation = rules::url_credentials(),
    validation = rules::url_host(),
    validation = rules::url_host_characters(),
    validation = rules::url_port(),
    validation = rules::url_query_string(),
    validation = rules::url_fragment(),
    validation = rules::url_ipv4(),
)]
pub struct Query {
    /// Name of the query in messages and status. Required in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::one_line())]
    pub name: Option<String>,
    /// PromQL. `${pod}`, `${ordinal}`, `${namespace}`, `${statefulset}`, `${revision}`, `${previousRevision}`, `${zone}` and
    /// `${node}` are filled in; `$${` is a literal `${`.
    #[schemars(length(min = 1, max = 8192))]
    #[x_kube(validation = rules::not_blank())]
    pub expr: String,
    /// Prometheus, without `/api/v1/query`. No scheme means http. Missing: check.url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// Name of a Secret in the same namespace with `token` (bearer) or `username` and `password` (basic).
    /// With all three the token is used. Missing: check.secretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("secretRef", "Secret"))]
    pub secret_ref: Option<String>,
    /// Whether returned series mean failure (`NoData`, alert style) or success (`Data`, assert style).
    #[serde(default)]
    pub success_when: SuccessWhen,
    /// Whether a check passes on a metric that does not exist at all.
    #[serde(default)]
    pub on_missing_metric: OnMissingMetric,
    /// Time-out of one request, in seconds. periodSeconds begins after the answer, so it may be shorter.
    #[serde(default = "Query::default_timeout_seconds")]
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: i32,
    /// How to trust Prometheus and to identify to it. Only with an https URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

impl Query {
    pub(crate) fn default_timeout_seconds() -> i32 {
        5
    }

    /// The name for messages: the given one, or `query` for the shorthand.
    #[must_use]
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or("query")
    }
}

/// TLS towards Prometheus.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::authority_or_no_verification())]
pub struct Tls {
    /// Name of a Secret whose key `ca.crt` holds the certificates to trust, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("caSecretRef", "Secret"))]
    pub ca_secret_ref: Option<String>,
    /// Name of a Secret with `tls.crt` and `tls.key`, the client certificate, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name("certSecretRef", "Secret"))]
    pub cert_secret_ref: Option<String>,
    /// Name to ask for and to verify the certificate against, in place of the URL's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::host_name())]
    pub server_name: Option<String>,
    /// True: the certificate is not verified.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// What a passed query looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SuccessWhen {
    /// Alert style: a returned series means failure.
    #[default]
    NoData,
    /// Assert style: a returned series means success.
    Data,
}

/// What an empty answer means when the metric does not exist at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnMissingMetric {
    /// The check passes, with a Warning event.
    #[default]
    Pass,
    /// The check does not pass.
    Hold,
}

/// What happens when maxTries is used up without enough consecutive passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The rollout is held; checks go on, and enough consecutive passes continue it.
    #[default]
    Hold,
    /// As Hold, but only a retry annotation or a new revision continues it.
    Pause,
    /// The rolled pods go back to the last good revision, without a template edit.
    Rollback,
    /// A Warning event; counts as passed.
    Proceed,
}

/// What happens with a broken pod that keeps the native controller from rolling it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StuckPods {
    /// It is deleted, so that it is made anew.
    #[default]
    Delete,
    /// It is left; a condition names it.
    Wait,
}

/// What happens with the hold when the PhasedRollout is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The partition is removed: the normal rolling update is resumed.
    Release,
    /// The partition stays.
    Hold,
}

fn yes() -> bool {
    true
}

/// Conditions as Kubernetes defines them, a list keyed by `type`.
pub type Conditions = Vec<Condition>;
