//! `sts-plus-hold-type`: in mid-rollout the strategy of a claimed set stays RollingUpdate.
//!
//! Without the partition there is no hold, so leaving RollingUpdate would end the rollout behind the back of its PhasedRollout.
//! Coming back is harmless at any time: `sts-plus-hold` raises the partition to the full hold in that write.
//!
//! Whether a rollout is running is told from the StatefulSet alone, and in doubt it is: the write changes the template as well,
//! or the partition was the full hold (something is not approved), or the controller has not looked at the latest spec, or the
//! two revisions of the status differ, or some pod is not at the update revision (a revert in mid-rollout).

use serde_json::{Value, json};

use super::cel::{annotations, claimer, exemptions, keeper, partition, rolls, text, variable};

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    let variables = [annotations().as_slice(), &exemptions(), &[running(), claimer()], &keeper()].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": super::HOLD_TYPE, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": super::on_statefulsets(&["UPDATE"]),
            "matchConditions": super::claimed_by_others(operators),
            "variables": variables,
            "validations": [{
                "expression": format!(
                    "variables.exempt || !({}) || {} || !variables.running", rolls("oldObject"), rolls("object"),
                ),
                "reason": "Forbidden",
                "message": "spec.updateStrategy.type must stay RollingUpdate while a PhasedRollout rolls this StatefulSet: \
                    delete or release the PhasedRollout first.",
                "messageExpression": text(REFUSAL),
            }],
        },
    })
}

fn running() -> Value {
    variable(
        "running",
        &format!(
            "object.spec.template != oldObject.spec.template
|| {} == $HOLD
|| oldObject.?status.?observedGeneration.orValue(0) < oldObject.metadata.?generation.orValue(0)
|| oldObject.?status.?currentRevision.orValue('') != oldObject.?status.?updateRevision.orValue('')
|| oldObject.?status.?updatedReplicas.orValue(0) < oldObject.?status.?replicas.orValue(0)",
            partition("oldObject"),
        ),
    )
}

const REFUSAL: &str = "'spec.updateStrategy.type must stay RollingUpdate while a rollout of StatefulSet ' + object.metadata.name \
     + ' is pending or running: ' + (variables.made ? variables.wayOut : 'delete ' + variables.keeper + ' first. ' + variables.wayOut)";
