//! Two pods that have gone to a release and break there. What the StatefulSet controller does with them by itself differs by Kubernetes
//! version, feature gate and pod management policy; how it ends, and what moves on the way, does not.

use std::collections::BTreeMap;

use rstest::rstest;
use sts_plus_e2e::{Scene, World, moves};

use super::{approve, gate_that_waits_before, is_awaiting, left, ready, release_until_awaited, set};

/// web-2 and web-1 are on `app:2`, and crash; web-0 is on `app:1`.
async fn two_broken(policy: &str) -> (Scene, BTreeMap<String, String>) {
    let scene = Scene::at_rest_with("broken", &set(3, policy), &gate_that_waits_before(0).await).await;
    release_until_awaited(&scene, "app:2").await;
    for pod in ["web-1", "web-2"] {
        scene.stage(pod, Some("broken")).await;
    }
    let crash = |world: &World| ["web-1", "web-2"].iter().all(|pod| !world.is_ready_on(pod, "app:2"));
    let broken = scene.until("both crash", crash).await;
    assert_eq!(broken.image("web-0"), "app:1");
    let uids = broken.uids();
    (scene, uids)
}

// spec: pr§4, native§9, L103, L158
#[rstest]
#[tokio::test]
async fn two_broken_pods_are_fixed_alike_and_the_healthy_one_comes_through_the_gate(
    #[values("OrderedReady", "Parallel")] policy: &str,
) {
    let (scene, _) = two_broken(policy).await;
    let from = scene.world().latest_version();
    scene.release("app:3").await;
    let awaited = scene.until("a person is awaited", |world| is_awaiting(world) && world.is_ready_on("web-1", "app:3"));
    let awaited = awaited.await;
    assert!(awaited.is_ready_on("web-2", "app:3") && awaited.image("web-0") == "app:1", "{}", scene.story());
    if policy == "Parallel" {
        let entries = scene.tape.entries();
        let gone = left(&entries, "web-2", from).expect("it goes");
        let back = ready(&entries, "web-2", gone).expect("it is back");
        assert!(left(&entries, "web-1", from) > Some(back), "one after the other\n{}", scene.story());
        assert!(scene.deleted().is_empty(), "the controller replaces what is opened");
    } else {
        assert_eq!(scene.deleted(), ["web-1", "web-2"], "the controller waits for them, lowest first");
    }
    approve(&scene, 0).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§4, native§9, L103, L158
#[rstest]
#[tokio::test]
async fn two_broken_pods_come_back_by_the_template_before_and_no_other_moves(
    #[values("OrderedReady", "Parallel")] policy: &str,
) {
    let (scene, uids) = two_broken(policy).await;
    scene.release("app:1").await;
    let end = scene.until("complete", |world| world.is_complete("app:1")).await;
    assert_eq!(end.uids()["web-0"], uids["web-0"]);
    assert_eq!(scene.deleted(), ["web-1", "web-2"], "under the hold, lowest first");
    scene.end().await;
}
