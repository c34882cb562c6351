//! What waits for a person or for time: pauseBefore and its approval, progressDeadlineSeconds.

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use crate::gate;

fn waits_for(world: &World, index: i32) -> bool {
    let words = format!("/{index}");
    world.is(Phase::Paused)
        && world.condition(ConditionType::Held) == "True/AwaitingApproval"
        && world.status().message.contains(&words)
}

#[tokio::test]
async fn an_index_of_pause_before_waits_for_exactly_its_approval() {
    let gate = objects::with(Scene::gate().await, "/spec/pauseBefore", json!([2, 0]));
    let scene = Scene::at_rest("approve", 3, &gate).await;
    scene.release("app:2").await;
    let first = scene.until("it waits for 2", |world| waits_for(world, 2)).await;
    assert!(first.is_held() && first.all_on("app:1"));
    assert!(first.condition(ConditionType::Stalled).starts_with("False/"), "it is no fault");
    let revision = first.update_revision();
    for wrong in ["web-0000000000/2".to_owned(), format!("{revision}/1"), revision.clone()] {
        scene.annotate(names::APPROVE, &wrong).await;
        let named =
            |world: &World| world.status().message.contains(&format!("the annotation says {wrong}, which is not"));
        let named = scene.until("the wrong one is named", named).await;
        assert!(named.is_held() && named.all_on("app:1"));
    }
    // paused wins over an approval.
    scene.configure(&json!({ "paused": true })).await;
    scene.until("paused", |world| world.condition(ConditionType::Held) == "True/Paused").await;
    scene.annotate(names::APPROVE, &format!("{revision}/2")).await;
    // A sign that the operator has looked again after that: another spec is observed.
    scene.configure(&json!({ "stuckPods": "Wait" })).await;
    let paused = scene.until("still paused", |world| world.is(Phase::Paused)).await;
    assert!(paused.is_held() && paused.all_on("app:1"));

    scene.configure(&json!({ "paused": false })).await;
    let second = scene.until("it waits for 0", |world| waits_for(world, 0)).await;
    assert_eq!((second.image("web-2"), second.image("web-1"), second.image("web-0")), ("app:2", "app:2", "app:1"));
    let annotations = |world: &World| world.rollouts["gate"].metadata.annotations.clone().unwrap_or_default();
    assert!(!annotations(&second).contains_key(names::APPROVE), "removed with the step that it allowed");
    scene.annotate(names::APPROVE, &format!("{revision}/0")).await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(!annotations(&end).contains_key(names::APPROVE));
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    assert_eq!(scene.until_events(Reason::AwaitingApproval, 1).await.len(), 2, "once for each index");
    scene.end().await;
}

#[tokio::test]
async fn the_progress_deadline_stalls_and_the_next_progress_clears_it() {
    let gate = gate(json!({ "maxTries": 1000, "onFailure": "Rollback", "preflight": false })).await;
    let scene = Scene::at_rest("deadline", 2, &objects::with(gate, "/spec/progressDeadlineSeconds", 4)).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let late = |world: &World| world.condition(ConditionType::Stalled) == "True/ProgressDeadlineExceeded";
    let late = scene.until("the deadline is exceeded", late).await;
    let status = late.status();
    let since = status.last_progress_time.expect("the step was made");
    assert!(status.message.contains("no progress since") && status.message.contains("progressDeadlineSeconds 4"));
    let stalled = status.conditions.iter().find(|condition| condition.type_ == "Stalled").expect("Stalled");
    let took = stalled.last_transition_time.0.duration_since(since).as_secs();
    assert!((3..=8).contains(&took), "{took} s after the last progress");
    assert!(late.is_held(), "a scale-up starts pods on the current revision");
    // Checks go on, and onFailure does not start.
    let tries = |world: &World| world.status().current.map_or(0, |current| current.tries);
    let on = scene.until("two more tries", |world| tries(world) >= tries(&late) + 2).await;
    assert!(on.status().rejected_revisions.is_empty() && on.image("web-1") == "app:2");
    assert_eq!(scene.until_events(Reason::ProgressDeadlineExceeded, 2).await.len(), 2, "on the rollout and on the set");
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(scene.deleted().is_empty());
    scene.end().await;
}
