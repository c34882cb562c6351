//! `sts-plus-hold-warning`: the writer reads in the reply to his own write that the partition was kept, by which PhasedRollout,
//! and how to override it. It never refuses anything.
//!
//! A validating policy sees the object after `sts-plus-hold` has changed it. That policy leaves its record in the object exactly
//! when this write was refused something. Nothing was refused, but the partition went up to the hold, when the write changes the
//! template or comes back to RollingUpdate: that can be seen from the two objects.

use serde_json::{Value, json};

use super::cel::{annotations, claimer, keeper, partition, rolls, text, variable};

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    let variables = [annotations().as_slice(), &[claimer()], &keeper(), &findings()].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": super::HOLD_WARNING, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": super::on_statefulsets(&["UPDATE"]),
            "matchConditions": super::claimed_by_others(operators),
            "variables": variables,
            "validations": [
                {
                    "expression": text("!('$REFUSED' in variables.after)"),
                    "message": "The partition that was asked for was not granted: a PhasedRollout holds this StatefulSet.",
                    "messageExpression": text(REFUSED),
                },
                {
                    "expression": "!variables.raised",
                    "message": "The StatefulSet is held: a PhasedRollout rolls its pods one at a time.",
                    "messageExpression": text(RAISED),
                },
            ],
        },
    })
}

fn findings() -> [Value; 3] {
    [
        variable("kept", &partition("object")),
        // An old record and a new one are told apart by a leading zero, which is of no interest to a reader.
        variable("refused", "'$REFUSED' in variables.after ? string(int(variables.after['$REFUSED'])) : ''"),
        variable(
            "raised",
            &format!(
                "!('$REFUSED' in variables.after) && variables.kept == $HOLD && {} != $HOLD
&& (object.spec.template != oldObject.spec.template || !({}) || !('$CLAIM' in variables.before))",
                partition("oldObject"),
                rolls("oldObject"),
            ),
        ),
    ]
}

const REFUSED: &str = "'partition ' + variables.refused + ' was not granted: ' + variables.keeper
+ ' holds StatefulSet ' + object.metadata.name + ' at partition ' + string(variables.kept)
+ ' and lowers it pod by pod as its checks pass. To let exactly this partition through without checks, write it together with '
+ 'the annotation $ALLOW: \"' + variables.refused + '\" and without a change of the template. ' + variables.wayOut";

const RAISED: &str = "'StatefulSet ' + object.metadata.name + ' is held at partition $HOLD: ' + variables.keeper
+ ' rolls its pods one at a time as its checks pass. Nothing needs to be done. '
+ 'To see where it stands: kubectl get ' + variables.keeper.lowerAscii()";
