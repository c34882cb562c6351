//! What is written: the example of the specification, templates that the API server refuses, fields that have no effect yet.

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, objects};

/// The example as it is.
fn example() -> Value {
    json!({
        "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedStatefulSet", "metadata": { "name": "db" },
        "spec": {
            "az": null,
            "scaling": { "min": 3, "max": 13, "oddOnly": true },
            "updateOnEnvChange": true,
            "updateStrategy": { "canaries": 1, "retryCount": 2, "updateNotReady": true },
            "template": {
                "metadata": { "labels": { "a-label-for-my-stateful-set": "foo" } },
                "spec": {
                    "selector": { "matchLabels": { "app": "my-app" } },
                    "serviceName": "app",
                    "template": {
                        "metadata": { "labels": { "app": "my-app" } },
                        "spec": {
                            "terminationGracePeriodSeconds": 10,
                            "containers": [{ "name": "my-web-app", "image": "k8s.gcr.io/nginx-slim:0.8", "ports": [{ "containerPort": 80, "name": "web" }] }],
                        },
                    },
                },
            },
        },
    })
}

// spec: es§1, es§2, es§8
#[tokio::test]
async fn the_example_comes_up_with_three_replicas() {
    let scene = Scene::with_operator("example").await;
    scene.apply(&example()).await;
    let view = scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    assert_eq!(view.uids("db-v1-").len(), 3);
    let set = &view.world.sets["db-v1"];
    let annotations = set.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get(sts_plus_api::names::VERSION).map(String::as_str), Some("1"));
    assert_eq!(
        set.metadata.labels.clone().unwrap_or_default().get("a-label-for-my-stateful-set").map(String::as_str),
        Some("foo")
    );
    assert_eq!(view.condition("WithoutEffect"), "True/WithoutEffect");
    let columns = scene.kubectl_ok(&["get", "ests", "db"], "").await.stdout;
    let (head, row) = columns.split_once('\n').expect("two lines");
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["NAME", "VERSION", "READY", "PHASE", "STALE", "MESSAGE", "AGE"]
    );
    assert!(row.split_whitespace().take(5).eq(["db", "1", "3/3", "Ready", "False"]), "{row}");
    scene.kubectl_ok(&["wait", "ests/db", "--for=condition=Ready", "--timeout=60s"], "").await;
    scene.end().await;
}

// spec: es§1, L023
#[tokio::test]
async fn a_template_that_the_api_server_refuses_is_told_in_its_words_and_nothing_is_touched() {
    let scene = Scene::with_versions("refused", &objects::extended("db")).await;
    let before = scene.view();
    for (change, word) in [
        (
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": "app:2" }, { "name": "app", "image": "b" }] } } } }),
            "Duplicate value",
        ),
        (json!({ "spec": { "minReadySeconds": "soon" } }), "minReadySeconds"),
        (json!({ "spec": { "template": { "spec": { "noSuchField": 1 } } } }), "noSuchField"),
    ] {
        scene.change(&json!({ "spec": { "template": change } })).await;
        let told =
            scene.until_versions("told", |view| view.is_told() && view.message("TemplateValid").contains(word)).await;
        assert_eq!(told.condition("TemplateValid"), "False/TemplateRefused");
        assert_eq!((told.uids(""), told.status.last_version), (before.uids(""), 1));
        assert_eq!(told.status.phase, VersionPhase::Blocked);
        scene.kubectl_ok(&["replace", "-f", "-"], &objects::extended("db").to_string()).await;
        scene.until_versions("as before", |view| view.is_only(1)).await;
    }
    assert_eq!(scene.trace(), ["db-v1 3"]);
    assert!(!scene.events_of(Reason::TemplateRefused).await.is_empty());
    scene.end().await;
}

#[tokio::test]
async fn what_is_not_supported_yet_is_refused_by_a_condition_that_says_so() {
    let scene = Scene::with_operator("later").await;
    let mut claims = objects::extended("db");
    claims["spec"]["template"]["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }]);
    scene.create(&claims).await;
    let told = scene.until_versions("told", |view| view.condition("Stalled") == "True/NotSupported").await;
    assert!(
        told.status.message.contains("volumeClaimTemplates") && told.world.sets.is_empty(),
        "{}",
        told.status.message
    );
    scene.end().await;
}

/// What says whose a StatefulSet is, of which version and zone, is never a user's.
// spec: es§3
#[tokio::test]
async fn labels_of_ours_in_a_template_change_nothing() {
    let mut wrong = objects::extended("db");
    wrong["spec"]["template"]["spec"]["template"]["metadata"]["labels"][names::ZONE] = json!("q");
    wrong["spec"]["template"]["metadata"]["labels"][names::VERSION] = json!("7");
    let scene = Scene::with_versions("labels-of-ours", &wrong).await;
    scene.release_version("app:2").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}
