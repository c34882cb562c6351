//! Replicas that change in mid-rollout, sets without pods, and ordinals that do not start at 0.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, Seen, World, moves, objects};

use crate::{approve, gate_that_waits_before, is_awaiting, release_until_awaited, scale, tries_before_step};

#[tokio::test]
async fn rolled_pods_that_are_scaled_away_count_no_more_and_the_gate_starts_again() {
    let scene = Scene::at_rest("away", 5, &gate_that_waits_before(2).await).await;
    let rolled = release_until_awaited(&scene, "app:2").await;
    assert_eq!((rolled.partition(), rolled.status().updated.as_str()), (Some(3), "2/5"));
    let asked_before = moves::tries(&scene.tape.entries()).len();

    scale(&scene, 3).await;
    let left = |world: &World| world.pods.len() == 3 && world.is_held() && world.status().updated == "0/3";
    let left = scene.until_settled("nothing stands for the revision any more", left).await;
    assert!(left.all_on("app:1") && left.condition(ConditionType::RolledOut).starts_with("False/"), "{left:?}");
    scene.until("a person is awaited again", is_awaiting).await;
    let asked = moves::tries(&scene.tape.entries()).len();
    assert!(asked >= asked_before + 2, "the preflight was made again: {asked_before}, {asked}");

    approve(&scene, 2).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn pods_born_in_mid_rollout_are_named_and_covered_by_the_next_checks() {
    let scene = Scene::at_rest("born", 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;

    scale(&scene, 5).await;
    let told = scene.until_events(Reason::PodsSlipped, 1).await;
    let note = told[0].note.clone().unwrap_or_default();
    assert!(note.contains("scaled from 3 to 5") && note.contains("web-3, web-4"), "{note}");
    let born = |world: &World| world.is_ready_on("web-4", "app:2") && world.status().updated == "3/5";
    let born = scene.until("they are counted", born).await;
    assert_eq!((born.image("web-1"), born.image("web-0")), ("app:1", "app:1"));
    let ready = born.ready_since("web-4").expect("it is Ready");

    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let covering = tries_before_step(&scene, ready, 1);
    assert!(covering.iter().filter(|(_, passed)| *passed).count() >= 2, "after web-4 was Ready: {covering:?}");
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn replicas_in_the_same_write_as_a_template_start_on_the_old_one_and_come_through_the_gate() {
    let scene = Scene::at_rest("both", 2, &Scene::gate().await).await;
    let template = objects::image(objects::set(2), "app:2")["spec"]["template"].clone();
    scene.patch("statefulset/web", &json!({ "spec": { "replicas": 4, "template": template } })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    let order: Vec<_> = moved.iter().map(|moved| (moved.pod.as_str(), moved.from.as_str())).collect();
    assert_eq!(order, ["web-3", "web-2", "web-1", "web-0"].map(|pod| (pod, "app:1")));
    scene.end().await;
}

/// At 0 replicas the controller makes the pending revision the current one, and no hold can keep it from what is born later
/// (native-statefulset O4). So it is told, and nobody claims to have checked it.
#[tokio::test]
async fn a_revision_that_came_in_over_zero_replicas_is_never_called_checked() {
    let scene = Scene::at_rest("zero", 3, &gate_that_waits_before(1).await).await;
    let rolled = release_until_awaited(&scene, "app:2").await;
    let revision = rolled.update_revision();

    scale(&scene, 0).await;
    let none = |world: &World| world.pods.is_empty() && world.condition(ConditionType::RolledOut) == "True/NoPods";
    let told = format!("starts all pods on {revision}, which has not passed its checks, when it is scaled up");
    scene.until_settled("no pods", |world| none(world) && world.status().message.contains(&told)).await;
    scale(&scene, 3).await;
    let back = |world: &World| world.all_on("app:2") && world.status().updated == "3/3" && world.partition() == Some(3);
    let back = scene.until("back", |world| back(world) && world.condition(ConditionType::Ready) == "True/AtRest").await;
    assert_eq!(back.condition(ConditionType::RolledOut), "True/NotVerified");
    let words = back.message(ConditionType::RolledOut);
    assert!(words.contains(&revision) && words.contains("no rollout of this object has checked"), "{words}");
    assert_eq!(back.status().verified_revision, None);

    // The gate is as it was for the next one.
    release_until_awaited(&scene, "app:3").await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_gated(&scene.tape.entries(), "app:2", 2);
    scene.end().await;
}

#[tokio::test]
async fn zero_replicas_and_back_at_rest_starts_nothing() {
    let scene = Scene::at_rest("zero-rest", 2, &Scene::gate().await).await;
    scale(&scene, 0).await;
    scene.until_settled("no pods", |world| world.condition(ConditionType::RolledOut) == "True/NoPods").await;
    scale(&scene, 2).await;
    let back = |world: &World| world.all_on("app:1") && world.is(Phase::Idle) && world.partition() == Some(2);
    scene.until("back at rest", back).await;
    assert!(moves::tries(&scene.tape.entries()).is_empty(), "nothing was checked");
    scene.end().await;
}

#[tokio::test]
async fn a_set_that_starts_at_five_is_rolled_from_its_top_and_asked_about_its_own_pods() {
    let set = objects::with(objects::set(3), "/spec/ordinals/start", 5);
    let about_the_pod = r#"app_errors{namespace="${namespace}",pod="${pod}",ordinal!="${ordinal}"}"#;
    let gate = objects::with(Scene::gate().await, "/spec/check/query/expr", about_the_pod);
    let scene = Scene::at_rest_with("start", &set, &gate).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let entries = scene.tape.entries();
    let moved = moves::assert_gated(&entries, "app:1", 2);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-7", "web-6", "web-5"]);
    let steps: Vec<_> = moves::steps(&entries).iter().map(|step| step.partition).collect();
    assert_eq!(steps, [3, 2, 1, 0, 3], "indexes, not ordinals");
    let mut asked: Vec<String> = Vec::new();
    for entry in &entries {
        let Seen::Rollout(rollout) = &entry.seen else { continue };
        let checks = rollout.status.iter().flat_map(|status| &status.checks);
        asked.extend(checks.map(|check| check.query.clone()));
    }
    for ordinal in 5..8 {
        let words = format!(r#"pod="web-{ordinal}",ordinal!="{ordinal}""#);
        assert!(asked.iter().any(|query| query.contains(&words)), "{words}: {asked:?}");
    }
    scene.end().await;
}

#[tokio::test]
async fn of_nine_pods_from_ordinal_two_the_first_step_moves_exactly_ordinal_ten() {
    let set = objects::with(objects::set(9), "/spec/ordinals/start", 2);
    let set = objects::with(set, "/spec/podManagementPolicy", "Parallel");
    let scene = Scene::at_rest_with("nine", &set, &gate_that_waits_before(7).await).await;
    let stands = release_until_awaited(&scene, "app:2").await;
    assert_eq!((stands.partition(), stands.status().updated.as_str()), (Some(8), "1/9"));
    let moved = moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-10"]);
    scene.end().await;
}

#[rstest]
#[case::at_rest("OrderedReady", false)]
#[case::in_mid_rollout("OrderedReady", true)]
#[case::in_mid_rollout_of_a_parallel_set("Parallel", true)]
#[tokio::test]
async fn a_scale_down_among_pods_that_are_not_available_yet_ends_or_is_explained(
    #[case] policy: &str,
    #[case] in_mid_rollout: bool,
) {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", policy);
    let scene = Scene::at_rest_with("down", &set, &Scene::gate().await).await;
    // Ready for some seconds only: nothing of it counts as available for a long time.
    scene.patch("statefulset/web", &json!({ "spec": { "minReadySeconds": 3600 } })).await;
    if in_mid_rollout {
        scene.release("app:2").await;
        let told =
            |world: &World| world.status().message.contains("Ready but not yet available (minReadySeconds 3600)");
        let told = scene.until("it is told", told).await;
        assert!(told.is_held(), "no pod is rolled before all are available");
    }
    scale(&scene, 1).await;
    if policy == "OrderedReady" {
        // The controller itself waits for web-0 (kubernetes#123918).
        let waits = "has not deleted it yet, perhaps because web-0 is Ready but not yet available";
        let told = |world: &World| world.status().message.contains(waits);
        let told = scene.until("it is told", told).await;
        assert_eq!(told.pods.len(), 3);
    } else {
        scene.until_settled("one is left", |world| world.pods.len() == 1 && world.status().replicas == 1).await;
    }
    scene.patch("statefulset/web", &json!({ "spec": { "minReadySeconds": 0 } })).await;
    if in_mid_rollout {
        scene.until("complete", |world| world.is_complete("app:2")).await;
    } else {
        scene.until("at rest", |world| world.all_on("app:1") && world.partition() == Some(1)).await;
    }
    scene.end().await;
}
