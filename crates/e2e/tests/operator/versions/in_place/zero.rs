//! InPlace through no pods at all, and in zones of which one has rejected a version: nothing starts on what failed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sts_plus_api::{Reason, VersionPhase, names};
use sts_plus_e2e::{Scene, Seen, View, objects};

use super::{all_at, carried, checked};
use crate::versions::scale;
use crate::versions::zones::{label_nodes, zone_label};

/// The pods that ever carried version 2, each of its lives.
fn ever_at_two(scene: &Scene) -> BTreeSet<(String, String)> {
    let entries = scene.tape.entries();
    let pods = entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Pod(pod) => Some(pod),
        _ => None,
    });
    let at_two = pods.filter(|pod| {
        pod.metadata.labels.as_ref().is_some_and(|labels| labels.get(names::VERSION).is_some_and(|at| at == "2"))
    });
    at_two.filter_map(|pod| Some((pod.metadata.name.clone()?, pod.metadata.uid.clone()?))).collect()
}

fn has_no_pods(view: &View) -> bool {
    view.world.pods.is_empty()
}

/// Version 2 was rejected at its first pod, and all pods are back on version 1.
async fn rejected(name: &str, more: &Value) -> Scene {
    let mut check = json!({ "onFailure": "Rollback" });
    json_patch::merge(&mut check, more);
    let scene = Scene::with_versions(name, &checked(&check).await).await;
    scene.release_version("app:2-errors").await;
    scene.until_versions("back on version 1", |view| view.is(VersionPhase::Failed) && all_at(view, 1)).await;
    assert_eq!(ever_at_two(&scene).len(), 1, "one pod was tried");
    scene
}

