//! Health and metrics of running operators, scraped by a real Prometheus: a rollout with a good release, a bad one and a foreign hand is
//! told in numbers, and the numbers of a PhasedRollout go with it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus::rbac;
use sts_plus_api::{Phase, names};
use sts_plus_e2e::{CANARY, Operator, Scene, Seen, audit, eventually, objects};
use testcluster::{Prometheus, PrometheusConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::leader::{Field, LEADS, until_logged};

/// Any port that is free; the log says which.
const WEB: &str = "--web-address=127.0.0.1:0";
const AT: &str = "health and metrics are at http://";
/// A server that works answers sooner, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server that is frozen does not answer however long one waits.
const SILENCE: Duration = Duration::from_secs(3);

/// Host and port of what an operator serves.
async fn address_of(operator: &Operator) -> String {
    until_logged(operator, AT).await;
    let log = operator.log();
    let line = log.lines().find_map(|line| line.split_once(AT)).expect("it was logged");
    line.1.trim().to_owned()
}

/// Status and body of a GET; nothing if there is no answer.
async fn get(address: &str, path: &str) -> Option<(u16, String)> {
    get_within(PATIENCE, address, path).await
}

async fn get_within(patience: Duration, address: &str, path: &str) -> Option<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(patience, asked).await.ok()?.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some((code, body.to_owned()))
}

async fn until_says(address: &str, path: &str, code: u16) {
    eventually(&format!("{path} says {code}"), async || get(address, path).await.is_some_and(|(is, _)| is == code))
        .await;
}

/// A Prometheus that scrapes operators, and what it knows of `gate` in one namespace.
struct Numbers {
    prometheus: Prometheus,
    namespace: String,
}

impl Numbers {
    async fn of(scene: &Scene, operators: &[String]) -> Self {
        let dir = scene.ground.cluster.dir().join(format!("prometheus-{}", scene.namespace));
        let config = PrometheusConfig::scraping(operators);
        let prometheus = Prometheus::start(&dir, &config).await.expect("Prometheus starts");
        Self { prometheus, namespace: scene.namespace.clone() }
    }

