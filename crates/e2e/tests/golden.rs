//! Golden stories: whole rollouts as the API server recorded them; and how soon a change is told. No other file of tests runs beside this one.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use serde_json::json;
use sts_plus_api::names::HOLD;
use sts_plus_api::{ConditionType, Phase, Reason};
use sts_plus_e2e::{Scene, Seen, World, audit, moves, objects, story};

/// From the change of the image to the end. The partition goes up in the very write that changes the template; each step comes
/// after two passed checks; after the last pod the partition rests first, and only under that hold the final checks are made.
const THREE_PODS: &str = "\
web: app:2, partition HOLD
gate: Checking (RolloutStarted)
gate: Checking (Preflight)
check preflight web-2: NoData, passed
check preflight web-2: NoData, passed
web: partition 2
gate: Rolling (PodRolling)
web-2 is gone (app:1)
web-2 is made (app:2)
web-2 is Ready
gate: Checking
check pod web-2: NoData, passed
check pod web-2: NoData, passed
web: partition 1
gate: Rolling (PodRolling)
web-1 is gone (app:1)
web-1 is made (app:2)
web-1 is Ready
gate: Checking
check pod web-1: NoData, passed
check pod web-1: NoData, passed
web: partition 0
gate: Rolling (PodRolling)
web-0 is gone (app:1)
web-0 is made (app:2)
web-0 is Ready
web: app:2 is the current revision
web: partition 3
gate: Checking (FinalChecks)
check final web-0: NoData, passed
check final web-0: NoData, passed
gate: Completed";

#[tokio::test]
async fn three_pods_are_rolled_one_at_a_time_each_after_its_checks() {
    let scene = Scene::at_rest("golden", 3, &Scene::gate().await).await;
    let start = scene.tape.entries().last().map_or(0, |entry| entry.version);
    let born = scene.world().uids();
    scene.release("app:2").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;

    let entries = scene.tape.entries();
    // The operator's status and the pods are written by different hands: each is in order with the partition, not with the other.
    let story = story::since(&entries, start).join("\n");
    // The operator may look before the StatefulSet controller has, and says so; the golden story is the one in which it has not.
    let story = without(&story, "gate: Rolling (AwaitingController)");
    assert_eq!(without(&story, "gate: "), without(THREE_PODS, "gate: "), "the pods");
    assert_eq!(without(&story, "web-"), without(THREE_PODS, "web-"), "the operator");
    assert!(end.uids().iter().all(|(pod, uid)| born[pod] != *uid), "every pod is a new one");
    let moved = moves::assert_gated(&entries, "app:1", 2);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-2", "web-1", "web-0"]);
    scene.end().await;
}

