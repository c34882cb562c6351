//! The real Prometheus: answers, outages, and credentials. A set of one or two pods is enough: what holds the first pod holds all.

mod labelled;
mod many;
mod missing_metric;
pub mod variables;
mod way;

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, Verdict};
use sts_plus_e2e::{CANARY, Ground, Policies, Scene, Seen, World, objects};
use testcluster::{Access, AuthProxy, Prometheus, PrometheusConfig};

/// What a check cycle leads to. Every kind of answer in both polarities is in the tests of `gates`; here is what becomes of them.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// All tries are used up on this verdict.
    Fails(Verdict),
    /// It is held for this reason; no try is used up.
    Holds(Reason),
}

/// `odd` is NaN, `probe` is 1.
// spec: pr§3, L027, L060, L061, L070
#[rstest]
#[case::nan_is_data_and_fails("odd{NS}", Outcome::Fails(Verdict::Data), "= NaN")]
#[case::a_scalar_holds("scalar(probe{NS})", Outcome::Holds(Reason::InvalidQuery), "must return a vector")]
#[case::a_warning_without_data_holds(
    "quantile(2, probe{NS}) < 0",
    Outcome::Holds(Reason::PrometheusUnreachable),
    "with a warning, so the answer may be partial"
)]
#[tokio::test]
async fn an_answer(#[case] expr: &str, #[case] outcome: Outcome, #[case] words: &str) {
    let expr = expr.replace("NS", r#"namespace="${namespace}""#);
    let gate = objects::with(Scene::quick_gate().await, "/spec/check/query/expr", expr);
    let mut scene = Scene::new("answer").await;
    publish(&scene).await;
    scene.settle(&objects::set(1), &objects::with(gate, "/spec/check/maxTries", 2)).await;
    let born = scene.world().uids();
    scene.release("app:2").await;
    let end = match outcome {
        Outcome::Fails(verdict) => {
            let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
            let status = failed.status();
            assert_eq!(status.checks.last().map(|check| check.verdict), Some(verdict), "{status:?}");
            assert_eq!(status.current.map(|current| current.tries), Some(2));
            assert!(status.checks.iter().all(|check| !check.passed));
            failed
        }
        Outcome::Holds(reason) => {
            // What is wrong with the expression itself is reported at rest already.
            let held = |world: &World| is_held_for(world, reason) && world.status().current.is_some();
            let held = scene.until("held", held).await;
            assert_eq!(held.status().current.map(|current| current.tries), Some(0), "no try is used up");
            held
        }
    };
    assert_eq!(end.uids(), born, "no pod has moved");
    assert!(end.is_held());
    assert!(end.status().message.contains(words), "{}", end.status().message);
    scene.end().await;
}

/// The gauges of the cases, in the scenario's namespace.
async fn publish(scene: &Scene) {
    let namespace = scene.namespace.as_str();
    for (name, value) in [("probe", 1.0), ("odd", f64::NAN)] {
        scene.ground.exporter.set(name, &[("namespace", namespace)], value);
    }
    let last = format!(r#"odd{{namespace="{namespace}"}}"#);
    scene.ground.prometheus().await.wait_for(&last, true).await.expect("the gauges are scraped");
}

fn is_held_for(world: &World, reason: Reason) -> bool {
    world.condition(ConditionType::Held) == format!("True/{reason}")
}

/// How a Prometheus goes away.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// Connections are refused.
    Stopped,
    /// Connections are accepted and nothing is answered.
    Frozen,
}

// spec: pr§3, L066
#[rstest]
#[tokio::test]
async fn an_outage_holds_and_uses_up_no_try(#[values(Outage::Stopped, Outage::Frozen)] outage: Outage) {
    let mut scene = Scene::new("outage").await;
    let dir = scene.ground.cluster.dir().join(format!("prometheus-{}", scene.namespace));
    let config = PrometheusConfig::scraping(&[scene.ground.exporter.target()]);
    let mut prometheus = Prometheus::start(&dir, &config).await.expect("Prometheus starts");
    prometheus.wait_for("app_errors", true).await.expect("it scrapes");
    let gate = objects::with(patient(objects::rollout(prometheus.url())), "/spec/check/query/timeoutSeconds", 1);
    scene.settle(&objects::set(2), &gate).await;
    let tries = refused_in_mid_rollout(&scene, &prometheus).await;
    match outage {
        Outage::Stopped => prometheus.stop().await.expect("it stops"),
        Outage::Frozen => prometheus.pause().expect("it can be frozen"),
    }
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    let message = held.status().message;
    assert!(message.contains(prometheus.url()) && message.contains("next try at"), "{message}");
    let before = held.status().current.map_or(0, |current| current.tries);
    assert!(before >= tries, "those of before are kept");
    scene.errors(false).await;
    let still = scene.until_entries("four errors", |entries| errors(entries) >= 4).await;
    let status = still.status();
    assert_eq!((status.phase, still.partition()), (Phase::Held, Some(1)), "the next pod waits");
    assert_eq!(status.current.map(|current| current.tries), Some(before), "no error is a try");
    match outage {
        Outage::Stopped => prometheus.restart().await.expect("it starts again"),
        Outage::Frozen => prometheus.resume().expect("it goes on"),
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let failed = |entry: &sts_plus_e2e::Entry| matches!(&entry.seen, Seen::Rollout(gate) if gate.status.as_ref().is_some_and(|status| status.phase == Phase::Failed));
    assert!(!scene.tape.entries().iter().any(failed), "it never counted as failed");
    scene.end().await;
}

/// [`objects::ERRORS`] of the last moments: a Prometheus that was stopped while there were some shows them for minutes.
const ERRORS_NOW: &str = r#"max_over_time(app_errors{namespace="${namespace}"}[2s])"#;

/// A PhasedRollout that rolls its first pod at once and is not tired of checks that fail.
fn patient(gate: Value) -> Value {
    let gate = objects::with(objects::quick(gate), "/spec/check/preflight", false);
    objects::with(objects::with(gate, "/spec/check/maxTries", 1000), "/spec/check/query/expr", ERRORS_NOW)
}

/// Releases `app:2` to two pods and waits until checks of the first of them have failed by what `prometheus` says, so that nothing goes on
/// by itself; how often.
async fn refused_in_mid_rollout(scene: &Scene, prometheus: &Prometheus) -> i32 {
    scene.errors(true).await;
    let errors = format!(r#"app_errors{{namespace="{}"}}"#, scene.namespace);
    prometheus.wait_for(&errors, true).await.expect("the gauge is scraped");
    scene.release("app:2").await;
    let refused = |world: &World| world.status().current.is_some_and(|current| current.tries >= 2);
    let refused = scene.until("checks of the first pod fail", refused).await;
    assert_eq!((refused.partition(), refused.image("web-1"), refused.image("web-0")), (Some(1), "app:2", "app:1"));
    refused.status().current.map_or(0, |current| current.tries)
}

/// Tries that a status has as errors.
fn errors(entries: &[sts_plus_e2e::Entry]) -> usize {
    let records = entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Rollout(gate) => gate.status.as_ref(),
        _ => None,
    });
    let records = records.flat_map(|status| &status.checks).filter(|check| check.verdict == Verdict::Error);
    records.map(|check| check.time).collect::<std::collections::BTreeSet<_>>().len()
}

/// A scenario with two pods whose Prometheus is behind a proxy that demands `access`, and whose Secret has these keys. `gate` says how
/// patient its PhasedRollout is.
async fn behind(access: Access, secret: &[(&str, &str)], gate: fn(Value) -> Value) -> (Scene, AuthProxy) {
    let mut scene = Scene::new("auth").await;
    let upstream = Ground::get(Policies::Installed).await.prometheus().await.url();
    let proxy = AuthProxy::start(upstream).await.expect("the proxy starts");
    proxy.demand(access);
    scene.create(&objects::secret("prom", secret)).await;
    let gate = objects::with(gate(objects::rollout(&proxy.url())), "/spec/check/query/secretRef", "prom");
    scene.settle(&objects::set(2), &gate).await;
    (scene, proxy)
}

/// One check that fails fails the rollout.
fn strict(gate: Value) -> Value {
    objects::with(objects::quick(gate), "/spec/check/maxTries", 1)
}

fn token(word: &str) -> String {
    format!("{word}-{CANARY}")
}

/// Writes another token into the Secret.
async fn rotate(scene: &Scene, token: &str) {
    let body: Value = json!({ "stringData": { "token": token } });
    scene.patch("secret/prom", &body).await;
}

// spec: pr§1, pr§3
#[tokio::test]
async fn a_token_is_sent_as_a_bearer_and_the_query_as_a_form() {
    let (scene, proxy) = behind(Access::Bearer(token("good")), &[("token", &token("good"))], objects::quick).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let seen = proxy.seen();
    assert!(seen.len() >= 2, "one check before each pod: {}", seen.len());
    for request in &seen {
        assert_eq!((request.method.as_str(), request.status), ("POST", 200));
        assert_eq!(request.uri.split('?').next(), Some("/api/v1/query"));
        assert!(request.body.contains("query=") && request.body.contains("timeout="), "{}", request.body);
        assert!(request.user_agent.as_deref().is_some_and(|agent| agent.starts_with("sts-plus/")));
    }
    scene.end().await;
}

// spec: pr§1
#[tokio::test]
async fn a_pair_is_sent_as_basic() {
    let pair = [("username", "prom"), ("password", CANARY)];
    let (scene, proxy) = behind(Access::Basic("prom".to_owned(), CANARY.to_owned()), &pair, objects::quick).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let seen = proxy.seen();
    assert!(!seen.is_empty() && seen.iter().all(|request| request.status == 200), "{seen:?}");
    scene.end().await;
}

// spec: pr§1, pr§3
#[tokio::test]
async fn of_token_and_pair_the_token_wins_with_a_warning() {
    let all = token("good");
    let keys = [("token", all.as_str()), ("username", "prom"), ("password", CANARY)];
    let (scene, proxy) = behind(Access::Bearer(all.clone()), &keys, objects::quick).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let warnings = scene.until_events(Reason::TokenWins, 1).await;
    assert_eq!(warnings[0].type_.as_deref(), Some("Warning"));
    assert!(warnings[0].note.as_deref().is_some_and(|note| note.contains("prom") && note.contains("token")));
    let seen = proxy.seen();
    assert!(!seen.is_empty() && seen.iter().all(|request| request.status == 200), "{seen:?}");
    scene.end().await;
}

// spec: pr§3, L066
#[rstest]
#[tokio::test]
async fn refused_credentials_hold_until_the_secret_is_fixed(#[values(401, 403)] code: u16) {
    let (scene, proxy) = behind(Access::Bearer(token("good")), &[("token", &token("bad"))], strict).await;
    if code == 403 {
        // A proxy that repeats what it was sent.
        proxy.answer_with(403, &format!("no access with Bearer {}", token("bad")));
    }
    let born = scene.world().uids();
    scene.release("app:2").await;
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    let message = held.status().message;
    assert!(message.contains(&format!("HTTP {code}")) && message.contains("Secret prom"), "{message}");
    // As often as would use up the tries.
    let still = scene.until_entries("three errors", |entries| errors(entries) >= 3).await;
    assert!(still.status().current.is_some_and(|current| current.tries == 0));
    assert_eq!(still.uids(), born, "no pod has moved");
    rotate(&scene, &token("good")).await;
    proxy.forward();
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

// spec: pr§3
#[tokio::test]
async fn a_secret_changed_in_mid_rollout_is_used_without_a_restart() {
    let (scene, proxy) = behind(Access::Bearer(token("first")), &[("token", &token("first"))], patient).await;
    refused_in_mid_rollout(&scene, scene.ground.prometheus().await).await;
    proxy.demand(Access::Bearer(token("second")));
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    assert_eq!(held.partition(), Some(1), "the next pod waits");
    scene.errors(false).await;
    rotate(&scene, &token("second")).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}
