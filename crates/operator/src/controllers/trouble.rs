//! A run that cannot even look, or whose write is refused, never comes to a status; what was written before would stand there as
//! if all were well. So for errors that only a person can mend, the conditions say so. Everything else in the status stays: it is
//! what the next good run goes on from.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::Patch;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sts_plus_api::{
    ConditionType, ExtendedStatefulSet, ExtendedStatefulSetStatus, PhasedRollout, PhasedRolloutStatus, Reason, names,
};
use sts_plus_decide::Severity;

use super::when::now;
use crate::client::deadline;
use crate::errors::{Class, Error, cut};
use crate::events::Events;
use crate::patch::{by, status_patch};
use crate::written::Written;

const MESSAGE_BYTES: usize = 600;

/// An object that says in its status what went wrong.
pub(crate) trait Troubled: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> {
    type Status: Clone + Default + PartialEq + Serialize + Send + Sync;

    fn status(&self) -> Option<&Self::Status>;

    /// Writes into the generation that is observed, the message, and the conditions.
    fn put(status: &mut Self::Status, words: impl FnOnce(&mut Option<i64>, &mut String, &mut Vec<Condition>));
}

impl Troubled for PhasedRollout {
    type Status = PhasedRolloutStatus;

    fn status(&self) -> Option<&PhasedRolloutStatus> {
        self.status.as_ref()
    }

    fn put(status: &mut PhasedRolloutStatus, words: impl FnOnce(&mut Option<i64>, &mut String, &mut Vec<Condition>)) {
        let is_sealed = status.is_sealed();
        words(&mut status.observed_generation, &mut status.message, &mut status.conditions);
        // These words are ours; what somebody else has changed stays unsealed.
        if is_sealed {
            status.put_seal();
        }
    }
}

impl Troubled for ExtendedStatefulSet {
    type Status = ExtendedStatefulSetStatus;

    fn status(&self) -> Option<&ExtendedStatefulSetStatus> {
        self.status.as_ref()
    }

    fn put(
        status: &mut ExtendedStatefulSetStatus,
        words: impl FnOnce(&mut Option<i64>, &mut String, &mut Vec<Condition>),
    ) {
        words(&mut status.observed_generation, &mut status.message, &mut status.conditions);
    }
}

/// Tells people in the status and in an event what they have to mend. Never fails; once for each error, however often it comes.
pub(super) async fn tell<K>(object: &K, error: &Error, client: &Client, events: &Events, written: &Written)
where
    K: Troubled + Clone + Debug + DeserializeOwned,
{
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let Some((reason, message)) = for_a_person(error) else { return };
    let basis = object.resource_version().unwrap_or_default();
    events.record(object.object_ref(&()), Severity::Warning, reason, &message, &basis).await;

    let objects: Api<K> = Api::namespaced(client.clone(), &namespace);
    let call = || format!("writing the status of {} {namespace}/{name}", K::kind(&()));
    let Ok(Some(live)) = deadline(call(), objects.get_opt(&name)).await else { return };
    let before = live.status().cloned().unwrap_or_default();
    let status = troubled::<K>(&before, live.meta().generation, reason, &message, now());
    if status == before {
        return;
    }
    let body = Patch::Merge(status_patch(&live, live.resource_version().as_deref(), &live.status(), &status));
    match deadline(call(), objects.patch_status(&name, &by(names::MANAGER_STATUS), &body)).await {
        Ok(answer) => written.remember(&live.uid().unwrap_or_default(), answer.resource_version().as_deref()),
        Err(error) => tracing::debug!(namespace, name, "{error}"),
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
fn troubled<K: Troubled>(
    before: &K::Status,
    generation: Option<i64>,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> K::Status {
    let mut status = before.clone();
    K::put(&mut status, |observed, words, conditions| {
        message.clone_into(words);
        // A status that is of no generation yet stays so: nothing is known of the object.
        *observed = observed.and(generation);
        let told =
            [(ConditionType::Ready, "False"), (ConditionType::Reconciling, "False"), (ConditionType::Stalled, "True")];
        for (kind, value) in told {
            let new = Condition {
                type_: kind.to_string(),
                status: value.to_owned(),
                reason: reason.to_string(),
                message: message.to_owned(),
                observed_generation: *observed,
                last_transition_time: Time(now),
            };
            match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
                Some(old) if old.status == new.status => {
                    *old = Condition { last_transition_time: old.last_transition_time.clone(), ..new };
                }
                Some(old) => *old = new,
                None => conditions.push(new),
            }
        }
    });
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
        let once = troubled::<PhasedRollout>(&before, Some(3), Reason::Forbidden, "m", first);
        assert_eq!(
            (once.target_revision.as_deref(), once.message.as_str(), once.conditions.len()),
            (Some("web-a"), "m", 3)
        );
        let twice =
            troubled::<PhasedRollout>(&once, Some(3), Reason::Forbidden, "m", Timestamp::from_second(2).unwrap());
        assert_eq!(once, twice);
        assert!(once.is_sealed(), "nobody has edited it by hand");
    }

    #[test]
    fn versions_say_it_in_the_same_conditions_and_keep_what_is_known() {
        let before = ExtendedStatefulSetStatus { last_version: 4, ..ExtendedStatefulSetStatus::default() };
        let told = troubled::<ExtendedStatefulSet>(&before, Some(3), Reason::Forbidden, "m", Timestamp::UNIX_EPOCH);
        let conditions: Vec<_> = told.conditions.iter().map(|one| format!("{} {}", one.type_, one.status)).collect();
        assert_eq!((told.last_version, told.message.as_str()), (4, "m"));
        assert_eq!(conditions, ["Ready False", "Reconciling False", "Stalled True"]);
    }

    #[test]
    fn the_first_words_of_a_status_are_ours_and_an_edited_one_stays_edited() {
        let told = |before: &PhasedRolloutStatus| {
            troubled::<PhasedRollout>(before, Some(1), Reason::Forbidden, "m", Timestamp::from_second(1).unwrap())
        };
        assert!(told(&PhasedRolloutStatus::default()).is_sealed());
        let edited = PhasedRolloutStatus { target_revision: Some("x".to_owned()), ..PhasedRolloutStatus::default() };
        assert!(!told(&edited).is_sealed());
    }
}
