//! What users write and read: the custom resources of `sts.plus` and `fissile.cloudfoundry.org`, their CEL rules and printer columns, and every name that
//! appears in an object: conditions, reasons, annotations, finalizers, field managers. No IO.

pub mod conditions;
pub mod extended_stateful_set;
pub mod names;
pub mod phased_rollout;
mod rules;
pub mod status;
pub mod version_status;

pub use conditions::{ConditionType, Reason, VersionCondition, is_true};
pub use extended_stateful_set::{
    ExtendedStatefulSet, ExtendedStatefulSetSpec, Scaling, ScalingPolicy, VersionCheck, VersionStrategy,
    VersionStrategyType, ZoneReplicas,
};
pub use phased_rollout::{
    Check, DeletionPolicy, OnFailure, OnMissingMetric, PhasedRollout, PhasedRolloutSpec, Query, StuckPods, SuccessWhen,
    Tls,
};
pub use status::{
    CheckProblem, CheckRecord, Current, Failure, FailureReason, Passed, Phase, PhasedRolloutStatus, ProblemReason,
    Series, Step, Verdict, fingerprint,
};
pub use version_status::{
    ExtendedStatefulSetStatus, Rewritten, Upgrade, UpgradeStep, VersionDetail, VersionPhase, VersionSet,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

/// The custom resource definitions that sts-plus installs, in the order in which they are applied.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    use kube::CustomResourceExt as _;
    let mut crds = vec![PhasedRollout::crd(), ExtendedStatefulSet::crd()];
    let versions = crds.iter_mut().flat_map(|crd| &mut crd.spec.versions);
    let schemas = versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    schemas.for_each(without_null);
    crds
}

/// `null` is what an absent field is: the API server takes it out, so that `query: null` is no query and a default is filled in.
/// Were it allowed, a rule would see a field there.
fn without_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(without_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        without_null(items);
    }
}
