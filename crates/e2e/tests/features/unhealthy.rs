//! A set that was never healthy can be mended; one that was down as a whole and comes back has its gate again.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use crate::{gate, partitions, set};

#[rstest]
#[tokio::test]
async fn a_set_that_was_never_healthy_is_mended_by_a_template(#[values("OrderedReady", "Parallel")] policy: &str) {
    let mut scene = Scene::new("never").await;
    scene.create(&objects::image(set(3, policy), "app:1-broken")).await;
    scene.create(&Scene::gate().await).await;
    scene.start_operator();
    let pods = if policy == "Parallel" { 3 } else { 1 };
    let waits = |world: &World| world.pods.len() == pods && world.annotation(names::CLAIM) == Some("gate");
    let first = scene.until("claimed and broken", |world| waits(world) && world.partition() == Some(3)).await;
    assert!(!first.condition(ConditionType::RolledOut).starts_with("True"), "it has not come up");
    let from = first.latest_version();
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let entries = scene.tape.entries();
    let written: Vec<_> = partitions(&entries).into_iter().filter(|(version, _)| *version > from).collect();
    let values: Vec<_> = written.iter().filter_map(|(_, partition)| *partition).collect();
    if policy == "Parallel" {
        assert_eq!(values, [names::HOLD, 2, 1, 0, 3], "index by index");
        let moved = moves::of(&entries);
        assert!(moved.iter().all(|moved| moved.allowed.is_some()), "{moved:?}");
    } else {
        assert_eq!(values, [names::HOLD, 0, 3], "one write opens everything");
        assert_eq!(scene.deleted(), ["web-0"], "the native controller goes on by itself");
    }
    assert!(moves::tries(&entries).len() >= 2, "the final cycle");
    scene.end().await;
}

#[tokio::test]
async fn it_ends_as_soon_as_a_pod_on_the_old_revision_becomes_ready() {
    let gate = gate(json!({ "initialDelaySeconds": 2, "preflight": false })).await;
    let scene = Scene::at_rest_with("down", &set(3, "Parallel"), &gate).await;
    for pod in ["web-0", "web-1", "web-2"] {
        scene.stage(pod, Some("broken")).await;
    }
    scene.until("all are down", |world| !world.pods.values().any(sts_plus_e2e::is_ready)).await;
    scene.release("app:2").await;
    let opened = scene.until("web-2 is let through", |world| world.image("web-2") == "app:2").await;
    assert_eq!((opened.partition(), opened.image("web-0")), (Some(2), "app:1"));
    scene.stage("web-0", None).await;
    scene.until("web-0 is back", |world| world.is_ready_on("web-0", "app:1")).await;
    let blocked = |world: &World| world.is(Phase::Held) && world.status().message.contains("web-1");
    let blocked = scene.until("the gate waits for web-1", blocked).await;
    assert_eq!((blocked.image("web-1"), blocked.image("web-0")), ("app:1", "app:1"), "no more is let through");
    let old = blocked.uids();
    scene.stage("web-1", None).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::of(&scene.tape.entries());
    for pod in ["web-1", "web-0"] {
        let moved = moved.iter().find(|moved| moved.pod == pod).expect("it has moved");
        assert!(moved.allowed.as_ref().is_some_and(|step| step.passes >= 2), "{moved:?} was {}", old[pod]);
    }
    scene.end().await;
}
