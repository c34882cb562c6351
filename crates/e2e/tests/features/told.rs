//! What tools that wait are told: `kubectl wait` and kstatus in every phase, and how soon after a template change.
//!
//! Each scenario of these tests ends with a look at every status that the operator wrote: what kstatus makes of it must fit its phase.

use std::time::{Duration, Instant};

use serde_json::json;
use sts_plus_api::{ConditionType, Phase};
use sts_plus_e2e::kstatus::{self, Kstatus};
use sts_plus_e2e::{Scene, World, objects};

use crate::{gate, is_told};

/// What `kubectl wait` without waiting says of a condition now.
async fn kubectl_waits(scene: &Scene, condition: &str) -> bool {
    let condition = format!("--for=condition={condition}");
    scene.kubectl(&["wait", "phasedrollout/gate", &condition, "--timeout=0"], "").await.ok
}

/// Phase, kstatus, and what `kubectl wait` says of `Ready` and `RolledOut`.
async fn assert_told(scene: &Scene, phase: Phase, status: Kstatus, ready: bool, rolled_out: bool) {
    let gate = scene.rollout().await;
    assert_eq!(gate.status.as_ref().map(|status| status.phase), Some(phase));
    let object = serde_json::to_value(&gate).expect("a PhasedRollout is JSON");
    assert_eq!((kstatus::of(&object), kstatus::fault(&object)), (status, None), "{object:#}");
    let waits = (kubectl_waits(scene, "Ready").await, kubectl_waits(scene, "RolledOut").await);
    assert_eq!(waits, (ready, rolled_out), "{phase:?}: {object:#}");
}

#[tokio::test]
async fn kubectl_wait_and_kstatus_give_the_right_answer_in_every_phase() {
    let check = json!({ "maxTries": 2, "initialDelaySeconds": 3, "onFailure": "Rollback" });
    let scene = Scene::at_rest("told", 2, &gate(check).await).await;
    assert_told(&scene, Phase::Idle, Kstatus::Current, true, true).await;

    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2-errors").await;
    scene.until("paused", |world| world.is(Phase::Paused) && is_told(world)).await;
    assert_told(&scene, Phase::Paused, Kstatus::InProgress, false, false).await;

    let url = scene.world().rollouts["gate"].spec.check.query.clone().and_then(|query| query.url);
    scene.configure(&json!({ "paused": false, "check": { "query": { "url": "http://127.0.0.1:9" } } })).await;
    scene.until("no Prometheus", |world| world.is(Phase::Held)).await;
    assert_told(&scene, Phase::Held, Kstatus::InProgress, false, false).await;

    scene.configure(&json!({ "check": { "query": { "expr": "up{" } } })).await;
    scene.until("no query", |world| world.is(Phase::Blocked)).await;
    assert_told(&scene, Phase::Blocked, Kstatus::Failed, false, false).await;

    scene.configure(&json!({ "check": { "query": { "url": url, "expr": objects::ERRORS } } })).await;
    scene.until("it checks", |world| world.is(Phase::Checking) && world.image("web-1") == "app:2-errors").await;
    assert_told(&scene, Phase::Checking, Kstatus::InProgress, false, false).await;
    scene.until("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    assert_told(&scene, Phase::RolledBack, Kstatus::Failed, false, false).await;

    scene.configure(&json!({ "check": { "onFailure": "Hold" } })).await;
    scene.release("app:3-errors").await;
    scene.until("failed", |world| world.is(Phase::Failed) && world.image("web-1") == "app:3-errors").await;
    assert_told(&scene, Phase::Failed, Kstatus::Failed, false, false).await;

    // A command that waits ends when it is so, and not before.
    let wait = async |condition: &str| {
        let condition = format!("--for=condition={condition}");
        let reply = scene.kubectl(&["wait", "phasedrollout/gate", &condition, "--timeout=50s"], "").await;
        assert!(reply.ok, "{}", reply.stderr);
        scene.rollout().await.status.map(|status| status.phase)
    };
    scene.configure(&json!({ "check": { "initialDelaySeconds": 0 } })).await;
    scene.release("app:4").await;
    scene.until("told", is_told).await;
    let phases = tokio::join!(wait("RolledOut"), wait("Ready"));
    assert_eq!(phases, (Some(Phase::Completed), Some(Phase::Completed)));
    scene.until("complete", |world| world.is_complete("app:4")).await;
    assert_told(&scene, Phase::Completed, Kstatus::Current, true, true).await;

    // While pods of a finished rollout are away it stays rolled out, and is not ready.
    scene.stage("web-0", Some("broken")).await;
    let away = scene.until("not ready", |world| world.condition(ConditionType::Ready).starts_with("False/")).await;
    assert!(away.condition(ConditionType::RolledOut).starts_with("True/"), "a latch for the revision");
    assert_told(&scene, Phase::Completed, Kstatus::InProgress, false, true).await;
    scene.end().await;
}

/// From the API server's reply to the template change until the change of the condition has arrived here.
#[tokio::test]
async fn a_template_change_is_in_the_conditions_within_a_second() {
    const SAMPLES: usize = 20;
    let gate =
        objects::with(gate(json!({ "preflight": false, "final": false })).await, "/spec/pauseBefore", json!([0]));
    let scene = Scene::at_rest("soon", 1, &gate).await;
    let (mut away, mut back) = (Vec::new(), Vec::new());
    let pending = |world: &World| {
        [ConditionType::Ready, ConditionType::RolledOut]
            .map(|kind| world.condition(kind))
            .iter()
            .all(|it| it.starts_with("False/"))
            && world.condition(ConditionType::Reconciling).starts_with("True/")
    };
    let done = |world: &World| {
        [ConditionType::Ready, ConditionType::RolledOut]
            .map(|kind| world.condition(kind))
            .iter()
            .all(|it| it.starts_with("True/"))
    };
    for sample in 0..SAMPLES {
        let image = format!("app:{}", sample + 2);
        away.push(told_after(&scene, &image, pending).await);
        scene.until("it waits for a person", |world| world.is(Phase::Paused)).await;
        back.push(told_after(&scene, "app:1", done).await);
    }
    assert_eq!(scene.world().image("web-0"), "app:1");
    assert_eq!(scene.world().partition(), Some(1));
    for (what, mut took) in [("away", away), ("back", back)] {
        took.sort();
        println!("{what}: median {:?}, slowest {:?} of {SAMPLES}", took[SAMPLES / 2], took[SAMPLES - 1]);
        // One of twenty may meet a busy machine.
        assert!(took[SAMPLES - 2] < Duration::from_secs(1), "{what}: {took:?}");
    }
    scene.end().await;
}

async fn told_after(scene: &Scene, image: &str, wanted: impl Fn(&World) -> bool) -> Duration {
    let body = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } });
    let patch = kube::api::Patch::Merge(&body);
    let sets = scene.api("statefulset");
    sets.patch("web", &kube::api::PatchParams::default(), &patch).await.expect("the template is accepted");
    let replied = Instant::now();
    scene.until("it is in the conditions", wanted).await;
    replied.elapsed()
}
