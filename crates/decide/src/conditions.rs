//! Conditions as they are written: one keeps its time while its status stays.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sts_plus_api::Reason;

use crate::{text::plain, time::whole_seconds};

const MESSAGE_BYTES: usize = 400;

/// True or false, the reason, and the sentence.
pub(crate) type New = (bool, Reason, String);

/// True if the status says that this is why the set is Ready, or why it is not.
pub(crate) fn is_ready_for(before: &[Condition], reason: Reason) -> bool {
    before.iter().any(|condition| condition.type_ == "Ready" && condition.reason == reason.to_string())
}

/// A condition as it is written; it keeps its time while its status stays. `None` means Unknown.
pub(crate) fn dated(kind: &str, new: Option<New>, before: &[Condition], generation: i64, now: Timestamp) -> Condition {
    let (status, reason, message) = match new {
        Some((true, reason, message)) => ("True", reason, message),
        Some((false, reason, message)) => ("False", reason, message),
        None => ("Unknown", Reason::Unknown, "not found out yet".to_owned()),
    };
    let same = before.iter().find(|old| old.type_ == kind && old.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_string(),
        message: plain(&message, MESSAGE_BYTES),
        last_transition_time: same.map_or(Time(whole_seconds(now)), |old| old.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}
