//! Pods that do not go: their node may be gone; here a finalizer keeps them. And pods that do not come.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_e2e::{Scene, Seen, View, eventually, objects};

use super::orphan;
use crate::versions::zones::in_zones;

/// The pod does not go until it is freed.
async fn keep(scene: &Scene, pod: &str) {
    scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "finalizers": ["sts.plus/test"] } })).await;
}

async fn free(scene: &Scene, pod: &str) {
    scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "finalizers": null } })).await;
}

// spec: es§3, L121
#[tokio::test]
async fn a_pod_of_a_removed_version_that_does_not_go_is_named_and_never_forced() {
    let scene = Scene::with_versions("lost", &objects::extended("db")).await;
    keep(&scene, "db-v1-0").await;
    scene.release_version("app:2").await;
    let is_told =
        |view: &View| view.is(VersionPhase::Held) && view.status.message.contains("its grace period ended at");
    let told = scene.until_versions("it is named", is_told).await;
    assert!(told.status.message.contains("version 1 is removed, and waits until the pod is gone: db-v1-0"));
    scene.release_version("app:3").await;
    let still = scene.until_versions("still so", |view| is_told(view) && view.status.update_version == Some(3)).await;
    assert_eq!(scene.until_events(Reason::BlockedByPod, 1).await.len(), 1);
    assert!(still.world.pods.contains_key("db-v1-0") && still.uids("db-v2-").len() == 3);
    free(&scene, "db-v1-0").await;
    scene.until_versions("version 3 alone", |view| view.is_only(3)).await;
    scene.end().await;
}

#[tokio::test]
async fn pods_leave_in_one_zone_at_a_time() {
    let scene = in_zones("turns", &["a", "b"]).await;
    keep(&scene, "db-a-v1-1").await;
    scene.change(&json!({ "spec": { "template": { "spec": { "replicas": 1 } } } })).await;
    let is_leaving = |view: &View| {
        let leaves = view.world.pods.get("db-a-v1-1").is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        leaves && view.is(VersionPhase::Progressing) && view.status.message.contains("db-a-v1-1 is terminating")
    };
    scene.until_versions("a pod of zone a leaves", is_leaving).await;
    assert_eq!(scene.trace().last().map(String::as_str), Some("db-a-v1 1"));
    free(&scene, "db-a-v1-1").await;
    scene.until_versions("one pod in each zone", |view| view.is_only(1) && view.uids("").len() == 2).await;
    assert_eq!(scene.trace(), ["db-a-v1 2", "db-b-v1 2", "db-a-v1 1", "db-b-v1 1"]);
    let entries = scene.tape.entries();
    let gone = entries.iter().position(|entry| match &entry.seen {
        Seen::Pod(pod) => entry.gone && pod.metadata.name.as_deref() == Some("db-a-v1-1"),
        _ => false,
    });
    let next = entries.iter().position(|entry| match &entry.seen {
        Seen::Set(set) => {
            let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
            set.metadata.name.as_deref() == Some("db-b-v1") && replicas == Some(1)
        }
        _ => false,
    });
    assert!(gone.is_some() && gone < next, "the pod of zone a was gone before: {gone:?} {next:?}");
    scene.end().await;
}

// spec: es§3, L122
#[tokio::test]
async fn a_canary_that_a_quota_keeps_out_is_told_with_the_reason() {
    let scene = Scene::with_versions("quota", &objects::extended("db")).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": { "pods": "3" } },
    });
    scene.create(&quota).await;
    let is_counted = async || scene.get("resourcequota/few").await["status"]["used"]["pods"] == "3";
    eventually("the pods are counted", is_counted).await;
    scene.release_version("app:2").await;
    let told = scene.until_versions("told", |view| view.status.message.contains("QuotaExceeded")).await;
    let message = &told.status.message;
    assert!(message.contains("StatefulSet db-v2 has 0 of 1 pods: db-v2-0 cannot be created since 20"), "{message}");
    assert!(message.contains("exceeded quota: few"), "{message}");
    scene.delete("resourcequota/few").await;
    // The controller retries with growing pauses; a change of the set makes it look at once.
    scene.patch("statefulset/db-v2", &json!({ "metadata": { "annotations": { "look": "again" } } })).await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    scene.end().await;
}

/// Whoever deletes a StatefulSet with orphan wants its pods to stay. Nobody looks after them when its version is not wanted any more.
#[tokio::test]
async fn pods_that_belong_to_nobody_are_told_and_left() {
    let mut scene = Scene::with_versions("nobodys", &objects::extended("db")).await;
    scene.release_version("app:2-never-ready").await;
    scene
        .until_versions("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0") && view.is_told())
        .await;
    scene.kill_operator();
    orphan(&scene, "statefulset/db-v2").await;
    scene.release_version("app:1").await;
    scene.start_operator();
    let told = "version 1 has all 3 pods available; pod db-v2-0 belongs to no StatefulSet any more";
    let left = scene.until_versions("it is told", |view| view.is_told() && view.status.message.starts_with(told)).await;
    assert!(left.world.pods.contains_key("db-v2-0"));
    scene.end().await;
}
