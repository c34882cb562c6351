//! A pod that is missing carries no revision: it is never settled, and never taken for one that was rolled.

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, names};
use sts_plus_e2e::{World, moves, objects};

use super::{Owned, images};
use crate::rollout::gate;

/// Checks may refuse for as long as it takes.
async fn patient() -> Value {
    gate(json!({ "maxTries": 1000 })).await
}

/// web-1 and web-0 go, and a quota keeps them from being made again.
async fn lose_two(owned: &Owned) {
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" } });
    owned.apply(&objects::with(quota, "/spec/hard/pods", "1")).await;
    owned.kubectl(&["wait", "resourcequota/few", "--for=jsonpath={.status.hard.pods}=1", "--timeout=50s"]).await;
    for pod in ["web-1", "web-0"] {
        owned.kubectl(&["delete", "pod", pod, "--force", "--grace-period=0", "--wait=false"]).await;
    }
    owned.until("two are missing", |world| world.pods.len() == 1 && world.is_ready_on("web-2", "app:2")).await;
}

/// Two pods are missing, and the checks refuse. It is held; the missing pods come back as they were and wait for an ordinary cycle.
async fn nothing_is_settled(owned: Owned) {
    let held = |world: &World| {
        world.is_held() && world.annotation(names::CLAIM) == Some("gate") && world.is_told() && world.pods.len() == 1
    };
    let held = owned.until_settled("held", held).await;
    assert!(held.condition(ConditionType::RolledOut).starts_with("False/"), "{:?}", held.status());
    let from = held.latest_version();
    owned.kubectl(&["delete", "resourcequota", "few"]).await;
    // The controller retries with growing pauses; a change of the set makes it reconcile at once.
    owned.annotate("statefulset/web", "reconcile", "again").await;
    let whole = |world: &World| world.pods.values().filter(|pod| sts_plus_e2e::is_ready(pod)).count() == 3;
    let whole = owned.until("all pods are there", whole).await;
    assert_eq!(images(&whole), ["app:1", "app:1", "app:2"], "they come back as they were");
    let still = owned.until_answered(3, false).await;
    assert_eq!(still.uids(), whole.uids(), "no pod has moved");
    assert!(still.is_held() && still.condition(ConditionType::RolledOut).starts_with("False/"), "{:?}", still.status());

    owned.errors(false).await;
    owned.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::of(&owned.tape.entries());
    let gated: Vec<_> = moved.iter().filter(|moved| moved.made > from).collect();
    let names: Vec<_> = gated.iter().map(|moved| moved.pod.as_str()).collect();
    assert_eq!(names, ["web-1", "web-0"], "{}", owned.story());
    moves::assert_passed(gated, &owned.asked(), 2);
    owned.end().await;
}

/// web-2 is on the new release by a partition of its owner, and the others are missing, when a PhasedRollout takes the set.
// spec: pr§4, pr§7, L094
#[tokio::test]
async fn a_claim_settles_no_pod_that_is_missing() {
    let mut owned = Owned::new("claim").await;
    owned.apply(&objects::with(objects::set(3), "/spec/updateStrategy/rollingUpdate/partition", 2)).await;
    owned.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
    owned.release("app:2").await;
    owned.until_settled("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2")).await;
    lose_two(&owned).await;
    owned.errors(true).await;
    owned.apply(&patient().await).await;
    owned.scene.start_operator();
    nothing_is_settled(owned).await;
}

/// skipCheck is taken back while two pods are missing.
// spec: pr§4, pr§7, L094
#[tokio::test]
async fn the_end_of_skip_check_settles_no_pod_that_is_missing() {
    let owned = Owned::at_rest("skip", &objects::set(3), &patient().await).await;
    owned.configure(&json!({ "skipCheck": true })).await;
    owned.until("the hold is off", |world| world.annotation(names::HOLD_SWITCH) == Some("off")).await;
    // The next one takes its time, so that the controller goes no further.
    owned.annotate("pod/web-1", "sts-plus.test/stop-after", "3600s").await;
    owned.release("app:2").await;
    let leaves = |world: &World| world.pods.get("web-1").is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    owned.until("web-2 is rolled", |world| world.is_ready_on("web-2", "app:2") && leaves(world)).await;
    lose_two(&owned).await;
    owned.errors(true).await;
    owned.configure(&json!({ "skipCheck": false })).await;
    nothing_is_settled(owned).await;
}

/// A PhasedRollout is restored from a backup, which has no status, while two pods are missing.
// spec: pr§4, pr§7, L094
#[tokio::test]
async fn a_lost_status_settles_no_pod_that_is_missing() {
    let gate = patient().await;
    let waits = objects::with(gate.clone(), "/spec/pauseBefore", json!([1]));
    let mut owned = Owned::at_rest("lost", &objects::set(3), &waits).await;
    owned.release("app:2").await;
    let awaited = |world: &World| world.condition(ConditionType::Held) == "True/AwaitingApproval" && world.is_told();
    owned.until_settled("a person is awaited", awaited).await;
    owned.scene.kill_operator();
    lose_two(&owned).await;
    owned.kubectl(&["delete", "phasedrollout", "gate", "--wait=false"]).await;
    let no_finalizer = r#"{"metadata":{"finalizers":null}}"#;
    owned.kubectl(&["patch", "phasedrollout", "gate", "--type=merge", "--patch", no_finalizer]).await;
    owned.until("it is gone", |world| !world.rollouts.contains_key("gate")).await;
    owned.errors(true).await;
    owned.apply(&gate).await;
    owned.scene.start_operator();
    nothing_is_settled(owned).await;
}
