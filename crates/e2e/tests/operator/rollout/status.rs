//! What a status says, and how soon: to people by columns, to tools that wait (`kubectl wait`, kstatus) in every phase; `kubectl rollout
//! restart`, the samples, and a status that survives the API server.
//!
//! Each scenario of this executable ends with a look at every status that the operator wrote: what kstatus makes of it must fit its phase.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, PhasedRolloutStatus, Step, names};
use sts_plus_e2e::kstatus::{self, Kstatus};
use sts_plus_e2e::{PATIENCE, Scene, Seen, World, audit, moves, objects};
use testcluster::AuditEntry;

use super::gate;

/// By the times of the API server: from its answer to a template change to its answer to the status write with the conditions. Most of
/// many changes, since the machine may be busy; a timer on the way would delay all of them.
// spec: pr§9
#[tokio::test]
async fn a_template_change_is_in_the_conditions_within_a_second() {
    const CHANGES: usize = 24;
    // It waits for a person, and then the template is taken back: nothing moves.
    let gate = objects::with(Scene::quick_gate().await, "/spec/pauseBefore", json!([0]));
    let scene = Scene::at_rest("soon", 1, &gate).await;
    for change in 0..CHANGES {
        scene.release(if is_pending(change) { "app:2" } else { "app:1" }).await;
        scene.until("it is in the conditions", |world| says(&world.status(), is_pending(change))).await;
    }
    assert_eq!((scene.world().image("web-0"), scene.world().partition()), ("app:1", Some(1)), "nothing has moved");

    let mut took = latencies(&scene).await;
    took.sort();
    assert_eq!(took.len(), CHANGES);
    println!("median {}, slowest {} of {CHANGES}", took[CHANGES / 2], took[CHANGES - 1]);
    assert!(took[CHANGES / 2] < SignedDuration::from_secs(1), "{took:?}");
    scene.end().await;
}

/// Every second change takes the one before back.
const fn is_pending(change: usize) -> bool {
    change.is_multiple_of(2)
}

/// True if the conditions say that a template is pending, or that none is.
fn says(status: &PhasedRolloutStatus, is_pending: bool) -> bool {
    let expected = if is_pending { "False" } else { "True" };
    [ConditionType::Ready, ConditionType::RolledOut].into_iter().all(|kind| {
        status.conditions.iter().any(|condition| condition.type_ == kind.to_string() && condition.status == expected)
    })
}

/// How long each template change took to be in the conditions. Each accepted write of the status is a version of the PhasedRollout, so
/// the audit log has the time of each version in the recording.
async fn latencies(scene: &Scene) -> Vec<SignedDuration> {
    let mut statuses: Vec<PhasedRolloutStatus> = Vec::new();
    for entry in scene.tape.entries() {
        let Seen::Rollout(rollout) = &entry.seen else { continue };
        statuses.extend(rollout.status.clone().filter(|status| statuses.last() != Some(status)));
    }
    let is_status = |entry: &AuditEntry| audit::full_name(entry) == "phasedrollouts/status" && entry.code < 300;
    let log = scene.ground.cluster.audit_log();
    let logged =
        |entries: &[Arc<AuditEntry>]| entries.iter().filter(|entry| is_status(entry)).count() >= statuses.len();
    log.until(&scene.namespace, PATIENCE, logged).await.expect("the last status is in the audit log");
    let entries = log.entries_in(&scene.namespace).expect("the audit log can be read");
    let written: Vec<_> = entries.iter().filter(|entry| is_status(entry)).map(|entry| entry.answered).collect();
    assert_eq!(written.len(), statuses.len(), "one version of the status for each write of it");
    let by_a_person = |entry: &&Arc<AuditEntry>| audit::full_name(entry) == "statefulsets" && entry.verb == "patch";
    let changes = entries.iter().filter(by_a_person).filter(|entry| !entry.user_agent.starts_with("sts-plus/"));
    let took = changes.enumerate().map(|(change, entry)| {
        let mut later = written.iter().zip(&statuses).filter(|(at, _)| **at > entry.answered);
        let (at, _) = later.find(|(_, status)| says(status, is_pending(change))).expect("it was in the conditions");
        at.duration_since(entry.answered)
    });
    took.collect()
}

