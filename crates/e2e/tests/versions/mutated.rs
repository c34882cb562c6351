//! A policy of the cluster's owner that changes what is written to our StatefulSets, again at each write (L112).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::Reason;
use sts_plus_e2e::{Scene, audit};

use crate::story::{Story, View, db};

/// How long nothing may be written. This wait is the matter itself.
const QUIET: Duration = Duration::from_secs(6);

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
    let probe = sts_plus_e2e::objects::named(sts_plus_e2e::objects::set(0), "probe").to_string();
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    sts_plus_e2e::eventually("the policy is at work", async || {
        let reply = scene.kubectl(&args, &probe).await;
        reply.stdout.contains("INJECTED") && reply.stdout.matches("\"injected\"").count() >= 4
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

/// No write at all by the operator, and no pod, no version, no StatefulSet is another one afterwards.
async fn assert_quiet(story: &Story, version: i32) {
    let before = story.until("at rest", |view| view.is_only(version)).await;
    // Another annotation of the object, and a look because of it: its end is the beginning of the quiet time.
    let looked = story.scene.requests().len();
    story
        .change(&json!({ "metadata": { "annotations": { "a-person": format!("was here {version} {looked}") } } }))
        .await;
    let looks = |entry: &testcluster::AuditEntry| entry.resource == "extendedstatefulsets" && entry.verb == "get";
    tokio::time::sleep(QUIET).await;
    let later = story.scene.requests().split_off(looked);
    assert_eq!(audit::writes(&later).len(), 0, "looks {}\n{}", later.iter().any(looks), audit::tell(&later));
    let after = story.view().await;
    let generations = |view: &View| -> BTreeMap<String, Option<i64>> {
        view.world.sets.iter().map(|(name, set)| (name.clone(), set.metadata.generation)).collect()
    };
    assert_eq!((after.uids(""), generations(&after)), (before.uids(""), generations(&before)));
    assert_eq!(after.status, before.status);
}

#[tokio::test]
async fn a_policy_that_changes_children_from_the_start_starts_no_fight() {
    let story = Story::new("injected").await;
    install(&story.scene).await;
    story.scene.create(&db()).await;
    let first = story.until("version 1 is there", |view| view.is_only(1)).await;
    assert!(is_injected(&first, "db-v1"));
    assert_quiet(&story, 1).await;
    story.release("app:2").await;
    let second = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(is_injected(&second, "db-v2"));
    assert_eq!(story.trace(), ["db-v1 3", "db-v2 0", "db-v2 1", "db-v2 3", "db-v1 0", "db-v1 gone"]);
    assert_quiet(&story, 2).await;
    assert!(story.scene.events_of(Reason::ChildDrift).await.is_empty());
    story.assert_never_fewer_than(3);
    story.end().await;
}

#[tokio::test]
async fn a_policy_that_comes_later_restarts_no_pod_and_an_upgrade_completes() {
    let story = Story::at_rest("injecting", &db()).await;
    let born = story.until("at rest", |view| view.is_only(1)).await;
    install(&story.scene).await;
    // The next write to the child is a scale, and the policy changes the template with it.
    story.change(&json!({ "spec": { "template": { "spec": { "replicas": 4 } } } })).await;
    let scaled = story.until("four pods", |view| view.is_only(1) && view.uids("db-v1-").len() == 4).await;
    assert!(is_injected(&scaled, "db-v1"));
    assert!(born.uids("").iter().all(|(pod, uid)| scaled.uids("")[pod] == *uid), "no pod was restarted");
    assert_quiet(&story, 1).await;
    // Put back after a write by hand, with the policy in between.
    story.scene.kubectl_ok(&["scale", "statefulset", "db-v1", "--replicas=5"], "").await;
    story
        .until("put back", |view| {
            view.is_only(1)
                && view.uids("db-v1-").len() == 4
                && view.world.sets["db-v1"].spec.as_ref().is_some_and(|spec| spec.replicas == Some(4))
        })
        .await;
    story.scene.until_events(Reason::ChildDrift, 1).await;
    assert_quiet(&story, 1).await;
    assert_eq!(story.scene.events_of(Reason::ChildDrift).await.len(), 1, "for the write by hand alone");
    story.release("app:2").await;
    let second = story.until("version 2 alone", |view| view.is_only(2)).await;
    assert!(is_injected(&second, "db-v2") && second.status.last_version == 2);
    assert_quiet(&story, 2).await;
    story.assert_never_fewer_than(3);
    story.end().await;
}
