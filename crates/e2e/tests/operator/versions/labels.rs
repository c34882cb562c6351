//! A pod that somebody deletes in mid-upgrade, or whose labels somebody changes.

use serde_json::json;
use sts_plus_api::{VersionPhase, names};
use sts_plus_e2e::{Scene, View, objects};

use crate::versions::in_place::{all_at, carried, checked, plain};

async fn label(scene: &Scene, pod: &str, label: &str) {
    scene.kubectl_ok(&["label", "pod", pod, "--overwrite", label], "").await;
}

/// The pod is let go of, its name stays taken, and the StatefulSet makes no other.
#[tokio::test]
async fn side_by_side_a_pod_that_is_not_selected_any_more_is_named_with_the_cure() {
    let scene = Scene::with_versions("label-beside", &objects::extended("db")).await;
    let before = scene.view();
    let is_named = |view: &View| {
        let message = &view.status.message;
        let cure = format!("kubectl label pod db-v1-1 --overwrite {}=1", names::VERSION);
        message.contains("pod db-v1-1 is in the way") && message.contains(&cure)
    };
    for change in [format!("{}=7", names::VERSION), format!("{}-", names::VERSION)] {
        label(&scene, "db-v1-1", &change).await;
        let told = scene.until_versions("named", |view| is_named(view) && view.is(VersionPhase::Held)).await;
        assert_eq!(told.condition("Ready"), "False/BlockedByPod");
        assert!(told.message("Ready").contains("StatefulSet db-v1 has 2 of 3 pods"), "{}", told.message("Ready"));
        label(&scene, "db-v1-1", &format!("{}=1", names::VERSION)).await;
        let after = scene.until_versions("it is taken back", |view| view.is_only(1)).await;
        assert_eq!(after.uids(""), before.uids(""));
    }
    // The next upgrade says for whom it waits, and the other cure.
    label(&scene, "db-v1-1", &format!("{}=7", names::VERSION)).await;
    scene.release_version("app:2").await;
    scene
        .until_versions("it waits", |view| is_named(view) && view.condition("Stalled") == "True/RunningVersionNotReady")
        .await;
    scene.delete("pod/db-v1-1").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}

/// In place the version is no part of the selector: what a pod is is told by its revision, and numbers are not used up by a hand.
#[tokio::test]
async fn in_place_a_changed_version_label_is_told_and_stops_nothing() {
    let scene = Scene::with_versions("label-place", &plain()).await;
    for change in [format!("{}=7", names::VERSION), format!("{}-", names::VERSION)] {
        label(&scene, "db-1", &change).await;
        let is_told =
            |view: &View| view.is_only(1) && view.status.message.contains("pod db-1 does not carry the label");
        let told = scene.until_versions("told", is_told).await;
        assert!(told.status.message.contains(&format!("kubectl label pod db-1 --overwrite {}=1", names::VERSION)));
        assert_eq!(told.status.last_version, 1);
    }
    scene.release_version("app:2").await;
    let after = scene.until_versions("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    assert!(!after.status.message.contains("label"), "{}", after.status.message);
    scene.end().await;
}

#[tokio::test]
async fn in_place_a_pod_that_is_not_selected_any_more_is_named_with_the_cure() {
    let scene = Scene::with_versions("label-lost", &checked(&json!({})).await).await;
    let before = scene.view();
    label(&scene, "db-1", &format!("{}-", names::OWNER)).await;
    let is_named = |view: &View| view.is(VersionPhase::Held) && view.status.message.contains("pod db-1 is in the way");
    let told = scene.until_versions("named", is_named).await;
    assert_eq!(told.condition("Ready"), "False/BlockedByPod");
    scene.release_version("app:2").await;
    let told = scene
        .until_versions("the upgrade says it too", |view| is_named(view) && view.status.update_version == Some(2))
        .await;
    assert!(all_at(&told, 1) && told.uids("") == before.uids(""), "{:?}", carried(&told));
    label(&scene, "db-1", &format!("{}=db", names::OWNER)).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    scene.end().await;
}

/// Below the partition a pod comes back at the version in charge, at or above it at the next one; neither takes another pod along.
#[tokio::test]
async fn pods_that_are_deleted_in_mid_upgrade_come_back_on_their_side_of_the_partition() {
    let scene = Scene::with_versions("deleted-pods", &checked(&json!({})).await).await;
    let before = scene.view();
    scene.release_version("app:2-errors").await;
    let failed = |view: &View| view.is(VersionPhase::Failed) && carried(view).get("db-2").is_some_and(|at| at == "2");
    let middle = scene.until_versions("the check fails at db-2", failed).await;
    for (pod, version) in [("db-0", "1"), ("db-2", "2")] {
        scene.delete(&format!("pod/{pod}")).await;
        let is_back = |view: &View| {
            let is_other = view.uids(pod) != middle.uids(pod) && view.uids(pod).len() == 1;
            is_other && carried(view).get(pod).is_some_and(|at| at == version) && view.uids("db-").len() == 3
        };
        scene.until_versions("it is back at its version", |view| is_back(view) && failed(view)).await;
    }
    let after = scene.view();
    assert_eq!((after.uids("db-1"), carried(&after)), (before.uids("db-1"), carried(&middle)));
    scene.release_version("app:1").await;
    let back = scene.until_versions("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    assert_eq!(back.uids("db-1"), before.uids("db-1"));
    scene.end().await;
}
