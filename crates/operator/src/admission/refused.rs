//! `sts-plus-hold` for API servers before 1.36, which have no `MutatingAdmissionPolicy`: what cannot be held there is refused, with a
//! sentence that says what to do.
//!
//! It demands of the stored object what the mutating policy of the same name brings about, with the same exemptions. Where that one
//! acts, it has put everything right before this one looks, so both can be installed on any server: there this one never says no.
//!
//! 1. The template differs, or the strategy becomes RollingUpdate: no index may be at or above the partition. At rest it is the
//!    number of replicas, so a rollout begins as always; in mid-rollout, and with a scale-up in the same write, it must be raised. To
//!    pause raises it only where there is one, so the way out differs: a sentence for each.
//! 2. The partition is not lowered, unless the break-glass annotation has exactly this value.
//! 3. The annotations of the operator stay as they are; only a release drops the claim.
//!
//! A probing dry run must reach the full hold to pass rule 1: it can show that the rule is in force with a partition that rolls
//! nothing.

use serde_json::{Value, json};

use super::cel::{annotations, changes, exemptions, keeper, rolls, tampering, text, variable};

/// The policy. `operators` are the user names of the operator.
pub(super) fn policy(operators: &[String]) -> Value {
    let variables = [annotations().as_slice(), &exemptions(), &changes(), &tampering(), &demands(), &keeper()].concat();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": super::HOLD, "labels": crate::manifests::labels() },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": super::on_statefulsets(&["UPDATE"]),
            "matchConditions": super::claimed_by_others(operators),
            "variables": variables,
            "validations": [
                validation(
                    "variables.free || object.spec.template == oldObject.spec.template || variables.asked >= variables.needed",
                    &format!("{}: it would roll pods unchecked.", super::TEMPLATE_REFUSED),
                    &TEMPLATE.replace("$HEAD", super::TEMPLATE_REFUSED),
                ),
                strategy_rule("variables.free || "),
                validation(
                    "variables.free || variables.asked >= variables.had
    || ('$ALLOW' in variables.after && variables.after['$ALLOW'] == string(variables.asked))",
                    "The partition cannot be lowered: a PhasedRollout lowers it pod by pod as its checks pass.",
                    LOWERED,
                ),
                validation(
                    "size(variables.undone) == 0",
                    "Annotations of the operator cannot be changed on a StatefulSet that belongs to a PhasedRollout.",
                    ANNOTATIONS,
                ),
            ],
        },
    })
}

/// The strategy becomes RollingUpdate, unless `unless`. Needs the variables `asked`, `needed`, and those of whose set it is.
pub(super) fn strategy_rule(unless: &str) -> Value {
    validation(
        &format!("{unless}{} || variables.asked >= variables.needed", rolls("oldObject")),
        "spec.updateStrategy.type cannot become RollingUpdate under this partition: it would roll pods unchecked.",
        STRATEGY,
    )
}

fn validation(expression: &str, message: &str, message_expression: &str) -> Value {
    json!({
        "expression": text(expression),
        "reason": "Forbidden",
        "message": message,
        "messageExpression": text(message_expression),
    })
}

fn demands() -> [Value; 3] {
    [
        variable("free", &format!("variables.exempt || !({})", rolls("object"))),
        variable(
            "needed",
            &format!("has(request.dryRun) && request.dryRun && '$PROBE' in variables.after ? $HOLD : {REPLICAS}"),
        ),
        variable(
            "rollout",
            "'$CLAIM' in variables.after ? variables.after['$CLAIM'] : '$CLAIM' in variables.before ? variables.before['$CLAIM'] : '?'",
        ),
    ]
}

/// A partition below it rolls something.
pub(super) const REPLICAS: &str = "object.spec.?replicas.orValue(1)";

const STRATEGY: &str = "'spec.updateStrategy.type of StatefulSet ' + object.metadata.name
+ ' cannot become RollingUpdate with partition ' + string(variables.asked) + ': pods from that index up would roll unchecked, and '
+ variables.keeper + ' rolls them one at a time. ' + (variables.made ? variables.wayOut
: 'Write spec.updateStrategy.rollingUpdate.partition: $HOLD in the same change.')";

const TEMPLATE: &str = "'$HEAD: pods of StatefulSet ' + object.metadata.name + ' from index ' + string(variables.asked)
+ ' up would roll to it unchecked, and ' + variables.keeper + ' rolls them one at a time. ' + (variables.made ? variables.wayOut
: 'Either write spec.updateStrategy.rollingUpdate.partition: $HOLD in the same change, or set spec.paused: true on the '
+ 'PhasedRollout, wait until it has raised the partition to $HOLD, and write again.')";

const LOWERED: &str = "'spec.updateStrategy.rollingUpdate.partition of StatefulSet ' + object.metadata.name
+ ' cannot be lowered from ' + string(variables.had) + ' to ' + string(variables.asked) + ': ' + variables.keeper
+ ' lowers it pod by pod as its checks pass. Write the partition that is there, or apply a manifest without it. To let exactly this '
+ 'partition through without checks, write it together with the annotation $ALLOW: \"' + string(variables.asked)
+ '\" and without a change of the template. ' + variables.wayOut";

const ANNOTATIONS: &str = "'StatefulSet ' + object.metadata.name + ' belongs to ' + variables.keeper
+ ': leave these annotations as they are: ' + variables.undone.join(', ') + '. ' + variables.wayOut";