    /// `metric` of `gate` with more labels.
    fn series(&self, metric: &str, labels: &str) -> String {
        format!(r#"{metric}{{namespace="{}",name="gate",{labels}}}"#, self.namespace)
    }

    async fn value(&self, expression: &str) -> Option<String> {
        let data = self.prometheus.query(expression).await.expect("Prometheus answers");
        data.pointer("/result/0/value/1").and_then(Value::as_str).map(str::to_owned)
    }

    /// Waits until an expression has one series of this value.
    async fn until(&self, expression: &str, wanted: &str) {
        let is_so = |data: &Value| {
            let result = data["result"].as_array();
            result.is_some_and(|series| series.len() == 1) && data["result"][0]["value"][1] == wanted
        };
        let seen = self.prometheus.wait_until(expression, is_so).await;
        seen.unwrap_or_else(|error| panic!("wanted {wanted}: {error:#}"));
    }

    async fn until_none(&self, expression: &str) {
        self.prometheus.wait_for(expression, false).await.expect("no series");
    }

    /// Exactly one phase is 1, and it is this one.
    async fn until_phase(&self, phase: Phase) {
        self.until(&self.series("sts_plus_rollout_phase", &format!(r#"phase="{phase:?}""#)), "1").await;
        self.until(&format!("sum({})", self.series("sts_plus_rollout_phase", "")), "1").await;
        self.until(&format!("count({})", self.series("sts_plus_rollout_phase", "")), "10").await;
    }
}

/// How many checks there were, from all versions of the status.
fn checks(scene: &Scene) -> usize {
    let mut seen = BTreeSet::new();
    for entry in scene.tape.entries() {
        if let Seen::Rollout(rollout) = &entry.seen {
            let checks = rollout.status.iter().flat_map(|status| &status.checks);
            seen.extend(checks.map(|check| (check.time, check.name.clone())));
        }
    }
    seen.len()
}

// spec: pr§9
#[tokio::test]
async fn a_rollout_is_told_in_numbers_that_prometheus_reads() {
    let field = Field::bare("numbers").await;
    let scene = &field.scene;
    scene.create(&objects::secret("credentials", &[("token", CANARY)])).await;
    scene.create(&objects::set(3)).await;
    scene.create(&objects::with(Scene::gate().await, "/spec/check/query/secretRef", "credentials")).await;
    let first = field.start("first", &[WEB]);
    until_logged(&first, LEADS).await;
    let second = field.start("second", &[WEB]);
    until_logged(&second, "standing by").await;
    field.until_rest("app:1").await;
    let operators = [address_of(&first).await, address_of(&second).await];
    let numbers = Numbers::of(scene, &operators).await;

    // Both are well, one of them leads, and the other shows no rollout.
    for operator in &operators {
        until_says(operator, "/livez", 200).await;
        until_says(operator, "/readyz", 200).await;
        numbers.until(&format!(r#"up{{instance="{operator}"}}"#), "1").await;
        how_it_is(&numbers, operator).await;
    }
    let [leader, standby] = &operators;
    numbers.until(&format!(r#"sts_plus_leader{{instance="{leader}"}}"#), "1").await;
    numbers.until(&format!(r#"sts_plus_leader{{instance="{standby}"}}"#), "0").await;
    assert!(!get(standby, "/metrics").await.expect("it answers").1.contains("gate"));
    numbers.until_phase(Phase::Idle).await;
    numbers.until_none(&numbers.series("sts_plus_rollout_step_seconds", "")).await;

    good_release(scene, &numbers).await;
    let asked = r#"sum(sts_plus_prometheus_request_duration_seconds_count{origin=~"http://127.0.0.1:.*"}) > bool 0"#;
    numbers.until(asked, "1").await;
    let short = get(leader, "/metrics?zeros=omit").await.expect("it answers").1;
    let phases = short.lines().filter(|row| row.starts_with("sts_plus_rollout_phase{")).collect::<Vec<_>>();
    assert!(phases.len() == 1 && phases[0].contains(r#"phase="Completed""#), "{phases:?}");
    bad_release(scene, &numbers).await;
    foreign_hand(scene, &numbers).await;
    for operator in &operators {
        let text = get(operator, "/metrics").await.expect("it answers").1;
        assert!(text.ends_with("# EOF\n") && !text.contains(CANARY), "{text}");
    }

    // The next leader shows the phase, and counts for itself.
    assert!(first.stop().await.success());
    until_logged(&second, LEADS).await;
    numbers.until(&format!(r#"sts_plus_leader{{instance="{standby}"}}"#), "1").await;
    numbers.until(&format!("count({})", numbers.series("sts_plus_rollout_phase", &instance(standby))), "10").await;
    versions(scene, &numbers).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    numbers.until_none(&numbers.series("", r#"__name__=~"sts_plus_.*""#)).await;
    numbers.until(&format!(r#"up{{instance="{standby}"}}"#), "1").await;
    field.end().await;
}

/// An ExtendedStatefulSet with checks, from its first version to its end.
async fn versions(scene: &Scene, numbers: &Numbers) {
    let series = |metric: &str, labels: &str| numbers.series(metric, labels).replace("name=\"gate\"", "name=\"db\"");
    let url = Scene::prometheus().await;
    let check = json!({ "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 5,
        "query": { "expr": "vector(1) > 2", "url": url } });
    let db = objects::with(objects::extended("db"), "/spec/updateStrategy/check", check);
    scene.create(&db).await;
    numbers.until(&series("sts_plus_versions_phase", r#"phase="Ready""#), "1").await;
    numbers.until(&format!("count({})", series("sts_plus_versions_phase", "")), "9").await;
    for kind in ["wanted", "ready"] {
        numbers.until(&series("sts_plus_versions_replicas", &format!(r#"kind="{kind}""#)), "3").await;
    }
    let next = objects::with(db, "/spec/template/spec/template/spec/containers/0/image", "app:2-never-ready");
    assert!(scene.apply(&next).await.ok);
    numbers.until(&series("sts_plus_versions_phase", r#"phase="Canary""#), "1").await;
    numbers.until(&series("sts_plus_versions", r#"state="coming""#), "1").await;
    numbers.until(&format!("count({})", series("sts_plus_versions_step_seconds", "")), "1").await;
    let fix = objects::with(next, "/spec/template/spec/template/spec/containers/0/image", "app:3");
    assert!(scene.apply(&fix).await.ok);
    numbers.until(&series("sts_plus_versions_checks_total", r#"verdict="NoData""#), "2").await;
    numbers.until(&series("sts_plus_versions", r#"state="current""#), "1").await;
    numbers.until(&series("sts_plus_versions", r#"state="stale""#), "0").await;
    numbers.until(&series("sts_plus_versions_phase", r#"phase="Ready""#), "1").await;
    scene.kubectl_ok(&["delete", "ests", "db"], "").await;
    numbers.until_none(&series("", r#"__name__=~"sts_plus_.*""#)).await;
}

/// Whoever leads and whoever stands by tells how it is.
async fn how_it_is(numbers: &Numbers, operator: &str) {
    let of_it = instance(operator);
    for is_so in [
        format!("sts_plus_build_info{{{of_it}}} == bool 1"),
        format!("process_resident_memory_bytes{{{of_it}}} > bool 1e6"),
        format!("process_cpu_seconds_total{{{of_it}}} >= bool 0"),
        format!(r#"sts_plus_watch_age_seconds{{{of_it},resource="statefulsets"}} < bool 180"#),
        format!(r#"sts_plus_api_request_duration_seconds_count{{{of_it},verb="watch",code="200"}} > bool 0"#),
        format!(
            r#"sts_plus_api_request_duration_seconds_bucket{{{of_it},verb="watch",code="200",le="+Inf"}} > bool 0"#
        ),
    ] {
        numbers.until(&is_so, "1").await;
    }
}

fn instance(operator: &str) -> String {
    format!(r#"instance="{operator}""#)
}

/// Three steps, every check counted, and as many writes as the API server saw.
async fn good_release(scene: &Scene, numbers: &Numbers) {
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    numbers.until_phase(Phase::Completed).await;
    numbers.until(&numbers.series("sts_plus_rollout_steps_total", ""), "3").await;
    let checks = checks(scene);
    assert!(checks >= 8, "two for each pod, and two before the first: {checks}");
    numbers.until(&numbers.series("sts_plus_checks_total", r#"verdict="NoData""#), &checks.to_string()).await;
    for (resource, verb) in [("statefulsets", "patch"), ("phasedrollouts/status", "patch"), ("events", "create")] {
        let written = format!(r#"sum(sts_plus_api_writes_total{{resource="{resource}",verb="{verb}",result="ok"}})"#);
        eventually(&format!("{verb} {resource} is counted like in the audit log"), async || {
            let seen = audit::count(&scene.requests(), resource);
            seen > 0 && numbers.value(&written).await == Some(seen.to_string())
        })
        .await;
    }
}

/// The value that stopped it, the tries it took, and how long it stands.
async fn bad_release(scene: &Scene, numbers: &Numbers) {
    numbers.until_none(&numbers.series("sts_plus_check_value", "")).await;
    scene.release("app:3-errors").await;
    scene.until("failed", |world| world.is(Phase::Failed)).await;
    numbers.until_phase(Phase::Failed).await;
    numbers.until(&numbers.series("sts_plus_rollout_condition", r#"type="Stalled""#), "1").await;
    numbers.until(&numbers.series("sts_plus_rollout_condition", r#"type="Ready""#), "0").await;
    numbers.until(&numbers.series("sts_plus_check_value", ""), "1").await;
    let tries = numbers.series("sts_plus_checks_total", r#"verdict="Data""#);
    numbers.prometheus.wait_for(&format!("{tries} >= 5"), true).await.expect("each try is counted");
    let stands = numbers.series("sts_plus_rollout_step_seconds", "");
    let before: f64 = numbers.value(&stands).await.and_then(|value| value.parse().ok()).expect("it stands");
    numbers.prometheus.wait_for(&format!("{stands} > {before} + 1"), true).await.expect("and goes on to stand");
    scene.release("app:4").await;
    scene.until("complete", |world| world.is_complete("app:4")).await;
    numbers.until_none(&stands).await;
    numbers.until_none(&numbers.series("sts_plus_check_value", "")).await;
}

/// Somebody lowers the partition under a name that the admission policies let through.
async fn foreign_hand(scene: &Scene, numbers: &Numbers) {
    let account = format!("--as={}", rbac::user_name(rbac::NAMESPACE));
    let manager = format!("--field-manager={}", names::MANAGER_HOLD);
    let lower = r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}"#;
    scene.kubectl_ok(&["patch", "statefulset", "web", "--type=merge", "--patch", lower, &account, &manager], "").await;
    numbers.until(&numbers.series("sts_plus_partition_drift_total", ""), "1").await;
    scene.until("it is put back", |world| world.partition() == Some(3) && world.all_on("app:4")).await;
}

// spec: L061
#[tokio::test]
async fn values_that_are_no_finite_numbers_are_read_by_prometheus() {
    let scene = Scene::new("odd-numbers").await;
    let values = [("nan", f64::NAN, "NaN"), ("much", f64::INFINITY, "+Inf"), ("little", f64::NEG_INFINITY, "-Inf")];
    let query = |name: &str| json!({ "name": name, "successWhen": "Data", "expr": format!(r#"odd_{name}{{namespace="${{namespace}}"}}"#) });
    for (name, value, _) in values {
        scene.ground.exporter.set(&format!("odd_{name}"), &[("namespace", &scene.namespace)], value);
    }
    let gate = objects::without(Scene::gate().await, "/spec/check/query");
    let gate = objects::with(gate, "/spec/check/url", Scene::prometheus().await);
    let gate = objects::with(gate, "/spec/check/queries", json!(values.map(|(name, ..)| query(name))));
    scene.create(&objects::set(1)).await;
    scene.create(&gate).await;
    let operator = Operator::start(scene.ground, &scene.namespace, &log_of(&scene), &[WEB]);
    let at_rest = |world: &sts_plus_e2e::World| world.partition() == Some(1) && world.all_on("app:1");
    scene.until("at rest", |world| at_rest(world) && world.annotation(names::CLAIM) == Some("gate")).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let address = address_of(&operator).await;
    let numbers = Numbers::of(&scene, std::slice::from_ref(&address)).await;
    for (name, _, written) in values {
        numbers.until(&numbers.series("sts_plus_check_value", &format!(r#"query="{name}""#)), written).await;
    }
    numbers.until(&format!(r#"up{{instance="{address}"}}"#), "1").await;
    scene.end().await;
}

fn log_of(scene: &Scene) -> std::path::PathBuf {
    scene.ground.cluster.logs_dir().join(format!("operator-{}.log", scene.namespace))
}

#[tokio::test]
async fn an_operator_that_is_refused_is_alive_and_not_ready_and_a_frozen_one_does_not_answer() {
    let scene = Scene::new("health").await;
    let cluster = scene.ground.cluster;
    scene.kubectl_ok(&["create", "serviceaccount", "nobody"], "").await;
    let nobody = cluster.kubeconfig_for_service_account(&scene.namespace, "nobody").await.expect("there is a token");
    let program = scene.ground.operator_program();
    let log = cluster.logs_dir().join(format!("operator-{}-nobody.log", scene.namespace));
    let refused = Operator::start_as(program, &nobody, &scene.namespace, &log, &[WEB]);
    let address = address_of(&refused).await;
    until_logged(&refused, "cannot be watched").await;
    until_says(&address, "/livez", 200).await;
    let (code, text) = get(&address, "/readyz").await.expect("it answers");
    assert_eq!((code, text.as_str()), (503, "not everything was listed yet\n"));

    let operator = Operator::start(scene.ground, &scene.namespace, &log_of(&scene), &[WEB]);
    let address = address_of(&operator).await;
    until_says(&address, "/readyz", 200).await;
    operator.freeze();
    assert_eq!(get_within(SILENCE, &address, "/livez").await, None);
    operator.thaw();
    until_says(&address, "/livez", 200).await;
    assert_eq!(get(&address, "/").await.map(|(code, _)| code), Some(404));
    assert!(operator.stop().await.success());
    scene.end().await;
}

#[tokio::test]
async fn a_prometheus_on_loopback_is_asked_only_with_the_flag() {
    let mut scene = Scene::new("loopback").await;
    scene.create(&objects::set(1)).await;
    scene.create(&Scene::gate().await).await;
    scene.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
    let without = tokio::process::Command::new(scene.ground.operator_program())
        .args(["run", "--namespace", &scene.namespace])
        .env("KUBECONFIG", scene.ground.operator_kubeconfig())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut without = without.expect("the operator can be run");
    let claimed = |world: &sts_plus_e2e::World| world.annotation(names::CLAIM) == Some("gate");
    scene.until("claimed", claimed).await;
    scene.release("app:2").await;
    let told = |world: &sts_plus_e2e::World| world.status().message.contains("a loopback address");
    let world = scene.until("it is told", told).await;
    assert!(world.is_held() && world.image("web-0") == "app:1", "{:?}", world.status());
    without.kill().await.expect("it is ended");
    scene.start_operator();
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}
