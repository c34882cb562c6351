//! A policy of the cluster's owner that changes what is written to our StatefulSets, again at each write (L112).

use serde_json::{Value, json};
use sts_plus_api::Reason;
use sts_plus_e2e::{Scene, View, eventually, objects};

use super::{assert_quiet, scale};

/// A label and an annotation on StatefulSets and on their pod templates, and an environment variable, on each write that leaves them out.
fn policy(name: &str, namespace: &str) -> [Value; 2] {
    let metadata =
        |kind: &str| format!("{kind}.metadata{{labels: {{'injected': 'yes'}}, annotations: {{'injected': 'yes'}}}}");
    let (set, template) = (metadata("Object"), metadata("Object.spec.template"));
    let labelled = format!(
        "Object{{metadata: {set}, spec: Object.spec{{template: Object.spec.template{{metadata: {template}}}}}}}"
    );
    // No JSON patch: the API server of 1.36 panics at one whose value is a list.
    let spec = "Object.spec.template.spec";
    let variable = format!("{spec}.containers.env{{name: 'INJECTED', value: 'yes'}}");
    let container = format!("{spec}.containers{{name: c.name, env: [{variable}]}}");
    let containers = format!("object.spec.template.spec.containers.map(c, {container})");
    let filled = format!(
        "Object{{spec: Object.spec{{template: Object.spec.template{{spec: {spec}{{containers: {containers}}}}}}}}}"
    );
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": { "name": name },
        "spec": {
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "resourceRules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["statefulsets"],
                }],
            },
            "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
            "mutations": [
                { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": labelled } },
                { "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": filled } },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": name }, "spec": { "policyName": name },
    });
    [policy, binding]
}

/// Installs it for the namespace, and waits until the API server acts on it.
async fn install(scene: &Scene) {
    for object in policy(&format!("inject-{}", scene.namespace), &scene.namespace) {
        scene.create(&object).await;
    }
    let probe = objects::named(objects::set(0), "probe");
    eventually("the policy is at work", async || {
        let stored = scene.try_create(&probe).await.unwrap_or_default().to_string();
        stored.contains("INJECTED") && stored.matches("\"injected\"").count() >= 4
    })
    .await;
}

/// Everything that the policy adds is in the StatefulSet; in its pods too, if it was so from the start.
fn is_injected(view: &View, set: &str) -> bool {
    let set = serde_json::to_value(&view.world.sets[set]).expect("JSON");
    let has = |map: &Value| map["injected"] == "yes";
    let template = &set["spec"]["template"];
    [&set["metadata"], &template["metadata"]].iter().all(|meta| has(&meta["labels"]) && has(&meta["annotations"]))
        && template["spec"]["containers"][0]["env"]
            .as_array()
            .is_some_and(|env| env.iter().any(|it| it["name"] == "INJECTED"))
}

// spec: es§3, L112
#[tokio::test]
async fn a_policy_that_changes_children_from_the_start_starts_no_fight() {
    let mut scene = Scene::with_operator("injected").await;
    install(&scene).await;
    scene.create(&objects::extended("db")).await;
    let first = scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    assert!(is_injected(&first, "db-v1"));
    assert_quiet(&mut scene, "version 1").await;
    scene.release_version("app:2").await;
    let second = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(is_injected(&second, "db-v2"));
    assert_eq!(scene.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    assert_quiet(&mut scene, "version 2").await;
    assert!(scene.events_of(Reason::ChildDrift).await.is_empty());
    scene.assert_never_fewer_than(3);
    scene.end().await;
}

// spec: es§3, L112
#[tokio::test]
async fn a_policy_that_comes_later_restarts_no_pod_and_an_upgrade_completes() {
    let mut scene = Scene::with_versions("injecting", &objects::extended("db")).await;
    let born = scene.until_versions("at rest", |view| view.is_only(1)).await;
    install(&scene).await;
    // The next write to the child is a scale, and the policy changes the template with it.
    scene.change(&json!({ "spec": { "template": { "spec": { "replicas": 4 } } } })).await;
    let scaled = scene.until_versions("four pods", |view| view.is_only(1) && view.uids("db-v1-").len() == 4).await;
    assert!(is_injected(&scaled, "db-v1"));
    assert!(born.uids("").iter().all(|(pod, uid)| scaled.uids("")[pod] == *uid), "no pod was restarted");
    // Put back after a write by hand, with the policy in between.
    scale(&scene, "statefulset/db-v1", 5).await;
    scene
        .until_versions("put back", |view| {
            view.is_only(1)
                && view.uids("db-v1-").len() == 4
                && view.world.sets["db-v1"].spec.as_ref().is_some_and(|spec| spec.replicas == Some(4))
        })
        .await;
    scene.until_events(Reason::ChildDrift, 1).await;
    assert_quiet(&mut scene, "after a write by hand").await;
    assert_eq!(scene.events_of(Reason::ChildDrift).await.len(), 1, "for the write by hand alone");
    scene.release_version("app:2").await;
    let second = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(is_injected(&second, "db-v2") && second.status.last_version == 2);
    assert_quiet(&mut scene, "version 2").await;
    scene.assert_never_fewer_than(3);
    scene.end().await;
}
