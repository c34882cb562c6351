//! Deletion: it always ends, and says what becomes of the hold.

use rstest::rstest;
use sts_plus_api::{Phase, Reason, names};
use sts_plus_e2e::{Scene, World, objects};

fn is_gone(world: &World) -> bool {
    !world.rollouts.contains_key("gate")
}

#[tokio::test]
async fn deletion_at_rest_removes_claim_and_partition_and_rolls_nothing() {
    let scene = Scene::at_rest("leave", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    let left = scene.until("gone", |world| is_gone(world) && world.controller_has_seen()).await;
    assert_eq!((left.annotation(names::CLAIM), left.partition().unwrap_or(0)), (None, 0));
    assert_eq!(left.uids(), born);
    scene.end().await;
}

#[rstest]
#[case::is_held_by_default(None, true)]
#[case::is_held_as_asked(Some("Hold"), true)]
#[case::is_released_as_asked(Some("Release"), false)]
#[tokio::test]
async fn deletion_while_rolling(#[case] policy: Option<&str>, #[case] holds: bool) {
    let mut gate = Scene::gate().await;
    if let Some(policy) = policy {
        gate = objects::with(gate, "/spec/deletionPolicy", policy);
    }
    let scene = Scene::at_rest("leave-rolling", 3, &gate).await;
    scene.release("app:2").await;
    let rolling = scene.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    if holds {
        let left = scene.until("gone", |world| is_gone(world) && world.controller_has_seen()).await;
        assert_eq!(left.annotation(names::CLAIM), None);
        assert!(left.partition() > Some(0), "the partition stays: {:?}", left.partition());
        assert_eq!(left.uids().get("web-0"), rolling.uids().get("web-0"));
        let told = scene.until_events(Reason::Released, 2).await;
        assert!(told[0].note.as_deref().is_some_and(|note| note.contains("keeps its partition")), "{told:?}");
    } else {
        let left = scene.until("the others roll", |world| is_gone(world) && world.all_on("app:2")).await;
        assert_eq!((left.annotation(names::CLAIM), left.partition().unwrap_or(0)), (None, 0));
    }
    scene.end().await;
}

#[tokio::test]
async fn deletion_ends_with_target_secret_and_prometheus_gone() {
    let gate = objects::with(objects::rollout("http://127.0.0.1:9"), "/spec/check/query/secretRef", "gone");
    let mut scene = Scene::new("leave-nothing").await;
    scene.create(&objects::set(1)).await;
    scene.create(&gate).await;
    scene.start_operator();
    scene.until("told", |world| world.is(Phase::Blocked)).await;
    scene.kubectl_ok(&["delete", "statefulset", "web"], "").await;
    scene.until("the set is gone", |world| world.sets.is_empty()).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    scene.until("gone", is_gone).await;
    scene.end().await;
}

#[tokio::test]
async fn deletion_of_the_namespace_ends() {
    let scene = Scene::at_rest("leave-namespace", 2, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("the first step", |world| world.partition() == Some(1)).await;
    let cluster = scene.ground.cluster;
    cluster.kubectl_ok(&["delete", "namespace", &scene.namespace, "--timeout=45s"]).await.expect("it ends");
    scene.until("all is gone", |world| is_gone(world) && world.pods.is_empty() && world.sets.is_empty()).await;
    scene.end().await;
}
