//! `sts-plus-hold-warning`: the writer reads in the reply to his own write that the partition was kept, by which PhasedRollout,
//! and how to override it. It never refuses anything.
//!
//! A validating policy sees the object after `sts-plus-hold` has changed it. That policy leaves its record in the object exactly
//! when this write was refused something, and a template write whose partition went up to the hold can be seen from both objects.

use serde_json::{Value, json};

use super::cel::{annotations, partition, text};

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": super::HOLD_WARNING, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": super::on_statefulsets("UPDATE"),
            "matchConditions": super::claimed_by_others(operators),
            "variables": annotations(),
            "validations": [
                {
                    "expression": text("!('$REFUSED' in variables.after)"),
                    "message": text("The partition that was asked for was not granted: a PhasedRollout holds this StatefulSet."),
                    "messageExpression": text(&format!("{REFUSED}{}{OVERRIDE}", partition("object"))),
                },
                {
                    "expression": text(&format!(
                        "'$REFUSED' in variables.after || object.spec.template == oldObject.spec.template || {} == {} || {} != $HOLD",
                        partition("oldObject"), partition("object"), partition("object"),
                    )),
                    "message": text("The new template is held: a PhasedRollout rolls the pods one at a time."),
                    "messageExpression": text(RAISED),
                },
            ],
        },
    })
}

const REFUSED: &str = "'partition ' + string(int(variables.after['$REFUSED'])) + ' was not granted: PhasedRollout ' \
     + variables.after[?'$CLAIM'].orValue('?') + ' holds StatefulSet ' + object.metadata.name + ' at partition ' + string(";

const OVERRIDE: &str = ") + ' and lowers it pod by pod as its checks pass. To let exactly this partition through without checks, \
     write it together with the annotation $ALLOW: \"' + string(int(variables.after['$REFUSED'])) + '\" and without a change of \
     the template. To take the set from the PhasedRollout, remove the annotation $CLAIM and set $RELEASE: \"true\" in one write.'";

const RAISED: &str = "'the new template is held at partition $HOLD: PhasedRollout ' + variables.after[?'$CLAIM'].orValue('?') \
     + ' rolls the pods of StatefulSet ' + object.metadata.name + ' one at a time as its checks pass. Nothing needs to be done. \
     To see where it stands: kubectl get phasedrollout ' + variables.after[?'$CLAIM'].orValue('?')";
