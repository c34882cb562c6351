//! What waits for a person or for time: `pauseBefore` and its approval, `progressDeadlineSeconds`.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, PhasedRolloutStatus, Reason, names};
use sts_plus_e2e::{Entry, Scene, Seen, World, moves, objects};

use super::gate;

fn waits_for(world: &World, index: i32) -> bool {
    let words = format!("/{index}");
    world.is(Phase::Paused)
        && world.condition(ConditionType::Held) == "True/AwaitingApproval"
        && world.status().message.contains(&words)
}

// spec: pr§1
#[tokio::test]
async fn an_index_of_pause_before_waits_for_exactly_its_approval() {
    let gate = objects::with(Scene::quick_gate().await, "/spec/pauseBefore", json!([2, 0]));
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
    // A sign that the operator has reconciled after that: another spec is observed.
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
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    assert_eq!(scene.until_events(Reason::AwaitingApproval, 1).await.len(), 2, "once for each index");
    scene.end().await;
}

/// Longer than a pod takes on a busy machine: it is checks that make no progress here.
const DEADLINE: SignedDuration = SignedDuration::from_secs(10);

// spec: pr§1, L066, L078, L159
#[tokio::test]
async fn the_progress_deadline_stalls_and_the_next_progress_clears_it() {
    let gate = gate(json!({ "maxTries": 1000, "onFailure": "Rollback", "preflight": false })).await;
    let gate = objects::with(gate, "/spec/progressDeadlineSeconds", DEADLINE.as_secs());
    let scene = Scene::at_rest("deadline", 2, &gate).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    // Held, since a scale-up starts pods on the current revision.
    let late = scene.until("the deadline is exceeded", |world| is_late(&world.status()) && world.is_held()).await;
    let status = late.status();
    assert!(status.message.contains("no progress since") && status.message.contains("progressDeadlineSeconds 10"));
    // Checks go on, and onFailure does not start.
    let tries = |world: &World| world.status().current.map_or(0, |current| current.tries);
    let on = scene.until("two more tries", |world| tries(world) >= tries(&late) + 2).await;
    assert!(on.status().rejected_revisions.is_empty() && on.image("web-1") == "app:2");
    assert_stalled_by_the_deadline(&scene.tape.entries());
    assert_eq!(scene.until_events(Reason::ProgressDeadlineExceeded, 2).await.len(), 2, "on the rollout and on the set");
    scene.errors(false).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(scene.deleted().is_empty());
    scene.end().await;
}

fn is_late(status: &PhasedRolloutStatus) -> bool {
    let late = Reason::ProgressDeadlineExceeded.to_string();
    status.conditions.iter().any(|it| it.type_ == "Stalled" && it.status == "True" && it.reason == late)
}

/// By the times that the operator wrote: a status is late if, and only if, the deadline had passed when it was decided. A check that
/// was made after the deadline says that it had; the time of the condition, which has full seconds, says that it had not been too soon.
fn assert_stalled_by_the_deadline(entries: &[Entry]) {
    let mut seen = (0, 0);
    for entry in entries {
        let Seen::Rollout(rollout) = &entry.seen else { continue };
        let Some(status) = rollout.status.as_ref() else { continue };
        let Some(progress) = status.last_progress_time else { continue };
        let deadline = progress + DEADLINE;
        let is_past = status.checks.iter().any(|check| check.time > deadline);
        if is_late(status) {
            let stalled = status.conditions.iter().find(|condition| condition.type_ == "Stalled").expect("Stalled");
            let since: Timestamp = stalled.last_transition_time.0;
            assert!(since.as_second() >= deadline.as_second(), "stalled at {since}, last progress at {progress}");
            seen.0 += 1;
        } else {
            assert!(!is_past, "checked after {deadline}, and not stalled: {status:#?}");
            seen.1 += 1;
        }
    }
    assert!(seen.0 > 0 && seen.1 > 0, "statuses on time and late: {seen:?}");
}
