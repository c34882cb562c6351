//! The way to Prometheus: TLS, proxies, the origins that may be asked, and more than one Prometheus.

use std::process::Command;

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Ground, Policies, Scene, objects};
use testcluster::{Authority, Identity, Prometheus, PrometheusConfig, TlsProxy};

use super::{ERRORS_NOW, errors, is_held_for, patient, refused_in_mid_rollout};

fn keys(identity: &Identity) -> [(&'static str, &str); 2] {
    [("tls.crt", &identity.certificate), ("tls.key", &identity.key)]
}

// spec: pr§1
#[tokio::test]
async fn tls_with_an_own_authority_and_a_client_certificate_that_change_in_mid_rollout() {
    let (old, new) = (Authority::new().expect("keys"), Authority::new().expect("keys"));
    let mut scene = Scene::new("tls").await;
    let server = old.sign("prom.example").expect("a certificate");
    let proxy =
        TlsProxy::start(scene.ground.prometheus().await.url(), &server, Some(&old)).await.expect("the proxy starts");
    scene.create(&objects::secret("ca", &[("ca.crt", old.pem())])).await;
    scene.create(&objects::secret("me", &keys(&old.sign("operator").expect("a certificate")))).await;
    let tls = json!({ "caSecretRef": "ca", "certSecretRef": "me", "serverName": "prom.example" });
    let gate = patient(objects::rollout(&format!("https://localhost:{}", proxy.port())));
    scene.settle(&objects::set(2), &objects::with(gate, "/spec/check/query/tls", tls)).await;
    refused_in_mid_rollout(&scene, scene.ground.prometheus().await).await;
    proxy.rotate(&new.sign("prom.example").expect("a certificate"), Some(&new)).expect("it can be used");
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    assert!(held.status().message.contains("tls.caSecretRef"), "{}", held.status().message);
    assert_eq!(held.partition(), Some(1), "the next pod waits");
    scene.errors(false).await;
    // The server is trusted again, and does not trust us yet.
    scene.patch("secret/ca", &json!({ "stringData": { "ca.crt": new.pem() } })).await;
    scene.until("the client is refused", |world| world.status().message.contains("tls.certSecretRef")).await;
    let me = new.sign("operator").expect("a certificate");
    scene.patch("secret/me", &json!({ "stringData": { "tls.crt": me.certificate, "tls.key": me.key } })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

/// A Prometheus of the scenario.
async fn another(scene: &Scene, name: &str, config: PrometheusConfig) -> Prometheus {
    let dir = scene.ground.cluster.dir().join(format!("prometheus-{}-{name}", scene.namespace));
    let prometheus = Prometheus::start(&dir, &config).await.expect("Prometheus starts");
    prometheus.wait_for("app_errors", true).await.expect("it scrapes");
    prometheus
}

// spec: pr§1, L035
#[tokio::test]
async fn of_two_prometheis_both_must_answer() {
    let mut scene = Scene::new("two").await;
    let config = || PrometheusConfig::scraping(&[scene.ground.exporter.target()]);
    let mut second = another(&scene, "second", config()).await;
    let queries = json!([
        { "name": "first", "expr": "vector(0) > 1", "url": Scene::prometheus().await },
        { "name": "second", "expr": ERRORS_NOW, "url": second.url(), "timeoutSeconds": 1 },
    ]);
    let gate = objects::without(patient(Scene::gate().await), "/spec/check/query");
    scene.settle(&objects::set(2), &objects::with(gate, "/spec/check/queries", queries)).await;
    refused_in_mid_rollout(&scene, &second).await;
    second.stop().await.expect("it stops");
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    assert!(held.status().message.contains(second.url()), "{}", held.status().message);
    assert_eq!(held.partition(), Some(1), "the next pod waits");
    scene.errors(false).await;
    second.restart().await.expect("it starts again");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

/// One that has half of the series itself and reads the others from another one, which goes away: HTTP 200, success, and a warning.
// spec: pr§3, L066
#[tokio::test]
async fn a_partial_answer_holds() {
    let mut scene = Scene::new("partial").await;
    let config = || PrometheusConfig::scraping(&[scene.ground.exporter.target()]);
    let mut far = another(&scene, "far", config()).await;
    let read = json!({ "url": format!("{}/api/v1/read", far.url()), "read_recent": true });
    let document = json!({ "remote_read": [read] });
    let near = another(&scene, "near", PrometheusConfig { document, ..config() }).await;
    scene.settle(&objects::set(2), &patient(objects::rollout(near.url()))).await;
    refused_in_mid_rollout(&scene, &near).await;
    far.stop().await.expect("it stops");
    let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
    assert!(held.status().message.contains("the answer may be partial"), "{}", held.status().message);
    // Now no series comes at all, and it would pass.
    scene.errors(false).await;
    let seen = errors(&scene.tape.entries());
    let still = scene.until_entries("two more errors", |entries| errors(entries) >= seen + 2).await;
    assert!(is_held_for(&still, Reason::PrometheusUnreachable) && still.partition() == Some(1), "the next pod waits");
    far.restart().await.expect("it starts again");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

/// Nobody listens at the proxy of the environment. It is ignored unless a flag says otherwise.
#[rstest]
#[case::ignored(&[], true)]
#[case::wanted(&["--prometheus-proxy-from-environment"], false)]
#[tokio::test]
async fn proxies_of_the_environment(#[case] args: &'static [&'static str], #[case] passes: bool) {
    let mut scene = Scene::new("proxy").await;
    scene.start_with(args, vec![("ALL_PROXY", "http://127.0.0.1:9".to_owned())]);
    scene.settle(&objects::set(1), &Scene::quick_gate().await).await;
    scene.release("app:2").await;
    if passes {
        scene.until("complete", |world| world.is_complete("app:2")).await;
    } else {
        let held = scene.until("held", |world| is_held_for(world, Reason::PrometheusUnreachable)).await;
        let message = held.status().message;
        assert!(message.contains("the proxy http://127.0.0.1:9 does not lead there"), "{message}");
        scene.kill_operator();
        scene.start_with(
            args,
            vec![("ALL_PROXY", "http://127.0.0.1:9".to_owned()), ("NO_PROXY", "127.0.0.1".to_owned())],
        );
        scene.start_operator();
        scene.until("complete", |world| world.is_complete("app:2")).await;
    }
    scene.end().await;
}

#[tokio::test]
async fn an_origin_that_is_not_in_the_list_is_reported_before_anything_rolls() {
    let mut scene = Scene::new("origin").await;
    scene.start_with(&["--allowed-origin=http://prometheus:9090,http://127.0.0.1:9"], Vec::new());
    scene.settle(&objects::set(1), &Scene::quick_gate().await).await;
    let blocked = scene.until("it is reported", |world| world.is(Phase::Blocked)).await;
    assert_eq!(blocked.condition(ConditionType::ChecksValid), format!("False/{}", Reason::InvalidUrl));
    assert!(blocked.status().message.contains("--allowed-origin http://"), "{}", blocked.status().message);
    scene.configure(&json!({ "check": { "query": { "url": "127.0.0.1:9/path" } } })).await;
    let is_valid = |world: &sts_plus_e2e::World| world.condition(ConditionType::ChecksValid).starts_with("True/");
    scene.until("one of the list may be asked", is_valid).await;
    scene.end().await;
}

#[tokio::test]
async fn a_list_with_a_wrong_origin_is_refused_at_the_start() {
    let ground = Ground::get(Policies::Installed).await;
    let list = "--allowed-origin=http://prometheus:9090,http://me:canary@prometheus:9090";
    let output = Command::new(ground.operator_program()).args(["run", list]).output().expect("the operator can be run");
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("--allowed-origin: entry 2 contains credentials"), "{told}");
    assert!(!told.contains("canary"), "{told}");
}
