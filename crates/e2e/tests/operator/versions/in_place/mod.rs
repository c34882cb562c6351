//! InPlace: one StatefulSet, whose pods go to the next version one at a time, each behind the check.

mod adversity;
mod cures;
mod fixed;
mod scaling;
mod zero;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sts_plus_api::{VersionPhase, names};
use sts_plus_e2e::{Entry, Scene, Seen, View, image_of, moves, objects, template_image};

use super::scale;
use super::zones::{label_nodes, zone_label};

/// `db` in one StatefulSet, without a check.
pub fn plain() -> Value {
    objects::with(objects::extended("db"), "/spec/updateStrategy", json!({ "type": "InPlace" }))
}

/// With a check each second of each pod: two in a row, and no more than two; none before the first pod and after the last one.
pub async fn checked(more: &Value) -> Value {
    let url = Scene::prometheus().await;
    let mut check = json!({
        "initialDelaySeconds": 0, "periodSeconds": 1, "successThreshold": 2, "maxTries": 2,
        "preflight": false, "final": false, "query": { "expr": objects::ERRORS, "url": url },
    });
    json_patch::merge(&mut check, more);
    objects::with(plain(), "/spec/updateStrategy/check", check)
}

/// The versions of the pods by their names.
pub fn carried(view: &View) -> BTreeMap<String, String> {
    let pods = view.world.pods.values();
    let label = |pod: &k8s_openapi::api::core::v1::Pod| pod.metadata.labels.clone()?.get(names::VERSION).cloned();
    pods.filter_map(|pod| Some((pod.metadata.name.clone()?, label(pod)?))).collect()
}

pub fn all_at(view: &View, version: i32) -> bool {
    let carried = carried(view);
    carried.len() == 3 && carried.values().all(|at| *at == version.to_string())
}

// spec: es§1
#[tokio::test]
async fn each_pod_goes_to_the_next_version_behind_its_check() {
    let scene = Scene::with_versions("in-place", &checked(&json!({ "preflight": true, "final": true })).await).await;
    let before = scene.view();
    assert_eq!(carried(&before).keys().cloned().collect::<Vec<_>>(), ["db-0", "db-1", "db-2"]);
    scene.release_version("app:2").await;
    let middle = scene
        .until_versions("the last pod is on version 2", |view| carried(view).get("db-2").is_some_and(|at| at == "2"))
        .await;
    assert_eq!(middle.status.versions.keys().cloned().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!((middle.status.current_version, middle.status.update_version), (Some(1), Some(2)));
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2), "{:?}", carried(&after));
    assert_eq!(moves::assert_gated(&scene, "app:1", 2).len(), 3, "each pod has moved once");
    let last = after.world.ready_since("db-0").expect("Ready");
    let asked = scene.asked();
    let finally = asked.iter().filter(|asked| asked.at >= last && asked.has_passed());
    assert!(finally.count() >= 2, "after the last pod: {asked:?}");
    // The versions are what the StatefulSet controller keeps, under the same numbers.
    let theirs =
        ["get", "controllerrevisions", "-l", "controller.kubernetes.io/hash", "-L", names::VERSION, "--no-headers"];
    let kept = scene.kubectl_ok(&theirs, "").await;
    let mut numbers: Vec<_> = kept.stdout.lines().filter_map(|line| line.split_whitespace().last()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["1", "2"], "{}", kept.stdout);
    assert_eq!(scene.trace(), ["db 3"]);
    scene.end().await;
}

#[tokio::test]
async fn without_a_check_the_pods_go_as_they_become_available() {
    let scene = Scene::with_versions("plain", &plain()).await;
    scene.release_version("app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(all_at(&after, 2));
    let moved = moves::assert_allowed(&scene.tape.entries(), "app:1");
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["db-2", "db-1", "db-0"]);
    assert!(moved.windows(2).all(|pair| pair[0].made < pair[1].left), "one after the other: {moved:?}");
    assert!(scene.asked().is_empty(), "nothing is checked");
    // Back: a new number, since version 1 is gone.
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    assert!(all_at(&back, 3));
    scene.end().await;
}

// spec: es§1
#[tokio::test]
async fn a_failed_check_holds_and_the_old_template_brings_the_old_version_back() {
    let scene = Scene::with_versions("held", &checked(&json!({})).await).await;
    let before = scene.view();
    scene.release_version("app:2-errors").await;
    let failed = scene.until_versions("failed", |view| view.is(VersionPhase::Failed)).await;
    assert_eq!(failed.condition("Stalled"), "True/ChecksFailed");
    assert_eq!(carried(&failed).values().filter(|at| *at == "2").count(), 1);
    assert_eq!(failed.status.versions, BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), true)]));
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1)).await;
    let stayed = |name: &str| before.uids(name) == back.uids(name);
    assert!(stayed("db-0") && stayed("db-1") && !stayed("db-2"));
    assert_eq!(back.status.last_version, 2);
    scene.end().await;
}

