//! What the API server makes of a PhasedRollout: defaults, columns, names, the samples.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde_json::{Value, json};
use testcluster::Cluster;

use crate::{
    rig::{Rig, on_both_minors},
    with_check,
};

on_both_minors!(
    the_samples_are_accepted_unchanged,
    defaults_are_filled_in,
    a_list_prints_what_a_person_wants_to_know,
    the_status_is_a_subresource_and_keeps_every_field,
    the_committed_files_are_applied_without_a_warning,
);

fn file(name: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

async fn get(cluster: &Cluster, namespace: &str, what: &str) -> anyhow::Result<Value> {
    let text = cluster.kubectl_ok(&["--namespace", namespace, "get", what, "-o", "json"]).await?;
    Ok(serde_json::from_str(&text)?)
}

async fn the_samples_are_accepted_unchanged(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let apply = ["--namespace", &namespace, "apply", "-f", "-"];
    for name in ["config/samples/phasedrollout.yaml", "config/samples/statefulset.yaml"] {
        let output = cluster.kubectl_as(cluster.kubeconfig(), &apply, &file(name)?).await?;
        assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let sample = get(cluster, &namespace, "phasedrollout/phasedrollout-sample").await?;
    assert_eq!(sample["spec"]["check"]["query"]["url"], "prom:9000/xx");
    assert_eq!(sample["spec"]["check"]["initialDelaySeconds"], 30);
    assert_eq!(get(cluster, &namespace, "statefulset/web").await?["spec"]["replicas"], 3);
    Ok(())
}

async fn defaults_are_filled_in(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let object = with_check(&json!({ "initialDelaySeconds": 0, "query": { "expr": "up{}", "url": "prom:9090" } }));
    let args = ["--namespace", &namespace, "create", "-f", "-"];
    cluster.kubectl_as(cluster.kubeconfig(), &args, &object.to_string()).await?;
    assert_eq!(
        get(cluster, &namespace, "phasedrollout/gate").await?["spec"],
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
    Ok(())
}

async fn a_list_prints_what_a_person_wants_to_know(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let object = with_check(&json!({ "query": { "expr": "up{}", "url": "prom:9090" } }));
    let args = ["--namespace", &namespace, "create", "-f", "-"];
    cluster.kubectl_as(cluster.kubeconfig(), &args, &object.to_string()).await?;
    let status = json!({ "status": { "phase": "Checking", "updated": "2/3", "partition": 1, "message": "web-1: 2 of 3 checks passed" } });
    let patch = [
        "--namespace",
        &namespace,
        "patch",
        "pr",
        "gate",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ];
    cluster.kubectl_ok(&patch).await?;
    for name in ["pr", "stsplus", "phasedrollouts"] {
        let text = cluster.kubectl_ok(&["--namespace", &namespace, "get", name]).await?;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "TARGET", "PHASE", "UPDATED", "PARTITION", "MESSAGE", "AGE"], "{text}");
        let row = lines[1].join(" ");
        assert!(row.contains("gate web Checking 2/3 1 web-1: 2 of 3 checks passed"), "{text}");
    }
    Ok(())
}

async fn the_status_is_a_subresource_and_keeps_every_field(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let object = with_check(&json!({ "query": { "expr": "up{}", "url": "prom:9090" } }));
    let args = ["--namespace", &namespace, "create", "-f", "-"];
    cluster.kubectl_as(cluster.kubeconfig(), &args, &object.to_string()).await?;
    let body = json!({ "status": full_status() }).to_string();
    let patch = ["--namespace", &namespace, "patch", "pr", "gate", "--type=merge", "-p", &body];
    cluster.kubectl_ok(&patch).await?;
    assert!(get(cluster, &namespace, "pr/gate").await?["status"].is_null(), "a normal write does not touch the status");
    cluster.kubectl_ok(&[patch.as_slice(), &["--subresource=status"]].concat()).await?;
    let stored = get(cluster, &namespace, "pr/gate").await?;
    assert_eq!(stored["status"], full_status());
    assert_eq!(stored["metadata"]["generation"], 1, "a status write is no new generation");

    let crd = get(cluster, &namespace, "crd/phasedrollouts.sts.plus").await?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(missing(schema, &full_status(), "status"), [""; 0], "fields of the schema that this test does not try");
    Ok(())
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
            "lastCheckTime": time, "nextCheckTime": time, "brokenSince": time,
        },
        "passed": [{ "revision": "web-2", "index": 2 }], "retry": "1", "neverHealthy": true, "remadeSince": time, "seal": "s",
        "checks": [{
            "time": time, "name": "query", "pod": "web-2", "query": "up{}", "endpoint": "http://prom:9090", "verdict": "NoData",
            "passed": true, "message": "m", "httpStatus": 200, "seriesCount": 1, "series": [{ "labels": "{}", "value": "NaN" }],
        }],
        "conditions": [{
            "type": "Ready", "status": "False", "reason": "Checking", "message": "m", "lastTransitionTime": time, "observedGeneration": 1,
        }],
    })
}

async fn the_committed_files_are_applied_without_a_warning(rig: &'static Rig) -> anyhow::Result<()> {
    let (cluster, _) = rig.namespace().await?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (flag, place) in [("-f", "deploy/crds.yaml"), ("-f", "deploy/install.yaml"), ("-k", "deploy")] {
        let place = root.join(place);
        let args = ["apply", "--dry-run=server", flag, &place.to_string_lossy()];
        let output = cluster.kubectl(&args).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{}: {errors}", place.display());
    }
    Ok(())
}
