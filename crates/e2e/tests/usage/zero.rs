//! A set that is scaled to 0 after a release was rejected: nothing can hold what comes over zero replicas, so it is told.

use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, World, objects};

async fn scale(scene: &Scene, replicas: i32) {
    scene.patch("statefulset/web", &json!({ "spec": { "replicas": replicas } })).await;
}

#[tokio::test]
async fn a_rejected_release_that_came_over_zero_replicas_is_told_before_and_after() {
    let gate = objects::with(Scene::gate().await, "/spec/check/onFailure", "Rollback");
    let gate = objects::with(objects::with(gate, "/spec/check/preflight", false), "/spec/check/maxTries", 2);
    let scene = Scene::at_rest("over-zero", 3, &gate).await;
    scene.release("app:2-errors").await;
    let world = scene.until("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    let (bad, good) = (world.update_revision(), world.status().previous_revision.expect("a last good revision"));

    scale(&scene, 0).await;
    let told = format!(
        "Kubernetes starts all pods on {bad}, which was rejected, when it is scaled up; put the template of {good} back before that"
    );
    let is_told = |world: &World| world.pods.is_empty() && world.status().message.contains(&told);
    scene.until("it is told", is_told).await;
    let warned = scene.until_events(Reason::NoPods, 1).await;
    assert!(warned[0].note.as_deref().is_some_and(|note| note.contains(&told)), "{warned:?}");

    // Nobody listens: the status says what runs, and the next template is held.
    scale(&scene, 3).await;
    let runs = |world: &World| {
        world.all_on("app:2-errors")
            && world.status().message.contains(&format!("3 of 3 pods carry it; change the template back to {good}"))
    };
    let runs = scene.until("the rejected release runs", |world| runs(world) && world.is_held()).await;
    assert_eq!(runs.condition(ConditionType::Stalled), "True/RevisionRejected");
    assert_eq!(runs.condition(ConditionType::RolledOut), "False/RevisionRejected");
    assert_eq!(scene.events_of(Reason::NoPods).await.len(), 1, "once");

    // The cure of the message: no check of the rejected release is in the way, and no two pods go at a time.
    scene.release("app:1").await;
    let back = scene.until("complete", |world| world.is_complete("app:1")).await;
    assert_eq!(back.update_revision(), good);
    scene.end().await;
}