// spec: pr§9
#[tokio::test]
async fn the_columns_show_target_phase_progress_partition_and_message() {
    let scene = Scene::at_rest("columns", 2, &Scene::quick_gate().await).await;
    let table = scene.kubectl_ok(&["get", "pr"], "").await.stdout;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "TARGET", "PHASE", "UPDATED", "PARTITION", "MESSAGE", "AGE"]);
    assert_eq!(lines[1][..5], ["gate", "web", "Idle", "2/2", "2"], "{table}");
    assert!(table.contains("all 2 pods carry"), "{table}");
    scene.end().await;
}

// spec: pr§4, L160
#[tokio::test]
async fn kubectl_rollout_restart_starts_a_gated_rollout() {
    let scene = Scene::at_rest("restart", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    scene.kubectl_ok(&["rollout", "restart", "statefulset/web"], "").await;
    let end = scene
        .until("complete", |world| {
            world.is(Phase::Completed) && world.uids().values().all(|uid| !born.values().any(|old| old == uid))
        })
        .await;
    assert_eq!(end.partition(), Some(3));
    let moved = moves::assert_gated(&scene, "app:1", 1);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-2", "web-1", "web-0"]);
    scene.end().await;
}

// spec: pr§1, L037
#[tokio::test]
async fn the_samples_apply_unchanged_and_stay_as_they_are() {
    let mut scene = Scene::new("samples").await;
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/samples");
    let first = scene.kubectl_ok(&["apply", "-f", samples], "").await;
    assert_eq!(first.stderr, "", "no warning");
    scene.start_operator();
    let at_rest =
        |world: &World| world.status_of("phasedrollout-sample").phase == Phase::Idle && world.partition() == Some(3);
    scene.until("at rest", at_rest).await;
    let again = scene.kubectl_ok(&["apply", "-f", samples], "").await;
    // kubectl cannot see that the stringData of a Secret is the same.
    let others: Vec<_> = again.stdout.lines().filter(|line| !line.starts_with("secret/")).collect();
    assert!(others.len() >= 2 && others.iter().all(|line| line.ends_with(" unchanged")), "{}", again.stdout);
    let held = scene.world();
    assert_eq!((held.partition(), held.annotation(names::CLAIM)), (Some(3), Some("phasedrollout-sample")));
    scene.end().await;
}

// spec: pr§9, L085
#[tokio::test]
async fn every_field_of_the_status_survives_the_api_server() {
    let scene = Scene::new("status").await;
    scene.create(&Scene::gate().await).await;
    let path = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.status}";
    let schema = scene.kubectl_ok(&["get", "crd", "phasedrollouts.sts.plus", "-o", path], "").await.stdout;
    let status = sample(&serde_json::from_str(&schema).expect("a schema is JSON"));
    assert!(status.as_object().is_some_and(|fields| fields.len() > 20), "{status}");
    let typed: PhasedRolloutStatus = serde_json::from_value(status.clone()).expect("the operator can read it");
    assert_eq!(serde_json::to_value(typed).expect("a status is JSON"), status, "and would write it like this");
    let body = json!({ "status": status }).to_string();
    scene.kubectl_ok(&["patch", "pr", "gate", "--subresource=status", "--type=merge", "-p", &body], "").await;
    let stored = scene.kubectl_ok(&["get", "pr", "gate", "-o", "json"], "").await.stdout;
    let stored: Value = serde_json::from_str(&stored).expect("kubectl prints JSON");
    assert_eq!(stored["status"], status);
    scene.end().await;
}

/// A value of a schema in which every field is set.
fn sample(schema: &Value) -> Value {
    if let Some(first) = schema.pointer("/enum/0") {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, schema)| (name.clone(), sample(schema))).collect()
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(7),
        _ if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        _ => json!("word"),
    }
}

/// What `kubectl wait` without waiting says of a condition now.
async fn kubectl_waits(scene: &Scene, condition: &str) -> bool {
    let condition = format!("--for=condition={condition}");
    scene.kubectl(&["wait", "phasedrollout/gate", &condition, "--timeout=0"], "").await.ok
}

/// What is said of a phase: kstatus, and what `kubectl wait` makes of `Ready` and `RolledOut`.
struct Expected {
    phase: Phase,
    status: Kstatus,
    ready: bool,
    rolled_out: bool,
}

impl Expected {
    const fn of(phase: Phase, status: Kstatus, ready: bool, rolled_out: bool) -> Self {
        Self { phase, status, ready, rolled_out }
    }

