//! Kubernetes 1.34, which has no `MutatingAdmissionPolicy`: the validating policy refuses what cannot be held, the operator lets fixes
//! in whenever nothing moves, and without any policy it holds by itself.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, names, names::HOLD};
use sts_plus_e2e::{Ground, Policies, Scene, World, eventually, is_refusing_left_out, moves, objects};
use testcluster::AuditEntry;

/// A set of three at rest on 1.34; nothing where that minor is left out.
async fn at_rest(policies: Policies, name: &str) -> Option<Scene> {
    at_rest_with(policies, name, &objects::set(3)).await
}

async fn at_rest_with(policies: Policies, name: &str, set: &Value) -> Option<Scene> {
    if is_refusing_left_out() {
        return None;
    }
    let ground = Ground::get(policies).await;
    let mut scene = Scene::on(ground, name).await;
    let gate = objects::rollout(&ground.tap_url().await);
    scene.settle(set, &gate).await;
    Some(scene)
}

/// The same in mid-rollout: web-2 is rolled to `app:2`, and its checks begin after a long time.
async fn in_mid_rollout(name: &str) -> Option<Scene> {
    let scene = at_rest(Policies::Refusing, name).await?;
    let refusing = |world: &World| world.condition(ConditionType::HoldEnforced) == "True/RefusedByPolicy";
    scene.until("the hold is found out", refusing).await;
    scene.configure(&json!({ "check": { "initialDelaySeconds": 600, "preflight": false } })).await;
    scene.release("app:2").await;
    let rolled = |world: &World| world.is_ready_on("web-2", "app:2") && world.is(Phase::Checking);
    scene.until_settled("web-2 is rolled", |world| rolled(world) && world.partition() == Some(2)).await;
    Some(scene)
}

/// What the API server says to a write to `web` that it refuses.
async fn refusal(scene: &Scene, body: &Value) -> String {
    scene.try_patch("statefulset/web", body).await.expect_err("refused").to_string()
}

fn template(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } })
}

fn partition(partition: i32) -> Value {
    json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": partition } } } })
}

/// A template and a partition in one write.
fn template_at(image: &str, at: i32) -> Value {
    objects::with(template(image), "/spec/updateStrategy", partition(at)["spec"]["updateStrategy"].clone())
}

/// Everything gets going again, and completes on `image`, through the gate.
async fn completes(scene: Scene, image: &str) {
    scene.configure(&json!({ "paused": false, "check": { "initialDelaySeconds": 0 } })).await;
    scene.until("complete", |world| world.is_complete(image)).await;
    scene.end().await;
}

// spec: hold
#[tokio::test]
async fn a_rollout_goes_as_everywhere_and_who_keeps_the_hold_is_told() {
    let Some(scene) = at_rest(Policies::Refusing, "old").await else { return };
    let told = |world: &World| world.condition(ConditionType::HoldEnforced) == "True/RefusedByPolicy";
    let message = scene.until("told", told).await.message(ConditionType::HoldEnforced);
    assert!(message.contains("refuses what would roll pods unchecked"), "{message}");
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let entries = scene.tape.entries();
    moves::assert_gated(&scene, "app:1", 2);
    let steps: Vec<_> = moves::steps(&entries).iter().map(|step| step.partition).collect();
    assert_eq!(steps, [3, HOLD, 2, 1, 0, 3], "no write more than on later servers");
    scene.end().await;
}

