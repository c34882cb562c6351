//! The hold inside the API server: the admission policies for StatefulSets, written as CEL and generated from one place. And one
//! that fills in the count of an ExtendedStatefulSet.
//!
//! | object | does |
//! |---|---|
//! | `MutatingAdmissionPolicy` [`HOLD`] | keeps the partition of a claimed set against everybody but the operator |
//! | `MutatingAdmissionPolicy` [`BIRTH`] | claims and holds a set that a PhasedRollout targets with the first write that could let it roll, its birth above all |
//! | `MutatingAdmissionPolicy` [`REPLICAS`] | fills in the count of an ExtendedStatefulSet that has none |
//! | `ValidatingAdmissionPolicy` [`HOLD`] | refuses what the first one would put right: for API servers without mutating policies |
//! | `ValidatingAdmissionPolicy` [`BIRTH`] | the same for a set that nobody has claimed yet and whose strategy becomes RollingUpdate |
//! | `ValidatingAdmissionPolicy` [`HOLD_WARNING`] | tells the writer, in the same reply, what was kept and why |
//! | `ValidatingAdmissionPolicy` [`HOLD_TYPE`] | refuses another strategy than RollingUpdate in mid-rollout |
//!
//! They match only objects that carry our annotation, that a PhasedRollout targets, or that are of our own kinds: nothing here may
//! ever stand in the way of another workload, of a pod, or of the operator itself. No IO.

mod birth;
mod cel;
mod hold;
mod refused;
mod replicas;
mod strategy;
mod warning;

use serde_json::{Value, json};
use sts_plus_api::names;

/// Name of the policies that keep the partition, the mutating and the validating one, and of their bindings.
pub const HOLD: &str = "sts-plus-hold";
/// Name of the policies that hold a set from birth, the mutating and the validating one, and of their bindings.
pub const BIRTH: &str = "sts-plus-birth";
/// Name of the policy that fills in the count of an ExtendedStatefulSet, and of its binding.
pub const REPLICAS: &str = "sts-plus-replicas";
/// Name of the policy that warns the writer, and of its binding.
pub const HOLD_WARNING: &str = "sts-plus-hold-warning";
/// Name of the policy that refuses another strategy in mid-rollout, and of its binding.
pub const HOLD_TYPE: &str = "sts-plus-hold-type";

/// How the refusal of a template change begins.
pub const TEMPLATE_REFUSED: &str = "spec.template cannot be changed under this partition";

/// The names of the mutating policies for StatefulSets.
pub const MUTATING: [&str; 2] = [HOLD, BIRTH];
/// The names of the validating policies.
pub const VALIDATING: [&str; 4] = [HOLD, BIRTH, HOLD_WARNING, HOLD_TYPE];

/// All policies with their bindings, in the order in which they are applied. `operators` are the user names under which the
/// operator writes: the policies leave them alone.
#[must_use]
pub fn policies(operators: &[String]) -> Vec<Value> {
    vec![
        hold::policy(operators),
        binding("Mutating", HOLD, json!({})),
        birth::policy(operators),
        birth::binding(),
        replicas::policy(),
        binding("Mutating", REPLICAS, json!({})),
        refused::policy(operators),
        binding("Validating", HOLD, json!({ "validationActions": ["Deny"] })),
        birth::refusing_policy(operators),
        birth::refusing_binding(),
        warning::policy(operators),
        binding("Validating", HOLD_WARNING, json!({ "validationActions": ["Warn"] })),
        strategy::policy(operators),
        binding("Validating", HOLD_TYPE, json!({ "validationActions": ["Deny"] })),
    ]
}

/// A binding that has the name of its policy and applies it everywhere.
fn binding(kind: &str, name: &str, rest: Value) -> Value {
    let mut spec = rest;
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("policyName".to_owned(), name.into());
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}AdmissionPolicyBinding"),
        "metadata": { "name": name, "labels": crate::manifests::labels() },
        "spec": spec,
    })
}

/// The requests that a policy sees: operations on StatefulSets, never on their status or scale.
fn on_statefulsets(operations: &[&str]) -> Value {
    json!({
        "resourceRules": [{
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": operations,
            "resources": ["statefulsets"],
            "scope": "Namespaced",
        }],
    })
}

/// Who and what the policies on UPDATE match: a set that is claimed before or after the write, and a writer who is not the
/// operator. The template is not looked at here: a policy that did not match in the first pass is not asked again after webhooks.
///
/// The operator is known by its user and its field managers: a person may start an operator under his own name, and writes by hand as well.
///
/// The operator finds out whether the hold works by a dry run under its own name, so a dry run that carries the probe annotation
/// is treated like anybody's. Only a dry run: an annotation that somebody leaves in a stored object must not bind the operator.
fn claimed_by_others(operators: &[String]) -> Value {
    let claimed =
        format!("{} || {}", cel::has_annotation("oldObject", "$CLAIM"), cel::has_annotation("object", "$CLAIM"));
    json!([
        { "name": "claimed", "expression": cel::text(&claimed) },
        { "name": "not-the-operator", "expression": cel::text(&not_the_operator(operators)) },
    ])
}

/// See [`claimed_by_others`].
fn not_the_operator(operators: &[String]) -> String {
    let (operators, managers) =
        (Value::from(operators).to_string(), Value::from(names::MANAGERS.as_slice()).to_string());
    format!(
        "!(request.userInfo.username in {operators}) \
         || !(has(request.options) && has(request.options.fieldManager) && request.options.fieldManager in {managers}) \
         || (has(request.dryRun) && request.dryRun && {})",
        cel::has_annotation("object", "$PROBE"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the operator finds out about one set it believes of all in the namespace (see `hold`).
    #[test]
    fn the_policies_of_the_hold_tell_no_claimed_sets_of_a_namespace_apart() {
        let operators = ["operator".to_owned()];
        for policy in [hold::policy(&operators), refused::policy(&operators)] {
            let spec = &policy["spec"];
            assert_eq!(spec["matchConstraints"], on_statefulsets(&["UPDATE"]), "no selector of objects");
            assert_eq!(spec["matchConditions"], claimed_by_others(&operators));
            assert!(spec.get("paramKind").is_none(), "{spec}");
        }
        for policy in policies(&operators) {
            if policy["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"))
                && policy["metadata"]["name"] == HOLD
            {
                assert!(policy["spec"].get("matchResources").is_none(), "{policy}");
            }
        }
    }
}
