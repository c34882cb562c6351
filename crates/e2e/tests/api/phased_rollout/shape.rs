//! What the API server makes of a PhasedRollout: defaults, columns, names, the samples.

use std::path::Path;

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::with_check;
use crate::rig::{file, on_both_minors, reported};

const GATE: &str = "phasedrollout/gate";

on_both_minors!(
    the_samples_are_accepted_unchanged,
    defaults_are_filled_in,
    a_list_prints_what_a_person_wants_to_know,
    the_status_is_a_subresource_and_keeps_every_field,
    the_committed_files_are_applied_without_a_warning,
);

// spec: pr§1, L029
async fn the_samples_are_accepted_unchanged(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    for name in ["config/samples/phasedrollout.yaml", "config/samples/statefulset.yaml"] {
        assert_eq!(scene.kubectl_ok(&["apply", "-f", "-"], &file(name)).await.stderr, "");
    }
    let sample = scene.get("phasedrollout/phasedrollout-sample").await;
    assert_eq!(sample["spec"]["check"]["query"]["url"], "prom:9000/xx");
    assert_eq!(sample["spec"]["check"]["initialDelaySeconds"], 30);
    assert_eq!(scene.get("statefulset/web").await["spec"]["replicas"], 3);
}

// spec: pr§1, L028
async fn defaults_are_filled_in(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let object = with_check(&json!({ "initialDelaySeconds": 0, "query": { "expr": "up{}", "url": "prom:9090" } }));
    scene.create(&object).await;
    assert_eq!(
        scene.get(GATE).await["spec"],
        json!({
            "targetRef": "web",
            "skipCheck": false,
            "paused": false,
            "stuckPods": "Delete",
            "check": {
                "initialDelaySeconds": 0,
                "periodSeconds": 60,
                "successThreshold": 3,
                "maxTries": 10,
                "onFailure": "Hold",
                "preflight": true,
                "final": true,
                "query": {
                    "expr": "up{}", "url": "prom:9090",
                    "successWhen": "NoData", "onMissingMetric": "Pass", "timeoutSeconds": 5,
                },
            },
        })
    );
}

async fn a_list_prints_what_a_person_wants_to_know(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let object = with_check(&json!({ "query": { "expr": "up{}", "url": "prom:9090" } }));
    scene.create(&object).await;
    let status =
        json!({ "phase": "Checking", "updated": "2/3", "partition": 1, "message": "web-1: 2 of 3 checks passed" });
    reported(&scene, GATE, &status).await;
    for name in ["pr", "stsplus", "phasedrollouts"] {
        let text = scene.kubectl_ok(&["get", name], "").await.stdout;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "TARGET", "PHASE", "UPDATED", "PARTITION", "MESSAGE", "AGE"], "{text}");
        let row = lines[1].join(" ");
        assert!(row.contains("gate web Checking 2/3 1 web-1: 2 of 3 checks passed"), "{text}");
    }
}

async fn the_status_is_a_subresource_and_keeps_every_field(ground: &'static Ground) {
    let scene = Scene::on(ground, "gate").await;
    let object = with_check(&json!({ "query": { "expr": "up{}", "url": "prom:9090" } }));
    scene.create(&object).await;
    scene.patch(GATE, &json!({ "status": full_status() })).await;
    assert!(scene.get(GATE).await["status"].is_null(), "a normal write does not touch the status");
    reported(&scene, GATE, &full_status()).await;
    let stored = scene.get(GATE).await;
    assert_eq!(stored["status"], full_status());
    assert_eq!(stored["metadata"]["generation"], 1, "a status write is no new generation");

    let crd = serde_json::to_value(&sts_plus_api::crds()[0]).expect("a definition is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(missing(schema, &full_status(), "status"), [""; 0], "fields of the schema that this test does not try");
}

/// The fields of the schema that the value lacks.
fn missing(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    if value.is_null() {
        return vec![place.to_owned()];
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let inside = properties.flat_map(|(name, schema)| missing(schema, &value[name], &format!("{place}.{name}")));
    let item = Some(&schema["items"]).filter(|items| items.is_object());
    let items = item.into_iter().flat_map(|schema| missing(schema, &value[0], &format!("{place}[]")));
    inside.chain(items).collect()
}

/// A status with something in every field.
fn full_status() -> Value {
    let time = "2026-01-02T03:04:05Z";
    json!({
        "observedGeneration": 1, "phase": "Checking", "message": "m", "target": "web", "targetUid": "u",
        "targetRevision": "web-2", "previousRevision": "web-1", "verifiedRevision": "web-1", "rejectedRevisions": ["web-0"],
        "replicas": 3, "updatedReplicas": 1, "readyReplicas": 3, "updated": "1/3", "partition": 2,
        "startTime": time, "completionTime": time, "lastProgressTime": time,
        "current": {
            "index": 2, "pod": "web-2", "step": "Pod", "since": time, "tries": 2, "consecutivePasses": 1, "failed": true,
            "lastCheckTime": time, "nextCheckTime": time, "brokenSince": time, "check": "c",
            "problem": { "reason": "InvalidQuery", "message": "m" },
        },
        "passed": [{ "revision": "web-2", "index": 2, "since": time }],
        "failure": { "revision": "web-2", "reason": "ChecksFailed", "policy": "Hold" }, "retry": "1", "neverHealthy": true, "remadeSince": time, "seal": "s",
        "checks": [{
            "time": time, "name": "query", "pod": "web-2", "query": "up{}", "endpoint": "http://prom:9090", "verdict": "NoData",
            "passed": true, "message": "m", "httpStatus": 200, "seriesCount": 1, "series": [{ "labels": "{}", "value": "NaN" }],
        }],
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Checking", "message": "m", "lastTransitionTime": time, "observedGeneration": 1,
        }],
    })
}

async fn the_committed_files_are_applied_without_a_warning(ground: &'static Ground) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (flag, place) in [("-f", "deploy/crds.yaml"), ("-f", "deploy/install.yaml"), ("-k", "deploy")] {
        let place = root.join(place);
        let args = ["apply", "--dry-run=server", flag, &place.to_string_lossy()];
        let output = ground.cluster.kubectl(&args).await.expect("kubectl ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{}: {errors}", place.display());
    }
}
