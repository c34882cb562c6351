//! One StatefulSet for each zone, by name.

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, View, objects};

/// Two pods in each zone.
fn zoned(zones: &[&str]) -> Value {
    let mut db = objects::extended("db");
    db["spec"]["az"] = json!(zones);
    db["spec"]["template"]["spec"]["replicas"] = json!(2);
    db
}

/// The label of nodes that says their zone to this scene alone.
pub fn zone_label(scene: &Scene) -> String {
    format!("example.com/zone-{}", scene.namespace)
}

/// Gives nodes these zones, one each. They carry none unless they are labelled.
pub async fn label_nodes(scene: &Scene, zones: &[&str]) {
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let all = nodes.list_metadata(&ListParams::default()).await.expect("nodes can be listed").items;
    assert!(all.len() >= zones.len(), "{} nodes", all.len());
    for (node, zone) in all.iter().zip(zones) {
        let label = Patch::Merge(json!({ "metadata": { "labels": { zone_label(scene): zone } } }));
        let labelled = nodes.patch_metadata(&node.name_any(), &PatchParams::default(), &label).await;
        labelled.expect("a node can be labelled");
    }
}

pub async fn in_zones(name: &str, zones: &[&str]) -> Scene {
    let scene = Scene::with_operator(name).await;
    label_nodes(&scene, zones).await;
    let mut db = zoned(zones);
    db["spec"]["zoneNodeLabel"] = json!(zone_label(&scene));
    scene.create(&db).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene
}

fn env(view: &View, pod: &str, name: &str) -> String {
    let pod = serde_json::to_value(&view.world.pods[pod]).expect("JSON");
    let env = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    let found = env.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} in {env:?}"));
    found["value"].as_str().unwrap_or_default().to_owned()
}

/// L010, L014, L165: label, environment and name agree, and pods are where they should be.
// spec: es§7, L010, L014
#[tokio::test]
async fn names_labels_and_environment_agree_and_an_upgrade_goes_zone_by_zone() {
    let scene = in_zones("zones", &["b", "a"]).await;
    let view = scene.view();
    assert_eq!(view.world.sets.keys().collect::<Vec<_>>(), ["db-a-v1", "db-b-v1"]);
    for (zone, index) in [("b", "1"), ("a", "2")] {
        let pod = format!("db-{zone}-v1-0");
        assert_eq!((env(&view, &pod, "KUBE_AZ"), env(&view, &pod, "AZ_INDEX")), (zone.to_owned(), index.to_owned()));
        let labels = view.world.pods[&pod].metadata.labels.clone().unwrap_or_default();
        assert_eq!(labels.get(names::ZONE).map(String::as_str), Some(zone));
    }
    assert_eq!(view.status.ready, "4/4");
    assert_eq!(view.status.replicas, 2, "what an autoscaler sees is one zone");
    scene.release_version("app:2-ready-after-1s").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    let trace = scene.trace();
    let at = |line: &str| trace.iter().position(|seen| seen == line).unwrap_or_else(|| panic!("{line}: {trace:?}"));
    // The canary is in the first zone.
    let comes = ["db-b-v1 2", "db-a-v1 2", "db-b-v2 0", "db-a-v2 0", "db-b-v2 1", "db-b-v2 2", "db-a-v2 2"];
    assert_eq!(trace[..comes.len()], comes);
    let mut goes = trace[comes.len()..].to_vec();
    goes.sort();
    assert_eq!(goes, ["db-a-v1 0", "db-a-v1 gone", "db-b-v1 0", "db-b-v1 gone"]);
    assert!(at("db-a-v1 0") < at("db-a-v1 gone") && at("db-b-v1 0") < at("db-b-v1 gone"), "{trace:?}");
    scene.assert_never_fewer_than(4);
    scene.end().await;
}

