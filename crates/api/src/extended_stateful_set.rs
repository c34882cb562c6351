//! The ExtendedStatefulSet as a user writes it: versions of one StatefulSet side by side, with canaries, scaling limits and zones.
//! Its template stays raw: typed, it would drop fields that are newer than we are, and the definition would not fit.

#![allow(clippy::duplicated_attributes, reason = "one printcolumn attribute for each column")]

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Check, ExtendedStatefulSetStatus, OnFailure, Query, rules};

/// Versions of one StatefulSet, side by side, with canaries, scaling limits and zones.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "fissile.cloudfoundry.org",
    version = "v1alpha1",
    kind = "ExtendedStatefulSet",
    plural = "extendedstatefulsets",
    namespaced,
    shortname = "ests",
    category = "stsplus",
    status = "ExtendedStatefulSetStatus",
    derive = "PartialEq",
    doc = "Versions of one StatefulSet, side by side, with canaries, scaling limits and zones.",
    validation = rules::names_fit(),
    validation = rules::no_dot_in_name(),
    scale(
        spec_replicas_path = ".spec.template.spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "VERSION", type_ = "integer", json_path = ".status.currentVersion"),
    printcolumn(name = "READY", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "STALE", type_ = "string", json_path = ".status.conditions[?(@.type==\"Stale\")].status"),
    printcolumn(name = "MESSAGE", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::one_name_for_zones(),
    validation = rules::one_word_on_config_changes(),
    validation = rules::count_is_not_too_low(),
    validation = rules::count_is_not_too_high(),
    validation = rules::count_is_odd(),
)]
pub struct ExtendedStatefulSetSpec {
    /// Names of zones, each of which gets a StatefulSet of its own. Missing or empty: one StatefulSet without a zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 49)))]
    #[x_kube(validation = rules::zone_labels("az"), validation = rules::zones_once("az"))]
    pub az: Vec<String>,
    /// Alias of az: one of the two is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 49)))]
    #[x_kube(validation = rules::zone_labels("zones"), validation = rules::zones_once("zones"))]
    pub zones: Vec<String>,
    /// Label of nodes whose value is the name of their zone.
    #[serde(default = "ExtendedStatefulSetSpec::default_zone_node_label")]
    #[schemars(length(min = 1, max = 317))]
    #[x_kube(validation = rules::label_key("spec.zoneNodeLabel"))]
    pub zone_node_label: String,
    /// Whether each zone has `spec.template.spec.replicas` pods, or they are spread over the zones.
    #[serde(default)]
    pub zone_replicas: ZoneReplicas,
    /// Which numbers of replicas are allowed, as written, for each zone.
    #[serde(default)]
    pub scaling: Scaling,
    /// Pods restart when a ConfigMap or Secret that they use changes. Missing: false. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_on_env_change: Option<bool>,
    /// Alias of updateOnEnvChange: one of the two is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_on_config_change: Option<bool>,
    /// How a new version takes the place of the running one.
    #[serde(default)]
    pub update_strategy: VersionStrategy,
    /// True: no further step is made; what runs goes on running.
    #[serde(default)]
    pub paused: bool,
    /// A StatefulSet: its metadata (labels, annotations) and its spec.
    #[schemars(schema_with = "template")]
    pub template: Value,
}

impl ExtendedStatefulSetSpec {
    /// The label of nodes that says their zone, unless another one is written.
    #[must_use]
    pub fn default_zone_node_label() -> String {
        "topology.kubernetes.io/zone".to_owned()
    }

    /// The zones, under either of the two names.
    #[must_use]
    pub fn all_zones(&self) -> &[String] {
        if self.az.is_empty() { &self.zones } else { &self.az }
    }

    /// The number of replicas as written.
    #[must_use]
    pub fn written_replicas(&self) -> Option<i32> {
        self.template.pointer("/spec/replicas").and_then(Value::as_i64).and_then(|count| i32::try_from(count).ok())
    }

    /// True if a restart on a changed configuration is wanted, under either of the two names.
    #[must_use]
    pub fn restarts_on_config_change(&self) -> bool {
        self.update_on_env_change.or(self.update_on_config_change).unwrap_or(false)
    }
}

/// What rules and `/scale` read is typed, all else is kept as it is.
fn template(_: &mut SchemaGenerator) -> Schema {
    let texts = json_schema!({ "type": "object", "additionalProperties": { "type": "string" } });
    json_schema!({
        "type": "object",
        "description": "A StatefulSet: its metadata (labels, annotations) and its spec. Fields that are not known here are kept.",
        "required": ["spec"],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": { "labels": texts, "annotations": texts },
            },
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["template"],
                "properties": {
                    "replicas": {
                        "type": "integer",
                        "format": "int32",
                        "minimum": 0,
                        "description": "Pods. Missing: scaling.min, else 1.",
                    },
                    "template": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                },
            },
        },
    })
}

/// Which numbers of replicas are allowed.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::some_count_is_allowed(), validation = rules::some_odd_count_is_allowed())]
pub struct Scaling {
    /// The lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min: Option<i32>,
    /// The highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max: Option<i32>,
    /// Only odd ones.
    #[serde(default)]
    pub odd_only: bool,
    /// What happens with a number that is not allowed.
    #[serde(default)]
    pub policy: ScalingPolicy,
}

