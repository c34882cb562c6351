//! What users write and read: the custom resources of `sts.plus`, their CEL rules and printer columns, and every name that
//! appears in an object: conditions, reasons, annotations, finalizers, field managers. No IO.

pub mod conditions;
pub mod names;
pub mod phased_rollout;
pub mod status;

pub use conditions::{ConditionType, Reason};
pub use phased_rollout::{
    Check, DeletionPolicy, OnFailure, OnMissingMetric, PhasedRollout, PhasedRolloutSpec, Query, StuckPods, SuccessWhen,
    Tls,
};
pub use status::{CheckRecord, Current, Passed, Phase, PhasedRolloutStatus, Series, Step, Verdict};

/// The custom resource definitions that sts-plus installs, in the order in which they are applied.
#[must_use]
pub fn crds() -> Vec<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    vec![PhasedRollout::crd()]
}
