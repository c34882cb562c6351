//! Does the API server itself keep the hold? That is a fact of a namespace, found out by a dry run on one of its claimed sets, in the
//! background: a decision never waits for one, and one that fails is never an error of a run. A dry run writes nothing.

mod namespaces;
mod probe;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use sts_plus_api::{ConditionType, PhasedRollout, PhasedRolloutStatus, Reason, names};
use sts_plus_decide::HoldState;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::views::SetObject;
use namespaces::{Candidate, Namespaces, Outcome, Question};
use probe::Said;
pub(crate) use probe::serves_mutating_policies;

/// Namespaces that are asked about at once, and the pause between two of them: neither a start nor a change of a policy must become a
/// storm.
const AT_ONCE: usize = 8;
const PAUSE: Duration = Duration::from_millis(20);
/// Namespaces with news that a slow listener may be behind; beyond that it hears that it has missed some.
const NEWS: usize = 1024;

/// What is known about the hold.
pub struct Hold {
    client: Client,
    namespaces: Mutex<Namespaces>,
    /// There may be something to ask sooner than was thought.
    sooner: Notify,
    news: broadcast::Sender<Arc<str>>,
}

impl Hold {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, namespaces: Mutex::default(), sooner: Notify::new(), news: broadcast::Sender::new(NEWS) }
    }

    /// A policy or a binding of ours was written or removed: what is known is to be found out anew.
    pub fn policies_changed(&self) {
        self.lock().policies_changed(Instant::now());
        self.sooner.notify_one();
    }

    /// This operator leads from now on.
    pub fn leads(&self) {
        self.lock().leads(Instant::now());
        self.sooner.notify_one();
    }

    /// The namespaces of which something new is known, from now on: all who look at their sets look again.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Arc<str>> {
        self.news.subscribe()
    }

    /// What is believed about `set`. Only sets that `rollout` has claimed are asked about.
    pub fn look(&self, set: &SetObject, rollout: &PhasedRollout) -> HoldState {
        if !can_be_held(set) || set.claimed_by() != rollout.metadata.name.as_deref() {
            return HoldState::Unknown;
        }
        let candidate = Candidate { name: set.name().into(), uid: set.uid().into() };
        let memory = remembered(rollout.status.as_ref(), set.uid());
        let (now, mut namespaces) = (Instant::now(), self.lock());
        let state = namespaces.look(set.namespace(), candidate, memory, now);
        if namespaces.next().is_some_and(|next| next <= now) {
            self.sooner.notify_one();
        }
        state
    }

    /// Finds out whenever it is time to, until it is dropped.
    pub async fn keep_asking(self: Arc<Self>) {
        let mut asked = JoinSet::new();
        let mut pace = tokio::time::interval(PAUSE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = self.lock().next();
            tokio::select! {
                Some(_) = asked.join_next() => {}
                () = self.sooner.notified() => {}
                () = until(next), if asked.len() < AT_ONCE => {
                    pace.tick().await;
                    let question = self.lock().take_due(Instant::now());
                    if let Some(question) = question {
                        asked.spawn(Arc::clone(&self).ask(question));
                    }
                }
            }
        }
    }

    async fn ask(self: Arc<Self>, question: Question) {
        let outcome = self.find_out(&question).await;
        let (state, namespace) = (outcome.state.clone(), &question.namespace);
        if !self.lock().answered(&question, outcome, Instant::now()) {
            return;
        }
        match state {
            Some(HoldState::Enforced) => tracing::info!(%namespace, "hold: the API server keeps it"),
            Some(HoldState::Refusing) => tracing::info!(%namespace, "hold: the API server refuses what breaks it"),
            Some(HoldState::NotEnforced(reason, text)) => {
                tracing::warn!(%namespace, %reason, "hold: the API server does not keep it: {text}");
            }
            Some(HoldState::Unknown) | None => {}
        }
        // Nobody listens while nobody works.
        let _ = self.news.send(question.namespace);
    }

    /// Asks about one set after the other until one says something about the namespace.
    async fn find_out(&self, Question { namespace, sets, .. }: &Question) -> Outcome {
        let mut outcome = Outcome::default();
        for set in sets {
            match probe::find_out(&self.client, namespace, &set.name, &set.uid).await {
                Said::State(state) => return Outcome { state: Some(state), ..outcome },
                Said::Refused(state) => outcome.state = outcome.state.or(Some(state)),
                Said::Unfit => outcome.unfit.push(set.clone()),
                Said::Nothing => return Outcome { state: None, ..outcome },
            }
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next).await,
        None => std::future::pending().await,
    }
}