    /// Waits until it is in this phase and as wanted, and asserts on the object that was waited for. Only kubectl looks later; what it
    /// is asked is the same in every phase that could follow by itself.
    async fn until(&self, scene: &Scene, what: &str, wanted: impl Fn(&World) -> bool) -> Arc<World> {
        let world = scene.until(what, |world| world.is(self.phase) && wanted(world)).await;
        let object = serde_json::to_value(&world.rollouts["gate"]).expect("a PhasedRollout is JSON");
        assert_eq!((kstatus::of(&object), kstatus::fault(&object)), (self.status, None), "{what}: {object:#}");
        let waits = (kubectl_waits(scene, "Ready").await, kubectl_waits(scene, "RolledOut").await);
        assert_eq!(waits, (self.ready, self.rolled_out), "{what}: {object:#}");
        world
    }
}

/// `gate` is about the newest revision of `web`.
fn knows(world: &World) -> bool {
    world.controller_has_seen() && world.is_told()
}

/// The checks of the pod `web-1` go on, which is Ready on `image`. (The preflight's have the same phase.)
fn checks_the_pod(world: &World, image: &str) -> bool {
    let current = world.status().current;
    current.is_some_and(|current| current.step == Step::Pod && current.pod == "web-1")
        && world.is_ready_on("web-1", image)
}

// spec: pr§9, L054
#[tokio::test]
async fn kubectl_wait_and_kstatus_give_the_right_answer_in_every_phase() {
    let check = json!({ "maxTries": 2, "initialDelaySeconds": 3, "onFailure": "Rollback" });
    let scene = Scene::at_rest("phases", 2, &gate(check).await).await;
    let idle = Expected::of(Phase::Idle, Kstatus::Current, true, true).until(&scene, "at rest", |_| true).await;
    assert_eq!(idle.condition(ConditionType::RolledOut), "True/NotVerified");
    let url = idle.rollouts["gate"].spec.check.query.clone().and_then(|query| query.url);

    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2-errors").await;
    Expected::of(Phase::Paused, Kstatus::InProgress, false, false).until(&scene, "paused", knows).await;

    scene.configure(&json!({ "paused": false, "check": { "query": { "url": "http://127.0.0.1:9" } } })).await;
    Expected::of(Phase::Held, Kstatus::InProgress, false, false).until(&scene, "no Prometheus", |_| true).await;

    scene.configure(&json!({ "check": { "query": { "expr": "up{" } } })).await;
    Expected::of(Phase::Blocked, Kstatus::Failed, false, false).until(&scene, "no query", |_| true).await;

    scene.configure(&json!({ "check": { "query": { "url": url, "expr": objects::ERRORS } } })).await;
    let checking = Expected::of(Phase::Checking, Kstatus::InProgress, false, false);
    checking.until(&scene, "it checks", |world| checks_the_pod(world, "app:2-errors")).await;
    let rolled_back = Expected::of(Phase::RolledBack, Kstatus::Failed, false, false);
    rolled_back.until(&scene, "rolled back", |world| world.all_on("app:1")).await;

    scene.configure(&json!({ "check": { "onFailure": "Hold" } })).await;
    scene.release("app:3-errors").await;
    let failed = Expected::of(Phase::Failed, Kstatus::Failed, false, false);
    failed.until(&scene, "failed", |world| checks_the_pod(world, "app:3-errors")).await;

    // A command that waits ends when it is so, and not before.
    let wait = async |condition: &str| {
        let condition = format!("--for=condition={condition}");
        let reply = scene.kubectl(&["wait", "phasedrollout/gate", &condition, "--timeout=50s"], "").await;
        assert!(reply.ok, "{}", reply.stderr);
        scene.rollout().await.status.map(|status| status.phase)
    };
    scene.configure(&json!({ "check": { "initialDelaySeconds": 0 } })).await;
    scene.release("app:4").await;
    scene.until("it is reported", knows).await;
    let phases = tokio::join!(wait("RolledOut"), wait("Ready"));
    assert_eq!(phases, (Some(Phase::Completed), Some(Phase::Completed)));
    let completed = Expected::of(Phase::Completed, Kstatus::Current, true, true);
    let end = completed.until(&scene, "complete", |world| world.is_complete("app:4")).await;
    assert_eq!(end.condition(ConditionType::RolledOut), "True/Completed");

    // While pods of a finished rollout are away it stays rolled out, and is not ready.
    scene.stage("web-0", Some("broken")).await;
    let not_ready = |world: &World| world.condition(ConditionType::Ready).starts_with("False/");
    let away =
        Expected::of(Phase::Completed, Kstatus::InProgress, false, true).until(&scene, "not ready", not_ready).await;
    assert!(away.condition(ConditionType::RolledOut).starts_with("True/"), "a latch for the revision");
    scene.end().await;
}
