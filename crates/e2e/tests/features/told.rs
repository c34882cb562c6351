//! What tools that wait are told: `kubectl wait` and kstatus in every phase.
//!
//! Each scenario of these tests ends with a look at every status that the operator wrote: what kstatus makes of it must fit its phase.

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Step};
use sts_plus_e2e::kstatus::{self, Kstatus};
use sts_plus_e2e::{Scene, World, objects};

use crate::{gate, is_told};

/// What `kubectl wait` without waiting says of a condition now.
async fn kubectl_waits(scene: &Scene, condition: &str) -> bool {
    let condition = format!("--for=condition={condition}");
    scene.kubectl(&["wait", "phasedrollout/gate", &condition, "--timeout=0"], "").await.ok
}

/// What is told of a phase: kstatus, and what `kubectl wait` says of `Ready` and `RolledOut`.
struct Told {
    phase: Phase,
    status: Kstatus,
    ready: bool,
    rolled_out: bool,
}

impl Told {
    const fn of(phase: Phase, status: Kstatus, ready: bool, rolled_out: bool) -> Self {
        Self { phase, status, ready, rolled_out }
    }

    /// Waits until it is in this phase and as wanted, and asserts on the object that was waited for. Only kubectl looks later; what it
    /// is asked is the same in every phase that could follow by itself.
    async fn until(&self, scene: &Scene, what: &str, wanted: impl Fn(&World) -> bool) -> World {
        let world = scene.until(what, |world| world.is(self.phase) && wanted(world)).await;
        let object = serde_json::to_value(&world.rollouts["gate"]).expect("a PhasedRollout is JSON");
        assert_eq!((kstatus::of(&object), kstatus::fault(&object)), (self.status, None), "{what}: {object:#}");
        let waits = (kubectl_waits(scene, "Ready").await, kubectl_waits(scene, "RolledOut").await);
        assert_eq!(waits, (self.ready, self.rolled_out), "{what}: {object:#}");
        world
    }
}

/// The checks of the pod `web-1` go on, which is Ready on `image`. (The preflight's have the same phase.)
fn checks_the_pod(world: &World, image: &str) -> bool {
    let current = world.status().current;
    current.is_some_and(|current| current.step == Step::Pod && current.pod == "web-1")
        && world.is_ready_on("web-1", image)
}

#[tokio::test]
async fn kubectl_wait_and_kstatus_give_the_right_answer_in_every_phase() {
    let check = json!({ "maxTries": 2, "initialDelaySeconds": 3, "onFailure": "Rollback" });
    let scene = Scene::at_rest("told", 2, &gate(check).await).await;
    let idle = Told::of(Phase::Idle, Kstatus::Current, true, true).until(&scene, "at rest", |_| true).await;
    let url = idle.rollouts["gate"].spec.check.query.clone().and_then(|query| query.url);

    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2-errors").await;
    Told::of(Phase::Paused, Kstatus::InProgress, false, false).until(&scene, "paused", is_told).await;

    scene.configure(&json!({ "paused": false, "check": { "query": { "url": "http://127.0.0.1:9" } } })).await;
    Told::of(Phase::Held, Kstatus::InProgress, false, false).until(&scene, "no Prometheus", |_| true).await;

    scene.configure(&json!({ "check": { "query": { "expr": "up{" } } })).await;
    Told::of(Phase::Blocked, Kstatus::Failed, false, false).until(&scene, "no query", |_| true).await;

    scene.configure(&json!({ "check": { "query": { "url": url, "expr": objects::ERRORS } } })).await;
    let checking = Told::of(Phase::Checking, Kstatus::InProgress, false, false);
    checking.until(&scene, "it checks", |world| checks_the_pod(world, "app:2-errors")).await;
    let rolled_back = Told::of(Phase::RolledBack, Kstatus::Failed, false, false);
    rolled_back.until(&scene, "rolled back", |world| world.all_on("app:1")).await;

    scene.configure(&json!({ "check": { "onFailure": "Hold" } })).await;
    scene.release("app:3-errors").await;
    let failed = Told::of(Phase::Failed, Kstatus::Failed, false, false);
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
    scene.until("told", is_told).await;
    let phases = tokio::join!(wait("RolledOut"), wait("Ready"));
    assert_eq!(phases, (Some(Phase::Completed), Some(Phase::Completed)));
    let completed = Told::of(Phase::Completed, Kstatus::Current, true, true);
    completed.until(&scene, "complete", |world| world.is_complete("app:4")).await;

    // While pods of a finished rollout are away it stays rolled out, and is not ready.
    scene.stage("web-0", Some("broken")).await;
    let not_ready = |world: &World| world.condition(ConditionType::Ready).starts_with("False/");
    let away = Told::of(Phase::Completed, Kstatus::InProgress, false, true).until(&scene, "not ready", not_ready).await;
    assert!(away.condition(ConditionType::RolledOut).starts_with("True/"), "a latch for the revision");
    scene.end().await;
}
