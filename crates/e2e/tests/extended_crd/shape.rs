//! What the API server keeps: the definition itself, the template as it was written, the sample, columns and names.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, count, set},
};

on_both_minors!(
    the_example_of_the_specification_applies_unchanged,
    fields_of_the_template_that_nobody_knows_are_kept_as_they_were_written,
    a_template_of_200_kb_with_zones_and_queries_is_accepted,
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
async fn applied_twice(scene: &Scene, manifest: &str) -> anyhow::Result<()> {
    let apply = ["--namespace", &scene.namespace, "apply", "-f", "-"];
    for words in ["created", "unchanged"] {
        let output = scene.cluster.kubectl_as(scene.cluster.kubeconfig(), &apply, manifest).await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && errors.is_empty(), "{errors}");
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(said.lines().all(|line| line.ends_with(words)), "not {words}: {said}");
    }
    Ok(())
}

async fn the_example_of_the_specification_applies_unchanged(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    applied_twice(&scene, EXAMPLE).await?;
    let spec = scene.get("myextendedstatefulset").await?["spec"].clone();
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
    Ok(())
}

async fn fields_of_the_template_that_nobody_knows_are_kept_as_they_were_written(
    rig: &'static Rig,
) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
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
        object.pointer_mut(place).context("a place")?["newer"] = odd.clone();
    }
    let container = object.pointer_mut("/spec/template/spec/template/spec/containers/0").context("a container")?;
    container["newer"] = odd.clone();
    // Typed, this one would be a string or a number; both are kept.
    container["ports"] = json!([{ "containerPort": "eighty", "name": 80 }]);
    scene.create(&object).await?;
    let text = |object: &Value| object["spec"]["template"].to_string();
    assert_eq!(text(&scene.get("web").await?), text(&object));
    // Other writers, the scale and the status leave it so.
    scene.must(&["scale", "ests/web", "--replicas=3"], "").await?;
    scene.must(&["label", "ests", "web", "a=b"], "").await?;
    let status = json!({ "status": { "replicas": 3 } }).to_string();
    scene.must(&["patch", "ests", "web", "--subresource=status", "--type=merge", "-p", &status], "").await?;
    object["spec"]["template"]["spec"]["replicas"] = 3.into();
    assert_eq!(text(&scene.get("web").await?), text(&object));
    Ok(())
}

/// The API server counts what its rules cost: no size that fits into its storage may be too much.
async fn a_template_of_200_kb_with_zones_and_queries_is_accepted(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
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
    let size = object["spec"]["template"].to_string().len();
    ensure!(size > 200_000, "only {size}");
    let stored = scene.create(&object).await?;
    assert_eq!(count(&stored), Some(1));
    // A write is compared with what was there before, which costs too.
    scene.must(&["scale", "ests/web", "--replicas=5"], "").await?;
    let answer = scene.merge(&json!({ "spec": { "az": zones[1..], "zones": null, "paused": true } })).await?;
    ensure!(answer.is_ok(), "{answer:?}");
    Ok(())
}

async fn defaults_are_filled_in(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let check = json!({ "query": { "expr": "up", "url": "prom:9090" } });
    let mut spec =
        scene.accepted(&set(&json!({ "updateStrategy": { "check": check } }), &json!({}))).await?["spec"].clone();
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
    let null = scene.accepted(&set(&nothing, &json!({ "replicas": null }))).await?;
    let absent = scene.accepted(&set(&json!({}), &json!({}))).await?;
    assert_eq!(null["spec"], absent["spec"]);
    Ok(())
}

async fn the_samples_apply_without_a_warning_and_again_without_a_change(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/samples");
    for (file, name) in
        [("extendedstatefulset.yaml", "extendedstatefulset-sample"), ("extendedstatefulset-in-place.yaml", "ledger")]
    {
        let path = samples.join(file);
        let sample = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        applied_twice(&scene, &sample).await?;
        let stored = scene.get(name).await?;
        assert_eq!(count(&stored), Some(3));
        // The StatefulSet that it describes is one.
        let mut child = stored["spec"]["template"].clone();
        child["apiVersion"] = "apps/v1".into();
        child["kind"] = "StatefulSet".into();
        child["metadata"]["name"] = "child".into();
        scene.must(&["create", "--dry-run=server", "--validate=strict", "-f", "-"], &child.to_string()).await?;
    }
    Ok(())
}

async fn a_list_prints_what_a_person_wants_to_know(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&json!({}), &json!({}))).await?;
    let time = "2026-01-02T03:04:05Z";
    let stale =
        json!({ "type": "Stale", "status": "True", "reason": "Stale", "message": "m", "lastTransitionTime": time });
    let status = json!({ "status": {
        "currentVersion": 3, "ready": "2/3", "phase": "Failed", "message": "version 4 is stale", "conditions": [stale],
    } });
    scene
        .must(&["patch", "ests", "web", "--subresource=status", "--type=merge", "-p", &status.to_string()], "")
        .await?;
    for name in ["ests", "stsplus", "extendedstatefulsets", "ests.fissile.cloudfoundry.org"] {
        let text = scene.must(&["get", name], "").await?;
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "VERSION", "READY", "PHASE", "STALE", "MESSAGE", "AGE"], "{text}");
        let row = lines[1].join(" ");
        assert!(row.contains("web 3 2/3 Failed True version 4 is stale"), "{text}");
    }
    Ok(())
}
