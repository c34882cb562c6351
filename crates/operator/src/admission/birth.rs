//! `sts-plus-birth`: a StatefulSet that a PhasedRollout of its namespace targets and that nobody holds yet is claimed and fully held by
//! the very write that could let its pods roll.
//!
//! That is its birth, also of one that was deleted with orphan and is made anew with another template: its pods are adopted, and none
//! may roll. And it is an update that changes the template, that makes the strategy RollingUpdate, that lowers the partition, or that
//! takes a release back: before the operator has claimed the set, also while none runs, and for a set that it could not claim before.
//!
//! Nobody holds a set that is not claimed, and one whose hold was switched off for a PhasedRollout that has its checks back.
//!
//! It is evaluated once for each PhasedRollout of the namespace. If several target the set, one of them is in the claim; any of them
//! keeps the hold, and the operator gives the claim to the one that wins. Annotations of the operator that a manifest brings along (an
//! export of the set before) say nothing about this set, and go; a lowered partition in it too.
//!
//! Not for a rollout with skipCheck or one that is being deleted, not for a set that was released, not for one of another strategy (it
//! is refused anyway), not for one whose controller is one of our own kinds (the gate belongs into that object), and not for what the
//! operator itself changes. failurePolicy Ignore: with the CRD gone, or in the seconds until the API server has read the
//! PhasedRollouts, no StatefulSet of anybody may be refused.
//!
//! API servers before 1.36 cannot hold it: there a validating policy of the same name refuses the one update that lets a whole release
//! go at once, the strategy that becomes RollingUpdate. Elsewhere it never says no, since the partition is raised before it looks.

use serde_json::{Value, json};
use sts_plus_api::PhasedRollout;

use super::cel::{annotations, changes, has_annotation, keeper, rolls, text, variable};
use super::refused;

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    let variables =
        [annotations().as_slice(), &changes(), &[variable("wakes", WAKES), variable("stray", STRAY)]].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": super::BIRTH, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": param_kind(),
            "matchConstraints": super::on_statefulsets(&["CREATE", "UPDATE"]),
            "matchConditions": conditions(operators),
            "variables": variables,
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": { "expression": text(PATCH) },
            }],
        },
    })
}

/// The policy for API servers before 1.36.
pub(super) fn refusing_policy(operators: &[String]) -> Value {
    let rollout = [variable("rollout", "params.metadata.name"), variable("needed", refused::REPLICAS)];
    let variables = [changes().as_slice(), &rollout, &keeper()].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": super::BIRTH, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Ignore",
            "paramKind": param_kind(),
            "matchConstraints": super::on_statefulsets(&["UPDATE"]),
            "matchConditions": conditions(operators),
            "variables": variables,
            "validations": [refused::strategy_rule("")],
        },
    })
}

/// The binding: every PhasedRollout of the namespace of the set.
pub(super) fn binding() -> Value {
    super::binding("Mutating", super::BIRTH, json!({ "paramRef": every_rollout() }))
}

/// The same of the validating policy.
pub(super) fn refusing_binding() -> Value {
    super::binding("Validating", super::BIRTH, json!({ "paramRef": every_rollout(), "validationActions": ["Deny"] }))
}

fn every_rollout() -> Value {
    json!({ "selector": {}, "parameterNotFoundAction": "Allow" })
}

fn param_kind() -> Value {
    json!({
        "apiVersion": <PhasedRollout as kube::Resource>::api_version(&()),
        "kind": <PhasedRollout as kube::Resource>::kind(&()),
    })
}

fn conditions(operators: &[String]) -> Value {
    let annotated = |object: &str, annotation: &str, value: &str| {
        format!("{} && {object}.metadata.annotations['{annotation}'] == {value}", has_annotation(object, annotation))
    };
    let claimed = has_annotation("oldObject", "$CLAIM");
    let is_off = annotated("oldObject", "$SWITCH", "'off'");
    let is_of_it = annotated("oldObject", "$CLAIM", "params.metadata.name");
    let released = format!("{} && !{}", annotated("object", "$RELEASE", "'true'"), has_annotation("object", "$CLAIM"));
    let after_birth = |expression: &str| text(&format!("request.operation == 'CREATE' || ({expression})"));
    json!([
        { "name": "targeted", "expression": "has(object.metadata.name) && params.spec.targetRef == object.metadata.name" },
        { "name": "gated", "expression": "!(has(params.spec.skipCheck) && params.spec.skipCheck) \
            && !(has(params.spec.standardRollingUpdate) && params.spec.standardRollingUpdate)" },
        { "name": "not-being-deleted", "expression": "!has(params.metadata.deletionTimestamp)" },
        { "name": "rolling-update", "expression": rolls("object") },
        { "name": "not-controlled-by-our-kinds", "expression": "!has(object.metadata.ownerReferences) \
            || !object.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller && (owner.apiVersion.startsWith('sts.plus/') || owner.apiVersion.startsWith('fissile.cloudfoundry.org/')))" },
        { "name": "not-held", "expression": after_birth(&format!("!{claimed} || ({is_of_it} && {is_off})")) },
        { "name": "not-released", "expression": after_birth(&format!("!({released})")) },
        { "name": "not-the-operator", "expression": after_birth(&super::not_the_operator(operators)) },
    ])
}

/// Whether this write could let pods roll. What is asked of the old object comes after the birth, which has none.
const WAKES: &str = "request.operation == 'CREATE' || variables.fresh || variables.asked < variables.had
|| ('$RELEASE' in variables.before && variables.before['$RELEASE'] == 'true')";

/// What is left over on a set that was not claimed.
const STRAY: &str = "(request.operation == 'CREATE'
  ? ['$SWITCH', '$WRITTEN', '$REFUSED', '$RELEASE']
  : '$CLAIM' in variables.before ? [] : ['$SWITCH', '$WRITTEN', '$REFUSED']).filter(key, key in variables.after)";

const PATCH: &str = r#"
!variables.wakes ? [] :
(size(variables.after) == 0 ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}] : [])
+ variables.stray.map(key, JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(key)})
+ (request.operation != 'CREATE' && '$CLAIM' in variables.after
  ? []
  : [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey('$CLAIM'), value: params.metadata.name}])
+ (has(object.spec.updateStrategy.rollingUpdate)
  ? [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate/partition", value: $HOLD}]
  : [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate", value: {"partition": $HOLD}}])
"#;
