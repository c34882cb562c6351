//! To whom a set says that it belongs, and why it cannot be taken.

use sts_plus_api::{Reason, names};

use crate::{
    observed::{SetView, Strategy},
    why::Why,
};

/// True if a person has taken the set back.
pub(crate) fn is_released(set: &SetView) -> bool {
    set.annotations.get(names::RELEASE).is_some_and(|release| release == "true")
}

/// The PhasedRollout that a set says it belongs to.
pub(crate) fn claimed_by(set: &SetView) -> Option<&str> {
    set.annotations.get(names::CLAIM).map(String::as_str)
}

/// Why nobody can hold this set for `owner`.
pub(crate) fn refusal(set: &SetView, owner: &str) -> Option<Why> {
    let name = &set.name;
    let refuse = |reason, message: String| Some(Why::refused(reason, message));
    if set.deleting {
        return refuse(Reason::TargetTerminating, format!("StatefulSet {name} is being deleted"));
    }
    if is_released(set) && claimed_by(set) != Some(owner) {
        return refuse(
            Reason::Released,
            format!(
                "StatefulSet {name} was let go by the annotation {} and has {}; remove the annotation, and it is held again",
                names::RELEASE,
                set.partition
                    // The API server fills in 0 where there is none.
                    .filter(|partition| *partition > 0)
                    .map_or_else(|| "no partition".to_owned(), |p| format!("partition {p} until you remove it"))
            ),
        );
    }
    match &set.strategy {
        Strategy::RollingUpdate => None,
        Strategy::Other(kind) => refuse(
            Reason::UnsupportedStrategy,
            format!(
                "StatefulSet {name} has spec.updateStrategy.type {kind}, which no partition can hold; set it to RollingUpdate, and \
                 spec.updateStrategy.rollingUpdate.partition to {} in the same write",
                names::HOLD
            ),
        ),
    }
}
