//! What `pauseBefore` does not ask about: a repair, a set that was never healthy, and a rollback. Whoever waits for a person there keeps
//! a service down.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{approve, gate, is_awaiting, release_until_awaited, set};

/// A gate that waits before each of three pods.
async fn cautious(check: serde_json::Value) -> serde_json::Value {
    objects::with(gate(check).await, "/spec/pauseBefore", json!([2, 1, 0]))
}

// spec: pr§1, pr§4
#[tokio::test]
async fn a_fix_reaches_a_crashing_pod_unasked_and_the_healthy_ones_asked() {
    let scene = Scene::at_rest("unasked-fix", 3, &cautious(json!({})).await).await;
    release_until_awaited(&scene, "app:2-broken").await;
    approve(&scene, 2).await;
    let broken = |world: &World| world.image("web-2") == "app:2-broken" && !world.is_ready_on("web-2", "app:2-broken");
    scene.until("it crashes", broken).await;

    scene.release("app:3").await;
    let repaired = |world: &World| world.is_ready_on("web-2", "app:3") && is_awaiting(world);
    let repaired = scene.until("a person is awaited again", repaired).await;
    assert!(repaired.status().message.contains("/1"), "for the next pod: {}", repaired.status().message);
    assert_eq!((repaired.image("web-1"), repaired.image("web-0")), ("app:1", "app:1"));
    for index in [1, 0] {
        let waits = |world: &World| is_awaiting(world) && world.status().message.contains(&format!("/{index}"));
        scene.until("it waits", waits).await;
        approve(&scene, index).await;
    }
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_gated(&scene, "app:1", 2);
    scene.end().await;
}

// spec: pr§1, pr§10
#[rstest]
#[tokio::test]
async fn a_set_that_was_never_healthy_is_fixed_unasked(#[values("OrderedReady", "Parallel")] policy: &str) {
    let mut scene = Scene::new("unasked-never").await;
    scene.create(&objects::image(set(3, policy), "app:1-broken")).await;
    scene.create(&cautious(json!({})).await).await;
    scene.start_operator();
    let claimed = |world: &World| world.annotation(names::CLAIM) == Some("gate") && world.partition() == Some(3);
    let broken = |world: &World| world.pods.contains_key("web-0") && !world.is_ready_on("web-0", "app:1-broken");
    scene.until("claimed and broken", |world| claimed(world) && broken(world)).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(scene.events_of(Reason::AwaitingApproval).await.is_empty(), "{}", scene.story());
    scene.end().await;
}

// spec: pr§1, pr§5
#[tokio::test]
async fn pods_go_back_unasked_and_a_retry_asks_again() {
    let check = json!({ "preflight": false, "maxTries": 2, "onFailure": "Rollback" });
    let scene = Scene::at_rest("unasked-back", 3, &cautious(check).await).await;
    release_until_awaited(&scene, "app:2-errors").await;
    approve(&scene, 2).await;
    let back = |world: &World| world.is(Phase::RolledBack) && world.all_on("app:1");
    let back = scene.until("rolled back", back).await;
    assert_eq!(scene.deleted(), ["web-2"]);
    assert_eq!(
        scene.events_of(Reason::AwaitingApproval).await.len(),
        1,
        "before the first pod, and not for its way back"
    );
    scene.annotate(names::RETRY, "once more").await;
    let asked = scene.until("a person is awaited", is_awaiting).await;
    assert!(asked.is_held() && asked.uids() == back.uids(), "the approval was used up");
    assert!(asked.condition(ConditionType::Stalled).starts_with("False/"));
    scene.end().await;
}
