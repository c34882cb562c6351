//! Whole runs against a small API server in memory: what is read, what is written, and what a refusal leads to.

mod views;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_decide::NewPartition;

use kube::Client;
use kube::runtime::controller::Action as Next;

use super::*;
use crate::checks::prober;
use crate::controllers::drive::{FRESH_ROUNDS, after_error, reconcile};
use crate::controllers::turns::{Lane, Turns};
use crate::controllers::{now, partition};
use crate::errors::Class;
use crate::events::Events;
use crate::views::{PodObject, SetObject};
use crate::watch::{Keyed, Writer};

/// One PhasedRollout, one set and its pods, as an API server keeps them.
struct World {
    rollout: Option<Value>,
    set: Value,
    pods: Vec<Value>,
    log: Vec<String>,
    /// Codes to refuse the next writes with.
    refuse: VecDeque<u16>,
    /// True: a partition stays what it is, as the admission policies keep it against strangers.
    keeps_partition: bool,
}

impl World {
    fn new() -> Self {
        let pod = |index: usize| {
            let owner = OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "StatefulSet".to_owned(),
                name: "web".to_owned(),
                uid: "set-uid".to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            };
            json!({"metadata": {"name": format!("web-{index}"), "namespace": "ns", "uid": format!("pod-{index}"),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", "controller-revision-hash": "web-a"},
                "ownerReferences": [owner]},
                "status": {"phase": "Running", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}]}})
        };
        Self {
            rollout: Some(json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
                "metadata": {"name": "web", "namespace": "ns", "uid": "rollout-uid", "generation": 1, "resourceVersion": "10",
                    "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"targetRef": "web", "check": {"query": {"expr": "up", "url": "127.0.0.1:1"}}}})),
            set: json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": "web", "namespace": "ns", "uid": "set-uid", "generation": 1, "resourceVersion": "10"},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}},
                "status": {"observedGeneration": 1, "currentRevision": "web-a", "updateRevision": "web-a"}}),
            pods: vec![pod(0), pod(1)],
            log: Vec::new(),
            refuse: VecDeque::new(),
            keeps_partition: false,
        }
    }

    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &[u8]) -> (u16, Value) {
        let resource = path.split("/namespaces/ns/").nth(1).unwrap_or_default().to_owned();
        let dry = query.contains("dryRun=All");
        self.log.push(format!("{}{method} {resource}", if dry { "dry " } else { "" }));
        if dry {
            return (503, refusal(503));
        }
        if *method != Method::GET
            && !resource.starts_with("events")
            && let Some(code) = self.refuse.pop_front()
        {
            return (code, refusal(code));
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        match (method.as_str(), resource.as_str()) {
            ("GET", "phasedrollouts/web") => self.rollout.clone().map_or((404, refusal(404)), |rollout| (200, rollout)),
            ("GET", "secrets/prom") => (200, json!({"metadata": {"name": "prom"}, "data": {"token": "dA=="}})),
            ("GET", "statefulsets/web") => (200, self.set.clone()),
            ("GET", "pods") => (200, json!({"metadata": {}, "items": self.pods})),
            ("PATCH", "statefulsets/web") => {
                let strategy = self.set["spec"]["updateStrategy"].clone();
                let (code, answer) = patched(&mut self.set, body);
                if !self.keeps_partition {
                    return (code, answer);
                }
                self.set["spec"]["updateStrategy"] = strategy;
                (code, self.set.clone())
            }
            ("PATCH", "phasedrollouts/web") => patched(self.rollout.as_mut().unwrap(), body),
            ("PATCH", "phasedrollouts/web/status") => {
                let rollout = self.rollout.as_mut().unwrap();
                if rollout["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return (409, refusal(409));
                }
                json_patch::merge(&mut rollout["status"], &body["status"]);
                bump(rollout);
                (200, rollout.clone())
            }
            ("POST", _) => (201, body),
            _ => (404, refusal(404)),
        }
    }
}

fn patched(object: &mut Value, patch: Value) -> (u16, Value) {
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    let spec = object["spec"].clone();
    if json_patch::patch(object, &patch).is_err() {
        return (422, refusal(422));
    }
    if object["spec"] != spec {
        let generation = object["metadata"]["generation"].as_i64().unwrap();
        object["metadata"]["generation"] = json!(generation + 1);
        object["status"]["observedGeneration"] = json!(generation + 1);
    }
    bump(object);
    (200, object.clone())
}

fn bump(object: &mut Value) {
    let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

fn refusal(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no",
        "reason": if code == 404 { "NotFound" } else { "Other" }})
}

