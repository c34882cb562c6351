//! The way from an ExtendedStatefulSet to its Prometheus: credentials from a Secret, and TLS.

use serde_json::json;
use sts_plus_api::VersionPhase;
use sts_plus_e2e::{CANARY, Scene, View, objects};
use testcluster::{Access, AuthProxy, Authority, TlsProxy};

use crate::checks::variables::{asked, zones};

/// The check of `db`'s canaries is made over TLS of our own authority, with a client certificate and a token. Each of them is wrong
/// first, and is put right under the same canary: what is wrong holds, and makes no version stale.
// spec: es§3, pr§3
#[tokio::test]
async fn a_check_with_a_token_over_tls_passes_only_with_the_right_secrets() {
    let scene = Scene::with_operator("tls-version").await;
    let (ours, other) = (Authority::new().expect("keys"), Authority::new().expect("keys"));
    let token = |word: &str| format!("{word}-{CANARY}");
    let door = AuthProxy::start(scene.ground.prometheus().await.url()).await.expect("the proxy starts");
    door.demand(Access::Bearer(token("good")));
    let server = ours.sign("prom.example").expect("a certificate");
    let tls = TlsProxy::start(&door.url(), &server, Some(&ours)).await.expect("the proxy starts");
    let me = ours.sign("operator").expect("a certificate");
    scene.create(&objects::secret("me", &[("tls.crt", &me.certificate), ("tls.key", &me.key)])).await;
    scene.create(&objects::secret("ca", &[("ca.crt", other.pem())])).await;
    scene.create(&objects::secret("prom", &[("token", &token("bad"))])).await;

    let expr = r#"app_errors{namespace="${namespace}",pod="${pod}",zone="${zone}",node="${node}",revision="${revision}",previous="${previousRevision}"}"#;
    let check = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 2,
        "query": {
            "expr": expr, "url": format!("https://localhost:{}", tls.port()), "secretRef": "prom",
            "tls": { "caSecretRef": "ca", "certSecretRef": "me", "serverName": "prom.example" },
        },
    });
    let db = objects::with(objects::extended("db"), "/spec/updateStrategy/canaryWatchSeconds", 4);
    scene.create(&objects::with(db, "/spec/updateStrategy/check", check)).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.release_version("app:2").await;

    let is_held = |view: &View, words: &str| view.is(VersionPhase::Held) && view.status.message.contains(words);
    scene.until_versions("the server is not trusted", |view| is_held(view, "tls.caSecretRef")).await;
    scene.patch("secret/ca", &json!({ "stringData": { "ca.crt": ours.pem() } })).await;
    let refused = scene.until_versions("the token is refused", |view| is_held(view, "401")).await;
    assert!(refused.uids("db-v2-").len() == 1 && !refused.condition("Stale").starts_with("True"));
    assert!(door.seen().iter().all(|request| request.status == 401), "nothing was answered before");
    scene.patch("secret/prom", &json!({ "stringData": { "token": token("good") } })).await;
    let end = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;

    let seen = door.seen();
    let passed: Vec<_> = seen.iter().filter(|request| request.status == 200).collect();
    assert!(passed.len() >= 2, "{seen:?}");
    for request in &passed {
        assert_eq!(
            (request.method.as_str(), request.authorization.clone()),
            ("POST", Some(format!("Bearer {}", token("good"))))
        );
    }
    // Whether the metric exists at all is asked too.
    let about: Vec<_> = passed.into_iter().filter_map(asked).collect();
    assert!(about.len() >= 2, "{seen:?}");
    let zones = zones(&scene).await;
    let node = end.world.pods["db-v2-0"].spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    for labels in about {
        assert_eq!((labels["pod"].as_str(), &labels["node"], &labels["zone"]), ("db-v2-0", &node, &zones[&node]));
        assert!(!labels["revision"].is_empty() && labels["revision"] != labels["previous"], "{labels:?}");
    }
    scene.end().await;
}
