//! Checks that do not pass, pods that do not come back, and a StatefulSet status that lies: held, and on by itself when it is over.

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, World, moves, objects};

/// A pod that is Ready and still recovering, by the metric.
const RECOVERING: &str = r#"app_recovering{namespace="${namespace}",pod="${pod}"}"#;

/// A scenario whose metric says that this pod recovers, whenever it is asked about.
async fn recovering(pod: &str) -> Scene {
    let gate = objects::with(Scene::gate().await, "/spec/check/query/expr", RECOVERING);
    let gate = objects::with(gate, "/spec/check/preflight", false);
    let scene = Scene::at_rest("recover", 3, &objects::with(gate, "/spec/check/maxTries", 60)).await;
    scene.ground.exporter.set("app_recovering", &[("namespace", &scene.namespace), ("pod", pod)], 1.0);
    let query = format!(r#"app_recovering{{namespace="{}"}}"#, scene.namespace);
    scene.ground.prometheus.wait_for(&query, true).await.expect("the gauge is scraped");
    scene
}

/// Waits until a cycle of this pod has had three tries, none passed.
async fn refused_thrice(scene: &Scene, pod: &str) -> World {
    let refused = |world: &World| {
        let current = world.status().current;
        current.is_some_and(|current| current.pod == pod && current.tries >= 3 && current.consecutive_passes == 0)
    };
    scene.until("three tries have not passed", refused).await
}

#[tokio::test]
async fn a_ready_pod_that_still_recovers_holds_the_next_one() {
    let scene = recovering("web-2").await;
    scene.release("app:2").await;
    let held = refused_thrice(&scene, "web-2").await;
    assert!(held.is_ready_on("web-2", "app:2") && held.image("web-1") == "app:1");
    assert_eq!(held.partition(), Some(2));
    let message = held.status().message;
    assert!(message.contains("web-2") && message.contains("app_recovering{") && message.contains("= 1"), "{message}");
    scene.ground.exporter.remove("app_recovering", &[("namespace", &scene.namespace), ("pod", "web-2")]);
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

#[tokio::test]
async fn a_metric_that_is_bad_only_after_the_last_pod_keeps_the_rollout_from_completing() {
    let scene = recovering("web-0").await;
    scene.release("app:2").await;
    let held = refused_thrice(&scene, "web-0").await;
    assert!(held.all_on("app:2") && held.partition() == Some(3), "at rest already");
    assert!(held.condition(ConditionType::RolledOut).starts_with("False/"));
    scene.ground.exporter.remove("app_recovering", &[("namespace", &scene.namespace), ("pod", "web-0")]);
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

#[tokio::test]
async fn on_failure_hold_stalls_once_and_goes_on_when_the_metric_heals() {
    let scene = Scene::at_rest("stall", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    let labels = [("namespace", scene.namespace.as_str()), ("pod", "backup")];
    scene.ground.exporter.set("app_errors", &labels, 1.0);
    let query = format!(r#"app_errors{{namespace="{}"}}"#, scene.namespace);
    scene.ground.prometheus.wait_for(&query, true).await.expect("the gauge is scraped");
    scene.release("app:2").await;
    let stalled = scene.until("stalled", |world| world.condition(ConditionType::Stalled) == "True/ChecksFailed").await;
    assert!(stalled.is(Phase::Failed) && stalled.is_held());
    assert!(stalled.condition(ConditionType::Reconciling).starts_with("False/"), "kstatus: never both");
    // Checks go on.
    let tries = |world: &World| world.status().current.map_or(0, |current| current.tries);
    let on = scene.until("two more tries", |world| tries(world) >= tries(&stalled) + 2).await;
    assert_eq!(on.uids(), born, "no pod has moved");
    let told = scene.events_of(Reason::ChecksFailed).await;
    assert_eq!(told.iter().filter(|event| regards(event, "PhasedRollout")).count(), 1, "told once: {told:?}");
    scene.ground.exporter.remove("app_errors", &labels);
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

fn regards(event: &k8s_openapi::api::events::v1::Event, kind: &str) -> bool {
    event.regarding.as_ref().and_then(|object| object.kind.as_deref()) == Some(kind)
}

#[tokio::test]
async fn a_pod_that_a_quota_keeps_out_counts_as_unavailable() {
    let scene = Scene::at_rest("quota", 3, &Scene::gate().await).await;
    scene.create(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": { "pods": "2" } },
    }))
    .await;
    let counted = ["wait", "resourcequota/few", "--for=jsonpath={.status.used.pods}=3", "--timeout=30s"];
    scene.kubectl_ok(&counted, "").await;
    scene.release("app:2").await;
    scene.until("the step", |world| world.partition() == Some(2) && !world.pods.contains_key("web-2")).await;
    let missing = scene.until("it is told", |world| world.status().message.contains("QuotaExceeded")).await;
    let told = missing.status();
    assert!(told.message.contains("web-2 cannot be created since 20"), "{}", told.message);
    assert!(told.message.contains("exceeded quota: few"), "{}", told.message);
    assert_eq!((told.ready_replicas, told.updated_replicas), (2, 0), "as it is");
    assert!(missing.is(Phase::Rolling) && missing.partition() == Some(2), "the next pod waits");
    scene.kubectl_ok(&["delete", "resourcequota", "few"], "").await;
    // The controller retries with growing pauses; a change of the set makes it look at once.
    scene.patch("statefulset/web", &json!({ "metadata": { "annotations": { "look": "again" } } })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

/// The set lets go of it, its name stays taken, and no other can be made.
#[tokio::test]
async fn a_pod_that_is_not_selected_any_more_is_named_with_the_cure() {
    let scene = Scene::at_rest("label", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    let looks = |scene: &Scene| {
        let mut requests = scene.requests();
        requests.retain(|entry| entry.uri.contains("metadata.name"));
        requests.len()
    };
    assert_eq!(looks(&scene), 0, "nobody is asked while no pod is missing");
    scene.kubectl_ok(&["label", "pod", "web-1", "--overwrite", "app=other"], "").await;
    let cure = "StatefulSet web cannot make a pod: pod web-1 is in the way, it does not carry app=web and so StatefulSet web has let go of it: \
                put it back with `kubectl label pod web-1 --overwrite app=web`, or delete the pod";
    scene.until("told at rest", |world| world.status().message.contains(cure)).await;
    scene.release("app:2").await;
    let told = scene.until("the rollout says it too", |world| world.is_held() && world.status().message.contains(cure));
    assert_eq!(told.await.uids()["web-2"], born["web-2"], "it waits");
    assert!(looks(&scene) > 0, "and then somebody is");
    scene.kubectl_ok(&["label", "pod", "web-1", "--overwrite", "app=web"], "").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn equal_revisions_in_the_status_of_the_set_do_not_count_while_pods_differ() {
    let scene = Scene::at_rest("equal", 3, &Scene::gate().await).await;
    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2").await;
    let pending = scene.until("pending", |world| world.is(Phase::Paused) && world.controller_has_seen()).await;
    let lie = json!({ "status": { "currentRevision": pending.update_revision() } }).to_string();
    scene.kubectl_ok(&["patch", "statefulset", "web", "--subresource=status", "--type=merge", "-p", &lie], "").await;
    scene.configure(&json!({ "paused": false })).await;
    let first = scene.until("the first step", |world| world.partition() == Some(2)).await;
    assert!(first.condition(ConditionType::RolledOut).starts_with("False/"), "not shown as complete");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    assert_eq!(moved.len(), 3, "and not skipped");
    scene.end().await;
}
