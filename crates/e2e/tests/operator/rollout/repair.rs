//! A release that is bad at its first pod, a set that was never healthy, and one that was down as a whole: a fix, or the template before,
//! ends it well without a person, and no pod that is still on the last good revision moves before the gate.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, names};
use sts_plus_e2e::{Scene, World, moves, objects};

use super::{
    RECOVERING, assert_first_moves_passed, assert_gated_after, gate, gate_that_fails_after, partitions, recovers, set,
};

/// What is bad about the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bad {
    /// Its pods run, and their metric says that they fail.
    Metric,
    /// Its pods crash.
    Crash,
}

/// What comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    /// Another template, a good one.
    Fix,
    /// The template before.
    Revert,
}

/// The model has the other half of these: crash and fix of an OrderedReady set, crash and revert of a Parallel one, and so on.
// spec: pr§4, pr§6, L009, L025, L047, L101, L103, L155
#[rstest]
#[case::a_failing_metric_and_a_fix(Bad::Metric, Cure::Fix, "OrderedReady")]
#[case::a_failing_metric_and_a_revert(Bad::Metric, Cure::Revert, "Parallel")]
#[case::a_crash_and_a_fix(Bad::Crash, Cure::Fix, "Parallel")]
#[case::a_crash_and_a_revert(Bad::Crash, Cure::Revert, "OrderedReady")]
#[tokio::test]
async fn a_bad_first_pod_locks_nobody_out(#[case] bad: Bad, #[case] cure: Cure, #[case] policy: &str) {
    let gate = objects::with(gate_that_fails_after(2).await, "/spec/check/query/expr", RECOVERING);
    let scene = Scene::at_rest_with("repair", &set(3, policy), &gate).await;
    let born = scene.world().uids();
    let release = match bad {
        Bad::Metric => "app:2",
        Bad::Crash => "app:2-broken",
    };
    if bad == Bad::Metric {
        recovers(&scene, "web-2", true).await;
    }
    scene.release(release).await;
    let failed = |world: &World| world.image("web-2") == release && world.is(Phase::Failed);
    let failed = scene.until("the release has failed at its first pod", failed).await;
    assert!(failed.is_held(), "held while failed");
    assert_untouched(&born, &failed);

    let good = match cure {
        Cure::Fix => "app:3",
        Cure::Revert => "app:1",
    };
    scene.release(good).await;
    scene.until("the cure is at web-2", |world| world.is_ready_on("web-2", good)).await;
    // That it got there needed no check. The next ones do.
    recovers(&scene, "web-2", false).await;
    let end = scene.until("complete", |world| world.is_complete(good)).await;
    if cure == Cure::Revert {
        assert_untouched(&born, &end);
    }
    let moved = assert_gated_after("web-2", &scene, "app:1");
    let bad_ones: Vec<_> = moved.iter().filter(|moved| moved.to == release).map(|moved| moved.pod.as_str()).collect();
    assert_eq!(bad_ones, ["web-2"], "the bad release has reached its first pod and no other");
    scene.end().await;
}

/// web-1 and web-0 are the pods that they were.
fn assert_untouched(born: &std::collections::BTreeMap<String, String>, world: &World) {
    let now = world.uids();
    assert!(["web-0", "web-1"].iter().all(|pod| now.get(*pod) == born.get(*pod)), "{born:?} {now:?}");
}

// spec: pr§10, L155
#[rstest]
#[tokio::test]
async fn a_set_that_was_never_healthy_is_fixed_by_a_template(#[values("OrderedReady", "Parallel")] policy: &str) {
    let mut scene = Scene::new("never").await;
    scene.create(&objects::image(set(3, policy), "app:1-broken")).await;
    scene.create(&gate(json!({ "successThreshold": 1 })).await).await;
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
    assert!(!scene.asked().is_empty(), "the final cycle");
    scene.end().await;
}

// spec: pr§10, L082, L145
#[tokio::test]
async fn a_set_that_was_down_as_a_whole_has_its_gate_again_as_soon_as_a_pod_on_the_old_revision_is_ready() {
    let gate = objects::with(gate_that_fails_after(1000).await, "/spec/check/query/expr", RECOVERING);
    let scene = Scene::at_rest_with("down", &set(3, "Parallel"), &gate).await;
    recovers(&scene, "web-2", true).await;
    for pod in ["web-0", "web-1", "web-2"] {
        scene.stage(pod, Some("broken")).await;
    }
    scene.until("all are down", |world| !world.pods.values().any(sts_plus_e2e::is_ready)).await;
    scene.release("app:2").await;
    let opened = scene.until("web-2 is let through", |world| world.image("web-2") == "app:2").await;
    assert_eq!((opened.partition(), opened.image("web-0")), (Some(2), "app:1"));
    scene.stage("web-0", None).await;
    scene.until("web-0 is back", |world| world.is_ready_on("web-0", "app:1")).await;
    recovers(&scene, "web-2", false).await;
    let blocked = |world: &World| world.is(Phase::Held) && world.status().message.contains("web-1");
    let blocked = scene.until("the gate waits for web-1", blocked).await;
    assert_eq!((blocked.image("web-1"), blocked.image("web-0")), ("app:1", "app:1"), "no more is let through");
    scene.stage("web-1", None).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_first_moves_passed(&scene, &["web-1", "web-0"]);
    scene.end().await;
}