/// The API server, and an operator beside it whose caches are as fresh as they are told to be.
struct Rig {
    world: Arc<Mutex<World>>,
    context: Arc<Context>,
    rollouts: Writer<PhasedRollout>,
    sets: Writer<SetObject>,
    pods: Writer<PodObject>,
}

impl Rig {
    fn new() -> Self {
        Self::of(Arc::new(Mutex::new(World::new())))
    }

    /// An operator that has just started.
    fn of(world: Arc<Mutex<World>>) -> Self {
        let server = Arc::clone(&world);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let query = head.uri.query().unwrap_or_default().to_owned();
                let (code, answer) = server.lock().unwrap().answer(&head.method, head.uri.path(), &query, &body);
                Ok::<_, Infallible>(
                    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap(),
                )
            }
        });
        let client = Client::new(service, "ns");
        let (rollouts, sets, pods) = (Writer::default(), Writer::default(), Writer::default());
        let caches = Caches {
            rollouts: rollouts.cache(),
            owners: Writer::default().cache(),
            sets: sets.cache(),
            pods: pods.cache(),
            refusals: Writer::default().cache(),
            services: Writer::default().cache(),
        };
        let context = Context {
            caches: Arc::new(caches),
            queue: crate::watch::Queue::new().0,
            kind: PhasedRollouts { hold: Arc::new(Hold::new(client.clone())) },
            slots: Arc::default(),
            resync: Duration::from_mins(5),
            turns: Turns::new(1),
            scopes: 1,
            written: Arc::default(),
            events: Arc::new(Events::new(client.clone())),
            prober: Arc::new(prober(sts_plus_gates::AddressPolicy { allow_loopback: true }.into())),
            guard: Arc::new(crate::leader::Guard::always()),
            metrics: Arc::default(),
            pulse: Arc::default(),
            client,
        };
        let mut rig = Self { world, context: Arc::new(context), rollouts, sets, pods };
        rig.refresh();
        rig
    }

    /// The caches see what the API server has.
    fn refresh(&mut self) {
        fn fill<K: Keyed>(writer: &mut Writer<K>, objects: impl IntoIterator<Item = K>) {
            writer.apply(&Event::Init);
            for object in objects {
                writer.apply(&Event::InitApply(object));
            }
            writer.apply(&Event::InitDone);
        }
        let world = self.world.lock().unwrap();
        fill(&mut self.rollouts, world.rollout.clone().map(|rollout| serde_json::from_value(rollout).unwrap()));
        fill(&mut self.sets, [serde_json::from_value::<SetObject>(world.set.clone()).unwrap().shrunk()]);
        fill(
            &mut self.pods,
            world.pods.iter().map(|pod| serde_json::from_value::<PodObject>(pod.clone()).unwrap().shrunk()),
        );
    }

    async fn run(&self) -> Result<Next, Error> {
        let rollout = self.context.caches.rollouts.state().pop().unwrap();
        reconcile(rollout, Arc::clone(&self.context)).await
    }

    /// What was asked since the last call, without dry runs.
    fn asked(&self) -> Vec<String> {
        let log = std::mem::take(&mut self.world.lock().unwrap().log);
        log.into_iter().filter(|line| !line.starts_with("dry ")).collect()
    }

    fn writes(&self) -> Vec<String> {
        self.asked().into_iter().filter(|line| !line.starts_with("GET") && !line.starts_with("POST events")).collect()
    }

    async fn settle(&mut self) {
        for _ in 0..10 {
            self.run().await.unwrap();
            self.refresh();
        }
        self.asked();
    }
}

#[tokio::test]
async fn a_set_is_claimed_and_then_nothing_is_asked_or_written() {
    let mut rig = Rig::new();
    let mut writes = Vec::new();
    for _ in 0..10 {
        rig.run().await.unwrap();
        rig.refresh();
        writes.extend(rig.writes());
    }
    assert_eq!(
        writes,
        ["PATCH phasedrollouts/web", "PATCH statefulsets/web", "PATCH phasedrollouts/web/status"],
        "finalizer, hold, status"
    );
    {
        let world = rig.world.lock().unwrap();
        assert_eq!(world.set["metadata"]["annotations"][names::CLAIM], "web");
        assert_eq!(world.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 2);
    }
    rig.run().await.unwrap();
    assert!(rig.asked().is_empty(), "at rest the caches are enough");
}

// spec: L075
#[tokio::test]
async fn a_refused_write_is_decided_anew_at_once() {
    for code in [409, 422] {
        let rig = Rig::new();
        rig.world.lock().unwrap().refuse.push_back(code);
        rig.run().await.unwrap();
        let asked = rig.asked();
        let reads = asked.iter().filter(|line| *line == "GET phasedrollouts/web").count();
        assert_eq!(reads, 2, "{code}: {asked:?}");
    }
}

