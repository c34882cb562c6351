//! What the API server keeps: the definition itself, the template as it was written, the sample, columns and names.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene, eventually};
use testcluster::Method;

use super::objects::{WEB, count, merged, scaled, set, stored};
use crate::rig::{accepted, file, on_both_minors, reported};

on_both_minors!(
    the_example_of_the_specification_applies_unchanged,
    fields_of_the_template_that_nobody_knows_are_kept_as_they_were_written,
    a_template_of_200_kb_with_zones_and_queries_is_accepted,
    the_largest_object_is_judged_within_a_second_and_nobody_else_is_asked,
    defaults_are_filled_in,
    the_samples_apply_without_a_warning_and_again_without_a_change,
    a_list_prints_what_a_person_wants_to_know,
);

/// An object of the API server, and what `kubectl apply` writes down, must have room for it.
#[test]
fn the_definition_is_small() {
    let crd = sts_plus_api::crds().into_iter().find(|crd| crd.spec.names.kind == "ExtendedStatefulSet").unwrap();
    let size = serde_json::to_string(&crd).unwrap().len();
    assert!(size < 200_000, "{size}");
}

const EXAMPLE: &str = r#"
apiVersion: fissile.cloudfoundry.org/v1alpha1
kind: ExtendedStatefulSet
metadata: {name: myextendedstatefulset}
spec:
  az:                      # null is fine
  scaling: {min: 3, max: 13, oddOnly: true}
  updateOnEnvChange: true
  updateStrategy: {canaries: 1, retryCount: 2, updateNotReady: true}
  template:
    metadata: {labels: {a-label-for-my-stateful-set: "foo"}}
    spec:
      selector: {matchLabels: {app: my-app}}
      serviceName: "app"
      template:
        metadata: {labels: {app: my-app}}
        spec:
          terminationGracePeriodSeconds: 10
          containers: [{name: my-web-app, image: k8s.gcr.io/nginx-slim:0.8, ports: [{containerPort: 80, name: web}]}]
"#;

/// Applies it twice: nothing may be warned of, and the second time nothing may change.
async fn applied_twice(scene: &Scene, manifest: &str) {
    for words in ["created", "unchanged"] {
        let reply = scene.kubectl_ok(&["apply", "-f", "-"], manifest).await;
        assert_eq!(reply.stderr, "");
        let is_so = reply.stdout.lines().all(|line| line.ends_with(words));
        assert!(is_so && !reply.stdout.is_empty(), "not {words}: {}", reply.stdout);
    }
}

// spec: es§1
async fn the_example_of_the_specification_applies_unchanged(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    applied_twice(&scene, EXAMPLE).await;
    let spec = stored(&scene, "myextendedstatefulset").await["spec"].clone();
    assert_eq!(
        spec["template"],
        json!({
            "metadata": { "labels": { "a-label-for-my-stateful-set": "foo" } },
            "spec": {
                "replicas": 3, // filled in, all else as it was written
                "selector": { "matchLabels": { "app": "my-app" } },
                "serviceName": "app",
                "template": {
                    "metadata": { "labels": { "app": "my-app" } },
                    "spec": {
                        "terminationGracePeriodSeconds": 10,
                        "containers": [{
                            "name": "my-web-app", "image": "k8s.gcr.io/nginx-slim:0.8", "ports": [{ "containerPort": 80, "name": "web" }],
                        }],
                    },
                },
            },
        })
    );
    assert_eq!(spec["scaling"], json!({ "min": 3, "max": 13, "oddOnly": true, "policy": "Reject" }));
    assert_eq!((&spec["az"], &spec["updateOnEnvChange"]), (&Value::Null, &json!(true)));
}

async fn fields_of_the_template_that_nobody_knows_are_kept_as_they_were_written(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let odd = json!({
        "text": "a <b> & \"c\" \\ é \u{1F600}\n\ttab", "empty": "", "none": null, "list": [], "map": {}, "nested": [[1, [2]], { "a": [null] }],
        "large": 9_007_199_254_740_993_i64, "negative": -1, "fraction": 0.25, "yes": true, "Case": 1, "case": 2, "a.b/c": "~1",
    });
    let mut object =
        set(&json!({}), &json!({ "replicas": 2, "fieldOfTheYear2030": odd, "podManagementPolicy": "Parallel" }));
    for place in [
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/spec/template",
        "/spec/template/spec/template/metadata",
    ] {
        object.pointer_mut(place).expect("a place")["newer"] = odd.clone();
    }
    let container = object.pointer_mut("/spec/template/spec/template/spec/containers/0").expect("a container");
    container["newer"] = odd.clone();
    // Typed, this one would be a string or a number; both are kept.
    container["ports"] = json!([{ "containerPort": "eighty", "name": 80 }]);
    scene.create(&object).await;
    let text = |object: &Value| object["spec"]["template"].to_string();
    assert_eq!(text(&stored(&scene, "web").await), text(&object));
    // Other writers, the scale and the status leave it so.
    scaled(&scene, "web", 3, false).await.expect("it is scaled");
    scene.kubectl_ok(&["label", "ests", "web", "a=b"], "").await;
    reported(&scene, WEB, &json!({ "replicas": 3 })).await;
    object["spec"]["template"]["spec"]["replicas"] = 3.into();
    assert_eq!(text(&stored(&scene, "web").await), text(&object));
}