/// What happens with a number of replicas that is not allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScalingPolicy {
    /// The API server refuses it.
    #[default]
    Reject,
    /// It is accepted, and the nearest allowed number is used; the lower one of two.
    Clamp,
}

/// What `spec.template.spec.replicas` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ZoneReplicas {
    /// The pods of each zone.
    #[default]
    PerZone,
    /// The pods of all zones; what is left over goes to the first ones.
    Spread,
}

/// How a new version takes the place of the running one.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::type_stays(),
    validation = rules::no_roll_settings_side_by_side(),
    validation = rules::two_services(),
    validation = rules::no_services_in_place(),
)]
pub struct VersionStrategy {
    /// Versions side by side, or one set whose pods are rolled. Cannot be changed.
    #[serde(rename = "type", default)]
    pub kind: VersionStrategyType,
    /// Pods of a new version that must be well before the others are started. 0: none. SideBySide only.
    #[serde(default = "VersionStrategy::default_canaries")]
    #[schemars(range(min = 0))]
    pub canaries: i32,
    /// Further tries of canaries that failed. SideBySide only.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub retry_count: i32,
    /// True: an upgrade may start although pods of the running version are not ready.
    #[serde(default)]
    pub update_not_ready: bool,
    /// Within this time, in seconds, the canaries must have passed, and each later step must have ended. InPlace: longest time without
    /// progress before it counts as stalled.
    #[serde(default = "VersionStrategy::default_canary_watch_seconds")]
    #[schemars(range(min = 1))]
    pub canary_watch_seconds: i32,
    /// What Prometheus must say about the canaries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<VersionCheck>,
    /// The Service whose selector follows the version that is in charge. SideBySide only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name("activeService", "Service"))]
    pub active_service: Option<String>,
    /// The Service whose selector follows the newest version. SideBySide only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name("previewService", "Service"))]
    pub preview_service: Option<String>,
    /// How long the old version stays after the new one has taken over, in seconds. SideBySide only.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub scale_down_delay_seconds: i32,
}

impl VersionStrategy {
    fn default_canaries() -> i32 {
        1
    }
    fn default_canary_watch_seconds() -> i32 {
        900
    }
}

impl Default for VersionStrategy {
    fn default() -> Self {
        Self {
            kind: VersionStrategyType::default(),
            canaries: Self::default_canaries(),
            retry_count: 0,
            update_not_ready: false,
            canary_watch_seconds: Self::default_canary_watch_seconds(),
            check: None,
            active_service: None,
            preview_service: None,
            scale_down_delay_seconds: 0,
        }
    }
}

/// The kinds of strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VersionStrategyType {
    /// Each version has StatefulSets of its own, and both run until the new one is in charge.
    #[default]
    SideBySide,
    /// One StatefulSet whose pods are rolled one at a time.
    InPlace,
}

/// When and what Prometheus is asked. As the check of a PhasedRollout; what is about rolling pods is for InPlace alone.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::of_versions(rules::query_or_queries()),
    validation = rules::of_versions(rules::tries_for_the_passes()),
    validation = rules::of_versions(rules::every_query_named()),
    validation = rules::of_versions(rules::no_name_twice()),
    validation = rules::of_versions(rules::some_url()),
    validation = rules::of_versions(rules::shared_url_for_tls()),
    validation = rules::url_characters(),
    validation = rules::url_scheme(),
    validation = rules::url_credentials(),
    validation = rules::url_host(),
    validation = rules::url_host_characters(),
    validation = rules::url_port(),
    validation = rules::url_query_string(),
    validation = rules::url_fragment(),
    validation = rules::url_ipv4(),
    validation = rules::some_query_in_check(),
)]
pub struct VersionCheck {
    /// Wait until Prometheus has fresh data of the pods, in seconds. 0 is honoured.
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
    /// Checks before they count as failed. Errors of Prometheus do not count.
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
    /// What happens when maxTries is used up. InPlace only: side by side the version becomes stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// One check cycle before the first pod is touched. InPlace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<bool>,
    /// One check cycle after the last pod. InPlace only.
    #[serde(rename = "final", default, skip_serializing_if = "Option::is_none")]
    pub final_check: Option<bool>,
}

impl VersionCheck {
    /// The same as a check of a PhasedRollout.
    #[must_use]
    pub fn to_check(&self) -> Check {
        let defaults = Check::default();
        Check {
            initial_delay_seconds: self.initial_delay_seconds,
            period_seconds: self.period_seconds,
            success_threshold: self.success_threshold,
            max_tries: self.max_tries,
            query: self.query.clone(),
            queries: self.queries.clone(),
            url: self.url.clone(),
            secret_ref: self.secret_ref.clone(),
            on_failure: self.on_failure.unwrap_or_default(),
            preflight: self.preflight.unwrap_or(defaults.preflight),
            final_check: self.final_check.unwrap_or(defaults.final_check),
        }
    }
}
