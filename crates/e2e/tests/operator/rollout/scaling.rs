//! Replicas that change in mid-rollout, sets without pods, and ordinals that do not start at 0.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{
    approve, gate, gate_that_waits_before, is_awaiting, passes_before_step, release_until_awaited, scale, set,
};

// spec: pr§4, L053
#[tokio::test]
async fn rolled_pods_that_are_scaled_away_count_no_more_and_the_gate_starts_again() {
    let scene = Scene::at_rest("away", 5, &gate_that_waits_before(2).await).await;
    let rolled = release_until_awaited(&scene, "app:2").await;
    assert_eq!((rolled.partition(), rolled.status().updated.as_str()), (Some(3), "2/5"));
    let asked_before = scene.asked().len();

    scale(&scene, 3).await;
    let left = |world: &World| world.pods.len() == 3 && world.is_held() && world.status().updated == "0/3";
    let left = scene.until_settled("no pod carries the revision any more", left).await;
    assert!(left.all_on("app:1") && left.condition(ConditionType::RolledOut).starts_with("False/"), "{left:?}");
    scene.until("a person is awaited again", is_awaiting).await;
    let asked = scene.asked().len();
    assert!(asked > asked_before, "the preflight was made again: {asked_before}, {asked}");

    approve(&scene, 2).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§4, L153
#[tokio::test]
async fn pods_created_in_mid_rollout_are_named_and_covered_by_the_next_checks() {
    let scene = Scene::at_rest("born", 3, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;

    scale(&scene, 5).await;
    let events = scene.until_events(Reason::PodsSlipped, 1).await;
    let note = events[0].note.clone().unwrap_or_default();
    assert!(note.contains("scaled from 3 to 5") && note.contains("web-3, web-4"), "{note}");
    let born = |world: &World| world.is_ready_on("web-4", "app:2") && world.status().updated == "3/5";
    let born = scene.until("they are counted", born).await;
    assert_eq!((born.image("web-1"), born.image("web-0")), ("app:1", "app:1"));
    let ready = born.ready_since("web-4").expect("it is Ready");

    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(passes_before_step(&scene, ready, 1) >= 1, "checked after web-4 was Ready");
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§4, L077, L149
#[tokio::test]
async fn replicas_in_the_same_write_as_a_template_start_on_the_old_one_and_come_through_the_gate() {
    let scene = Scene::at_rest("both", 2, &Scene::quick_gate().await).await;
    let template = objects::image(objects::set(2), "app:2")["spec"]["template"].clone();
    scene.patch("statefulset/web", &json!({ "spec": { "replicas": 4, "template": template } })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene, "app:1", 1);
    let order: Vec<_> = moved.iter().map(|moved| (moved.pod.as_str(), moved.from.as_str())).collect();
    assert_eq!(order, ["web-3", "web-2", "web-1", "web-0"].map(|pod| (pod, "app:1")));
    scene.end().await;
}

/// At 0 replicas the controller makes the pending revision the current one, and no hold can keep it from what is created later
/// (native-statefulset O4). So it is reported, and nobody claims to have checked it. At rest there is nothing to claim.
// spec: pr§4, L033, L105
#[tokio::test]
async fn a_revision_that_came_in_over_zero_replicas_is_never_called_checked() {
    let scene = Scene::at_rest("zero", 3, &gate_that_waits_before(1).await).await;
    scale(&scene, 0).await;
    scene.until_settled("no pods", |world| world.condition(ConditionType::RolledOut) == "True/NoPods").await;
    scale(&scene, 3).await;
    let back = |world: &World| world.all_on("app:1") && world.is(Phase::Idle) && world.partition() == Some(3);
    scene.until("back at rest", back).await;
    assert!(scene.asked().is_empty(), "nothing was checked");

    let rolled = release_until_awaited(&scene, "app:2").await;
    let revision = rolled.update_revision();

    scale(&scene, 0).await;
    let none = |world: &World| world.pods.is_empty() && world.condition(ConditionType::RolledOut) == "True/NoPods";
    let danger = format!("starts all pods on {revision}, which has not passed its checks, when it is scaled up");
    scene.until_settled("no pods", |world| none(world) && world.status().message.contains(&danger)).await;
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
    moves::assert_gated(&scene, "app:2", 1);
    scene.end().await;
}

// spec: pr§4, L105
#[tokio::test]
async fn a_rejected_release_that_came_over_zero_replicas_is_reported_before_and_after() {
    let check = json!({ "preflight": false, "successThreshold": 1, "maxTries": 1, "onFailure": "Rollback" });
    let scene = Scene::at_rest("over-zero", 3, &gate(check).await).await;
    scene.errors(true).await;
    scene.release("app:2").await;
    let world = scene.until("rolled back", |world| world.is(Phase::RolledBack) && world.all_on("app:1")).await;
    let (bad, good) = (world.update_revision(), world.status().previous_revision.expect("a last good revision"));

    scale(&scene, 0).await;
    let danger = format!(
        "Kubernetes starts all pods on {bad}, which was rejected, when it is scaled up; put the template of {good} back before that"
    );
    scene.until("it is reported", |world| world.pods.is_empty() && world.status().message.contains(&danger)).await;
    let warned = scene.until_events(Reason::NoPods, 1).await;
    assert!(warned[0].note.as_deref().is_some_and(|note| note.contains(&danger)), "{warned:?}");

    // Nobody listens: the status says what runs, and the next template is held.
    scale(&scene, 3).await;
    let runs = |world: &World| {
        world.all_on("app:2")
            && world.status().message.contains(&format!("3 of 3 pods carry it; change the template back to {good}"))
    };
    let runs = scene.until("the rejected release runs", |world| runs(world) && world.is_held()).await;
    assert_eq!(runs.condition(ConditionType::Stalled), "True/RevisionRejected");
    assert_eq!(runs.condition(ConditionType::RolledOut), "False/RevisionRejected");
    assert_eq!(scene.events_of(Reason::NoPods).await.len(), 1, "once");

    // The cure of the message: no check of the rejected release is in the way, and no two pods go at a time.
    let from = scene.world().latest_version();
    scene.release("app:1").await;
    scene.until("all are back", |world| world.all_on("app:1")).await;
    scene.errors(false).await;
    let back = scene.until("complete", |world| world.is_complete("app:1")).await;
    assert_eq!(back.update_revision(), good);
    let moved: Vec<_> = moves::of(&scene.tape.entries()).into_iter().filter(|moved| moved.left > from).collect();
    assert_eq!(moved.len(), 3, "{moved:?}");
    assert!(moved.windows(2).all(|pair| pair[0].made < pair[1].left), "{moved:?}");
    scene.end().await;
}

// spec: pr§2, pr§4, L043, L108
#[tokio::test]
async fn a_set_that_starts_at_five_is_rolled_from_its_top_and_asked_about_its_own_pods() {
    let set = objects::with(objects::set(3), "/spec/ordinals/start", 5);
    let about_the_pod = r#"app_errors{namespace="${namespace}",pod="${pod}",ordinal!="${ordinal}"}"#;
    let gate = objects::with(gate(json!({ "successThreshold": 1 })).await, "/spec/check/query/expr", about_the_pod);
    let scene = Scene::at_rest_with("start", &set, &gate).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::assert_gated(&scene, "app:1", 1);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-7", "web-6", "web-5"]);
    let steps: Vec<_> = moves::steps(&scene.tape.entries()).iter().map(|step| step.partition).collect();
    assert_eq!(steps, [3, 2, 1, 0, 3], "indexes, not ordinals");
    let asked = scene.asked();
    for ordinal in 5..8 {
        let words = format!(r#"pod="web-{ordinal}",ordinal!="{ordinal}""#);
        assert!(asked.iter().any(|asked| asked.query.contains(&words)), "{words}: {asked:?}");
    }
    scene.end().await;
}

// spec: pr§4, L050
#[tokio::test]
async fn of_nine_pods_from_ordinal_two_the_first_step_moves_exactly_ordinal_ten() {
    let set = objects::with(set(9, "Parallel"), "/spec/ordinals/start", 2);
    let scene = Scene::at_rest_with("nine", &set, &gate_that_waits_before(7).await).await;
    let awaited = release_until_awaited(&scene, "app:2").await;
    assert_eq!((awaited.partition(), awaited.status().updated.as_str()), (Some(8), "1/9"));
    let moved = moves::assert_gated(&scene, "app:1", 1);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-10"]);
    scene.end().await;
}

// spec: L111
#[rstest]
#[case::at_rest("OrderedReady", false)]
#[case::in_mid_rollout("OrderedReady", true)]
#[case::in_mid_rollout_of_a_parallel_set("Parallel", true)]
#[tokio::test]
async fn a_scale_down_among_pods_that_are_not_available_yet_ends_or_is_explained(
    #[case] policy: &str,
    #[case] in_mid_rollout: bool,
) {
    let scene = Scene::at_rest_with("down", &set(3, policy), &Scene::quick_gate().await).await;
    // Ready for some seconds only: nothing of it counts as available for a long time.
    scene.patch("statefulset/web", &json!({ "spec": { "minReadySeconds": 3600 } })).await;
    if in_mid_rollout {
        scene.release("app:2").await;
        let told =
            |world: &World| world.status().message.contains("Ready but not yet available (minReadySeconds 3600)");
        let told = scene.until("it is reported", told).await;
        assert!(told.is_held(), "no pod is rolled before all are available");
    }
    scale(&scene, 1).await;
    if policy == "OrderedReady" {
        // The controller itself waits for web-0 (kubernetes#123918).
        let waits = "has not deleted it yet, perhaps because web-0 is Ready but not yet available";
        let told = |world: &World| world.status().message.contains(waits);
        let told = scene.until("it is reported", told).await;
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
