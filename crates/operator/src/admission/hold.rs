//! `sts-plus-hold`: what anybody but the operator writes to a claimed StatefulSet leaves the partition where it is, or raises it.
//!
//! In the order in which it decides:
//!
//! 1. The write releases the set, or the operator has switched the hold off: the partition is left as asked.
//! 2. The new strategy is not RollingUpdate: there is no partition to hold (`sts-plus-hold-type` may refuse the write).
//! 3. The template differs, or the strategy becomes RollingUpdate: the partition becomes the full hold, whatever was asked.
//! 4. The partition asked for is lower or missing: the old one is kept, unless the break-glass annotation has exactly this value.
//!    A person allows it for the revision that is pending: the write that makes another one pending (3) takes the annotation away.
//!
//! `refused-partition` records what was asked for and not granted. It is there exactly in the outcome of a write that was refused
//! something: the next write of anybody but the operator removes it. The API server runs a policy again after it has changed
//! something, and in that second pass an old record and a new one must be told apart: a new record that would equal the old one
//! is written with a leading zero. It is a decimal either way.
//!
//! The annotations that the operator writes are put back as they were when somebody else drops, changes or adds them. The claim
//! is the exception: anybody may add it, and a release may drop it. An annotation that is left over on a set which was not
//! claimed counts as absent.

use serde_json::{Value, json};

use super::cel::{annotations, changes, exemptions, rolls, tampering, text, variable};

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    let variables = [annotations().as_slice(), &exemptions(), &partitions(), &[record()], &tampering()].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": super::HOLD, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": super::on_statefulsets(&["UPDATE"]),
            "matchConditions": super::claimed_by_others(operators),
            "variables": variables,
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": { "expression": text(PATCH) },
            }],
        },
    })
}

/// The partition that was there, that was asked for, and that is granted.
fn partitions() -> [Value; 4] {
    let [had, asked, fresh] = changes();
    [had, asked, fresh, variable("granted", &format!("variables.exempt || !({})\n{GRANTED}", rolls("object")))]
}

const GRANTED: &str = "  ? variables.asked
  : variables.fresh
  ? $HOLD
  : variables.asked >= variables.had || ('$ALLOW' in variables.after && variables.after['$ALLOW'] == string(variables.asked))
  ? variables.asked
  : variables.had";

/// What is written down.
fn record() -> Value {
    // A template write that leaves the partition as it was has asked for nothing.
    variable(
        "refused",
        "variables.granted == variables.asked || (variables.fresh && variables.asked == variables.had)
  ? ''
  : ('$REFUSED' in variables.before && variables.before['$REFUSED'] == string(variables.asked))
  ? '0' + string(variables.asked)
  : string(variables.asked)",
    )
}

const PATCH: &str = r#"
(size(variables.after) == 0 && (variables.refused != '' || size(variables.undone) > 0)
  ? [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]
  : [])
+ variables.undone.map(key, key in variables.ours
  ? JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey(key), value: variables.ours[key]}
  : JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(key)})
+ (variables.refused != ''
  ? [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey('$REFUSED'), value: variables.refused}]
  : '$REFUSED' in variables.after && '$REFUSED' in variables.before && variables.after['$REFUSED'] == variables.before['$REFUSED']
  ? [JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey('$REFUSED')}]
  : [])
+ (!variables.exempt && variables.fresh && '$ALLOW' in variables.after
  ? [JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey('$ALLOW')}]
  : [])
+ (variables.granted == variables.asked
  ? []
  : has(object.spec.updateStrategy.rollingUpdate)
  ? [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate/partition", value: variables.granted}]
  : [JSONPatch{op: "add", path: "/spec/updateStrategy/rollingUpdate", value: {"partition": variables.granted}}])
"#;