// spec: es§1, L086
#[tokio::test]
async fn rolled_back_the_version_is_stale_until_it_is_tried_again() {
    let scene = Scene::with_versions("back", &checked(&json!({ "onFailure": "Rollback" })).await).await;
    scene.release_version("app:2-errors").await;
    let versions = BTreeMap::from([("1".to_owned(), true), ("2".to_owned(), false)]);
    let stale = |view: &View| {
        let is_told = view.is(VersionPhase::Failed) && view.condition("Stale") == "True/VersionStale";
        is_told && view.status.versions == versions && all_at(view, 1)
    };
    let told = scene.until_versions("stale", stale).await;
    assert!(told.message("Stale").contains("version 2: its pods failed"), "{}", told.message("Stale"));
    let marked =
        |view: &View| view.world.sets["db"].metadata.annotations.clone().is_some_and(|a| a.contains_key(names::STALE));
    scene.until_versions("marked", marked).await;
    let again = json!({ "metadata": { "annotations": { names::RETRY_VERSION: "once" } } });
    scene.change(&again).await;
    let is_tried =
        |entries: &[Entry]| moves::of(entries).iter().filter(|moved| moved.to == "app:2-errors").count() == 2;
    scene.until_entries("tried again", is_tried).await;
    scene.until_versions("stale again", stale).await;
    scene.release_version("app:3").await;
    let after = scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    assert!(all_at(&after, 3) && !marked(&scene.until_versions("not marked", |view| !marked(view)).await));
    scene.end().await;
}

// spec: es§2
#[tokio::test]
async fn scaling_restarts_nothing_and_hand_edits_are_put_back() {
    let scene = Scene::with_versions("edits", &plain()).await;
    let before = scene.view();
    scale(&scene, "extendedstatefulset/db", 4).await;
    scene.until_versions("four", |view| view.is_only(1) && view.uids("db-").len() == 4).await;
    scale(&scene, "statefulset/db", 2).await;
    scene.release_of("db", "app:9").await;
    scene
        .patch("statefulset/db", &json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } } }))
        .await;
    let put_back = |view: &View| {
        let set = view.world.sets["db"].spec.clone().unwrap_or_default();
        let image = template_image(&view.world.sets["db"]);
        let is_held = view.world.partition_of("db") == Some(4);
        view.is_only(1) && is_held && set.replicas == Some(4) && image == "app:1" && view.uids("db-").len() == 4
    };
    let after = scene.until_versions("put back", put_back).await;
    for name in ["db-0", "db-1"] {
        assert_eq!(after.uids(name), before.uids(name));
    }
    let ever = |entry: &Entry| matches!(&entry.seen, Seen::Pod(pod) if image_of(pod) == "app:9");
    assert!(!scene.tape.entries().iter().any(ever));
    scene.end().await;
}

// spec: es§7
#[tokio::test]
async fn zone_by_zone_and_a_failure_in_the_second_leaves_the_first() {
    let scene = Scene::with_operator("in-zones").await;
    label_nodes(&scene, &["z1", "z2"]).await;
    // Errors count in the second zone only.
    let second = r#"app_errors{namespace="${namespace}",pod=~"db-z2-.*"}"#;
    let check = json!({ "onFailure": "Rollback", "query": { "expr": second } });
    let db = objects::with(checked(&check).await, "/spec/az", json!(["z1", "z2"]));
    let db = objects::with(db, "/spec/template/spec/replicas", json!(2));
    let label = zone_label(&scene);
    let db = objects::with(db, "/spec/zoneNodeLabel", json!(label));
    scene.create(&db).await;
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    scene.release_version("app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(carried(&after).values().all(|at| at == "2"));
    let moved: Vec<_> = moves::of(&scene.tape.entries()).into_iter().map(|moved| moved.pod).collect();
    assert_eq!(moved, ["db-z1-1", "db-z1-0", "db-z2-1", "db-z2-0"]);

    scene.release_version("app:3-errors").await;
    let at = |view: &View, zone: &str, version: &str| {
        let carried = carried(view);
        let pods: Vec<_> = carried.iter().filter(|(name, _)| name.starts_with(zone)).collect();
        pods.len() == 2 && pods.iter().all(|(_, at)| *at == version)
    };
    let failed = |view: &View| view.is(VersionPhase::Failed) && at(view, "db-z1-", "3") && at(view, "db-z2-", "2");
    let told = scene.until_versions("the second zone went back, the first stays", failed).await;
    assert!(told.message("Stalled").contains("db-z1 3, db-z2 2"), "{}", told.message("Stalled"));
    // The way back is written to both zones at once; pods that never left stay.
    scene.release_version("app:2").await;
    let back = scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert!(at(&back, "db-z1-", "2") && at(&back, "db-z2-", "2"));
    scene.end().await;
}
