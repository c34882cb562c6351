//! Deletion: it always ends, and says what becomes of the hold.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{Phase, Reason, names};
use sts_plus_e2e::{Scene, World, objects};

use super::{gate_that_fails_after, release_until_awaited};

fn with_policy(gate: Value, policy: Option<&str>) -> Value {
    match policy {
        Some(policy) => objects::with(gate, "/spec/deletionPolicy", policy),
        None => gate,
    }
}

fn is_gone(world: &World) -> bool {
    !world.rollouts.contains_key("gate") && world.controller_has_seen()
}

/// The rollout is deleted; how it looks then. The claim goes in any case.
async fn delete(scene: &Scene) -> Arc<World> {
    scene.delete("phasedrollout/gate").await;
    let left = scene.until("gone", is_gone).await;
    assert_eq!(left.annotation(names::CLAIM), None);
    left
}

/// What the event says of it.
async fn reported(scene: &Scene) -> String {
    let events = scene.until_events(Reason::Released, 2).await;
    assert_eq!(events.len(), 2, "on the PhasedRollout and on the set: {events:?}");
    events[0].note.clone().unwrap_or_default()
}

// spec: pr§8, L161
#[rstest]
#[case::removes_the_partition_by_default(None, 0)]
#[case::removes_the_partition_as_asked(Some("Release"), 0)]
#[case::keeps_the_partition_as_asked(Some("Hold"), 2)]
#[tokio::test]
async fn deletion_at_rest(#[case] policy: Option<&str>, #[case] partition: i32) {
    let scene = Scene::at_rest("delete", 2, &with_policy(Scene::quick_gate().await, policy)).await;
    let born = scene.world().uids();
    let left = delete(&scene).await;
    assert_eq!(left.partition().unwrap_or(0), partition);
    assert_eq!(left.uids(), born, "nothing rolls");
    scene.release("app:2").await;
    if policy == Some("Hold") {
        let held = scene.until_settled("the next template is seen", |_| true).await;
        assert_eq!(held.uids(), born, "the partition that was left holds");
    } else {
        scene.until("it rolls as usual", |world| world.all_on("app:2")).await;
    }
    scene.end().await;
}

// spec: pr§8, L092
#[rstest]
#[case::is_held_by_default(None)]
#[case::is_held_as_asked(Some("Hold"))]
#[case::is_released_as_asked(Some("Release"))]
#[tokio::test]
async fn deletion_while_rolling(#[case] policy: Option<&str>) {
    // It waits for a person, so that nothing moves by itself.
    let gate = objects::with(Scene::quick_gate().await, "/spec/pauseBefore", json!([1]));
    let scene = Scene::at_rest("delete-rolling", 3, &with_policy(gate, policy)).await;
    let rolling = release_until_awaited(&scene, "app:2").await;
    let left = delete(&scene).await;
    if policy == Some("Release") {
        scene.until("the others roll", |world| world.all_on("app:2") && world.partition().unwrap_or(0) == 0).await;
    } else {
        assert_eq!((left.partition(), left.uids()), (Some(2), rolling.uids()), "as it was");
        assert!(reported(&scene).await.contains("keeps its partition"));
    }
    scene.end().await;
}

// spec: pr§8, L092
#[rstest]
#[case::is_held_by_default(None)]
#[case::is_held_as_asked(Some("Hold"))]
#[case::is_released_as_asked(Some("Release"))]
#[tokio::test]
async fn deletion_while_stalled(#[case] policy: Option<&str>) {
    let scene = Scene::at_rest("delete-stalled", 2, &with_policy(gate_that_fails_after(1).await, policy)).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.is_held()).await;
    assert_eq!((failed.image("web-1"), failed.image("web-0")), ("app:2", "app:1"));
    let left = delete(&scene).await;
    if policy == Some("Release") {
        scene.until("the rest rolls", |world| world.all_on("app:2")).await;
    } else {
        assert_eq!((left.partition(), left.uids()), (Some(names::HOLD), failed.uids()), "as it was");
        assert!(reported(&scene).await.contains("keeps its partition"));
    }
    scene.end().await;
}

// spec: pr§7, pr§8
#[tokio::test]
async fn an_heir_gets_the_set_held_whatever_the_policy_says() {
    let gate = with_policy(gate_that_fails_after(1).await, Some("Release"));
    let scene = Scene::at_rest("heir", 2, &gate).await;
    scene.create(&objects::with(gate, "/metadata/name", "heir")).await;
    scene.until("it waits", |world| world.status_of("heir").phase == Phase::Blocked).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.is_held()).await;
    scene.delete("phasedrollout/gate").await;
    let taken = |world: &World| {
        world.annotation(names::CLAIM) == Some("heir") && world.status_of("heir").phase == Phase::Failed
    };
    let taken = scene.until("the heir has it", taken).await;
    assert!(taken.is_held(), "{:?}", taken.partition());
    assert_eq!(taken.uids(), failed.uids(), "no pod moves");
    scene.end().await;
}

// spec: pr§8
#[tokio::test]
async fn deletion_ends_with_target_secret_and_prometheus_gone() {
    let gate = objects::with(objects::rollout("http://127.0.0.1:9"), "/spec/check/query/secretRef", "gone");
    let mut scene = Scene::new("delete-nothing").await;
    scene.create(&objects::set(1)).await;
    scene.create(&gate).await;
    scene.start_operator();
    scene.until("reported", |world| world.is(Phase::Blocked)).await;
    scene.delete("statefulset/web").await;
    scene.until("the set is gone", |world| world.sets.is_empty()).await;
    scene.delete("phasedrollout/gate").await;
    scene.until("gone", |world| world.rollouts.is_empty()).await;
    scene.end().await;
}

// spec: pr§8
#[tokio::test]
async fn deletion_of_the_namespace_ends() {
    let scene = Scene::at_rest("delete-namespace", 2, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(1)).await;
    let cluster = scene.ground.cluster;
    cluster.kubectl_ok(&["delete", "namespace", &scene.namespace, "--timeout=55s"]).await.expect("it ends");
    let gone = |world: &World| world.rollouts.is_empty() && world.pods.is_empty() && world.sets.is_empty();
    scene.until("all is gone", gone).await;
    scene.end().await;
}
