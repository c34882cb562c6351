//! Pods that do not go: their node may be gone; here a finalizer keeps them. And pods that do not come.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_e2e::eventually;

use crate::story::{Story, View, db};
use crate::zones::in_zones;

/// The pod does not go until it is freed.
async fn keep(story: &Story, pod: &str) {
    story.scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "finalizers": ["sts.plus/test"] } })).await;
}

async fn free(story: &Story, pod: &str) {
    story.scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "finalizers": null } })).await;
}

#[tokio::test]
async fn a_pod_of_a_removed_version_that_does_not_go_is_named_and_never_forced() {
    let story = Story::at_rest("lost", &db()).await;
    keep(&story, "db-v1-0").await;
    story.release("app:2").await;
    let is_told =
        |view: &View| view.is(VersionPhase::Held) && view.status.message.contains("its grace period ended at");
    let told = story.until("it is named", is_told).await;
    assert!(told.status.message.contains("version 1 is removed, and waits until the pod is gone: db-v1-0"));
    story.release("app:3").await;
    let still = story.until("still so", |view| is_told(view) && view.status.update_version == Some(3)).await;
    assert_eq!(story.scene.until_events(Reason::BlockedByPod, 1).await.len(), 1);
    assert!(still.world.pods.contains_key("db-v1-0") && still.uids("db-v2-").len() == 3);
    free(&story, "db-v1-0").await;
    story.until("version 3 alone", |view| view.is_only(3)).await;
    story.end().await;
}

#[tokio::test]
async fn pods_leave_in_one_zone_at_a_time() {
    let story = in_zones("turns", &["a", "b"]).await;
    keep(&story, "db-a-v1-1").await;
    story.change(&json!({ "spec": { "template": { "spec": { "replicas": 1 } } } })).await;
    let is_leaving = |view: &View| {
        let leaves = view.world.pods.get("db-a-v1-1").is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        leaves && view.is(VersionPhase::Progressing) && view.status.message.contains("db-a-v1-1 is terminating")
    };
    story.until("a pod of zone a leaves", is_leaving).await;
    assert_eq!(story.trace().last().map(String::as_str), Some("db-a-v1 1"));
    free(&story, "db-a-v1-1").await;
    story.until("one pod in each zone", |view| view.is_only(1) && view.uids("").len() == 2).await;
    eventually("it was seen", async || story.trace().last().map(String::as_str) == Some("db-b-v1 1")).await;
    story.end().await;
}

#[tokio::test]
async fn a_canary_that_a_quota_keeps_out_is_told_with_the_reason() {
    let story = Story::at_rest("quota", &db()).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": { "pods": "3" } },
    });
    story.scene.create(&quota).await;
    let counted = ["wait", "resourcequota/few", "--for=jsonpath={.status.used.pods}=3", "--timeout=30s"];
    story.scene.kubectl_ok(&counted, "").await;
    story.release("app:2").await;
    let told = story.until("told", |view| view.status.message.contains("QuotaExceeded")).await;
    let message = &told.status.message;
    assert!(message.contains("StatefulSet db-v2 has 0 of 1 pods: db-v2-0 cannot be created since 20"), "{message}");
    assert!(message.contains("exceeded quota: few"), "{message}");
    story.scene.kubectl_ok(&["delete", "resourcequota", "few"], "").await;
    // The controller retries with growing pauses; a change of the set makes it look at once.
    story.scene.patch("statefulset/db-v2", &json!({ "metadata": { "annotations": { "look": "again" } } })).await;
    story.until("version 2 alone", |view| view.is_only(2)).await;
    story.end().await;
}

/// Whoever deletes a StatefulSet with orphan wants its pods to stay. Nobody looks after them when its version is not wanted any more.
#[tokio::test]
async fn pods_that_belong_to_nobody_are_told_and_left() {
    let mut story = Story::at_rest("nobodys", &db()).await;
    story.release("app:2-never-ready").await;
    story.until("a canary of version 2", |view| view.world.pods.contains_key("db-v2-0") && view.is_told()).await;
    story.scene.kill_operator();
    story.scene.kubectl_ok(&["delete", "statefulset", "db-v2", "--cascade=orphan"], "").await;
    story.release("app:1").await;
    story.scene.start_operator();
    let told = "version 1 has all 3 pods available; pod db-v2-0 belongs to no StatefulSet any more";
    let left = story.until("it is told", |view| view.is_told() && view.status.message.starts_with(told)).await;
    assert!(left.world.pods.contains_key("db-v2-0"));
    story.end().await;
}
