//! Pods that leave, do not come, do not go, or are not well, in the middle of a rollout.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};
use testcluster::Method;

use crate::{
    annotate_pod, approve, gate_that_waits_before, is_awaiting, release_until_awaited, scale, tries_before_step,
};

/// As `kubectl drain` does it.
async fn evict(scene: &Scene, pod: &str) {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", scene.namespace);
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
    scene.ground.cluster.request(Method::POST, &path, Some(&body)).await.expect("the eviction is accepted");
}

/// Nobody of ours has deleted a pod.
fn deleted_none(scene: &Scene) {
    let deletions = scene.requests().into_iter().filter(|entry| entry.verb == "delete" && entry.resource == "pods");
    assert_eq!(deletions.count(), 0, "the operator deletes no pod");
}

#[tokio::test]
async fn pods_drained_in_the_hold_come_back_each_at_what_it_was() {
    let scene = Scene::at_rest("drain", 3, &gate_that_waits_before(1).await).await;
    let before = release_until_awaited(&scene, "app:2").await.uids();
    for (pod, image) in [("web-0", "app:1"), ("web-2", "app:2"), ("web-1", "app:1")] {
        evict(&scene, pod).await;
        let anew = |world: &World| world.is_ready_on(pod, image) && world.uids().get(pod) != before.get(pod);
        scene.until("it comes back as it was", anew).await;
    }
    // The operator counts them a moment after they are Ready.
    let after = scene.until("they are counted", |world| world.status().updated == "1/3" && is_awaiting(world)).await;
    assert_eq!(after.partition(), Some(2));
    assert_eq!(moves::of(&scene.tape.entries()).len(), 1, "only web-2 has ever moved");
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn a_pod_that_dies_on_its_way_is_awaited_again_and_takes_up_no_other_step() {
    let scene = Scene::at_rest("boundary", 3, &Scene::gate().await).await;
    let release = "app:2-ready-after-2s";
    scene.release(release).await;
    let first = scene.until("web-2 is on its way", |world| world.image("web-2") == release).await.uids();
    scene.kubectl_ok(&["delete", "pod", "web-2", "--wait=false"], "").await;
    let again = |world: &World| world.is_ready_on("web-2", release) && world.uids()["web-2"] != first["web-2"];
    let second = scene.until("web-2 is there again", again).await;
    assert_eq!((second.partition(), second.image("web-1")), (Some(2), "app:1"), "the same step");
    // And once more, now that it is being checked.
    scene.kubectl_ok(&["delete", "pod", "web-2", "--wait=false"], "").await;
    let again = |world: &World| world.is_ready_on("web-2", release) && world.uids()["web-2"] != second.uids()["web-2"];
    let third = scene.until("web-2 is there once more", again).await;
    assert_eq!((third.partition(), third.image("web-1")), (Some(2), "app:1"), "the same step");
    let ready = third.ready_since("web-2").expect("it is Ready");
    scene.until("complete", |world| world.is_complete(release)).await;
    let asked = tries_before_step(&scene, ready, 1);
    assert!(asked.iter().filter(|(_, passed)| *passed).count() >= 2, "checks after the last return: {asked:?}");
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

/// With Parallel the controller itself would go on past a pod that is not Ready (native-statefulset B5).
#[rstest]
#[tokio::test]
async fn while_a_pod_below_is_not_ready_no_further_one_goes(#[values("OrderedReady", "Parallel")] policy: &str) {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", policy);
    let scene = Scene::at_rest_with("quorum", &set, &gate_that_waits_before(1).await).await;
    let born = release_until_awaited(&scene, "app:2").await.uids();
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", "false").await;
    scene.until("web-0 is not Ready", |world| !world.is_ready_on("web-0", "app:1")).await;
    // The word is given, and it is still not enough.
    approve(&scene, 1).await;
    let waits = scene.until("it is told", |world| world.status().message.contains("web-0 is not Ready")).await;
    assert_eq!((waits.partition(), waits.uids()), (Some(2), born), "quorum of two: no pod goes");
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", json!(null)).await;
    let well = scene.until("web-0 is Ready", |world| world.is_ready_on("web-0", "app:1")).await;
    assert_eq!(well.partition(), Some(2), "not lowered meanwhile");
    let ready = well.ready_since("web-0").expect("it is Ready");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let asked = tries_before_step(&scene, ready, 1);
    assert!(asked.iter().filter(|(_, passed)| *passed).count() >= 2, "the streak began again: {asked:?}");
    deleted_none(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_member_that_is_down_before_the_rollout_holds_it_and_is_named() {
    let scene = Scene::at_rest("down", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    annotate_pod(&scene, "web-0", "sts-plus.test/stage", "broken").await;
    scene.until("web-0 is down", |world| !world.is_ready_on("web-0", "app:1")).await;
    scene.release("app:2").await;
    let blocked = |world: &World| world.condition(ConditionType::Held) == "True/BlockedByPod";
    let blocked = scene.until("it is told", blocked).await;
    let message = blocked.status().message;
    for part in ["web-0", "container app", "CrashLoopBackOff", "since"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert!(blocked.is_held() && blocked.uids() == born, "no healthy pod is rolled first");
    assert!(blocked.condition(ConditionType::Ready).starts_with("False/"));
    scene.kubectl_ok(&["delete", "pod", "web-0", "--wait=false"], "").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    deleted_none(&scene);
    scene.end().await;
}

/// The `ControllerRevision` of the old template is lost: whatever the partition says, a pod that dies then comes back on the new one.
#[tokio::test]
async fn a_pod_that_comes_back_on_the_pending_revision_is_told_and_checked_first() {
    let scene = Scene::at_rest("forgotten", 3, &gate_that_waits_before(1).await).await;
    let old = scene.world().update_revision().clone();
    let before = release_until_awaited(&scene, "app:2").await;
    assert_eq!((before.image("web-2"), before.image("web-0")), ("app:2", "app:1"));
    scene.kubectl_ok(&["delete", "controllerrevision", &old], "").await;
    scene.kubectl_ok(&["delete", "pod", "web-0", "--wait=false"], "").await;
    let slipped = scene.until("web-0 has slipped", |world| world.is_ready_on("web-0", "app:2")).await;
    let since = slipped.ready_since("web-0").expect("it is Ready");
    let told = scene.until_events(Reason::PodsSlipped, 1).await;
    let note = told[0].note.clone().unwrap_or_default();
    assert!(told.len() == 1 && note.starts_with("web-0 came back on the pending revision"), "{told:?}");
    assert_eq!(scene.world().uids()["web-1"], before.uids()["web-1"], "nothing else has moved");
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let asked = tries_before_step(&scene, since, 1);
    assert!(asked.iter().filter(|(_, passed)| *passed).count() >= 2, "checked with the pod that slipped: {asked:?}");
    scene.end().await;
}

/// `maxUnavailable` lets the controller take two pods at once where the gate is on (1.37); the operator opens one index a step.
#[rstest]
#[tokio::test]
async fn with_max_unavailable_of_two_one_pod_goes_at_a_time(#[values("OrderedReady", "Parallel")] policy: &str) {
    let set = objects::with(objects::set(4), "/spec/podManagementPolicy", policy);
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
    let set = objects::with(set, "/spec/updateStrategy", rolling);
    let scene = Scene::at_rest_with("budget", &set, &Scene::gate().await).await;
    let keeps = |world: &World| {
        let strategy = world.sets["web"].spec.as_ref().and_then(|spec| spec.update_strategy.clone());
        strategy.and_then(|strategy| strategy.rolling_update).and_then(|rolling| rolling.max_unavailable)
    };
    let budget = keeps(&scene.world());
    println!("maxUnavailable is {budget:?} here");
    scene.release("app:2").await;
    let after = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(keeps(&after), budget, "the user's field stays");
    let entries = scene.tape.entries();
    let moves = moves::assert_gated(&entries, "app:1", 2);
    let order: Vec<_> = moves.iter().map(|moved| moved.pod.as_str()).collect();
    assert_eq!(order, ["web-3", "web-2", "web-1", "web-0"]);
    for pair in moves.windows(2) {
        assert!(pair[0].made < pair[1].left, "the one before was there: {pair:?}");
    }
    scene.end().await;
}

/// An unready pod below the partition uses up `maxUnavailable` with 1.37, and the pod that is open does not move: told, by the name
/// of the pod that is in the way.
#[tokio::test]
async fn an_unready_pod_that_uses_up_the_budget_is_told() {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", "Parallel");
    let scene = Scene::at_rest_with("used-up", &set, &Scene::gate().await).await;
    let born = scene.world().uids();
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", "false").await;
    scene.until("web-0 is not Ready", |world| !world.is_ready_on("web-0", "app:1")).await;
    scene.release("app:2").await;
    // The operator as well: what was allowed before it knew of the revision is not about that one.
    scene.until("held", |world| world.is_held() && world.is(Phase::Held)).await;
    // A person knows better, and the pod goes or stays as the controller has it.
    let allowed = json!({
        "metadata": { "annotations": { names::ALLOW_PARTITION: "2" } },
        "spec": { "updateStrategy": { "rollingUpdate": { "partition": 2 } } },
    });
    scene.patch("statefulset/web", &allowed).await;
    scene.until("it is open", |world| world.partition() == Some(2)).await;
    let blocked = |world: &World| {
        world.condition(ConditionType::Held) == "True/BlockedByPod" && world.status().message.contains("web-0")
    };
    let blocked = scene.until("it is told", blocked).await;
    println!("web-2 is on {}", blocked.image("web-2"));
    assert!(["web-0", "web-1"].iter().all(|pod| blocked.uids()[*pod] == born[*pod]), "{born:?} {:?}", blocked.uids());
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", json!(null)).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    deleted_none(&scene);
    scene.end().await;
}

/// A node that is lost leaves its pods Terminating, with nobody to end them.
#[tokio::test]
async fn a_pod_that_nobody_ends_is_told_and_awaited_and_never_deleted_by_force() {
    let scene = Scene::at_rest("lost", 2, &Scene::gate().await).await;
    annotate_pod(&scene, "web-1", "sts-plus.test/stop-after", "45s").await;
    scene.release("app:2").await;
    let leaving = scene.until("it is told", |world| world.status().message.contains("web-1 is terminating")).await;
    assert_eq!(leaving.partition(), Some(1));
    let lost = scene.until("it is overdue", |world| world.condition(ConditionType::Held) == "True/BlockedByPod").await;
    let message = lost.status().message;
    let node = lost.pods["web-1"].spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    for part in ["web-1 is terminating", node.as_str(), "may be lost", "not deleted by force"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert_eq!((lost.partition(), lost.image("web-0")), (Some(1), "app:1"));
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    deleted_none(&scene);
    scene.end().await;
}

#[tokio::test]
async fn a_pod_that_no_node_takes_is_told_with_the_words_of_the_scheduler() {
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } },
    ] } });
    let set = objects::with(objects::set(3), "/spec/template/spec/affinity", apart);
    let gate = objects::with(gate_that_waits_before(1).await, "/spec/check/maxTries", 600);
    let scene = Scene::at_rest_with("apart", &set, &gate).await;
    release_until_awaited(&scene, "app:2").await;
    // There are three nodes.
    scale(&scene, 4).await;
    let told = |world: &World| world.condition(ConditionType::Held) == "True/BlockedByPod";
    let told = scene.until("it is told", told).await;
    let message = told.status().message;
    for part in ["web-3", "Unschedulable", "0/3 nodes are available", "anti-affinity"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert!(told.partition() == Some(2) && scene.events_of(Reason::ChecksFailed).await.is_empty());
    scale(&scene, 3).await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn a_scale_up_that_a_quota_stops_holds_the_rollout_and_can_be_taken_back() {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", "Parallel");
    let scene = Scene::at_rest_with("quota", &set, &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;
    scene.create(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" }, "spec": { "hard": { "pods": "4" } },
    }))
    .await;
    let counted = ["wait", "resourcequota/few", "--for=jsonpath={.status.used.pods}=3", "--timeout=30s"];
    scene.kubectl_ok(&counted, "").await;
    scale(&scene, 5).await;
    // Parallel: either of the two may be the one that is refused.
    let told = |world: &World| world.status().message.contains("QuotaExceeded") && world.pods.len() == 4;
    let told = scene.until("it is told", told).await;
    assert!(told.partition() == Some(2) && told.image("web-1") == "app:1", "no pod is rolled meanwhile");
    scale(&scene, 3).await;
    scene.until_settled("back at three", |world| world.pods.len() == 3 && world.status().updated == "1/3").await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    scene.end().await;
}
