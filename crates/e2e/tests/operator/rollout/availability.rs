//! Pods that leave, do not come, do not go, or are not healthy, in the middle of a rollout.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;
use serde_json::json;
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, World, moves, objects};
use testcluster::Method;

use super::{
    annotate_pod, approve, assert_gated_after, end_pod, gate_that_fails_after, gate_that_waits_before, is_awaiting,
    never_ends, passes_before_step, release_until_awaited, scale, set,
};

/// As `kubectl drain` does it.
async fn evict(scene: &Scene, pod: &str) {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", scene.namespace);
    let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod } });
    scene.ground.cluster.request(Method::POST, &path, Some(&body)).await.expect("the eviction is accepted");
}

/// The operator has not even tried to delete a pod.
fn deleted_none(scene: &Scene) {
    let deletions = scene.requests().into_iter().filter(|entry| entry.verb == "delete" && entry.resource == "pods");
    assert_eq!(deletions.count(), 0, "the operator deletes no pod");
}

// spec: pr§4, L049, L097
#[tokio::test]
async fn pods_drained_in_the_hold_come_back_each_at_what_it_was() {
    let scene = Scene::at_rest("drain", 3, &gate_that_waits_before(1).await).await;
    let before = release_until_awaited(&scene, "app:2").await.uids();
    for (pod, image) in [("web-0", "app:1"), ("web-2", "app:2"), ("web-1", "app:1")] {
        evict(&scene, pod).await;
        let recreated = |world: &World| world.is_ready_on(pod, image) && world.uids().get(pod) != before.get(pod);
        scene.until("it comes back as it was", recreated).await;
    }
    // The operator counts them a moment after they are Ready.
    let after = scene.until("they are counted", |world| world.status().updated == "1/3" && is_awaiting(world)).await;
    assert_eq!(after.partition(), Some(2));
    assert_eq!(moves::of(&scene.tape.entries()).len(), 1, "only web-2 has ever moved");
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

// spec: pr§4, L154
#[tokio::test]
async fn a_pod_that_dies_on_its_way_is_awaited_again_and_takes_up_no_other_step() {
    let scene = Scene::at_rest("boundary", 3, &gate_that_fails_after(1000).await).await;
    let release = "app:2-ready-after-3s";
    scene.errors(true).await;
    scene.release(release).await;
    let first = scene.until("web-2 is on its way", |world| world.image("web-2") == release).await.uids();
    scene.delete("pod/web-2").await;
    let again = |world: &World| world.is_ready_on("web-2", release) && world.uids()["web-2"] != first["web-2"];
    let second = scene.until("web-2 is there again", again).await;
    assert_eq!((second.partition(), second.image("web-1")), (Some(2), "app:1"), "the same step");
    // And once more, now that it is being checked. The checks would pass before it is there again.
    let is_checked = |world: &World| world.status().current.is_some_and(|current| current.tries > 0);
    scene.until("it is being checked", is_checked).await;
    scene.delete("pod/web-2").await;
    scene.errors(false).await;
    let again = |world: &World| world.is_ready_on("web-2", release) && world.uids()["web-2"] != second.uids()["web-2"];
    let third = scene.until("web-2 is there once more", again).await;
    assert_eq!((third.partition(), third.image("web-1")), (Some(2), "app:1"), "the same step");
    let ready = third.ready_since("web-2").expect("it is Ready");
    scene.until("complete", |world| world.is_complete(release)).await;
    assert!(passes_before_step(&scene, ready, 1) >= 1, "checked after the last return");
    assert_gated_after("web-2", &scene, "app:1");
    scene.end().await;
}

/// With Parallel the controller itself would go on past a pod that is not Ready (native-statefulset B5).
// spec: pr§4, L058, L145, L162
#[rstest]
#[tokio::test]
async fn while_a_pod_below_is_not_ready_no_further_one_goes(#[values("OrderedReady", "Parallel")] policy: &str) {
    let set = set(3, policy);
    let scene = Scene::at_rest_with("quorum", &set, &gate_that_waits_before(1).await).await;
    let born = release_until_awaited(&scene, "app:2").await.uids();
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", "false").await;
    scene.until("web-0 is not Ready", |world| !world.is_ready_on("web-0", "app:1")).await;
    // The word is given, and it is still not enough.
    approve(&scene, 1).await;
    let waits = scene.until("it is reported", |world| world.status().message.contains("web-0 is not Ready")).await;
    assert_eq!((waits.partition(), waits.uids()), (Some(2), born), "quorum of two: no pod goes");
    annotate_pod(&scene, "web-0", "sts-plus.test/ready", json!(null)).await;
    let back = scene.until("web-0 is Ready", |world| world.is_ready_on("web-0", "app:1")).await;
    assert_eq!(back.partition(), Some(2), "not lowered meanwhile");
    let ready = back.ready_since("web-0").expect("it is Ready");
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(passes_before_step(&scene, ready, 1) >= 1, "the cycle began again");
    deleted_none(&scene);
    scene.end().await;
}

// spec: pr§6, L056, L102
#[tokio::test]
async fn a_member_that_is_down_before_the_rollout_holds_it_and_is_named() {
    let scene = Scene::at_rest("down", 3, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    scene.stage("web-0", Some("broken")).await;
    scene.until("web-0 is down", |world| !world.is_ready_on("web-0", "app:1")).await;
    scene.release("app:2").await;
    let blocked = |world: &World| world.condition(ConditionType::Held) == "True/BlockedByPod";
    let blocked = scene.until("it is reported", blocked).await;
    let message = blocked.status().message;
    for part in ["web-0", "container app", "CrashLoopBackOff", "since"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert!(blocked.is_held() && blocked.uids() == born, "no healthy pod is rolled first");
    assert!(blocked.condition(ConditionType::Ready).starts_with("False/"));
    scene.delete("pod/web-0").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    deleted_none(&scene);
    scene.end().await;
}

/// The `ControllerRevision` of the old template is lost: whatever the partition says, a pod that dies then comes back on the new one.
// spec: pr§4, L031
#[tokio::test]
async fn a_pod_that_comes_back_on_the_pending_revision_is_reported_and_checked_first() {
    let scene = Scene::at_rest("forgotten", 3, &gate_that_waits_before(1).await).await;
    let old = scene.world().update_revision();
    let before = release_until_awaited(&scene, "app:2").await;
    assert_eq!((before.image("web-2"), before.image("web-0")), ("app:2", "app:1"));
    scene.delete(&format!("controllerrevision/{old}")).await;
    scene.delete("pod/web-0").await;
    let slipped = scene.until("web-0 has slipped", |world| world.is_ready_on("web-0", "app:2")).await;
    let since = slipped.ready_since("web-0").expect("it is Ready");
    let told = scene.until_events(Reason::PodsSlipped, 1).await;
    let note = told[0].note.clone().unwrap_or_default();
    assert!(told.len() == 1 && note.starts_with("web-0 came back on the pending revision"), "{told:?}");
    assert_eq!(scene.world().uids()["web-1"], before.uids()["web-1"], "nothing else has moved");
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert!(passes_before_step(&scene, since, 1) >= 1, "checked with the pod that came back on it");
    scene.end().await;
}

/// `maxUnavailable` lets the controller take two pods at once where the feature gate is on; the operator opens one index a step. Where
/// it is off the API server drops the field, and there is nothing to stay.
// spec: pr§4, L157, L158
#[rstest]
#[tokio::test]
async fn with_max_unavailable_of_two_one_pod_goes_at_a_time(#[values("OrderedReady", "Parallel")] policy: &str) {
    let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
    let set = objects::with(set(4, policy), "/spec/updateStrategy", rolling);
    let scene = Scene::at_rest_with("budget", &set, &Scene::quick_gate().await).await;
    let budget = |world: &World| {
        let strategy = world.sets["web"].spec.as_ref().and_then(|spec| spec.update_strategy.clone());
        strategy.and_then(|strategy| strategy.rolling_update).and_then(|rolling| rolling.max_unavailable)
    };
    let expected = honours_max_unavailable(&scene).await.then_some(IntOrString::Int(2));
    assert_eq!(budget(&scene.world()), expected, "the user's field stays at the claim");
    scene.release("app:2").await;
    let after = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(budget(&after), expected, "and in the rollout");
    let moves = moves::assert_gated(&scene, "app:1", 1);
    let order: Vec<_> = moves.iter().map(|moved| moved.pod.as_str()).collect();
    assert_eq!(order, ["web-3", "web-2", "web-1", "web-0"]);
    for pair in moves.windows(2) {
        assert!(pair[0].made < pair[1].left, "the one before was there: {pair:?}");
    }
    scene.end().await;
}

/// What the API server says itself of the feature gate.
async fn honours_max_unavailable(scene: &Scene) -> bool {
    let metrics = scene.kubectl_ok(&["get", "--raw", "/metrics"], "").await.stdout;
    let gate = "kubernetes_feature_enabled{name=\"MaxUnavailableStatefulSet\"";
    let line = metrics.lines().find(|line| line.starts_with(gate)).expect("every feature gate has a metric");
    line.ends_with(" 1")
}

/// Where the feature gate is on, an unready pod below the partition uses up `maxUnavailable`, and the pod that is open does not move:
/// reported, by the name of the pod that blocks it.
// spec: pr§6, L102, L158
#[tokio::test]
async fn an_unready_pod_that_uses_up_the_budget_is_reported() {
    let set = set(3, "Parallel");
    let scene = Scene::at_rest_with("used-up", &set, &Scene::quick_gate().await).await;
    let born = scene.world().uids();
    scene.stage("web-0", Some("broken")).await;
    scene.until("web-0 is not Ready", |world| !world.is_ready_on("web-0", "app:1")).await;
    scene.release("app:2").await;
    // The operator as well: what was allowed before it knew of the revision is not about that one.
    scene.until("held", |world| world.is_held() && world.is(Phase::Held)).await;
    // A person knows better, and whether the pod goes is left to the controller.
    let allowed = json!({
        "metadata": { "annotations": { names::ALLOW_PARTITION: "2" } },
        "spec": { "updateStrategy": { "rollingUpdate": { "partition": 2 } } },
    });
    scene.patch("statefulset/web", &allowed).await;
    scene.until("it is open", |world| world.partition() == Some(2)).await;
    let blocked = |world: &World| {
        world.condition(ConditionType::Held) == "True/BlockedByPod" && world.status().message.contains("web-0")
    };
    let blocked = scene.until_settled("it is reported", blocked).await;
    let stays = if honours_max_unavailable(&scene).await { 3 } else { 2 };
    let same = ["web-0", "web-1", "web-2"].iter().take(stays).all(|pod| blocked.uids().get(*pod) == born.get(*pod));
    assert!(same, "{stays} pods stay: {born:?} {:?}", blocked.uids());
    scene.stage("web-0", None).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    deleted_none(&scene);
    scene.end().await;
}

/// A node that is lost leaves its pods Terminating, with nobody to end them.
// spec: pr§6, L121
#[tokio::test]
async fn a_pod_that_nobody_ends_is_reported_awaited_and_never_deleted_by_force() {
    let scene = Scene::at_rest("lost", 2, &Scene::quick_gate().await).await;
    never_ends(&scene, "web-1").await;
    scene.release("app:2").await;
    let leaving = scene.until("it is reported", |world| world.status().message.contains("web-1 is terminating")).await;
    assert_eq!(leaving.partition(), Some(1));
    let lost = scene.until("it is overdue", |world| world.condition(ConditionType::Held) == "True/BlockedByPod").await;
    let message = lost.status().message;
    let node = lost.pods["web-1"].spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    for part in ["web-1 is terminating", node.as_str(), "may be lost", "not deleted by force"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert_eq!((lost.partition(), lost.image("web-0")), (Some(1), "app:1"));
    end_pod(&scene, "web-1").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    deleted_none(&scene);
    scene.end().await;
}

// spec: pr§6, L116
#[tokio::test]
async fn a_pod_that_no_node_takes_is_reported_with_the_words_of_the_scheduler() {
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
    let told = scene.until("it is reported", told).await;
    let message = told.status().message;
    for part in ["web-3", "Unschedulable", "0/3 nodes are available", "anti-affinity"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    assert!(told.partition() == Some(2) && scene.events_of(Reason::ChecksFailed).await.is_empty());
    scale(&scene, 3).await;
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

/// A quota that lets so many pods be, in mid-rollout before `web-1`. Each case has a set of its own: of the events about one, the controller
/// sends 25, and then one in five minutes.
async fn with_a_quota(pods: i32) -> Scene {
    let scene = Scene::at_rest_with("quota", &set(3, "Parallel"), &gate_that_waits_before(1).await).await;
    release_until_awaited(&scene, "app:2").await;
    let quota = json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" } });
    scene.create(&objects::with(quota, "/spec", json!({ "hard": { "pods": pods.to_string() } }))).await;
    for (field, value) in [("hard", pods), ("used", 3)] {
        let counted = format!("--for=jsonpath={{.status.{field}.pods}}={value}");
        scene.kubectl_ok(&["wait", "resourcequota/few", &counted, "--timeout=50s"], "").await;
    }
    scene
}

// spec: pr§4, L122, L140
#[tokio::test]
async fn a_new_pod_that_a_quota_keeps_out_counts_as_unavailable() {
    let scene = with_a_quota(4).await;
    scale(&scene, 5).await;
    // Parallel: either of the two may be the one that is refused.
    let reported = |world: &World| world.status().message.contains("QuotaExceeded") && world.pods.len() == 4;
    let reported = scene.until("it is reported", reported).await;
    assert!(reported.partition() == Some(2) && reported.image("web-1") == "app:1", "no pod is rolled meanwhile");
    scale(&scene, 3).await;
    scene.until_settled("back at three", |world| world.pods.len() == 3 && world.status().updated == "1/3").await;
    scene.end().await;
}

// spec: pr§4, L122, L140
#[tokio::test]
async fn a_recreated_pod_that_a_quota_keeps_out_counts_as_unavailable() {
    let scene = with_a_quota(2).await;
    approve(&scene, 1).await;
    scene.until("the step", |world| world.partition() == Some(1) && !world.pods.contains_key("web-1")).await;
    let missing = scene.until("it is reported", |world| world.status().message.contains("QuotaExceeded")).await;
    let status = missing.status();
    assert!(status.message.contains("web-1 cannot be created since 20"), "{}", status.message);
    assert!(status.message.contains("exceeded quota: few"), "{}", status.message);
    assert_eq!((status.ready_replicas, status.updated_replicas), (2, 1), "as it is");
    assert!(missing.is(Phase::Rolling) && missing.partition() == Some(1), "the next pod waits");
    scene.delete("resourcequota/few").await;
    // The controller retries with growing pauses; a change of the set makes it reconcile at once.
    scene.patch("statefulset/web", &json!({ "metadata": { "annotations": { "reconcile": "again" } } })).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}
