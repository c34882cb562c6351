//! Events for people (`kubectl describe`, `kubectl get events`). One that cannot be recorded is logged and forgotten: it never
//! fails a run. The client library's recorder keeps the first note of a reason for six minutes, which would tell the story of
//! the first pod for all of them; so each note is an event of its own, and the same note is not repeated. Its name follows from what
//! it was decided on: an operator that comes after a crash, or believes that it leads too, does not repeat it either.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use sts_plus_api::Reason;
use sts_plus_decide::Severity;
use tokio::time::Instant;

use crate::client::deadline;
use crate::errors::cut;

const CONTROLLER: &str = "sts-plus";
const NOTE_BYTES: usize = 1024;
const NAME_BYTES: usize = 253;
/// The same note about the same object is not recorded again within this time.
const NOT_REPEATED: Duration = Duration::from_mins(6);

/// Writes events.
pub struct Events {
    client: Client,
    instance: String,
    told: Mutex<HashMap<Told, Instant>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    uid: Option<String>,
    reason: Reason,
    note: String,
}

impl Events {
    /// A writer of events in the name of this process.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
        Self { client, instance: instance.unwrap_or_else(|| CONTROLLER.to_owned()), told: Mutex::default() }
    }

    /// Records an event about `regarding`, unless the same was recorded a short time ago, or on the same `basis`: the
    /// resourceVersion of what it was decided on.
    pub async fn record(
        &self,
        regarding: ObjectReference,
        severity: Severity,
        reason: Reason,
        note: &str,
        basis: &str,
    ) {
        let told = Told { uid: regarding.uid.clone(), reason, note: note.to_owned() };
        if !self.is_new(&told) {
            return;
        }
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = self.event(regarding, severity, reason, note, number_of(&told, basis));
        let events: Api<KubeEvent> = Api::namespaced(self.client.clone(), &namespace);
        match deadline("recording an event", events.create(&PostParams::default(), &event)).await {
            Ok(_) => {}
            Err(error) if error.is_already_there() => {
                tracing::debug!(reason = %reason, note, "the event was recorded before");
            }
            Err(error) => {
                self.lock().remove(&told);
                tracing::warn!(namespace, reason = %reason, note, "the event was not recorded: {error}");
            }
        }
    }

    fn is_new(&self, told: &Told) -> bool {
        let now = Instant::now();
        let mut all = self.lock();
        all.retain(|_, at| now.duration_since(*at) < NOT_REPEATED);
        all.insert(told.clone(), now).is_none()
    }

    fn event(
        &self,
        regarding: ObjectReference,
        severity: Severity,
        reason: Reason,
        note: &str,
        number: u64,
    ) -> KubeEvent {
        let suffix = format!(".{number:016x}");
        let object = regarding.name.clone().unwrap_or_default();
        let name = format!("{}{suffix}", cut(&object, NAME_BYTES.saturating_sub(suffix.len())));
        KubeEvent {
            action: Some(reason.to_string()),
            event_time: Some(MicroTime(Timestamp::now())),
            metadata: ObjectMeta { name: Some(name), namespace: regarding.namespace.clone(), ..ObjectMeta::default() },
            note: Some(cut(note, NOTE_BYTES).to_owned()),
            reason: Some(reason.to_string()),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(cut(&self.instance, 128).to_owned()),
            type_: Some(
                match severity {
                    Severity::Normal => "Normal",
                    Severity::Warning => "Warning",
                }
                .to_owned(),
            ),
            ..KubeEvent::default()
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Told, Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an event's name ends with. Another build of the operator has to come to the same number: that is promised of this hash, and of
/// none of the standard library.
fn number_of(told: &Told, basis: &str) -> u64 {
    let reason = told.reason.to_string();
    let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
    for part in [told.uid.as_deref().unwrap_or_default(), &reason, &told.note, basis] {
        // With its length, so that no two lists of parts are one text.
        hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finish().as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        Events::new(Client::new(service, "default"))
    }

    fn regarding() -> ObjectReference {
        ObjectReference {
            name: Some("n".repeat(253)),
            namespace: Some("ns".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_note_is_not_repeated_and_another_is() {
        let events = events();
        let told = |note: &str| Told { uid: Some("u".to_owned()), reason: Reason::PodRolling, note: note.to_owned() };
        assert!(events.is_new(&told("web-2")));
        assert!(!events.is_new(&told("web-2")));
        assert!(events.is_new(&told("web-1")), "the next pod has the same reason and another note");
        tokio::time::advance(NOT_REPEATED * 2).await;
        assert!(events.is_new(&told("web-2")));
    }

    /// Never change the number: two operators of different builds would tell everything twice.
    #[test]
    fn the_name_of_an_event_is_the_same_in_every_build_and_another_for_whatever_differs() {
        let told = |uid: &str, note: &str| Told {
            uid: Some(uid.to_owned()),
            reason: Reason::PodRolling,
            note: note.to_owned(),
        };
        assert_eq!(format!("{:016x}", number_of(&told("u", "web-2"), "7")), "fe650787509985e6");
        let others = [
            (told("u2", "web-2"), "7"),
            (told("u", "web-1"), "7"),
            (told("u", "web-2"), "8"),
            (told("u", "web-"), "27"),
            (Told { reason: Reason::Completed, ..told("u", "web-2") }, "7"),
        ];
        for (other, basis) in others {
            assert_ne!(number_of(&told("u", "web-2"), "7"), number_of(&other, basis), "{other:?} {basis}");
        }
    }

    #[tokio::test]
    async fn names_and_notes_fit() {
        let event = events().event(regarding(), Severity::Warning, Reason::ChecksFailed, &"é".repeat(600), u64::MAX);
        assert!(event.metadata.name.unwrap().len() <= NAME_BYTES);
        assert_eq!(event.note.unwrap().len(), NOTE_BYTES);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.reporting_controller.as_deref(), Some("sts-plus"));
    }
}