/// L012: reordering moves nothing; a zone that is added comes, one that is dropped goes pod by pod.
// spec: es§7, L012
#[tokio::test]
async fn zones_are_reordered_added_and_dropped() {
    let scene = in_zones("moves", &["a", "b"]).await;
    let before = scene.view();
    scene.change(&json!({ "spec": { "az": ["b", "a"] } })).await;
    let after = scene.until_versions("seen", |view| view.is_only(1)).await;
    assert_eq!(after.uids(""), before.uids(""));
    assert_eq!(scene.trace(), ["db-a-v1 2", "db-b-v1 2"]);
    label_nodes(&scene, &["a", "b", "c"]).await;
    scene.change(&json!({ "spec": { "az": ["b", "a", "c"] } })).await;
    let added =
        scene.until_versions("zone c is there", |view| view.is_only(1) && view.uids("db-c-v1-").len() == 2).await;
    assert_eq!(added.status.last_version, 1);
    scene.change(&json!({ "spec": { "az": ["b", "c"] } })).await;
    let dropped = scene
        .until_versions("zone a is gone", |view| view.is_only(1) && !view.world.sets.contains_key("db-a-v1"))
        .await;
    assert_eq!((dropped.uids("db-b-"), dropped.uids("db-c-")), (added.uids("db-b-"), added.uids("db-c-")));
    assert_eq!(scene.trace()[2..], ["db-c-v1 2", "db-a-v1 1", "db-a-v1 0", "db-a-v1 gone"]);
    scene.end().await;
}

/// L011: a zone without nodes is told, and the others go on.
// spec: es§7, L011
#[tokio::test]
async fn a_zone_that_no_node_carries_is_told_and_the_others_come_up() {
    let scene = Scene::with_operator("nowhere").await;
    label_nodes(&scene, &["a"]).await;
    let mut db = zoned(&["a", "nowhere"]);
    db["spec"]["zoneNodeLabel"] = json!(zone_label(&scene));
    scene.create(&db).await;
    let told =
        scene.until_versions("told", |view| view.condition("ZoneUnschedulable") == "True/ZoneUnschedulable").await;
    assert!(told.message("ZoneUnschedulable").contains("nowhere"));
    assert_eq!(scene.until_events(Reason::ZoneUnschedulable, 1).await.len(), 1);
    scene.until_versions("zone a is there", |view| view.uids("db-a-v1-").len() == 2).await;
    label_nodes(&scene, &["a", "nowhere"]).await;
    let well = scene.until_versions("all are there", |view| view.is_only(1)).await;
    assert_eq!(well.condition("ZoneUnschedulable"), "False/AtRest");
    scene.end().await;
}

// spec: es§1, es§7
#[tokio::test]
async fn spread_shares_the_pods_out() {
    let scene = Scene::with_operator("spread").await;
    label_nodes(&scene, &["a", "b"]).await;
    let mut db = zoned(&["a", "b"]);
    db["spec"]["zoneNodeLabel"] = json!(zone_label(&scene));
    db["spec"]["zoneReplicas"] = json!("Spread");
    db["spec"]["template"]["spec"]["replicas"] = json!(3);
    scene.create(&db).await;
    let view = scene.until_versions("all are there", |view| view.is_only(1)).await;
    assert_eq!((view.uids("db-a-").len(), view.uids("db-b-").len(), view.status.replicas), (2, 1, 3));
    scene.end().await;
}

/// A name that no node carries may be a misspelt one: nothing goes for it.
// spec: es§7
#[tokio::test]
async fn a_misspelt_zone_costs_no_pod() {
    let scene = in_zones("typo", &["a", "b"]).await;
    let before = scene.view();
    scene.change(&json!({ "spec": { "az": ["a", "bb"] } })).await;
    let stays = "StatefulSet db-b-v1 of a zone that was dropped stays: db-bb-v1-0 is not Ready";
    let told = scene.until_versions("it stays", |view| view.is_told() && view.status.message.contains(stays)).await;
    assert_eq!(told.condition("ZoneUnschedulable"), "True/ZoneUnschedulable");
    assert_eq!(told.uids("db-b-"), before.uids("db-b-"));
    scene.change(&json!({ "spec": { "az": ["a", "b"] } })).await;
    let after = scene.until_versions("as before", |view| view.is_only(1) && view.uids("db-bb-").is_empty()).await;
    assert_eq!(after.uids(""), before.uids(""));
    scene.end().await;
}

