//! Does the API server itself keep the hold? Found out by dry runs, in the background: a decision never waits for one, and one
//! that fails is never an error of a run. A dry run writes nothing.

mod probe;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::runtime::reflector::ObjectRef;
use sts_plus_api::{ConditionType, PhasedRollout, PhasedRolloutStatus, Reason, names};
use sts_plus_decide::HoldState;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::views::SetObject;
use crate::watch::{Queue, send};
pub(crate) use probe::serves_mutating_policies;

/// How long "it is held" is believed.
const BELIEVED: Duration = Duration::from_mins(5);
/// How long "it is not held" is believed, and how long nothing is asked after a dry run that failed.
const DOUBTED: Duration = Duration::from_secs(20);
/// Policies need a moment until the API server acts on them: after a change of one this is how long it is asked again and again…
const SETTLING: Duration = Duration::from_secs(8);
/// …with these pauses.
const SETTLING_PAUSE: Duration = Duration::from_millis(1500);
/// Dry runs at once: a change of a policy must not become a storm.
const AT_ONCE: usize = 8;
/// A set that nobody asked about for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_hours(1);

/// What is known about the hold of each set.
pub struct Hold {
    client: Client,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Inner {
    sets: HashMap<String, Known>,
    changed: Option<Instant>,
}

struct Known {
    state: HoldState,
    /// When the last dry run ended; missing while the first one is under way.
    found: Option<Instant>,
    asking: bool,
    looked_at: Instant,
}

/// The answer to a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// What is believed now.
    pub state: HoldState,
    /// When to look again, if that is known.
    pub again: Option<Duration>,
}

