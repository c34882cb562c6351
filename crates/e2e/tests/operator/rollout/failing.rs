//! Checks that do not pass, and what `onFailure` makes of it; and a status that lies, of the StatefulSet or our own.

use std::sync::Arc;

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{RECOVERING, assert_first_moves_passed, end_pod, gate, never_ends, recovers};

/// A scenario whose metric says that this pod recovers, whenever it is asked about.
async fn recovering(pod: &str) -> Scene {
    let gate = gate(json!({ "preflight": false, "successThreshold": 1, "maxTries": 60 })).await;
    let scene = Scene::at_rest("recover", 3, &objects::with(gate, "/spec/check/query/expr", RECOVERING)).await;
    recovers(&scene, pod, true).await;
    scene
}

/// Waits until a cycle of this pod has had three tries, none passed.
async fn refused_thrice(scene: &Scene, pod: &str) -> Arc<World> {
    let refused = |world: &World| {
        let current = world.status().current;
        current.is_some_and(|current| current.pod == pod && current.tries >= 3 && current.consecutive_passes == 0)
    };
    scene.until("three tries have not passed", refused).await
}

// spec: pr§4, L123
#[tokio::test]
async fn a_ready_pod_that_still_recovers_holds_the_next_one() {
    let scene = recovering("web-2").await;
    scene.release("app:2").await;
    let held = refused_thrice(&scene, "web-2").await;
    assert!(held.is_ready_on("web-2", "app:2") && held.image("web-1") == "app:1");
    assert_eq!(held.partition(), Some(2));
    let message = held.status().message;
    assert!(message.contains("web-2") && message.contains("app_recovering{") && message.contains("= 1"), "{message}");
    recovers(&scene, "web-2", false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

// spec: pr§4, L026, L040
#[tokio::test]
async fn a_metric_that_is_bad_only_after_the_last_pod_keeps_the_rollout_from_completing() {
    let scene = recovering("web-0").await;
    scene.release("app:2").await;
    let held = refused_thrice(&scene, "web-0").await;
    assert!(held.all_on("app:2") && held.partition() == Some(3), "at rest already");
    assert!(held.condition(ConditionType::RolledOut).starts_with("False/"));
    recovers(&scene, "web-0", false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

// spec: pr§5, L038, L159
#[tokio::test]
async fn on_failure_hold_stalls_once_and_resumes_when_the_metric_heals() {
    let scene = Scene::at_rest("stall", 3, &gate(json!({ "maxTries": 2 })).await).await;
    let born = scene.world().uids();
    scene.errors(true).await;
    scene.release("app:2").await;
    let stalled = scene.until("stalled", |world| world.condition(ConditionType::Stalled) == "True/ChecksFailed").await;
    assert!(stalled.is(Phase::Failed) && stalled.is_held());
    assert!(stalled.condition(ConditionType::Reconciling).starts_with("False/"), "kstatus: never both");
    // Checks go on.
    let tries = |world: &World| world.status().current.map_or(0, |current| current.tries);
    let on = scene.until("two more tries", |world| tries(world) >= tries(&stalled) + 2).await;
    assert_eq!(on.uids(), born, "no pod has moved");
    let events = scene.events_of(Reason::ChecksFailed).await;
    assert_eq!(events.iter().filter(|event| regards(event, "PhasedRollout")).count(), 1, "reported once: {events:?}");
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.end().await;
}

fn regards(event: &k8s_openapi::api::events::v1::Event, kind: &str) -> bool {
    event.regarding.as_ref().and_then(|object| object.kind.as_deref()) == Some(kind)
}

/// The set releases it, its name stays taken, and no other can be created.
// spec: L045
#[tokio::test]
async fn a_pod_that_is_not_selected_any_more_is_named_with_the_cure() {
    let scene = Scene::at_rest("label", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    let searches = |scene: &Scene| {
        let mut requests = scene.requests();
        requests.retain(|entry| entry.uri.contains("metadata.name"));
        requests.len()
    };
    assert_eq!(searches(&scene), 0, "nobody is asked while no pod is missing");
    label(&scene, "other").await;
    let cure = "StatefulSet web cannot make a pod: pod web-1 is in the way, it does not carry app=web and so StatefulSet web has let go of it: \
                put it back with `kubectl label pod web-1 --overwrite app=web`, or delete the pod";
    scene.until("reported at rest", |world| world.status().message.contains(cure)).await;
    scene.release("app:2").await;
    let reported =
        scene.until("the rollout says it too", |world| world.is_held() && world.status().message.contains(cure));
    assert_eq!(reported.await.uids()["web-2"], born["web-2"], "it waits");
    assert!(searches(&scene) > 0, "and then somebody is");
    label(&scene, "web").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

async fn label(scene: &Scene, value: &str) {
    scene.patch("pod/web-1", &json!({ "metadata": { "labels": { "app": value } } })).await;
}

// spec: L032, L034, L044, L051
#[tokio::test]
async fn equal_revisions_in_the_status_of_the_set_do_not_count_while_pods_differ() {
    let scene = Scene::at_rest("equal", 3, &Scene::quick_gate().await).await;
    scene.configure(&json!({ "paused": true })).await;
    scene.release("app:2").await;
    let pending = scene.until("pending", |world| world.is(Phase::Paused) && world.controller_has_seen()).await;
    let lie = json!({ "status": { "currentRevision": pending.update_revision() } }).to_string();
    scene.kubectl_ok(&["patch", "statefulset", "web", "--subresource=status", "--type=merge", "-p", &lie], "").await;
    scene.configure(&json!({ "paused": false })).await;
    let first = scene.until("the first step", |world| world.partition() == Some(2)).await;
    assert!(first.condition(ConditionType::RolledOut).starts_with("False/"), "not shown as complete");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene, "app:1", 1);
    assert_eq!(moved.len(), 3, "and not skipped");
    scene.end().await;
}

// spec: pr§5, L038, L086
#[tokio::test]
async fn pause_resumes_only_by_a_retry_and_not_by_one_from_before() {
    let check = json!({ "preflight": false, "successThreshold": 1, "maxTries": 1, "onFailure": "Pause" });
    let scene = Scene::at_rest("pause", 2, &gate(check).await).await;
    scene.annotate(names::RETRY, "early").await;
    scene.until_events(Reason::NothingToRetry, 1).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
    assert_eq!((failed.image("web-1"), failed.image("web-0")), ("app:2", "app:1"));
    assert_eq!(failed.condition(ConditionType::Stalled), "True/ChecksFailed");
    scene.errors(false).await;
    let passes = |world: &World| world.status().current.map_or(0, |current| current.consecutive_passes);
    let still = scene.until("enough passes", |world| passes(world) >= 3).await;
    assert!(still.is(Phase::Failed) && still.image("web-0") == "app:1" && still.is_held());
    let words = "sts.plus/retry (with another value than early)";
    assert!(still.status().message.contains(words), "{}", still.status().message);
    scene.annotate(names::RETRY, "now").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

// spec: pr§5
#[tokio::test]
async fn proceed_rolls_one_pod_a_step_with_a_warning_for_each_cycle() {
    let check = json!({ "successThreshold": 1, "maxTries": 1, "onFailure": "Proceed" });
    let scene = Scene::at_rest("proceed", 2, &gate(check).await).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let steps: Vec<_> = moves::of(&scene.tape.entries()).into_iter().map(|moved| (moved.pod, moved.allowed)).collect();
    let partitions: Vec<_> = steps.iter().map(|(_, step)| step.as_ref().map(|step| step.partition)).collect();
    assert_eq!(partitions, [Some(1), Some(0)], "{steps:?}");
    let warned = scene.until_events(Reason::ChecksIgnored, 3).await;
    assert_eq!(warned.len(), 3, "preflight, after web-1, final: {warned:?}");
    assert!(warned.iter().all(|event| event.type_.as_deref() == Some("Warning")));
    scene.end().await;
}

/// skipCheck is taken back while pods roll, web-1 being on its way: held at once, and what has not moved waits for its checks.
// spec: pr§4
#[tokio::test]
async fn skip_check_off_in_mid_rollout_holds_what_has_not_moved() {
    let scene = Scene::at_rest("skip-off", 3, &Scene::quick_gate().await).await;
    scene.configure(&json!({ "skipCheck": true })).await;
    scene.until("the hold is off", |world| world.annotation(names::HOLD_SWITCH) == Some("off")).await;
    never_ends(&scene, "web-1").await;
    scene.release("app:2").await;
    let leaves = |world: &World| world.pods.get("web-1").is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2") && leaves(world)).await;
    scene.configure(&json!({ "skipCheck": false })).await;
    let held = scene.until("held", |world| world.is_held() && world.annotation(names::HOLD_SWITCH).is_none()).await;
    assert!(leaves(&held) && held.image("web-0") == "app:1");
    end_pod(&scene, "web-1").await;
    scene.until("web-1 comes back as it was", |world| world.is_ready_on("web-1", "app:1")).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_first_moves_passed(&scene, &["web-1", "web-0"]);
    scene.end().await;
}

// spec: pr§4
#[tokio::test]
async fn a_status_edited_by_a_person_opens_nothing() {
    let check = json!({ "preflight": false, "successThreshold": 1, "maxTries": 1, "onFailure": "Pause" });
    let mut scene = Scene::at_rest("edited", 3, &gate(check).await).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.image("web-2") == "app:2").await;
    let (revision, good) = (failed.update_revision(), failed.status().previous_revision);
    scene.kill_operator();
    let lie = json!({ "status": { "previousRevision": revision, "neverHealthy": true } }).to_string();
    scene.kubectl_ok(&["patch", "pr", "gate", "--subresource=status", "--type=merge", "-p", &lie], "").await;
    scene.start_operator();
    scene.until_events(Reason::StatusEdited, 1).await;
    let again = scene.until("failed again", |world| world.is(Phase::Failed) && !world.status().never_healthy).await;
    assert_eq!(again.uids(), failed.uids(), "no pod has moved");
    assert_eq!(again.status().previous_revision, good);
    scene.release("app:3").await;
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let moved = moves::assert_allowed(&scene.tape.entries(), "app:1");
    let gated: Vec<_> = moved.iter().filter(|moved| moved.from == "app:1" && moved.to == "app:3").collect();
    assert_eq!(gated.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-1", "web-0"]);
    moves::assert_passed(gated, &scene.asked(), 1);
    scene.end().await;
}