#[tokio::test]
async fn writes_that_are_refused_again_and_again_end_the_run() {
    let rig = Rig::new();
    rig.world.lock().unwrap().refuse.extend([409; 20]);
    let error = rig.run().await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert_eq!(rig.writes().len(), usize::try_from(FRESH_ROUNDS).unwrap());
}

// spec: L045
#[tokio::test]
async fn a_write_that_is_forbidden_is_told_in_the_status() {
    let mut rig = Rig::new();
    rig.world.lock().unwrap().refuse.push_back(403);
    assert_eq!(rig.run().await.unwrap_err().class(), Class::Forbidden);
    rig.refresh();
    let world = rig.world.lock().unwrap();
    let status = world.rollout.as_ref().unwrap()["status"].clone();
    assert!(status["message"].as_str().unwrap().contains("the API server refuses the operator"), "{status}");
    let Context { guard, metrics, pulse, caches, .. } = &*rig.context;
    let (guard, metrics, pulse) = (Arc::clone(guard), Arc::clone(metrics), Arc::clone(pulse));
    let exposed =
        crate::metrics::Exposed::new(&crate::wire::WireLayer { guard, metrics, pulse }, &[Arc::clone(caches)]);
    let numbers = exposed.text(crate::metrics::Zeros::Keep).unwrap();
    let counted = r#"sts_plus_rollout_errors_total{namespace="ns",name="web",class="Forbidden"} 1"#;
    assert!(numbers.contains(counted), "{numbers}");
}

#[tokio::test]
async fn a_partition_that_is_not_granted_is_told() {
    let mut rig = Rig::new();
    rig.world.lock().unwrap().keeps_partition = true;
    rig.run().await.unwrap();
    rig.refresh();
    let error = rig.run().await.unwrap_err();
    assert_eq!(error.class(), Class::Forbidden);
    assert!(error.to_string().contains("partition 2 was written and 0 was kept"), "{error}");
    assert_eq!(rig.context.written.lately_kept("set-uid"), Some(Some(0)));
}

#[tokio::test]
async fn a_step_that_was_not_granted_is_not_written_again_at_once_and_a_hold_is() {
    let rig = Rig::new();
    rig.world.lock().unwrap().set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(3);
    let set: SetObject = serde_json::from_value(rig.world.lock().unwrap().set.clone()).unwrap();
    let worth = |partition| partition::is_worth_trying(&set, partition, &rig.context.written).is_ok();
    assert!(worth(NewPartition::Set(2)));
    rig.context.written.not_granted("set-uid", Some(3));
    assert!(!worth(NewPartition::Set(2)));
    assert!(!worth(NewPartition::Remove));
    assert!(worth(NewPartition::Set(names::HOLD)));
    assert!(worth(NewPartition::Keep));
}

#[tokio::test]
async fn a_failed_object_rests() {
    let rig = Rig::new();
    rig.world.lock().unwrap().refuse.push_back(403);
    let error = rig.run().await.unwrap_err();
    let rollout = rig.context.caches.rollouts.state().pop().unwrap();
    let _ = after_error(rollout, &error, Arc::clone(&rig.context));
    rig.asked();
    assert_ne!(rig.run().await.unwrap(), Next::await_change());
    assert!(rig.asked().is_empty());
}

#[tokio::test]
async fn an_object_that_is_gone_is_forgotten() {
    let rig = Rig::new();
    rig.world.lock().unwrap().rollout = None;
    assert_eq!(rig.run().await.unwrap(), Next::await_change());
    assert_eq!(rig.asked(), ["GET phasedrollouts/web"]);
}

#[tokio::test]
async fn with_its_finalizer_an_object_is_forgotten() {
    let mut rig = Rig::new();
    rig.settle().await;
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["metadata"]["deletionTimestamp"] =
        json!("2026-01-01T01:00:00Z");
    let mut let_go = false;
    for _ in 0..5 {
        rig.refresh();
        rig.run().await.unwrap();
        let_go = rig.writes().contains(&"PATCH phasedrollouts/web".to_owned());
        if let_go {
            break;
        }
    }
    assert!(let_go);
    assert!(rig.context.written.is_seen("rollout-uid", Some("1")), "no version of it is remembered");
}