fn without(story: &str, actor: &str) -> String {
    story.lines().filter(|line| !line.starts_with(actor)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn no_partition_is_written_before_the_verdicts_that_it_needs() {
    let scene = Scene::at_rest("verdicts", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;

    // The steps as they were stored, and the requests that wrote them with the API server's own times.
    let entries = scene.tape.entries();
    let steps = moves::steps(&entries);
    let partitions: Vec<_> = steps.iter().map(|step| step.partition).collect();
    assert_eq!(partitions, [3, 2, 1, 0, 3], "claim, three pods, rest");
    let requests = scene.requests();
    let patches: Vec<_> =
        audit::writes(&requests).into_iter().filter(|entry| audit::full_name(entry) == "statefulsets").collect();
    assert_eq!(patches.len(), steps.len(), "{}", audit::tell(&requests));
    let tries = moves::tries(&entries);
    let mut before = patches[0].answered;
    for (step, patch) in steps.iter().zip(&patches).filter(|(step, _)| step.partition < 3) {
        let between: Vec<_> = tries.range(before..patch.received).collect();
        assert!(between.len() >= 2 && between.iter().all(|(_, passed)| **passed), "{step:?}: {between:?}");
        before = patch.answered;
    }
    assert_ne!(steps.last().map(|step| step.partition), Some(HOLD));
    scene.end().await;
}

#[tokio::test]
async fn a_good_rollout_costs_one_patch_and_one_event_a_pod_and_few_statuses() {
    let scene = Scene::at_rest("cost", 3, &Scene::gate().await).await;
    scene.until("the hold is found out", |world| world.condition(ConditionType::HoldEnforced) == "True/Enforced").await;
    let (start, before) = (scene.tape.entries().last().map_or(0, |entry| entry.version), scene.requests().len());
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.until_events(Reason::Completed, 2).await;

    let requests = scene.requests().split_off(before);
    let told = audit::tell(&requests);
    assert_eq!(audit::count(&requests, "statefulsets"), 4, "one for each pod and one to rest\n{told}");
    // On the PhasedRollout and on the set: started and completed. Besides, one for each pod.
    assert_eq!(audit::count(&requests, "events"), 2 * 2 + 3, "{told}");
    assert_eq!(audit::writes(&requests).len(), 4 + 7 + audit::count(&requests, "phasedrollouts/status"), "{told}");
    let entries = scene.tape.entries();
    let steps: Vec<_> = moves::steps(&entries).into_iter().filter(|step| step.version > start).collect();
    for pair in steps.windows(2) {
        let range = pair[0].version..pair[1].version;
        let statuses =
            entries.iter().filter(|entry| matches!(entry.seen, Seen::Rollout(_)) && range.contains(&entry.version));
        assert!(statuses.count() <= 2 + 1, "successThreshold + 1 between {pair:?}\n{told}");
    }
    scene.end().await;
}

#[tokio::test]
async fn every_request_of_the_operator_says_who_it_is() {
    let scene = Scene::at_rest("agent", 1, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let version = scene.ground.operator_version();
    let mut all = scene.ground.cluster.audit_log().read().expect("the audit log can be read");
    all.retain(|entry| entry.user == "system:serviceaccount:sts-plus-system:sts-plus");
    assert!(all.iter().any(|entry| entry.namespace == scene.namespace && entry.is_write()));
    let strange: Vec<_> = all.iter().filter(|entry| entry.user_agent != format!("sts-plus/{version}")).collect();
    assert!(strange.is_empty(), "{strange:?}");
    scene.end().await;
}

/// From the API server's reply to the template change until the change of the condition has arrived here.
#[tokio::test]
async fn a_template_change_is_in_the_conditions_within_a_second() {
    const SAMPLES: usize = 20;
    let gate = objects::with(Scene::gate().await, "/spec/check/preflight", false);
    let gate = objects::with(gate, "/spec/check/final", false);
    let gate = objects::with(gate, "/spec/pauseBefore", json!([0]));
    let scene = Scene::at_rest("soon", 1, &gate).await;
    let (mut away, mut back) = (Vec::new(), Vec::new());
    let both = |world: &World, status: &str| {
        [ConditionType::Ready, ConditionType::RolledOut]
            .into_iter()
            .all(|kind| world.condition(kind).starts_with(status))
    };
    let pending =
        |world: &World| both(world, "False/") && world.condition(ConditionType::Reconciling).starts_with("True/");
    let done = |world: &World| both(world, "True/");
    for sample in 0..SAMPLES {
        let image = format!("app:{}", sample + 2);
        away.push(told_after(&scene, &image, pending).await);
        let awaited = scene.until("it waits for a person", |world| world.is(Phase::Paused)).await;
        assert_eq!((awaited.image("web-0"), awaited.is_held()), ("app:1", true));
        back.push(told_after(&scene, "app:1", done).await);
    }
    assert_eq!(scene.world().image("web-0"), "app:1");
    assert_eq!(scene.world().partition(), Some(1));
    for (what, mut took) in [("away", away), ("back", back)] {
        took.sort();
        println!("{what}: median {:?}, slowest {:?} of {SAMPLES}", took[SAMPLES / 2], took[SAMPLES - 1]);
        // One of twenty may meet a busy machine.
        assert!(took[SAMPLES - 2] < Duration::from_secs(1), "{what}: {took:?}");
    }
    scene.end().await;
}

async fn told_after(scene: &Scene, image: &str, wanted: impl Fn(&World) -> bool) -> Duration {
    let body = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } });
    let patch = kube::api::Patch::Merge(&body);
    let sets = scene.api("statefulset");
    sets.patch("web", &kube::api::PatchParams::default(), &patch).await.expect("the template is accepted");
    let replied = Instant::now();
    scene.until("it is in the conditions", wanted).await;
    replied.elapsed()
}
