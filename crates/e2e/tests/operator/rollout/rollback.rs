//! onFailure Rollback: the pods go back without a template edit, one at a time, and the revision is rejected.

use rstest::rstest;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{CANARY, Scene, World, audit, moves, objects, template_image};

use super::{RECOVERING, assert_gated_after, gate, left, partitions, ready, recovers, set};

/// Checks that fail soon.
fn soon() -> Value {
    json!({ "preflight": false, "successThreshold": 1, "maxTries": 1 })
}

/// Three pods, credentials with the canary, and checks that ask about the pod.
async fn rolling_back(policy: &str, check: Value) -> Scene {
    let mut scene = Scene::new("rollback").await;
    scene.create(&objects::secret("credentials", &[("token", CANARY)])).await;
    let gate = objects::with(gate(check).await, "/spec/check/onFailure", "Rollback");
    let gate = objects::with(gate, "/spec/check/query/expr", RECOVERING);
    scene.settle(&set(3, policy), &objects::with(gate, "/spec/check/secretRef", "credentials")).await;
    scene
}

fn is_rolled_back(world: &World) -> bool {
    world.is(Phase::RolledBack) && world.all_on("app:1")
}

// spec: pr§5, L039, L081, L086, L152
#[rstest]
#[tokio::test]
async fn two_pods_go_back_one_at_a_time_each_awaited(#[values("OrderedReady", "Parallel")] policy: &str) {
    let scene = rolling_back(policy, soon()).await;
    let born = scene.world().uids();
    recovers(&scene, "web-1", true).await;
    scene.release("app:2").await;
    let end = scene.until("rolled back", is_rolled_back).await;
    assert_eq!(end.uids()["web-0"], born["web-0"], "it was never touched");
    assert_eq!(template_image(&end.sets["web"]), "app:2", "no template edit");
    let status = end.status();
    assert_eq!(status.rejected_revisions, [end.update_revision()]);
    assert!(status.message.contains("all pods are back on"), "{}", status.message);
    assert_eq!(end.condition(ConditionType::Stalled), "True/RevisionRejected");
    assert!(end.is_held(), "a scale-up starts pods on the current revision");

    // From the lowest index up; the second is deleted when the first is back and Ready.
    assert_eq!(scene.deleted(), ["web-1", "web-2"]);
    let entries = scene.tape.entries();
    let (raised, _) = *partitions(&entries).last().expect("partitions");
    let first = left(&entries, "web-1", raised).expect("web-1 goes");
    let back = ready(&entries, "web-1", first).expect("web-1 is back");
    let second = left(&entries, "web-2", raised).expect("web-2 goes");
    assert!(raised < first && first < back && back < second, "{raised} {first} {back} {second}\n{}", scene.story());
    // Claimed, held at the change (by the policy), two steps, and back up; nothing is written for the way back.
    let written: Vec<_> = partitions(&entries).into_iter().filter_map(|(_, partition)| partition).collect();
    assert_eq!(written, [0, 3, names::HOLD, 2, 1, names::HOLD]);
    let told = scene.until_events(Reason::RolledBack, 2).await;
    assert_eq!(told.len(), 2, "on the PhasedRollout and on the set, once: {told:?}");

    // A retry takes it off the list; it goes through all of its checks.
    recovers(&scene, "web-1", false).await;
    scene.annotate(names::RETRY, "again").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(end.status().rejected_revisions.is_empty());
    scene.end().await;
}

// spec: pr§5, L079
#[rstest]
#[tokio::test]
async fn a_broken_pod_goes_first_and_a_fix_after_it_is_gated(#[values("OrderedReady", "Parallel")] policy: &str) {
    let scene = rolling_back(policy, json!({ "preflight": false, "successThreshold": 1, "maxTries": 1000 })).await;
    recovers(&scene, "web-1", true).await;
    scene.release("app:2").await;
    scene.until("web-1 is rolled", |world| world.is_ready_on("web-1", "app:2")).await;
    scene.stage("web-2", Some("broken")).await;
    scene.until("web-2 is broken", |world| !world.is_ready_on("web-2", "app:2")).await;
    scene.configure(&json!({ "check": { "maxTries": 1 } })).await;
    let end = scene.until("rolled back", is_rolled_back).await;
    assert_eq!(scene.deleted(), ["web-2", "web-1"], "{}", scene.story());
    recovers(&scene, "web-1", false).await;
    scene.release("app:3").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    let moved = moves::of(&scene.tape.entries());
    let fixed: Vec<_> = moved.iter().filter(|moved| moved.to == "app:3").map(|moved| moved.pod.as_str()).collect();
    assert_eq!(fixed, ["web-2", "web-1", "web-0"]);
    assert_gated_after("web-2", &scene, "app:1");
    // Written again, the rejected one is held, and that is no rollback.
    scene.release("app:2").await;
    let held = scene.until("held", |world| world.condition(ConditionType::Stalled) == "True/RevisionRejected").await;
    assert!(held.is(Phase::Held) && held.all_on("app:3"), "{:?}", held.status());
    assert_eq!(held.update_revision(), end.update_revision());
    scene.end().await;
}

// spec: pr§5, L079
#[tokio::test]
async fn a_crashing_first_pod_goes_back_too() {
    let scene = rolling_back("OrderedReady", soon()).await;
    scene.release("app:2-broken").await;
    let end = scene.until("rolled back", is_rolled_back).await;
    assert_eq!(scene.deleted(), ["web-2"]);
    assert_eq!(end.status().rejected_revisions.len(), 1);
    let patches = audit::count(&scene.requests(), "statefulsets");
    assert_eq!(patches, 3, "claim, step, hold");
    scene.end().await;
}

// spec: pr§5
#[tokio::test]
async fn in_the_preflight_it_acts_as_hold() {
    let scene = rolling_back("OrderedReady", json!({ "successThreshold": 1, "maxTries": 1 })).await;
    let born = scene.world().uids();
    recovers(&scene, "web-2", true).await;
    scene.release("app:2").await;
    let stalled = scene.until("stalled", |world| world.condition(ConditionType::Stalled) == "True/ChecksFailed").await;
    assert!(stalled.is(Phase::Failed) && stalled.is_held() && stalled.uids() == born);
    assert!(stalled.status().rejected_revisions.is_empty());
    recovers(&scene, "web-2", false).await;
    scene.until("it resumes", |world| world.is_complete("app:2")).await;
    assert!(scene.deleted().is_empty());
    scene.end().await;
}

// spec: pr§5
#[tokio::test]
async fn after_the_last_pod_it_holds_and_says_that_a_template_is_needed() {
    let scene = rolling_back("OrderedReady", soon()).await;
    recovers(&scene, "web-0", true).await;
    scene.release("app:2").await;
    let stalled = scene.until("stalled", |world| world.condition(ConditionType::Stalled) == "True/ChecksFailed").await;
    assert!(stalled.is(Phase::Failed) && stalled.all_on("app:2"));
    let message =
        |world: &World| world.status().message.contains("after the last pod a rollback needs a template change");
    let said = scene.until("it is reported", message).await;
    assert!(scene.deleted().is_empty() && said.status().rejected_revisions.is_empty());
    recovers(&scene, "web-0", false).await;
    scene.release("app:1").await;
    scene.until("back by the template", |world| world.is_complete("app:1")).await;
    scene.end().await;
}