/// A canary whose checks do not come to an end, in zone a.
async fn with_a_canary(name: &str) -> Scene {
    let scene = in_zones(name, &["a", "b"]).await;
    // Nobody answers, so it neither passes nor fails.
    let check = json!({ "initialDelaySeconds": 0, "periodSeconds": 1, "query": { "expr": objects::ERRORS, "url": "http://127.0.0.1:9" } });
    scene.change(&json!({ "spec": { "updateStrategy": { "check": check } } })).await;
    scene.release_version("app:2").await;
    scene
        .until_versions("the canary is asked about", |view| {
            view.is(VersionPhase::Held) && view.uids("db-a-v2-").len() == 1
        })
        .await;
    scene
}

// spec: es§7, L012
#[tokio::test]
async fn another_order_of_the_zones_moves_no_canary() {
    let scene = with_a_canary("canary-stays").await;
    let before = scene.view();
    let since = |view: &View| view.status.upgrade.as_ref().and_then(|upgrade| upgrade.cycle.clone()?.since);
    scene.change(&json!({ "spec": { "az": ["b", "a"] } })).await;
    let after = scene.until_versions("seen", |view| view.is(VersionPhase::Held)).await;
    assert_eq!((after.uids(""), since(&after)), (before.uids(""), since(&before)));
    scene.change(&json!({ "spec": { "updateStrategy": { "check": null } } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    let trace = scene.trace();
    let grows: Vec<_> = trace.iter().filter(|line| line.contains("-v2 ") && !line.ends_with(" 0")).collect();
    assert_eq!(grows, ["db-a-v2 1", "db-a-v2 2", "db-b-v2 2"]);
    scene.end().await;
}

// spec: es§7
#[tokio::test]
async fn canaries_whose_zone_is_dropped_begin_again_in_the_first_one() {
    let scene = with_a_canary("canary-moves").await;
    scene.change(&json!({ "spec": { "az": ["b"] } })).await;
    let moved = scene
        .until_versions("it is elsewhere", |view| {
            view.is(VersionPhase::Held) && view.uids("db-b-v2-").len() == 1 && view.uids("db-a-v2-").is_empty()
        })
        .await;
    assert!(moved.status.message.contains("db-b-v2-0"), "{}", moved.status.message);
    scene.change(&json!({ "spec": { "updateStrategy": { "check": null } } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2) && view.world.sets.len() == 1).await;
    scene.end().await;
}

/// Somebody has changed the label of a node. Its pods run on, and nothing of them goes for pods that cannot come up.
// spec: es§7
#[tokio::test]
async fn pods_whose_node_was_given_another_zone_stay_until_the_next_version_is_there_too() {
    let scene = in_zones("relabel", &["a", "b"]).await;
    let before = scene.view();
    label_nodes(&scene, &["a", "other"]).await;
    scene.release_version("app:2").await;
    let stays = "version 1 stays while version 2 is not as it should be: db-b-v2-0 is not Ready";
    let told = scene.until_versions("version 1 stays", |view| view.status.message.contains(stays)).await;
    assert_eq!((told.status.current_version, told.uids("db-a-v2-").len()), (Some(2), 2));
    assert_eq!(told.uids("db-b-v1-"), before.uids("db-b-v1-"));
    assert_eq!(told.condition("ZoneUnschedulable"), "True/ZoneUnschedulable");
    let promoted = &scene.until_events(Reason::Promoted, 1).await[0];
    let note = promoted.note.clone().unwrap_or_default();
    assert!(note.contains("but for zones that no node carries"), "{note}");
    label_nodes(&scene, &["a", "b"]).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.assert_never_fewer_than(4);
    scene.end().await;
}
