//! Several operators over one Lease: who works, how fast the next one takes over, and that a leader whose time is over writes
//! nothing. The times are measured and printed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};
use sts_plus::rbac;
use sts_plus_api::{Phase, names};
use sts_plus_e2e::{Operator, Scene, World, audit, objects};

/// As shipped.
const LEASE: Duration = Duration::from_secs(15);
pub const LEADS: &str = "this operator leads";
const LOST: &str = "this operator leads no more";
/// For a scenario in which leases run out again and again.
const QUICK: [&str; 3] = ["--leader-elect-lease=6", "--leader-elect-renew=4", "--leader-elect-retry=1"];

/// Some operators that want the Lease of one namespace.
pub struct Field {
    pub scene: Scene,
    leases: Api<Lease>,
}

impl Field {
    /// With a set and its rollout, and no operator yet.
    async fn new(name: &str) -> Self {
        let field = Self::bare(name).await;
        field.scene.create(&objects::set(3)).await;
        field.scene.create(&Scene::gate().await).await;
        field
    }

    /// With nothing but the right to be elected.
    pub async fn bare(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let rights = rbac::lease_objects(&scene.namespace, rbac::NAMESPACE, &[]);
        for right in rights {
            scene.create(&right).await;
        }
        let (account, lease) = (format!("--as={}", rbac::user_name(rbac::NAMESPACE)), format!("leases/{}", rbac::NAME));
        until("the rights are there", async || scene.kubectl(&["auth", "can-i", "get", &lease, &account], "").await.ok)
            .await;
        let leases = Api::namespaced(scene.client.clone(), &scene.namespace);
        Self { scene, leases }
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.scene.ground.cluster.logs_dir().join(format!("operator-{}-{name}.log", self.scene.namespace))
    }

    /// What operators with our account asked for, in all namespaces and in none.
    pub fn requests_everywhere(&self) -> Vec<testcluster::AuditEntry> {
        let mut requests = self.scene.ground.cluster.audit_log().read().expect("the audit log can be read");
        requests.retain(|entry| entry.user_agent.starts_with("sts-plus/"));
        requests
    }

    pub async fn end(self) {
        self.scene.end().await;
    }

    pub fn start(&self, name: &str, more: &[&str]) -> Operator {
        let args = [&["--leader-elect", "--leader-elect-namespace", self.scene.namespace.as_str()], more].concat();
        Operator::start(self.scene.ground, &self.scene.namespace, &self.log_of(name), &args)
    }

    async fn holder(&self) -> Option<String> {
        self.leases.get_opt(rbac::NAME).await.expect("the lease can be read")?.spec?.holder_identity
    }

    pub async fn until_rest(&self, image: &str) {
        let at_rest = |world: &World| {
            world.partition() == Some(3) && world.all_on(image) && world.annotation(names::CLAIM) == Some("gate")
        };
        self.scene.until("at rest", at_rest).await;
    }
}

/// Waits until the log of an operator has a line.
pub async fn until_logged(operator: &Operator, line: &str) {
    until(line, async || operator.log().contains(line)).await;
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is_so().await {
        assert!(Instant::now() < end, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn moves(world: &World, image: &str) -> bool {
    world.status().phase != Phase::Idle && world.status().phase != Phase::Completed || world.is_complete(image)
}

#[tokio::test]
async fn after_a_kill_the_other_acts_when_the_lease_has_run_out() {
    let field = Field::new("leader-kill").await;
    let first = field.start("first", &[]);
    until_logged(&first, LEADS).await;
    let second = field.start("second", &[]);
    until_logged(&second, "standing by").await;
    field.until_rest("app:1").await;

    let (killed, holder) = (Instant::now(), field.holder().await);
    first.kill();
    field.scene.release("app:2").await;
    field.scene.until("the other acts", |world| moves(world, "app:2")).await;
    let taken = killed.elapsed();
    println!("kill -9: the other acts after {:.2} s", taken.as_secs_f32());
    assert!(taken <= LEASE + Duration::from_secs(1), "{taken:?}");
    assert!(taken >= Duration::from_secs(10), "not while the first may write: {taken:?}");
    assert_ne!(field.holder().await, holder);
    assert!(!second.log().contains(LOST));
    field.scene.until("complete", |world| world.is_complete("app:2")).await;
    field.scene.end().await;
}

#[tokio::test]
async fn after_a_stop_the_other_acts_at_once() {
    let field = Field::new("leader-stop").await;
    let first = field.start("first", &[]);
    until_logged(&first, LEADS).await;
    let second = field.start("second", &[]);
    until_logged(&second, "standing by").await;
    field.until_rest("app:1").await;
    field.scene.release("app:2").await;
    field.scene.until("it moves", |world| world.partition() == Some(2)).await;

    let told = Instant::now();
    let ended = tokio::spawn(first.stop());
    until_logged(&second, LEADS).await;
    let taken = told.elapsed();
    println!("SIGTERM: the other leads after {:.2} s", taken.as_secs_f32());
    assert!(taken < Duration::from_secs(1), "{taken:?}");
    assert!(ended.await.expect("it is awaited").success());
    field.scene.until("complete", |world| world.is_complete("app:2")).await;
    field.scene.end().await;
}

#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing() {
    let field = Field::new("leader-frozen").await;
    let old = field.start("old", &QUICK);
    until_logged(&old, LEADS).await;
    let new = field.start("new", &QUICK);
    until_logged(&new, "standing by").await;
    field.until_rest("app:1").await;
    field.scene.release("app:2").await;
    // In the middle of a cycle of checks, where it would go on at once.
    field.scene.until("it checks", |world| world.partition() == Some(2) && world.is(Phase::Checking)).await;
    old.freeze();
    until_logged(&new, LEADS).await;
    field.scene.until("complete", |world| world.is_complete("app:2")).await;

    // The new one is silent too, so that nobody else could write; and there is something to do.
    new.freeze();
    field.scene.release("app:3").await;
    // What it had sent is answered.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = field.scene.requests().len();
    old.thaw();
    until_logged(&old, LOST).await;
    // Not long enough for the lease of the new one to run out.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let requests = field.scene.requests().split_off(before);
    assert!(!requests.is_empty(), "it looks at the lease at least");
    assert_eq!(audit::writes(&requests).len(), 0, "{}", audit::tell(&requests));
    new.thaw();
    field.scene.until("complete", |world| world.is_complete("app:3")).await;
    field.scene.end().await;
}

#[tokio::test]
async fn the_lease_tells_people_who_leads() {
    let field = Field::new("leader-told").await;
    let operator = field.start("only", &[]);
    until_logged(&operator, LEADS).await;
    let lease = field.leases.get(rbac::NAME).await.expect("the lease is there");
    let spec: Value = json!(lease.spec);
    assert!(spec["holderIdentity"].as_str().is_some_and(|holder| holder.contains('_')), "{spec}");
    assert_eq!(spec["leaseDurationSeconds"], json!(15), "{spec}");
    assert!(spec["acquireTime"].is_string() && spec["renewTime"].is_string(), "{spec}");
    assert!(operator.stop().await.success());
    assert_eq!(field.holder().await, None, "released");
    field.scene.end().await;
}
