//! Several operators over one Lease: who works, when the next one takes over, and that a leader whose time is over writes nothing. By the
//! times that the operators write into the Lease and those of the API server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use sts_plus::rbac::{self, Rights};
use sts_plus_api::{Phase, names};
use sts_plus_e2e::{Operator, Scene, World, audit, objects};

/// As shipped.
const LEASE: SignedDuration = SignedDuration::from_secs(15);
pub const LEADS: &str = "this operator leads";
pub const LOST: &str = "this operator leads no more";
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
        field.scene.create(&Scene::quick_gate().await).await;
        field
    }

    /// With nothing but the right to be elected.
    pub async fn bare(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let rights = Rights::everywhere(rbac::NAMESPACE).lease_objects(&scene.namespace);
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
    pub fn requests_everywhere(&self) -> testcluster::AuditEntries {
        let mut requests = self.scene.ground.cluster.audit_log().entries().expect("the audit log can be read");
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

    async fn lease(&self) -> LeaseSpec {
        let lease = self.leases.get(rbac::NAME).await.expect("the lease is there");
        lease.spec.expect("the lease is filled in")
    }

    /// Which requests other than those for the Lease changed something between two moments.
    fn writes_between(&self, from: Timestamp, to: Timestamp) -> Vec<String> {
        let requests = self.scene.requests();
        let writes = audit::writes(&requests).into_iter().filter(|entry| entry.resource != "leases");
        let between = writes.filter(|entry| entry.received > from && entry.received < to);
        between.map(|entry| format!("{} {} {}", entry.verb, audit::full_name(entry), entry.name)).collect()
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

fn acquired(lease: &LeaseSpec) -> Timestamp {
    lease.acquire_time.as_ref().expect("it was acquired").0
}

fn renewed(lease: &LeaseSpec) -> Timestamp {
    lease.renew_time.as_ref().expect("it was renewed").0
}

/// Two operators, of which the first leads, with their set at rest.
async fn pair(name: &str, more: &[&str]) -> (Field, Operator, Operator) {
    let field = Field::new(name).await;
    let first = field.start("first", more);
    until_logged(&first, LEADS).await;
    let second = field.start("second", more);
    until_logged(&second, "standing by").await;
    field.until_rest("app:1").await;
    (field, first, second)
}

// spec: L090
#[tokio::test]
async fn after_a_kill_the_other_acts_when_the_lease_has_run_out() {
    let (field, first, second) = pair("leader-kill", &[]).await;
    first.kill();
    let (killed, last) = (Timestamp::now(), field.lease().await);
    field.scene.release("app:2").await;
    field.scene.until("the other acts", |world| moves(world, "app:2")).await;
    let taken = field.lease().await;
    let waited = acquired(&taken).duration_since(renewed(&last));
    println!("kill -9: the other leads {waited} after the last renewal");
    assert!(waited >= LEASE, "not while the first may write: {waited}");
    assert!(waited < LEASE * 2, "one lease is enough: {waited}");
    assert_ne!(taken.holder_identity, last.holder_identity);
    // What was on its way when it was killed may still arrive.
    let arrived = killed + SignedDuration::from_secs(1);
    assert_eq!(field.writes_between(arrived, acquired(&taken)), Vec::<String>::new());
    assert!(!second.log().contains(LOST));
    field.scene.until("complete", |world| world.is_complete("app:2")).await;
    field.end().await;
}

// spec: L090
#[tokio::test]
async fn after_a_stop_the_other_acts_without_waiting_for_the_lease_to_run_out() {
    let (field, first, second) = pair("leader-stop", &[]).await;
    field.scene.release("app:2").await;
    field.scene.until("it moves", |world| world.partition() == Some(2)).await;
    let stopped = Timestamp::now();
    let ended = tokio::spawn(first.stop());
    until_logged(&second, LEADS).await;
    let waited = acquired(&field.lease().await).duration_since(stopped);
    println!("SIGTERM: the other leads after {waited}");
    assert!(waited < LEASE / 2, "{waited}");
    assert!(ended.await.expect("it is awaited").success());
    field.scene.until("complete", |world| world.is_complete("app:2")).await;
    field.end().await;
}

// spec: L090
#[tokio::test]
async fn a_leader_that_was_frozen_writes_nothing_before_it_leads_again() {
    let (field, old, new) = pair("leader-frozen", &QUICK).await;
    field.scene.release("app:2").await;
    // In the middle of a cycle of checks, where it would go on at once.
    field.scene.until("it checks", |world| world.partition() == Some(2) && world.is(Phase::Checking)).await;
    old.freeze();
    until_logged(&new, LEADS).await;
    field.scene.until("complete", |world| world.is_complete("app:2")).await;

    // The new one is silent too, so that nobody else could write; and there is something to do.
    new.freeze();
    field.scene.release("app:3").await;
    // A line that says that it leads no more says that it leads as well.
    let times = |word: &str| old.log().matches(word).count();
    let led = || times(LEADS) - times(LOST);
    let (thawed, before, lost) = (Timestamp::now(), led(), times(LOST));
    old.thaw();
    until("it leads no more", async || times(LOST) > lost).await;
    until("it leads again", async || led() > before).await;
    let taken = acquired(&field.lease().await);
    assert!(thawed < taken, "{thawed} {taken}");
    assert_eq!(field.writes_between(thawed, taken), Vec::<String>::new());
    field.scene.until("complete", |world| world.is_complete("app:3")).await;
    new.thaw();
    until_logged(&new, LOST).await;
    field.end().await;
}

#[tokio::test]
async fn the_lease_names_the_leader_for_people() {
    let field = Field::new("leader-named").await;
    let operator = field.start("only", &[]);
    until_logged(&operator, LEADS).await;
    let lease = field.lease().await;
    assert!(lease.holder_identity.as_ref().is_some_and(|holder| holder.contains('_')), "{lease:?}");
    assert_eq!(lease.lease_duration_seconds, Some(15), "{lease:?}");
    assert!(acquired(&lease) <= renewed(&lease), "{lease:?}");
    assert!(operator.stop().await.success());
    assert_eq!(field.lease().await.holder_identity, None, "released");
    field.end().await;
}
