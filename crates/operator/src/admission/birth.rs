//! `sts-plus-birth`: a StatefulSet that a PhasedRollout of its namespace targets is claimed and fully held from birth, also one
//! that was deleted with orphan and is made anew with another template: its pods are adopted, and none may roll.
//!
//! It is evaluated once for each PhasedRollout of the namespace. If several target the set, the one evaluated last is in the
//! claim; any of them keeps the hold, and the operator gives the claim to the one that wins. Annotations of the operator that a
//! manifest brings along (an export of the set before) say nothing about this set, and go; a lowered partition in it too.
//!
//! Not for a rollout with skipCheck or one that is being deleted, not for a set of another strategy (it is refused anyway), and
//! not for a set whose controller is one of our own kinds (the gate belongs into that object). failurePolicy Ignore: with the
//! CRD gone, or in the seconds until the API server has read the PhasedRollouts, no StatefulSet of anybody may be refused.

use serde_json::{Value, json};
use sts_plus_api::PhasedRollout;

use super::cel::{annotations, rolls, text, variable};

/// The policy.
pub(super) fn policy() -> Value {
    let [_, after] = annotations();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": super::BIRTH, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": {
                "apiVersion": <PhasedRollout as kube::Resource>::api_version(&()),
                "kind": <PhasedRollout as kube::Resource>::kind(&()),
            },
            "matchConstraints": super::on_statefulsets("CREATE"),
            "matchConditions": conditions(),
            "variables": [
                after,
                variable("stray", "['$SWITCH', '$WRITTEN', '$REFUSED', '$RELEASE'].filter(key, key in variables.after)"),
            ],
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": { "expression": text(PATCH) },
            }],
        },
    })
}

/// The binding: every PhasedRollout of the namespace of the set.
pub(super) fn binding() -> Value {
    super::binding(
        "Mutating",
        super::BIRTH,
        json!({ "paramRef": { "selector": {}, "parameterNotFoundAction": "Allow" } }),
    )
}

fn conditions() -> Value {
    json!([
        { "name": "targeted", "expression": "has(object.metadata.name) && params.spec.targetRef == object.metadata.name" },
        { "name": "gated", "expression": "!(has(params.spec.skipCheck) && params.spec.skipCheck) \
            && !(has(params.spec.standardRollingUpdate) && params.spec.standardRollingUpdate)" },
        { "name": "not-being-deleted", "expression": "!has(params.metadata.deletionTimestamp)" },
        { "name": "rolling-update", "expression": rolls("object") },
        { "name": "not-controlled-by-our-kinds", "expression": "!has(object.metadata.ownerReferences) \
            || !object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller && (owner.apiVersion.startsWith('sts.plus/') || owner.apiVersion.startsWith('fissile.cloudfoundry.org/')))" },
    ])
}

const PATCH: &str = r#"
(size(variables.after) == 0 ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}] : [])
+ variables.stray.map(key, JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(key)})
+ [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey('$CLAIM'), value: params.metadata.name}]
+ (has(object.spec.updateStrategy.rollingUpdate)
  ? [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate/partition", value: $HOLD}]
  : [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate", value: {"partition": $HOLD}}])
"#;
