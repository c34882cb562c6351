//! One scenario: a namespace of its own on the shared ground, an operator of its own for it, and a recording of all that happens.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use sts_plus_api::{Phase, PhasedRollout, Reason, names};
use testcluster::{AuditEntries, AuditEntry};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::world::Stored;
use crate::{Entry, Ground, Operator, Policies, Seen, Tape, World, canary, ground, kstatus, objects, story};

/// How long anything may take that a scenario waits for: long, since the machine may be busy. A scenario that works does not wait.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// How many scenarios of a test binary go on at the same time, however many threads the tests have: most of the time they wait.
const AT_ONCE: &str = "STS_PLUS_E2E_AT_ONCE";
const USUALLY_AT_ONCE: usize = 16;

static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let given = std::env::var(AT_ONCE).ok().and_then(|given| given.parse().ok());
    Semaphore::new(given.unwrap_or(USUALLY_AT_ONCE))
});
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

/// A scenario.
pub struct Scene {
    /// What is shared with others.
    pub ground: &'static Ground,
    /// Its namespace.
    pub namespace: String,
    /// A client with all rights.
    pub client: Client,
    /// What happened.
    pub tape: Tape,
    operator: Option<Operator>,
    /// The program of the next operator, if it is not the one that is tested.
    program: Option<PathBuf>,
    /// More flags and variables for the operator.
    started_with: (&'static [&'static str], Vec<(&'static str, String)>),
    log: PathBuf,
    _turn: Option<SemaphorePermit<'static>>,
}

/// Waits for the turn of a scenario.
pub async fn turn() -> SemaphorePermit<'static> {
    TURNS.acquire().await.expect("turns are never closed")
}

impl Scene {
    /// An empty namespace on the ground with policies; no operator runs for it yet.
    pub async fn new(name: &str) -> Self {
        Self::on(Ground::get(Policies::Installed).await, name).await
    }

    /// The same on another ground.
    pub async fn on(ground: &'static Ground, name: &str) -> Self {
        let turn = turn().await;
        Self::with_turn(ground, name, Some(turn)).await
    }

    /// As [`Scene::new`], for a test that takes its turn itself.
    pub async fn at_any_time(name: &str) -> Self {
        Self::with_turn(Ground::get(Policies::Installed).await, name, None).await
    }

    async fn with_turn(ground: &'static Ground, name: &str, turn: Option<SemaphorePermit<'static>>) -> Self {
        let client = client_of(ground.cluster.kubeconfig()).await;
        let namespace = format!("{name}-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
        let body = ground::namespace(&namespace);
        let made = ground.cluster.request(testcluster::Method::POST, "/api/v1/namespaces", Some(&body)).await;
        made.expect("a namespace can be made");
        let tape = Tape::start(&client, &namespace, &ground.exporter).await;
        let log = ground.cluster.logs_dir().join(format!("operator-{namespace}.log"));
        Self {
            ground,
            namespace,
            client,
            tape,
            operator: None,
            program: None,
            started_with: (&[], Vec::new()),
            log,
            _turn: turn,
        }
    }

    /// A set `web` with that many Ready pods on `app:1`, claimed by `rollout` and at rest; the operator runs.
    pub async fn at_rest(name: &str, replicas: i32, rollout: &Value) -> Self {
        Self::at_rest_with(name, &objects::set(replicas), rollout).await
    }

    /// As [`Scene::at_rest`], with another set. Its pods must become Ready.
    pub async fn at_rest_with(name: &str, set: &Value, rollout: &Value) -> Self {
        let mut scene = Self::new(name).await;
        scene.settle(set, rollout).await;
        scene
    }

    /// Makes the set, then the PhasedRollout, starts the operator, and waits until all is at rest.
    pub async fn settle(&mut self, set: &Value, rollout: &Value) {
        self.create(set).await;
        let image = set.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str).unwrap_or_default();
        self.until("all pods are Ready", |world| world.all_on(image) && world.controller_has_seen()).await;
        self.create(rollout).await;
        self.start_operator();
        self.until_at_rest().await;
    }

