//! Pieces of CEL that the policies share. Every field that may be missing is guarded: an error in an expression would refuse the
//! write (failurePolicy Fail).

use serde_json::{Value, json};
use sts_plus_api::names;

/// Fills in names and numbers: `$CLAIM` and so on become what `names` says. A longer name comes before its own beginning.
pub(super) fn text(expression: &str) -> String {
    let hold = names::HOLD.to_string();
    [
        ("$ALLOW", names::ALLOW_PARTITION),
        ("$CLAIM", names::CLAIM),
        ("$HOLD", hold.as_str()),
        ("$PROBE", names::PROBE),
        ("$REFUSED", names::REFUSED_PARTITION),
        ("$RELEASE", names::RELEASE),
        ("$SWITCH", names::HOLD_SWITCH),
        ("$WRITTEN", names::WRITTEN_PARTITION),
    ]
    .iter()
    .fold(expression.trim().to_owned(), |text, (token, value)| text.replace(token, value))
}

/// Whether `object` has the annotation.
pub(super) fn has_annotation(object: &str, annotation: &str) -> String {
    format!("(has({object}.metadata.annotations) && '{annotation}' in {object}.metadata.annotations)")
}

/// A variable of a policy.
pub(super) fn variable(name: &str, expression: &str) -> Value {
    json!({ "name": name, "expression": text(expression) })
}

/// `before` and `after`: the annotations in the old and in the new object, empty if there are none.
pub(super) fn annotations() -> [Value; 2] {
    [
        variable("before", "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"),
        variable("after", "has(object.metadata.annotations) ? object.metadata.annotations : {}"),
    ]
}

/// `rollout`: what the claim of the new object says.
pub(super) fn claimer() -> Value {
    variable("rollout", "'$CLAIM' in variables.after ? variables.after['$CLAIM'] : '?'")
}

/// `made`, `keeper` and `wayOut`: whose StatefulSet it is, and what whoever wants something else of it does, from the variable `rollout`:
/// the name of a PhasedRollout, or `ExtendedStatefulSet/<name>`, which made it.
pub(super) fn keeper() -> [Value; 3] {
    [
        variable("made", "variables.rollout.startsWith('ExtendedStatefulSet/')"),
        variable(
            "keeper",
            "variables.made ? variables.rollout.replace('/', ' ') : 'PhasedRollout ' + variables.rollout",
        ),
        variable(
            "wayOut",
            "variables.made
  ? 'Change ' + variables.keeper + ' instead: what others write to its StatefulSets is put back.'
  : 'To take the set from the PhasedRollout, remove the annotation $CLAIM and set $RELEASE: \"true\" in one write.'",
        ),
    ]
}

/// Whether the strategy of `object` is the one that a partition can hold. The API server fills in a missing type.
pub(super) fn rolls(object: &str) -> String {
    format!("{object}.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'")
}

/// The partition of `object`. A missing one is 0: everything rolls.
pub(super) fn partition(object: &str) -> String {
    format!("{object}.spec.?updateStrategy.?rollingUpdate.?partition.orValue(0)")
}

/// `released` and `exempt`, from `before` and `after`.
///
/// Released: the write drops the claim and says `release: "true"`. A person takes the set from its PhasedRollout, so nothing of
/// the write is changed.
///
/// Exempt: also a set whose claimed old object has the switch off, which only the operator can write (see `undone` of the hold):
/// a switch that comes with the very write it should exempt does not count.
pub(super) fn exemptions() -> [Value; 2] {
    [
        variable(
            "released",
            "'$CLAIM' in variables.before && !('$CLAIM' in variables.after) \
             && '$RELEASE' in variables.after && variables.after['$RELEASE'] == 'true'",
        ),
        variable(
            "exempt",
            "variables.released || ('$CLAIM' in variables.before \
             && '$SWITCH' in variables.before && variables.before['$SWITCH'] == 'off')",
        ),
    ]
}

/// `had` and `asked`: the partition before and after. `fresh`: other pods may have to roll, because the template differs or the
/// strategy becomes RollingUpdate.
pub(super) fn changes() -> [Value; 3] {
    [
        variable("had", &partition("oldObject")),
        variable("asked", &partition("object")),
        variable("fresh", &format!("object.spec.template != oldObject.spec.template || !({})", rolls("oldObject"))),
    ]
}

/// `ours` and `undone`, from `before`, `after` and `released`: the annotations of the operator that the write drops, changes or
/// adds. The claim is the exception: anybody may add it, and a release may drop it. An annotation that is left over on a set
/// which was not claimed counts as absent.
pub(super) fn tampering() -> [Value; 2] {
    [
        variable("ours", "'$CLAIM' in variables.before ? variables.before : {}"),
        variable(
            "undone",
            "variables.released
  ? []
  : ['$CLAIM', '$SWITCH', '$WRITTEN'].filter(key, key in variables.ours
    ? !(key in variables.after) || variables.after[key] != variables.ours[key]
    : key in variables.after && key != '$CLAIM')",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_every_name() {
        let filled = text("  $CLAIM $RELEASE $REFUSED $SWITCH $HOLD $ALLOW $WRITTEN $PROBE ");
        assert!(!filled.contains('$'), "{filled}");
        assert!(filled.starts_with(names::CLAIM) && filled.contains("2147483647"), "{filled}");
    }
}