/// As large as it gets, and with something for every rule to count.
fn large() -> Value {
    let zones: Vec<String> = (0..32).map(|n| format!("{}-{n:02}", "z".repeat(30))).collect();
    let long = "a/".repeat(1000);
    let queries: Vec<Value> = (0..16)
        .map(|n| json!({ "name": format!("q-{n}"), "expr": "up ".repeat(300), "url": format!("https://prom:9090/{n}/{long}") }))
        .collect();
    let env: Vec<Value> = (0..2000).map(|n| json!({ "name": format!("N_{n}"), "value": "v".repeat(80) })).collect();
    let labels: serde_json::Map<String, Value> = (0..500).map(|n| (format!("label-{n}"), "x".into())).collect();
    let mut object = set(
        &json!({
            "az": zones, "zones": zones, "scaling": { "min": 1, "max": 99, "oddOnly": true },
            "updateStrategy": { "check": { "queries": queries, "url": format!("https://prom/{long}") } },
        }),
        &json!({}),
    );
    object["spec"]["template"]["metadata"]["labels"] = labels.into();
    object["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = env.into();
    object
}

/// The API server counts what its rules cost: no size that fits into its storage may be too much.
async fn a_template_of_200_kb_with_zones_and_queries_is_accepted(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let object = large();
    let size = object["spec"]["template"].to_string().len();
    assert!(size > 200_000, "only {size}");
    assert_eq!(count(&scene.create(&object).await), Some(1));
    // A write is compared with what was there before, which costs too.
    scaled(&scene, "web", 5, false).await.expect("it is scaled");
    let fewer = &object["spec"]["az"].as_array().expect("zones")[1..];
    let answer = merged(&scene, &json!({ "spec": { "az": fewer, "zones": null, "paused": true } })).await;
    assert!(answer.is_ok(), "{answer:?}");
}

// spec: L021
async fn the_largest_object_is_judged_within_a_second_and_nobody_else_is_asked(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        let list = ground.cluster.request(Method::GET, &path, None).await.expect("webhooks can be listed");
        assert_eq!(list["items"], json!([]), "{kind}");
    }
    let object = large();
    // Most of nine in a row, whatever else the machine has to do: one alone may be a lucky one.
    eventually("the answer comes within a second", async || {
        let mut took = Vec::new();
        for _ in 0..9 {
            let asked = Instant::now();
            accepted(&scene, &object).await;
            took.push(asked.elapsed());
        }
        took.sort();
        took[4] < Duration::from_secs(1)
    })
    .await;
}

// spec: es§1
async fn defaults_are_filled_in(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let check = json!({ "query": { "expr": "up", "url": "prom:9090" } });
    let mut spec =
        accepted(&scene, &set(&json!({ "updateStrategy": { "check": check } }), &json!({}))).await["spec"].clone();
    spec["template"] = Value::Null;
    assert_eq!(
        spec,
        json!({
            "zoneNodeLabel": "topology.kubernetes.io/zone",
            "zoneReplicas": "PerZone",
            "scaling": { "oddOnly": false, "policy": "Reject" },
            "updateStrategy": {
                "type": "SideBySide", "canaries": 1, "retryCount": 0, "updateNotReady": false, "canaryWatchSeconds": 900,
                "scaleDownDelaySeconds": 0,
                "check": {
                    "initialDelaySeconds": 60, "periodSeconds": 60, "successThreshold": 3, "maxTries": 10,
                    "query": { "expr": "up", "url": "prom:9090", "successWhen": "NoData", "onMissingMetric": "Pass", "timeoutSeconds": 5 },
                },
            },
            "paused": false,
            "template": null,
        })
    );
    // Written as null, a field is what it is when it is absent.
    let nothing = json!({
        "az": null, "zones": null, "zoneNodeLabel": null, "zoneReplicas": null, "scaling": null, "updateOnEnvChange": null,
        "updateOnConfigChange": null, "updateStrategy": null, "paused": null,
    });
    let null = accepted(&scene, &set(&nothing, &json!({ "replicas": null }))).await;
    let absent = accepted(&scene, &set(&json!({}), &json!({}))).await;
    assert_eq!(null["spec"], absent["spec"]);
}

async fn the_samples_apply_without_a_warning_and_again_without_a_change(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for (sample, name) in
        [("extendedstatefulset.yaml", "extendedstatefulset-sample"), ("extendedstatefulset-in-place.yaml", "ledger")]
    {
        applied_twice(&scene, &file(&format!("config/samples/{sample}"))).await;
        let stored = stored(&scene, name).await;
        assert_eq!(count(&stored), Some(3));
        // The StatefulSet that it describes is one.
        let mut child = stored["spec"]["template"].clone();
        child["apiVersion"] = "apps/v1".into();
        child["kind"] = "StatefulSet".into();
        child["metadata"]["name"] = "child".into();
        accepted(&scene, &child).await;
    }
}

// spec: es§8
async fn a_list_prints_what_a_person_wants_to_know(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&json!({}), &json!({}))).await;
    let time = "2026-01-02T03:04:05Z";
    let stale =
        json!({ "type": "Stale", "status": "True", "reason": "Stale", "message": "m", "lastTransitionTime": time });
    let status = json!({
        "currentVersion": 3, "ready": "2/3", "phase": "Failed", "message": "version 4 is stale", "conditions": [stale],
    });
    reported(&scene, WEB, &status).await;
    for name in ["ests", "stsplus", "extendedstatefulsets", "ests.fissile.cloudfoundry.org"] {
        let text = scene.kubectl_ok(&["get", name], "").await.stdout;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "VERSION", "READY", "PHASE", "STALE", "MESSAGE", "AGE"], "{text}");
        let row = lines[1].join(" ");
        assert!(row.contains("web 3 2/3 Failed True version 4 is stale"), "{text}");
    }
}
