//! `sts-plus-replicas`: an `ExtendedStatefulSet` without `spec.template.spec.replicas` gets a count, since without one `/scale`
//! answers with an error, and so does every autoscaler.
//!
//! On UPDATE it is the count of the old object: a manifest without a count, put in place of one that was scaled, changes nothing.
//! Else it is the lowest one allowed, the same that the operator would take (`versions::scaling::lowest` of `sts-plus-decide`).
//! If `spec.scaling` allows no count at all, none is filled in, and the schema says why.
//!
//! An object of another shape is left alone: a policy sees it before the schema does, and an error here would hide the sentence of
//! the schema, which names the field. Fields are asked for one after the other, so that no expression ends in an error.

use serde_json::{Value, json};
use sts_plus_api::ExtendedStatefulSet;

use super::cel::variable;

/// The policy.
pub(super) fn policy() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": super::REPLICAS, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [<ExtendedStatefulSet as kube::Resource>::group(&())],
                    "apiVersions": [<ExtendedStatefulSet as kube::Resource>::version(&())],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [<ExtendedStatefulSet as kube::Resource>::plural(&())],
                    "scope": "Namespaced",
                }],
            },
            "matchConditions": [
                { "name": "has-a-template", "expression": "has(object.spec) && type(object.spec) == map \
                    && has(object.spec.template) && type(object.spec.template) == map \
                    && has(object.spec.template.spec) && type(object.spec.template.spec) == map" },
                { "name": "has-no-count", "expression": "!has(object.spec.template.spec.replicas)" },
            ],
            "variables": [
                variable("old", OLD),
                variable("scaling", "has(object.spec.scaling) && type(object.spec.scaling) == map ? object.spec.scaling : {}"),
                variable("min", "'min' in variables.scaling && type(variables.scaling.min) == int ? variables.scaling.min : 1"),
                variable("max", "'max' in variables.scaling && type(variables.scaling.max) == int ? variables.scaling.max : 2147483647"),
                variable("odd", "'oddOnly' in variables.scaling && variables.scaling.oddOnly == true"),
                variable("least", LEAST),
                variable("lowest", "variables.odd && variables.least % 2 == 0 ? variables.least + 1 : variables.least"),
                variable("allowed", ALLOWED),
            ],
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": { "expression": PATCH.trim() },
            }],
        },
    })
}

/// The count of the old object as a list, which is empty if there is none.
const OLD: &str = "request.operation == 'UPDATE' && has(oldObject.spec.template.spec.replicas)
  ? [oldObject.spec.template.spec.replicas]
  : []";

/// The minimum, or 1 if there is none: not below 0, and not above the maximum.
const LEAST: &str = "variables.min < 0 ? 0 : variables.min > variables.max ? variables.max : variables.min";

/// The lowest count as a list, which is empty if the limits leave none.
const ALLOWED: &str =
    "variables.lowest <= variables.max && (!('min' in variables.scaling) || variables.lowest >= variables.min)
  ? [variables.lowest]
  : []";

const PATCH: &str = r#"
(size(variables.old) > 0 ? variables.old : variables.allowed).map(count,
  JSONPatch{op: "add", path: "/spec/template/spec/replicas", value: count})
"#;