#[tokio::test]
async fn a_prometheus_that_does_not_answer_keeps_no_run_waiting() {
    let mut rig = Rig::new();
    rig.settle().await;
    // A place that takes the connection and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    {
        let mut world = rig.world.lock().unwrap();
        let url = silent.local_addr().unwrap().to_string();
        let rollout = world.rollout.as_mut().unwrap();
        rollout["spec"]["check"]["initialDelaySeconds"] = json!(0);
        rollout["spec"]["check"]["query"]["url"] = json!(url);
        world.set["status"]["updateRevision"] = json!("web-b");
        world.set["metadata"]["generation"] = json!(9);
        world.set["status"]["observedGeneration"] = json!(9);
    }
    rig.refresh();
    let all = async {
        for _ in 0..6 {
            rig.run().await.unwrap();
            rig.refresh();
        }
    };
    tokio::time::timeout(Duration::from_secs(3), all).await.unwrap();
    let world = rig.world.lock().unwrap();
    assert_eq!(world.set["spec"]["updateStrategy"]["rollingUpdate"]["partition"], names::HOLD, "held all the same");
}

#[tokio::test]
async fn a_pod_that_is_missing_at_rest_is_looked_for_soon() {
    let mut rig = Rig::new();
    rig.settle().await;
    let is_at_rest = |rig: &Rig| {
        let rollout = rig.context.caches.rollouts.state().pop().unwrap();
        let scene = PhasedRollouts::cached(&rollout, &rig.context).unwrap();
        PhasedRollouts::is_at_rest(&PhasedRollouts::decide(&scene, now()))
    };
    assert!(is_at_rest(&rig));
    rig.world.lock().unwrap().pods.pop();
    rig.refresh();
    assert!(!is_at_rest(&rig));
}

const SECRET: &str = "GET secrets/prom";

// spec: L046
#[tokio::test]
async fn no_hold_waits_for_a_secret_and_a_restart_reads_none() {
    let mut rig = Rig::new();
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["spec"]["check"]["query"]["secretRef"] = json!("prom");
    rig.refresh();
    let mut asked = Vec::new();
    for _ in 0..10 {
        rig.run().await.unwrap();
        rig.refresh();
        asked.extend(rig.asked());
    }
    let at = |what: &str| asked.iter().position(|line| line == what).unwrap_or_else(|| panic!("no {what}: {asked:?}"));
    assert!(at("PATCH statefulsets/web") < at(SECRET), "{asked:?}");
    assert_eq!(asked.iter().filter(|line| *line == SECRET).count(), 1, "once for a spec: {asked:?}");
    let restarted = Rig::of(Arc::clone(&rig.world));
    restarted.run().await.unwrap();
    assert!(restarted.asked().is_empty(), "at rest the status says enough");
}

// spec: L046
#[tokio::test]
async fn a_hold_does_not_wait_for_the_turns_of_others() {
    let mut rig = Rig::new();
    let others = rig.context.turns.take(Lane::Look, "ns").await;
    for write in ["PATCH phasedrollouts/web", "PATCH statefulsets/web"] {
        rig.run().await.unwrap();
        rig.refresh();
        assert!(rig.writes().contains(&write.to_owned()), "{write}: it is held");
    }
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["status"] = json!({});
    rig.refresh();
    assert!(tokio::time::timeout(Duration::from_millis(50), rig.run()).await.is_err(), "the rest waits for its turn");
    assert!(rig.asked().is_empty());
    drop(others);
    rig.run().await.unwrap();
    assert!(rig.writes().contains(&"PATCH phasedrollouts/web/status".to_owned()));
}

// spec: L046
#[tokio::test]
async fn what_waits_for_its_turn_and_is_to_be_held_meanwhile_waits_no_more() {
    let mut rig = Rig::new();
    rig.settle().await;
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["status"] = json!({});
    rig.refresh();
    let _others = rig.context.turns.take(Lane::Look, "ns").await;
    let rollout = rig.context.caches.rollouts.state().pop().unwrap();
    let name = kube::runtime::reflector::ObjectRef::from_obj(&*rollout);
    let mut run = tokio::spawn(reconcile(rollout, Arc::clone(&rig.context)));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut run).await.is_err(), "it waits");
    rig.world.lock().unwrap().set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(0);
    rig.refresh();
    rig.context.queue.ask([name], "StatefulSets");
    tokio::time::timeout(Duration::from_secs(5), run).await.expect("it waits no more").unwrap().unwrap();
    assert!(rig.writes().contains(&"PATCH statefulsets/web".to_owned()));
}

#[tokio::test]
async fn one_that_was_made_anew_under_the_same_name_is_another_one() {
    let rig = Rig::new();
    rig.world.lock().unwrap().rollout.as_mut().unwrap()["metadata"]["uid"] = json!("another");
    assert_eq!(rig.run().await.unwrap(), Next::await_change());
    assert_eq!(rig.asked(), ["GET phasedrollouts/web"]);
    assert!(rig.context.slots.is_empty() && rig.context.written.is_empty());
}