// spec: hold
#[tokio::test]
async fn in_mid_rollout_a_template_is_refused_and_while_paused_it_is_let_in_and_held() {
    let Some(scene) = in_mid_rollout("refused").await else { return };
    let sentence = refusal(&scene, &template("app:3")).await;
    for part in [
        "spec.template cannot be changed under this partition: pods of StatefulSet web from index 2 up would roll to it unchecked",
        "PhasedRollout gate",
        "Either write spec.updateStrategy.rollingUpdate.partition: 2147483647 in the same change",
        "or set spec.paused: true on the PhasedRollout, wait until it has raised the partition to 2147483647, and write again.",
    ] {
        assert!(sentence.contains(part), "{part:?} is not in {sentence}");
    }
    scene.configure(&json!({ "paused": true })).await;
    let before = scene.until_settled("paused and held", |world| world.is(Phase::Paused) && world.is_held()).await;
    scene.release("app:3").await;
    let after = scene.until_settled("app:3 is told", |world| world.is_told() && world.is(Phase::Paused));
    assert_eq!(after.await.uids(), before.uids(), "no pod has moved");
    scene.configure(&json!({ "paused": false, "check": { "initialDelaySeconds": 0 } })).await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

// spec: hold
#[tokio::test]
async fn a_template_that_brings_the_hold_is_accepted_and_held() {
    let Some(scene) = in_mid_rollout("brings").await else { return };
    let before = scene.world().uids();
    let scaled = objects::with(template_at("app:3", 3), "/spec/replicas", 4);
    assert!(refusal(&scene, &scaled).await.contains("from index 3 up"), "born unchecked");
    scene.patch("statefulset/web", &template_at("app:3", HOLD)).await;
    // web-2 has left the last good revision: it goes to the fix without checks, the others wait for theirs.
    let after = scene.until_settled("web-2 is repaired", |world| world.is_ready_on("web-2", "app:3")).await;
    let uids = after.uids();
    assert_eq!((&uids["web-0"], &uids["web-1"]), (&before["web-0"], &before["web-1"]), "no other pod has moved");
    completes(scene, "app:3").await;
}

#[tokio::test]
async fn a_fix_goes_through_after_failed_checks() {
    let Some(scene) = at_rest(Policies::Refusing, "fix").await else { return };
    scene.release("app:2-errors").await;
    let failed = |world: &World| world.is(Phase::Failed) && world.is_held();
    scene.until_settled("failed and held", failed).await;
    scene.release("app:3").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_allowed(&scene.tape.entries(), "app:1");
    scene.end().await;
}

/// Parallel sets heal by another loop here than on later servers (native-statefulset B9): the end is the same.
// spec: hold, L103
#[tokio::test]
async fn a_parallel_release_that_crashes_is_repaired_by_its_fix() {
    let set = objects::with(objects::set(3), "/spec/podManagementPolicy", "Parallel");
    let Some(scene) = at_rest_with(Policies::Refusing, "parallel", &set).await else { return };
    scene.release("app:2-broken").await;
    let failed = |world: &World| world.image("web-2") == "app:2-broken" && world.is(Phase::Failed) && world.is_held();
    scene.until_settled("failed and held", failed).await;
    scene.release("app:3").await;
    scene.until("complete", |world| world.is_complete("app:3")).await;
    moves::assert_gated(&scene, "app:1", 2);
    scene.end().await;
}

#[tokio::test]
async fn a_fix_goes_through_while_prometheus_cannot_be_reached() {
    let Some(scene) = in_mid_rollout("outage").await else { return };
    let url = scene.rollout().await.spec.check.query.and_then(|query| query.url);
    let query = |url: Value| json!({ "check": { "initialDelaySeconds": 0, "query": { "url": url } } });
    scene.configure(&query("http://127.0.0.1:9".into())).await;
    let held = |world: &World| world.is(Phase::Held) && world.is_held();
    let before = scene.until_settled("held at the full hold", held).await;
    assert_eq!(before.condition(ConditionType::Held), "True/PrometheusUnreachable");
    scene.release("app:3").await;
    scene.configure(&query(json!(url))).await;
    completes(scene, "app:3").await;
}

// spec: hold
#[tokio::test]
async fn a_lower_partition_is_refused_however_it_is_written() {
    let Some(scene) = in_mid_rollout("lower").await else { return };
    let sentence = refusal(&scene, &partition(0)).await;
    for part in ["cannot be lowered from 2 to 0", "PhasedRollout gate", "sts.plus/allow-partition: \"0\""] {
        assert!(sentence.contains(part), "{part:?} is not in {sentence}");
    }
    refusal(&scene, &json!({ "spec": { "updateStrategy": { "rollingUpdate": null } } })).await;
    let manifest = objects::image(objects::set(3), "app:2").to_string();
    assert!(!scene.kubectl(&["replace", "-f", "-"], &manifest).await.ok, "a replace without the field");
    let allowed =
        objects::with(template_at("app:3", 0), "/metadata/annotations", json!({ names::ALLOW_PARTITION: "0" }));
    let sentence = refusal(&scene, &allowed).await;
    assert!(sentence.contains("spec.template cannot be changed"), "break-glass is not for templates: {sentence}");
    assert_eq!(scene.world().partition(), Some(2));
    // Raised by anybody, and a scale, are no matter.
    scene.kubectl_ok(&["scale", "statefulset", "web", "--replicas=4"], "").await;
    scene.patch("statefulset/web", &partition(3)).await;
    completes(scene, "app:2").await;
}

// spec: hold
#[tokio::test]
async fn break_glass_lets_exactly_this_partition_through() {
    let Some(scene) = in_mid_rollout("glass").await else { return };
    let allowing = |allowed: &str| {
        objects::with(partition(1), "/metadata/annotations", json!({ names::ALLOW_PARTITION: allowed }))
    };
    assert!(refusal(&scene, &allowing("0")).await.contains("cannot be lowered from 2 to 1"));
    scene.patch("statefulset/web", &allowing("1")).await;
    let world = scene.until("web-1 rolls", |world| world.is_ready_on("web-1", "app:2")).await;
    assert_eq!(world.image("web-0"), "app:1");
    scene.until("the annotation is used up", |world| world.annotation(names::ALLOW_PARTITION).is_none()).await;
    scene.until_events(Reason::PartitionAllowed, 1).await;
    completes(scene, "app:2").await;
}

// spec: hold
#[tokio::test]
async fn annotations_of_the_operator_stay_until_the_set_is_released() {
    let Some(scene) = in_mid_rollout("marks").await else { return };
    let annotated = |annotations: Value| json!({ "metadata": { "annotations": annotations } });
    for (mark, value) in [
        (names::CLAIM, Value::Null),
        (names::CLAIM, "another".into()),
        (names::WRITTEN_PARTITION, Value::Null),
        (names::HOLD_SWITCH, "off".into()),
    ] {
        let sentence = refusal(&scene, &annotated(json!({ mark: value }))).await;
        assert!(sentence.contains(mark) && sentence.contains("sts.plus/release: \"true\""), "{sentence}");
    }
    let dropped = objects::with(template("app:3"), "/metadata/annotations", json!({ names::CLAIM: null }));
    refusal(&scene, &dropped).await;
    // A release in one write with whatever else.
    let released =
        objects::with(dropped, "/metadata/annotations", json!({ names::CLAIM: null, names::RELEASE: "true" }));
    scene.patch("statefulset/web", &released).await;
    scene.until("web-2 rolls by itself", |world| world.is_ready_on("web-2", "app:3")).await;
    scene.end().await;
}

// spec: hold
#[tokio::test]
async fn with_the_hold_switched_off_everything_goes() {
    let Some(scene) = at_rest(Policies::Refusing, "off").await else { return };
    scene.configure(&json!({ "skipCheck": true })).await;
    let off = |world: &World| world.annotation(names::HOLD_SWITCH) == Some("off") && world.partition() == Some(0);
    scene.until("switched off", off).await;
    scene.release("app:2").await;
    scene.until("rolled by the controller", |world| world.all_on("app:2")).await;
    scene.patch("statefulset/web", &template_at("app:3", 2)).await;
    scene.patch("statefulset/web", &partition(0)).await;
    scene.until("rolled by the controller", |world| world.all_on("app:3")).await;
    scene.end().await;
}

// spec: hold, L093
#[tokio::test]
async fn without_any_policy_the_operator_holds_by_itself_and_says_so() {
    let Some(scene) = at_rest(Policies::RefusingMissing, "bare").await else { return };
    let told = |world: &World| world.condition(ConditionType::HoldEnforced) == "False/PolicyNotServed";
    let message = scene.until("told", told).await.message(ConditionType::HoldEnforced);
    for part in ["does not serve MutatingAdmissionPolicy", "make install", "a second template change in mid-rollout"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
    moves::assert_second_template_held(&scene).await;
    scene.end().await;
}

/// A strategy of this type, at this partition.
fn strategy(kind: &str, partition: Option<i32>) -> Value {
    let rolling = partition.map(|partition| json!({ "partition": partition }));
    json!({ "spec": { "updateStrategy": { "type": kind, "rollingUpdate": rolling } } })
}

/// RollingUpdate without the hold is refused, and the cure in the refusal and in the message of the operator moves no pod unchecked.
async fn cured(mut scene: Scene, runs: bool) {
    let refused = |world: &World| world.condition(ConditionType::TargetAccepted) == "False/UnsupportedStrategy";
    let message = scene.until("it says so", refused).await.message(ConditionType::TargetAccepted);
    let cure =
        "set it to RollingUpdate, and spec.updateStrategy.rollingUpdate.partition to 2147483647 in the same write";
    assert!(message.contains(cure), "{message}");
    scene.release("app:2").await;
    let born = scene.until_settled("pending", |world| world.all_on("app:1")).await.uids();
    if !runs {
        scene.kill_operator();
    }
    for partition in [None, Some(0), Some(2)] {
        let sentence = refusal(&scene, &strategy("RollingUpdate", partition)).await;
        for part in [
            "spec.updateStrategy.type of StatefulSet web cannot become RollingUpdate with partition",
            "PhasedRollout gate rolls them one at a time. Write spec.updateStrategy.rollingUpdate.partition: 2147483647 in the same change.",
        ] {
            assert!(sentence.contains(part), "{part:?} is not in {sentence}");
        }
    }
    scene.patch("statefulset/web", &strategy("RollingUpdate", Some(HOLD))).await;
    if !runs {
        let seen = scene.until_settled("the controller has seen it", World::is_held).await;
        assert_eq!(seen.uids(), born, "no pod has moved");
        scene.start_operator();
    }
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(moves::assert_gated(&scene, "app:1", 2).len(), 3);
    scene.end().await;
}

// spec: hold, L109, cure-UnsupportedStrategy
#[tokio::test]
async fn a_set_with_on_delete_that_nobody_has_claimed_gets_rolling_update_with_the_hold() {
    if is_refusing_left_out() {
        return;
    }
    for runs in [true, false] {
        let ground = Ground::get(Policies::Refusing).await;
        let mut scene = Scene::on(ground, "cure").await;
        scene.create(&objects::with(objects::set(3), "/spec/updateStrategy/type", "OnDelete")).await;
        scene.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
        scene.create(&objects::rollout(&ground.tap_url().await)).await;
        scene.start_operator();
        cured(scene, runs).await;
    }
}

// spec: hold, L109, cure-UnsupportedStrategy
#[tokio::test]
async fn a_set_that_went_to_on_delete_comes_back_with_the_hold() {
    let Some(scene) = at_rest(Policies::Refusing, "detour").await else { return };
    scene.patch("statefulset/web", &strategy("OnDelete", None)).await;
    cured(scene, true).await;
}

/// `Scalable` of `db` as `status/reason`, with its message.
async fn scalable(scene: &Scene) -> (String, String) {
    let owner = scene.api("extendedstatefulset").get("db").await.expect("it is there");
    let conditions = owner.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == "Scalable").cloned().unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (format!("{}/{}", text("status"), text("reason")), text("message"))
}

// spec: es§2
#[tokio::test]
async fn a_count_that_nobody_fills_in_is_told_and_once() {
    if is_refusing_left_out() {
        return;
    }
    let mut scene = Scene::on(Ground::get(Policies::Refusing).await, "count").await;
    scene.start_operator();
    scene.create(&objects::without(objects::extended("db"), "/spec/template/spec/replicas")).await;
    scene.until("one pod is there", |world| world.is_ready_on("db-v1-0", "app:1")).await;
    eventually("it is told", async || scalable(&scene).await.0 == "False/PolicyNotServed").await;
    let message = scalable(&scene).await.1;
    assert!(message.contains("every autoscaler fails: write it"), "{message}");
    let refused = scene.kubectl(&["get", "ests", "db", "--subresource=scale"], "").await;
    assert!(refused.stderr.contains("does not exist"), "as it says: {} {}", refused.stdout, refused.stderr);
    // A restart writes nothing new, and what is written from here on is about the count.
    scene.kill_operator();
    scene.start_operator();
    scene.patch("extendedstatefulset/db", &json!({ "spec": { "template": { "spec": { "replicas": 2 } } } })).await;
    scene.until("two pods are there", |world| world.is_ready_on("db-v1-1", "app:1")).await;
    eventually("it is well", async || scalable(&scene).await.0 == "True/CountWritten").await;
    scene.kubectl_ok(&["scale", "ests", "db", "--replicas=1"], "").await;
    let is_status = |entry: &AuditEntry| entry.resource == "extendedstatefulsets" && entry.subresource == "status";
    let writes = scene.requests().iter().filter(|entry| is_status(entry)).count();
    assert!((1..20).contains(&writes), "{writes} writes of the status");
    scene.end().await;
}
