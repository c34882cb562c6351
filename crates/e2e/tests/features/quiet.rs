//! While nothing changes nothing is written, whatever the phase; and the canary secret is nowhere, the metrics among it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::{Phase, Reason, names};
use sts_plus_e2e::{CANARY, Operator, Scene, World, audit, objects};

use crate::gate;

/// How long nothing may be written. This wait is the matter itself.
const QUIET: Duration = Duration::from_secs(20);
/// No check is due in that time.
const HOUR: u32 = 3600;

/// A set and its rollout of the same name, and the phase and reason in which it is to rest.
struct Case {
    name: &'static str,
    release: &'static str,
    phase: Phase,
    reason: Reason,
}

const fn case(name: &'static str, release: &'static str, phase: Phase, reason: Reason) -> Case {
    Case { name, release, phase, reason }
}

const CASES: [Case; 9] = [
    case("completed", "app:2", Phase::Completed, Reason::Completed),
    case("idle", "app:1", Phase::Idle, Reason::AtRest),
    case("paused", "app:2", Phase::Paused, Reason::Paused),
    case("approval", "app:2", Phase::Paused, Reason::AwaitingApproval),
    case("invalid", "app:2", Phase::Blocked, Reason::InvalidQuery),
    case("blocked", "app:2", Phase::Held, Reason::BlockedByPod),
    case("waiting", "app:2", Phase::Checking, Reason::Checking),
    case("failed", "app:2", Phase::Failed, Reason::ChecksFailed),
    case("rejected", "app:2", Phase::RolledBack, Reason::RevisionRejected),
];

async fn rollout_of(name: &str) -> Value {
    let check = json!({
        "preflight": false, "successThreshold": 1, "maxTries": 1, "periodSeconds": HOUR, "secretRef": "credentials",
    });
    let gate = objects::with(gate(check).await, "/spec/targetRef", name);
    let gate = objects::with(gate, "/metadata/name", name);
    match name {
        "paused" => objects::with(gate, "/spec/paused", true),
        "approval" => objects::with(gate, "/spec/pauseBefore", json!([0])),
        "invalid" => objects::with(gate, "/spec/check/query/expr", "up{"),
        "waiting" => objects::with(gate, "/spec/check/initialDelaySeconds", HOUR),
        // Data whatever the application does: with one check a pod, its metric could come too late.
        "failed" => objects::with(gate, "/spec/check/query/expr", "vector(1)"),
        "rejected" => {
            let gate = objects::with(gate, "/spec/check/query/expr", "vector(1)");
            objects::with(gate, "/spec/check/onFailure", "Rollback")
        }
        _ => gate,
    }
}

fn stands(world: &World, case: &Case) -> bool {
    let ready = world.condition_of(case.name, sts_plus_api::ConditionType::Ready);
    let enforced = world.condition_of(case.name, sts_plus_api::ConditionType::HoldEnforced);
    let status = world.status_of(case.name);
    status.phase == case.phase && ready.ends_with(&format!("/{}", case.reason)) && enforced == "True/Enforced"
}

#[tokio::test]
async fn in_no_phase_anything_is_written_while_nothing_changes_and_the_secret_is_nowhere() {
    let scene = Scene::new("still").await;
    scene.create(&objects::secret("credentials", &[("token", CANARY)])).await;
    for case in &CASES {
        // Two pods, so that something is left to be held.
        scene.create(&objects::named(objects::set(2), case.name)).await;
        scene.create(&rollout_of(case.name).await).await;
    }
    scene
        .until("all pods are Ready", |world| {
            world.pods.len() == 2 * CASES.len() && world.pods.values().all(sts_plus_e2e::is_ready)
        })
        .await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    let log = scene.ground.cluster.logs_dir().join(format!("operator-{}-web.log", scene.namespace));
    let address = format!("--web-address={port}");
    let mut operator = Operator::start(scene.ground, &scene.namespace, &log, &[&address]);
    let claimed = |world: &World| CASES.iter().all(|case| world.partition_of(case.name) == Some(2));
    scene.until("all are claimed", claimed).await;
    scene.stage("blocked-0", Some("broken")).await;
    scene.until("it is broken", |world| !world.is_ready_on("blocked-0", "app:1")).await;
    for case in &CASES {
        scene.release_of(case.name, case.release).await;
    }
    for case in &CASES {
        scene.until(case.name, |world| stands(world, case)).await;
    }
    // The last events follow their statuses.
    scene.until_events(Reason::Completed, 2).await;
    scene.until_events(Reason::RolledBack, 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = scene.requests().len();
    let versions = scene.world().latest_version();
    tokio::time::sleep(QUIET).await;
    let later = scene.requests().split_off(before);
    assert_eq!(audit::writes(&later).len(), 0, "{}", audit::tell(&later));
    assert_eq!(scene.world().latest_version(), versions, "and nobody else wrote anything that it would answer");
    for case in &CASES {
        let world = scene.world();
        assert!(stands(&world, case), "{}", case.name);
        if !matches!(case.phase, Phase::Completed | Phase::Idle) {
            assert!(world.partition_of(case.name).is_some_and(|partition| partition >= 1), "{} is held", case.name);
        }
    }
    assert_eq!(scene.world().partition_of("failed"), Some(names::HOLD));

    let metrics = get(&port.to_string(), "/metrics");
    assert!(metrics.contains("sts_plus_") && metrics.contains("failed"), "{metrics}");
    assert!(!metrics.contains(CANARY), "{metrics}");
    assert!(operator.is_running());
    let said = operator.log();
    assert!(said.contains("sts-plus") && !said.contains(CANARY) && !said.contains("panic:"));
    operator.kill();
    scene.end().await;
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the operator listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}