#[tokio::test]
async fn a_rejected_version_stays_rejected_through_zero() {
    let mut scene = rejected("through-zero", &json!({})).await;
    for is_slow in [true, false] {
        scale(&scene, "extendedstatefulset/db", 0).await;
        if is_slow {
            let gone = scene.until_versions("no pods", |view| has_no_pods(view) && view.is(VersionPhase::Failed)).await;
            assert!(gone.status.message.contains("version 1 starts"), "{}", gone.status.message);
            scene.kill_operator();
            scene.start_operator();
        }
        scale(&scene, "extendedstatefulset/db", 3).await;
        let is_held = |view: &View| view.is(VersionPhase::Failed) && view.condition("Stale") == "True/VersionStale";
        let back = scene.until_versions("version 1 again", |view| all_at(view, 1) && is_held(view)).await;
        assert_eq!((back.status.current_version, back.status.update_version), (Some(1), Some(2)));
        assert_eq!(ever_at_two(&scene).len(), 1, "slow {is_slow}: nothing else started on version 2");
    }
    assert!(scene.events_of(Reason::PromotedUnverified).await.is_empty());
    let retry = json!({ "metadata": { "annotations": { names::RETRY_VERSION: "again" } } });
    scene.change(&retry).await;
    scene
        .until_versions("tried again and rejected again", |view| ever_at_two(&scene).len() == 2 && all_at(view, 1))
        .await;
    scene.release_version("app:1").await;
    scene.until_versions("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    scene.end().await;
}

#[tokio::test]
async fn paused_in_mid_upgrade_the_version_in_charge_comes_back_from_zero() {
    let check = json!({ "initialDelaySeconds": 3 });
    let scene = Scene::with_versions("paused-zero", &checked(&check).await).await;
    scene.release_version("app:2").await;
    scene.until_versions("one pod is on version 2", |view| carried(view).get("db-2").is_some_and(|at| at == "2")).await;
    scene.change(&json!({ "spec": { "paused": true } })).await;
    scene.until_versions("paused", |view| view.is(VersionPhase::Paused)).await;
    let before = ever_at_two(&scene);
    scale(&scene, "extendedstatefulset/db", 0).await;
    scene.until_versions("no pods", has_no_pods).await;
    scale(&scene, "extendedstatefulset/db", 3).await;
    let back = scene.until_versions("version 1 again", |view| all_at(view, 1) && view.is(VersionPhase::Paused)).await;
    assert_eq!((back.status.current_version, ever_at_two(&scene)), (Some(1), before));
    scene.change(&json!({ "spec": { "paused": false } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    scene.end().await;
}

// spec: es§7
#[tokio::test]
async fn what_one_zone_rejected_is_rolled_in_no_other_whatever_becomes_of_the_list() {
    let scene = Scene::with_operator("zone-rejects").await;
    label_nodes(&scene, &["z1", "z2"]).await;
    let label = zone_label(&scene);
    let check = json!({ "onFailure": "Rollback" });
    let db = objects::with(checked(&check).await, "/spec/az", json!(["z1", "z2"]));
    let db = objects::with(db, "/spec/template/spec/replicas", 2);
    scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.release_version("app:2-errors").await;
    let all_at_one = |view: &View, zones: &[&str]| {
        let carried = carried(view);
        let is_listed = |pod: &String| zones.iter().any(|zone| pod.starts_with(&format!("db-{zone}-")));
        carried.len() == 2 * zones.len() && carried.iter().all(|(pod, at)| at == "1" && is_listed(pod))
    };
    let is_failed =
        |view: &View| view.is(VersionPhase::Failed) && view.status.observed_generation == Some(view.generation);
    scene.until_versions("z1 went back", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    let before = ever_at_two(&scene);
    assert_eq!(before.len(), 1, "one pod of z1 was tried: {before:?}");
    scene.change(&json!({ "spec": { "az": ["z2", "z1"] } })).await;
    scene.until_versions("in another order", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    scene.change(&json!({ "spec": { "az": ["z2"] } })).await;
    scene
        .until_versions("z1 is gone", |view| is_failed(view) && all_at_one(view, &["z2"]) && view.world.sets.len() == 1)
        .await;
    scene.change(&json!({ "spec": { "az": ["z1", "z2"] } })).await;
    scene.until_versions("z1 is there again", |view| is_failed(view) && all_at_one(view, &["z1", "z2"])).await;
    assert_eq!(ever_at_two(&scene), before);
    scene.release_version("app:3").await;
    let is_whole = |view: &View| view.is_only(3) && carried(view).len() == 4;
    scene.until_versions("version 3 alone", is_whole).await;
    scene.end().await;
}

/// The label by which pods find their zone is in the pods: another one is another version, and the way back is one too.
#[tokio::test]
async fn a_label_that_no_node_has_costs_one_pod_and_is_taken_back() {
    let scene = Scene::with_operator("zone-label").await;
    label_nodes(&scene, &["z1"]).await;
    let label = zone_label(&scene);
    let db = objects::with(checked(&json!({})).await, "/spec/az", json!(["z1"]));
    scene.create(&objects::with(db, "/spec/zoneNodeLabel", json!(label))).await;
    let before = scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.change(&json!({ "spec": { "zoneNodeLabel": "example.com/none" } })).await;
    let is_tried = |view: &View| carried(view).get("db-z1-2").is_some_and(|at| at == "2");
    let tried = scene.until_versions("one pod is tried", |view| is_tried(view) && view.is_told()).await;
    assert_eq!(ever_at_two(&scene).len(), 1);
    assert_eq!((tried.uids("db-z1-0"), tried.uids("db-z1-1")), (before.uids("db-z1-0"), before.uids("db-z1-1")));
    assert!(tried.message("ZoneUnschedulable").contains("example.com/none"), "{}", tried.message("ZoneUnschedulable"));
    scene.change(&json!({ "spec": { "zoneNodeLabel": label } })).await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    assert_eq!((back.uids("db-z1-0"), back.uids("db-z1-1")), (before.uids("db-z1-0"), before.uids("db-z1-1")));
    scene.end().await;
}