    /// Waits until the operator has claimed `web` and all is at rest, also for the controller: until it has seen the claim, a rollout may be
    /// pending for all that the policies know.
    pub async fn until_at_rest(&self) {
        self.until("at rest", |world| {
            let replicas = world.sets.get("web").and_then(|set| set.spec.as_ref()?.replicas);
            let phases = [Phase::Idle, Phase::Blocked, Phase::Paused];
            phases.into_iter().any(|phase| world.is(phase))
                && world.partition() == replicas
                && world.controller_has_seen()
                && world.annotation(names::CLAIM) == Some("gate")
        })
        .await;
    }

    /// The URL of the shared Prometheus. What goes this way is heard ([`Scene::asked`]).
    pub async fn prometheus() -> String {
        Ground::get(Policies::Installed).await.tap_url().await
    }

    /// The default PhasedRollout on the shared Prometheus.
    pub async fn gate() -> Value {
        objects::rollout(&Self::prometheus().await)
    }

    /// The same for a scenario whose subject is not the gate ([`objects::quick`]).
    pub async fn quick_gate() -> Value {
        objects::quick(Self::gate().await)
    }

    /// Operators of this scenario are started with more flags and variables from now on.
    pub fn start_with(&mut self, args: &'static [&'static str], variables: Vec<(&'static str, String)>) {
        self.started_with = (args, variables);
    }

    /// The next operator is another program than the one that is tested, or that one again.
    pub fn start_from(&mut self, program: Option<PathBuf>) {
        self.program = program;
    }

    /// Starts the operator.
    pub fn start_operator(&mut self) {
        assert!(self.operator.is_none(), "one operator at a time");
        let (args, variables) = &self.started_with;
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let program = self.program.as_deref().unwrap_or_else(|| self.ground.operator_program());
        let kubeconfig = self.ground.operator_kubeconfig();
        self.operator = Some(Operator::start_in(program, kubeconfig, &self.namespace, &self.log, args, &variables));
    }

    /// Starts another one beside it, with the same log.
    pub fn second_operator(&self) -> Operator {
        Operator::start(self.ground, &self.namespace, &self.log, &[])
    }

    /// The operator, which runs.
    pub fn operator(&mut self) -> &mut Operator {
        self.operator.as_mut().expect("the operator runs")
    }

    /// SIGKILL.
    pub fn kill_operator(&mut self) {
        self.operator.take().expect("the operator runs").kill();
    }

    /// SIGTERM, and until it has ended.
    pub async fn stop_operator(&mut self) -> ExitStatus {
        self.operator.take().expect("the operator runs").stop().await
    }

    /// Where operators of this scenario log.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// What the operators of this scenario have logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it looks as wanted; how it looks then. What is asserted after it is asked of that world: by the next look the
    /// operator may have gone on.
    pub async fn until(&self, what: &str, wanted: impl Fn(&World) -> bool) -> Arc<World> {
        self.until_within(PATIENCE, what, wanted).await
    }

    /// As [`Scene::until`], with more patience or less.
    pub async fn until_within(&self, patience: Duration, what: &str, wanted: impl Fn(&World) -> bool) -> Arc<World> {
        match self.tape.until(patience, |world| wanted(world)).await {
            Ok(world) => world,
            Err(world) => panic!(
                "not within {} s: {what}\nstatus: {}\npartition: {:?}",
                patience.as_secs(),
                serde_json::to_string_pretty(&world.status()).unwrap_or_default(),
                world.partition()
            ),
        }
    }

    /// As [`Scene::until`], and the StatefulSet controller has seen the latest spec of `web`.
    pub async fn until_settled(&self, what: &str, wanted: impl Fn(&World) -> bool) -> Arc<World> {
        self.until(what, |world| wanted(world) && world.controller_has_seen()).await
    }

