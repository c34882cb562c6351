//! deletionPolicy where `usage` does not tell it: at rest, while Stalled, and with an heir.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{Phase, Reason, names};
use sts_plus_e2e::{Scene, World, objects};

use crate::gate;

fn is_gone(world: &World) -> bool {
    !world.rollouts.contains_key("gate") && world.controller_has_seen()
}

#[rstest]
#[case::an_explicit_hold_holds_at_rest_too("Hold", Some(2))]
#[case::release("Release", Some(0))]
#[tokio::test]
async fn deletion_at_rest(#[case] policy: &str, #[case] partition: Option<i32>) {
    let scene = Scene::at_rest("rest", 2, &objects::with(Scene::gate().await, "/spec/deletionPolicy", policy)).await;
    let born = scene.world().uids();
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    let left = scene.until("gone", is_gone).await;
    assert_eq!((left.annotation(names::CLAIM), left.partition().or(Some(0))), (None, partition));
    assert_eq!(left.uids(), born, "nothing rolls");
    scene.release("app:2").await;
    if policy == "Hold" {
        scene.until_settled("the next template is seen", |_| true).await;
        assert_eq!(scene.world().uids(), born, "the partition that was left holds");
    } else {
        scene.until("it rolls as usual", |world| world.all_on("app:2")).await;
    }
    scene.end().await;
}

#[rstest]
#[tokio::test]
async fn deletion_while_stalled(#[values(None, Some("Hold"), Some("Release"))] policy: Option<&str>) {
    let mut gate = gate(json!({ "preflight": false, "maxTries": 2 })).await;
    if let Some(policy) = policy {
        gate["spec"]["deletionPolicy"] = json!(policy);
    }
    let scene = Scene::at_rest("stalled", 2, &gate).await;
    scene.release("app:2-errors").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.is_held()).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    let left = scene.until("gone", is_gone).await;
    assert_eq!(left.annotation(names::CLAIM), None);
    let told = scene.until_events(Reason::Released, 2).await;
    if policy == Some("Release") {
        scene.until("the rest rolls", |world| world.all_on("app:2-errors")).await;
    } else {
        assert_eq!(left.partition(), Some(names::HOLD));
        assert_eq!(left.uids(), failed.uids(), "no pod moves");
        assert!(told[0].note.as_deref().is_some_and(|note| note.contains("keeps its partition")), "{told:?}");
    }
    scene.end().await;
}

#[tokio::test]
async fn an_heir_gets_the_set_held_whatever_the_policy_says() {
    let gate =
        objects::with(gate(json!({ "preflight": false, "maxTries": 2 })).await, "/spec/deletionPolicy", "Release");
    let scene = Scene::at_rest("heir", 2, &gate).await;
    scene.create(&objects::with(gate, "/metadata/name", "heir")).await;
    scene.until("it waits", |world| world.status_of("heir").phase == Phase::Blocked).await;
    scene.release("app:2-errors").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed) && world.is_held()).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    let taken = |world: &World| {
        world.annotation(names::CLAIM) == Some("heir") && world.status_of("heir").phase == Phase::Failed
    };
    let taken = scene.until("the heir has it", taken).await;
    assert!(taken.is_held(), "{:?}", taken.partition());
    assert_eq!(taken.uids(), failed.uids(), "no pod moves");
    scene.end().await;
}