/// Sets that are claimed, can be held and are meant to be held. The policies leave others alone.
fn can_be_held(set: &SetObject) -> bool {
    set.claimed_by().is_some()
        && set.is_rolling_update()
        && set.annotation(names::HOLD_SWITCH) != Some("off")
        && set.metadata.deletion_timestamp.is_none()
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
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server: what was asked about, and where the hold is kept.
    #[derive(Default)]
    struct Server {
        dry_runs: Mutex<Vec<String>>,
        held: Mutex<bool>,
    }

    impl Server {
        fn holds(&self, held: bool) {
            *self.held.lock().unwrap() = held;
        }

        /// What it was asked about since the last call.
        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut self.dry_runs.lock().unwrap())
        }

        /// A set whose name says that it is refused, released or gone is.
        fn answer(&self, method: &Method, path: &str) -> (u16, Value) {
            if method == Method::GET {
                let policies = json!({ "name": "mutatingadmissionpolicies", "singularName": "", "namespaced": false,
                    "kind": "MutatingAdmissionPolicy", "verbs": [] });
                return (200, json!({ "groupVersion": "admissionregistration.k8s.io/v1", "resources": [policies] }));
            }
            let parts: Vec<_> = path.split('/').collect();
            let (namespace, name) = (parts[5], parts[7]);
            self.dry_runs.lock().unwrap().push(format!("{namespace}/{name}"));
            let refusal = |code: u16, message: &str| {
                (
                    code,
                    json!({ "kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "x" }),
                )
            };
            if name.ends_with("-refused") {
                return refusal(403, "exceeded quota: q");
            }
            if name.ends_with("-gone") {
                return refusal(404, "not found");
            }
            let is_claimed = !name.ends_with("-released");
            let claim = if is_claimed { json!({ names::CLAIM: "pr" }) } else { json!({}) };
            let partition = if is_claimed && *self.held.lock().unwrap() { names::HOLD } else { 7 };
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": partition } });
            let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": { "updateStrategy": strategy },
                "metadata": { "name": name, "namespace": namespace, "uid": "u", "annotations": claim } });
            (200, set)
        }
    }

    fn client(server: &Arc<Server>) -> Client {
        let server = Arc::clone(server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, answer) = server.answer(request.method(), request.uri().path());
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        Client::new(service, "ns")
    }

    /// A hold beside a server, at work.
    struct Rig {
        server: Arc<Server>,
        hold: Arc<Hold>,
        news: broadcast::Receiver<Arc<str>>,
        _tasks: JoinSet<()>,
    }

    impl Rig {
        fn new(is_kept: bool) -> Self {
            let server = Arc::new(Server::default());
            server.holds(is_kept);
            let hold = Arc::new(Hold::new(client(&server)));
            let mut tasks = JoinSet::new();
            tasks.spawn(Arc::clone(&hold).keep_asking());
            Self { server, news: hold.changes(), hold, _tasks: tasks }
        }

        fn look(&self, namespace: &str, name: &str, conditions: &Value) -> HoldState {
            let mut set = set(&json!({ names::CLAIM: "pr" }), "RollingUpdate");
            set.metadata.namespace = Some(namespace.to_owned());
            set.metadata.name = Some(name.to_owned());
            self.hold.look(&set, &rollout(conditions))
        }

        /// Time passes; what was asked about, and of which namespaces there is news.
        async fn after(&mut self, time: Duration) -> (Vec<String>, Vec<String>) {
            tokio::time::sleep(time).await;
            let news = std::iter::from_fn(|| self.news.try_recv().ok()).map(|namespace| namespace.to_string());
            (self.server.asked(), news.collect())
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn enforced() -> Value {
        json!([{ "type": "HoldEnforced", "status": "True", "reason": "Enforced", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }])
    }

    #[tokio::test(start_paused = true)]
    async fn at_a_start_with_thousands_of_sets_each_namespace_is_asked_about_once_and_nobody_is_woken() {
        let mut rig = Rig::new(true);
        for number in 0..10_000 {
            let (namespace, name) = (format!("ns-{}", number % 10), format!("web-{number}"));
            assert_eq!(rig.look(&namespace, &name, &enforced()), HoldState::Enforced);
        }
        let (asked, news) = rig.after(SECOND).await;
        assert_eq!((asked.len(), news.len()), (0, 0), "there are more urgent things");
        let (asked, news) = rig.after(SECOND * 60).await;
        assert_eq!((asked.len(), news.len()), (10, 0), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_comes_and_goes_is_told_to_whoever_listens() {
        let mut rig = Rig::new(false);
        assert_eq!(rig.look("ns", "a", &json!([])), HoldState::Unknown);
        assert_eq!(rig.after(SECOND).await, (vec!["ns/a".to_owned()], vec!["ns".to_owned()]));
        let looked = rig.look("ns", "b", &enforced());
        assert!(matches!(looked, HoldState::NotEnforced(Reason::PolicyNotEffective, _)), "shown, and not remembered");
        rig.server.holds(true);
        rig.hold.policies_changed();
        assert_eq!(rig.after(SECOND).await, (vec!["ns/a".to_owned()], vec!["ns".to_owned()]));
        assert_eq!(rig.look("ns", "b", &json!([])), HoldState::Enforced);
        let (asked, news) = rig.after(SECOND * 60).await;
        assert!(asked.len() > 3 && news.is_empty(), "for a while, without news: {asked:?} {news:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_set_that_somebody_else_refuses_or_that_is_not_ours_any_more_says_nothing_about_the_namespace() {
        let mut rig = Rig::new(true);
        for name in ["a-refused", "b-released", "c-gone", "d"] {
            rig.look("ns", name, &json!([]));
        }
        assert_eq!(rig.after(SECOND).await.0, ["ns/a-refused", "ns/b-released", "ns/c-gone", "ns/d"]);
        assert_eq!(rig.look("ns", "d", &json!([])), HoldState::Enforced);
        assert_eq!(rig.after(SECOND * 301).await.0, ["ns/a-refused", "ns/d"], "those that are none are let go");

        rig.look("other", "a-refused", &json!([]));
        assert_eq!(rig.after(SECOND).await.1, ["other"]);
        let looked = rig.look("other", "a-refused", &json!([]));
        assert!(matches!(looked, HoldState::NotEnforced(Reason::Unknown, _)), "there is no other: {looked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_held_is_not_asked_about_every_twenty_seconds_for_ever() {
        let mut rig = Rig::new(false);
        let mut asked = Vec::new();
        for _ in 0..60 {
            for number in 0..50 {
                rig.look("ns", &format!("web-{number}"), &json!([]));
            }
            asked.extend(rig.after(SECOND * 60).await.0);
        }
        assert!(asked.len() >= 12 && asked.len() <= 22, "in an hour, for fifty sets: {}", asked.len());
    }

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

    #[tokio::test]
    async fn only_claimed_sets_that_are_meant_to_be_held_are_asked_about() {
        let rollout = rollout(&json!([]));
        let asked = |annotations: Value, strategy: &str| {
            let hold = Hold::new(client(&Arc::default()));
            hold.look(&set(&annotations, strategy), &rollout);
            hold.lock().next().is_some()
        };
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
}