    /// Makes the StatefulSet controller look at `web` again, several times within a second: whatever it does because of what is stored
    /// has begun when this returns. It does so at each new generation, and what is written last in each of its runs is which one
    /// it has seen; the length of the history is no matter of its pods.
    pub async fn until_looked_at_again(&self) {
        for limit in 11..15 {
            self.patch("statefulset/web", &json!({ "spec": { "revisionHistoryLimit": limit } })).await;
            self.until("the controller has looked again", World::controller_has_seen).await;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        self.catch_up().await;
    }

    /// Waits until what was recorded so far is as wanted: for what may be over before anybody looks. How it looks then.
    pub async fn until_entries(&self, what: &str, wanted: impl Fn(&[Entry]) -> bool) -> Arc<World> {
        self.until(what, |_| wanted(&self.tape.entries())).await
    }

    /// How it looks now.
    pub fn world(&self) -> Arc<World> {
        self.tape.world()
    }

    /// The story so far.
    pub fn story(&self) -> String {
        story::tell(&self.tape.entries())
    }

    /// Changes the image of the template of `web`.
    pub async fn release(&self, image: &str) {
        self.release_of("web", image).await;
    }

    /// Changes the image of the template of a set.
    pub async fn release_of(&self, set: &str, image: &str) {
        self.until_errors_are_current().await;
        let body = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } });
        self.patch(&format!("statefulset/{set}"), &body).await;
    }

    /// Sets an annotation of `gate`.
    pub async fn annotate(&self, key: &str, value: &str) {
        self.patch("phasedrollout/gate", &json!({ "metadata": { "annotations": { key: value } } })).await;
    }

    /// What a pod is to do from now on (`testcluster/stages/pods.yaml`), such as `broken`; nothing special without a word.
    pub async fn stage(&self, pod: &str, stage: Option<&str>) {
        let body = json!({ "metadata": { "annotations": { "sts-plus.test/stage": stage } } });
        self.patch(&format!("pod/{pod}"), &body).await;
    }

    /// Waits until Prometheus shows no errors of pods that are gone: the next release would be judged by them.
    pub(crate) async fn until_errors_are_current(&self) {
        if self.ground.tap().is_none() {
            return;
        }
        let pods = self.world().uids();
        let is_there = |series: &Value| pods.values().any(|uid| series.pointer("/metric/uid") == Some(&json!(uid)));
        let is_current = |data: &Value| {
            data.pointer("/result").and_then(Value::as_array).is_some_and(|series| series.iter().all(is_there))
        };
        let query = format!(r#"app_errors{{namespace="{}",uid!=""}}"#, self.namespace);
        let shown = self.ground.prometheus().await.wait_until(&query, is_current).await;
        shown.expect("what is gone is not scraped any more");
    }

    /// The application of this namespace has errors from now on, or no longer; returns when Prometheus knows.
    pub async fn errors(&self, has: bool) {
        let labels = [("namespace", self.namespace.as_str()), ("pod", "all")];
        if has {
            self.ground.exporter.set("app_errors", &labels, 1.0);
        } else {
            self.ground.exporter.remove("app_errors", &labels);
        }
        let query = format!(r#"app_errors{{namespace="{}",pod="all"}}"#, self.namespace);
        self.ground.prometheus().await.wait_for(&query, has).await.expect("the gauge is scraped");
    }

    /// Pods that the operator deleted, in order.
    pub fn deleted(&self) -> Vec<String> {
        let requests = self.requests();
        let deletes = requests.iter().filter(|entry| entry.verb == "delete" && entry.resource == "pods");
        deletes.filter(|entry| entry.code < 300).map(|entry| entry.name.clone()).collect()
    }

    /// Changes the spec of `gate`.
    pub async fn configure(&self, spec: &Value) {
        self.patch("phasedrollout/gate", &json!({ "spec": spec })).await;
    }

    /// Waits until the recording has what is stored now: what is asked of the world after a write is asked of the world after it.
    pub async fn catch_up(&self) {
        let stored = Stored::read(&self.client, &self.namespace).await;
        self.until("the recording has caught up", |world| stored.is_in(world)).await;
    }

    /// The events of the namespace, oldest first.
    pub async fn events(&self) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut events = api.list(&ListParams::default()).await.expect("events can be listed").items;
        events.retain(|event| event.reporting_controller.as_deref() == Some("sts-plus"));
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        events
    }

    /// Waits until there are `count` events of this reason; these events.
    pub async fn until_events(&self, reason: Reason, count: usize) -> Vec<Event> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut news = pin!(watcher(api, watcher::Config::default()).default_backoff().touched_objects());
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let events = self.events_of(reason).await;
                if events.len() >= count {
                    return events;
                }
                // What goes wrong with a watch is tried again.
                let _ = news.next().await.expect("a watch goes on");
            }
        });
        found.await.unwrap_or_else(|_| panic!("not within {} s: {count} events {reason}", PATIENCE.as_secs()))
    }

    /// The events of one reason.
    pub async fn events_of(&self, reason: Reason) -> Vec<Event> {
        let mut events = self.events().await;
        events.retain(|event| event.reason.as_deref() == Some(reason.to_string().as_str()));
        events
    }

    /// What the operator asked the API server for in this namespace since the cluster was started.
    pub fn requests(&self) -> AuditEntries {
        let log = self.ground.cluster.audit_log();
        let mut requests = log.entries_in(&self.namespace).expect("the audit log can be read");
        requests.retain(|entry| is_of_an_operator(entry));
        requests
    }

    /// Waits until the operator has made such a request; the first `before` ones do not count.
    pub async fn until_requests(&self, what: &str, before: usize, wanted: impl Fn(&AuditEntry) -> bool) {
        let log = self.ground.cluster.audit_log();
        let found = log.until(&self.namespace, PATIENCE, |entries| {
            let requests = entries.iter().filter(|entry| is_of_an_operator(entry));
            requests.skip(before).any(|entry| wanted(entry))
        });
        found.await.expect(what);
    }

    /// `gate` as the API server has it.
    pub async fn rollout(&self) -> PhasedRollout {
        let api: Api<PhasedRollout> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get("gate").await.expect("gate is there")
    }

    /// The end of a scenario: the operator is still well, the canary secret is in nothing that anybody can read, and each status that
    /// it wrote told tools that wait what is right for its phase, in less than 16 KiB.
    pub async fn end(mut self) {
        let crashed = self.operator.as_mut().is_some_and(|operator| !operator.is_running());
        assert!(!crashed, "the operator has ended by itself");
        let log = self.log();
        assert!(!log.contains("panic:"), "the operator has panicked");
        let events = serde_json::to_string(&self.events().await).expect("events are JSON");
        let has_worked = !log.is_empty();
        let mut outputs = vec![("its log".to_owned(), log), ("events".to_owned(), events)];
        for entry in self.tape.entries() {
            let object = entry.seen.to_json();
            let is_ours = matches!(entry.seen, Seen::Rollout(_) | Seen::Extended(_));
            if is_ours && has_worked && !entry.gone {
                let fault = kstatus::fault(&object);
                assert!(fault.is_none(), "version {}: {fault:?}\n{object:#}", entry.version);
                let status = object.get("status").map(|status| status.to_string().len()).unwrap_or_default();
                assert!(status < 16 * 1024, "version {}: the status has {status} bytes", entry.version);
            }
            outputs.push((format!("version {}", entry.version), object.to_string()));
        }
        for (place, text) in outputs {
            let found = canary::find(&text);
            assert!(found.is_none(), "the canary secret is in {place}: {found:?}");
        }
    }

    /// The events of the namespace, as kubectl prints them; for a test that has failed.
    fn events_at_the_end(&self) -> String {
        let kubectl = std::process::Command::new(self.ground.cluster.kubectl_path())
            .args([
                "get",
                "events",
                "--request-timeout=10s",
                "--sort-by=.lastTimestamp",
                "--namespace",
                &self.namespace,
            ])
            .arg("--kubeconfig")
            .arg(self.ground.cluster.kubeconfig())
            .output();
        kubectl.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.operator.take());
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(80)..).unwrap_or_default().join("\n");
            let (story, events) = (self.story(), self.events_at_the_end());
            eprintln!(
                "--- {}: the story\n{story}\n--- the operator\n{tail}\n--- events\n{events}\n---",
                self.namespace
            );
        }
    }
}

fn is_of_an_operator(entry: &AuditEntry) -> bool {
    entry.user_agent.starts_with("sts-plus/")
}

/// A client with the rights of a kubeconfig. It belongs to the runtime of the test that asks.
pub async fn client_of(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig is whole")).expect("a client")
}
