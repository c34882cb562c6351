//! A run that cannot even look, or whose write is refused, never comes to a status; what was written before would stand there as
//! if all were well. So for errors that only a person can mend, the conditions say so. Everything else in the status stays: it is
//! what the next good run goes on from.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::Patch;
use kube::{Api, Resource as _, ResourceExt as _};
use sts_plus_api::{ConditionType, PhasedRollout, PhasedRolloutStatus, Reason, names};
use sts_plus_decide::Severity;

use super::{Context, bodies, now};
use crate::client::deadline;
use crate::errors::{Class, Error, cut};
use crate::patch::by;

const MESSAGE_BYTES: usize = 600;

/// Tells people in the status and in an event what they have to mend. Never fails; once for each error, however often it comes.
pub(super) async fn tell(rollout: &PhasedRollout, context: &Context, error: &Error) {
    let (namespace, name) = (rollout.namespace().unwrap_or_default(), rollout.name_any());
    let Some((reason, message)) = for_a_person(error) else { return };
    let basis = rollout.resource_version().unwrap_or_default();
    context.events.record(rollout.object_ref(&()), Severity::Warning, reason, &message, &basis).await;

    let rollouts: Api<PhasedRollout> = Api::namespaced(context.client.clone(), &namespace);
    let call = || format!("writing the status of PhasedRollout {namespace}/{name}");
    let Ok(Some(live)) = deadline(call(), rollouts.get_opt(&name)).await else { return };
    let before = live.status.clone().unwrap_or_default();
    let status = troubled(&before, live.metadata.generation, reason, &message, now());
    if status == before {
        return;
    }
    let body = Patch::Merge(bodies::status(&live, live.resource_version().as_deref(), &status));
    match deadline(call(), rollouts.patch_status(&name, &by(names::MANAGER_STATUS), &body)).await {
        Ok(written) => {
            context.written.remember(&live.uid().unwrap_or_default(), written.resource_version().as_deref());
        }
        Err(error) => tracing::debug!(namespace, rollout = name, "{error}"),
    }
}

fn for_a_person(error: &Error) -> Option<(Reason, String)> {
    let text = match error.class() {
        Class::Forbidden => format!("the API server refuses the operator, nothing moves until it is allowed: {error}"),
        Class::Invalid => format!("nothing moves until this is mended: {error}"),
        Class::Transient | Class::Conflict | Class::Bug => return None,
    };
    let reason = if error.class() == Class::Forbidden { Reason::Forbidden } else { Reason::Unknown };
    Some((reason, cut(&text, MESSAGE_BYTES).to_owned()))
}

/// The status with `Ready` and `Reconciling` false and `Stalled` true for this reason.
fn troubled(
    before: &PhasedRolloutStatus,
    generation: Option<i64>,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> PhasedRolloutStatus {
    let mut status = before.clone();
    message.clone_into(&mut status.message);
    let told =
        [(ConditionType::Ready, "False"), (ConditionType::Reconciling, "False"), (ConditionType::Stalled, "True")];
    for (kind, value) in told {
        let new = Condition {
            type_: kind.to_string(),
            status: value.to_owned(),
            reason: reason.to_string(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: Time(now),
        };
        match status.conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
            Some(old) if old.status == new.status => {
                *old = Condition { last_transition_time: old.last_transition_time.clone(), ..new };
            }
            Some(old) => *old = new,
            None => status.conditions.push(new),
        }
    }
    // These words are ours; what somebody else has changed stays unsealed.
    if before.is_sealed() {
        status.put_seal();
    }
    status
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn error(code: u16) -> Error {
        Error::api("listing pods", kube::Error::Api(Status::failure("no", "x").with_code(code).boxed()))
    }

    #[test]
    fn only_what_a_person_must_mend_is_told() {
        assert!(
            matches!(for_a_person(&error(403)), Some((Reason::Forbidden, text)) if text.contains("listing pods: no"))
        );
        assert!(for_a_person(&error(400)).is_some());
        assert!(for_a_person(&error(503)).is_none());
        assert!(for_a_person(&error(409)).is_none());
    }

    #[test]
    fn told_twice_is_written_once_and_the_memory_of_the_rollout_stays() {
        let first = Timestamp::from_second(1).unwrap();
        let mut before =
            PhasedRolloutStatus { target_revision: Some("web-a".to_owned()), ..PhasedRolloutStatus::default() };
        before.put_seal();
        let once = troubled(&before, Some(3), Reason::Forbidden, "m", first);
        assert_eq!(
            (once.target_revision.as_deref(), once.message.as_str(), once.conditions.len()),
            (Some("web-a"), "m", 3)
        );
        let twice = troubled(&once, Some(3), Reason::Forbidden, "m", Timestamp::from_second(2).unwrap());
        assert_eq!(once, twice);
        assert!(once.is_sealed(), "nobody has edited it by hand");
    }

    #[test]
    fn the_first_words_of_a_status_are_ours_and_an_edited_one_stays_edited() {
        let told = |before: &PhasedRolloutStatus| {
            troubled(before, Some(1), Reason::Forbidden, "m", Timestamp::from_second(1).unwrap())
        };
        assert!(told(&PhasedRolloutStatus::default()).is_sealed());
        let edited = PhasedRolloutStatus { target_revision: Some("x".to_owned()), ..PhasedRolloutStatus::default() };
        assert!(!told(&edited).is_sealed());
    }
}