impl Hold {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            inner: Mutex::default(),
            changes: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// A policy or a binding of ours was written or removed: what is known is to be found out anew.
    pub fn policies_changed(&self) {
        self.lock().changed = Some(Instant::now());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes each time that everything is to be found out anew.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is believed about `set`. If it is time to ask, a dry run is started in the background, and `rollout` looks again when
    /// it says something new. Only sets that `rollout` has claimed are asked about.
    pub fn look(self: &Arc<Self>, set: &SetObject, rollout: &PhasedRollout, queue: &Queue) -> Looked {
        if !is_asked_about(set, rollout) {
            return Looked { state: HoldState::Unknown, again: None };
        }
        let now = Instant::now();
        let mut inner = self.lock();
        let changed = inner.changed;
        inner.sets.retain(|_, known| now.duration_since(known.looked_at) < FORGOTTEN);
        let known = inner.sets.entry(set.uid().to_owned()).or_insert_with(|| Known {
            state: remembered(rollout.status.as_ref(), set.uid()),
            found: None,
            asking: false,
            looked_at: now,
        });
        known.looked_at = now;
        let expires = known.found.map(|found| found + believed_for(&known.state, found, changed));
        if !known.asking && expires.is_none_or(|expires| expires <= now) {
            known.asking = true;
            self.ask(set, ObjectRef::from_obj(rollout), queue.clone());
        }
        // While a dry run is under way its end wakes the object.
        let again = if known.asking { None } else { expires.map(|expires| expires.duration_since(now)) };
        Looked { state: known.state.clone(), again }
    }

    fn ask(self: &Arc<Self>, set: &SetObject, rollout: ObjectRef<PhasedRollout>, queue: Queue) {
        let hold = Arc::clone(self);
        let (namespace, name, uid) = (set.namespace().to_owned(), set.name().to_owned(), set.uid().to_owned());
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _place = hold.places.acquire().await;
            let found = probe::find_out(&hold.client, &namespace, &name, &uid).await;
            hold.found(&namespace, &name, &uid, found);
            // Always: the run that follows knows when to look again.
            send(&queue, [rollout]);
        });
    }

    fn found(&self, namespace: &str, name: &str, uid: &str, found: Option<HoldState>) {
        let mut inner = self.lock();
        let Some(known) = inner.sets.get_mut(uid) else { return };
        known.asking = false;
        known.found = Some(Instant::now());
        let Some(state) = found else { return };
        if known.state != state {
            match &state {
                HoldState::Enforced => tracing::info!(namespace, set = name, "hold: the API server keeps it"),
                HoldState::Refusing => {
                    tracing::info!(namespace, set = name, "hold: the API server refuses what breaks it");
                }
                HoldState::NotEnforced(reason, text) => {
                    tracing::warn!(namespace, set = name, reason = %reason, "hold: the API server does not keep it: {text}");
                }
                HoldState::Unknown => tracing::info!(namespace, set = name, "hold: not known"),
            }
        }
        known.state = state;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets that are claimed, can be held and are meant to be held.
fn is_asked_about(set: &SetObject, rollout: &PhasedRollout) -> bool {
    set.claimed_by().is_some()
        && set.claimed_by() == rollout.metadata.name.as_deref()
        && set.is_rolling_update()
        && set.annotation(names::HOLD_SWITCH) != Some("off")
        && set.metadata.deletion_timestamp.is_none()
}

/// How long what was found at `found` is believed.
fn believed_for(state: &HoldState, found: Instant, changed: Option<Instant>) -> Duration {
    match changed {
        Some(changed) if found < changed => Duration::ZERO,
        Some(changed) if found < changed + SETTLING => SETTLING_PAUSE,
        _ if matches!(state, HoldState::Enforced | HoldState::Refusing) => BELIEVED,
        _ => DOUBTED,
    }
}

/// What the status says about this very set: after a restart it is believed until the first dry run is back, so that a restart
/// alone changes no condition.
fn remembered(status: Option<&PhasedRolloutStatus>, set_uid: &str) -> HoldState {
    let condition = status.filter(|status| status.target_uid.as_deref() == Some(set_uid)).and_then(|status| {
        status.conditions.iter().find(|condition| condition.type_ == ConditionType::HoldEnforced.to_string())
    });
    let Some(condition) = condition else { return HoldState::Unknown };
    let reason = [Reason::PolicyNotServed, Reason::PolicyNotEffective, Reason::Forbidden, Reason::Unknown]
        .into_iter()
        .find(|reason| reason.to_string() == condition.reason);
    match (condition.status.as_str(), reason) {
        ("True", _) if condition.reason == Reason::RefusedByPolicy.to_string() => HoldState::Refusing,
        ("True", _) => HoldState::Enforced,
        ("False", Some(reason)) => HoldState::NotEnforced(reason, condition.message.clone()),
        _ => HoldState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(annotations: &Value, strategy: &str) -> SetObject {
        serde_json::from_value(
            json!({"metadata": {"name": "web", "namespace": "ns", "uid": "u", "annotations": annotations},
            "spec": {"updateStrategy": {"type": strategy}}}),
        )
        .unwrap()
    }

    fn rollout(conditions: &Value) -> PhasedRollout {
        serde_json::from_value(json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": "pr", "namespace": "ns"}, "spec": {"targetRef": "web", "skipCheck": true},
            "status": {"targetUid": "u", "conditions": conditions}}))
        .unwrap()
    }

    #[test]
    fn only_claimed_sets_that_are_meant_to_be_held_are_asked_about() {
        let rollout = rollout(&json!([]));
        let asked = |annotations: Value, strategy: &str| is_asked_about(&set(&annotations, strategy), &rollout);
        assert!(asked(json!({names::CLAIM: "pr"}), "RollingUpdate"));
        assert!(!asked(json!({}), "RollingUpdate"));
        assert!(!asked(json!({names::CLAIM: "another"}), "RollingUpdate"));
        assert!(!asked(json!({names::CLAIM: "pr"}), "OnDelete"));
        assert!(!asked(json!({names::CLAIM: "pr", names::HOLD_SWITCH: "off"}), "RollingUpdate"));
    }

    #[test]
    fn a_restart_believes_the_condition_of_the_same_set() {
        let condition = |status: &str, reason: &str| json!([{"type": "HoldEnforced", "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let said = |status: &str, reason: &str| remembered(rollout(&condition(status, reason)).status.as_ref(), "u");
        assert_eq!(said("True", "Enforced"), HoldState::Enforced);
        assert_eq!(said("True", "RefusedByPolicy"), HoldState::Refusing);
        assert_eq!(said("False", "PolicyNotServed"), HoldState::NotEnforced(Reason::PolicyNotServed, "m".to_owned()));
        assert_eq!(said("Unknown", "Unknown"), HoldState::Unknown);
        assert_eq!(remembered(rollout(&condition("True", "Enforced")).status.as_ref(), "another"), HoldState::Unknown);
        assert_eq!(remembered(None, "u"), HoldState::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_policy_is_asked_after_at_once_and_then_for_a_while() {
        let start = Instant::now();
        let changed = Some(start + Duration::from_secs(10));
        let not = HoldState::NotEnforced(Reason::PolicyNotEffective, String::new());
        assert_eq!(believed_for(&HoldState::Enforced, start, None), BELIEVED);
        assert_eq!(believed_for(&HoldState::Refusing, start, None), BELIEVED);
        assert_eq!(believed_for(&not, start, None), DOUBTED);
        assert_eq!(believed_for(&HoldState::Enforced, start, changed), Duration::ZERO);
        assert_eq!(believed_for(&not, start + Duration::from_secs(11), changed), SETTLING_PAUSE);
        assert_eq!(believed_for(&not, start + Duration::from_secs(19), changed), DOUBTED);
    }
}
