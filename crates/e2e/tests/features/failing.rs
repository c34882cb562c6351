//! onFailure Pause and Proceed. (Hold is told in `usage`.)

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves};

use crate::gate;

#[tokio::test]
async fn pause_goes_on_only_by_a_retry_and_not_by_one_from_before() {
    let check = json!({ "preflight": false, "maxTries": 2, "initialDelaySeconds": 1, "onFailure": "Pause" });
    let scene = Scene::at_rest("pause", 2, &gate(check).await).await;
    scene.annotate(names::RETRY, "early").await;
    scene.until_events(Reason::NothingToRetry, 1).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(1)).await;
    scene.errors(true).await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
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

#[tokio::test]
async fn proceed_goes_on_with_a_warning_for_each_cycle_one_pod_a_step() {
    let scene = Scene::at_rest("proceed", 2, &gate(json!({ "maxTries": 2, "onFailure": "Proceed" })).await).await;
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

/// skipCheck taken back while pods roll: held at once, and what has not moved waits for its checks.
#[tokio::test]
async fn skip_check_off_in_mid_rollout_holds_what_has_not_moved() {
    let scene = Scene::at_rest("skip-off", 3, &Scene::gate().await).await;
    scene.configure(&json!({ "skipCheck": true })).await;
    scene.until("the hold is off", |world| world.annotation(names::HOLD_SWITCH) == Some("off")).await;
    scene.release("app:2-ready-after-3s").await;
    scene.until("web-2 is made anew", |world| world.image("web-2") == "app:2-ready-after-3s").await;
    scene.configure(&json!({ "skipCheck": false })).await;
    let held = scene.until("held", |world| world.is_held() && world.annotation(names::HOLD_SWITCH).is_none()).await;
    assert_eq!(held.image("web-0"), "app:1");
    scene.until("complete", |world| world.is_complete("app:2-ready-after-3s")).await;
    let moved = moves::of(&scene.tape.entries());
    let last = moved.iter().find(|moved| moved.pod == "web-0").expect("web-0 has moved");
    let step = last.allowed.as_ref().expect("by a step");
    assert!(step.passes >= 2, "{last:?}");
    scene.end().await;
}

/// A status that was edited by hand moves no pod.
#[tokio::test]
async fn a_status_edited_by_hand_opens_nothing() {
    let mut scene = Scene::at_rest(
        "edited",
        3,
        &gate(json!({ "preflight": false, "maxTries": 2, "initialDelaySeconds": 1, "onFailure": "Pause" })).await,
    )
    .await;
    scene.release("app:2-errors").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.image("web-2") == "app:2-errors").await;
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
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let moved = moves::assert_allowed(&scene.tape.entries(), "app:1");
    let gated: Vec<_> = moved.iter().filter(|moved| moved.from == "app:1" && moved.to == "app:3").collect();
    assert_eq!(gated.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-1", "web-0"]);
    assert!(gated.iter().all(|moved| moved.allowed.as_ref().is_some_and(|step| step.passes >= 2)), "{gated:?}");
    scene.end().await;
}
