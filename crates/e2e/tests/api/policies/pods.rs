//! The point of it all, with the native StatefulSet controller and pods: no pod goes to another template, whoever writes what.

use serde_json::json;
use sts_plus_e2e::{Ground, World};

use super::stage::{Stage, Who, image, rolling, web};
use crate::rig::on_both_minors;

on_both_minors!(
    no_pod_moves_and_new_ones_start_on_the_old_template_whatever_is_written,
    no_pod_moves_when_a_second_template_comes_in_mid_rollout,
);

/// The pods of before are the same after the controller has looked at the set several times.
pub async fn nothing_moved(stage: &Stage, before: &[(String, String, String)]) {
    stage.scene.until_looked_at_again().await;
    let after = stage.pods().await;
    assert!(!before.is_empty() && before.iter().all(|pod| after.contains(pod)), "before: {before:?}\nafter: {after:?}");
}

// spec: hold
async fn no_pod_moves_and_new_ones_start_on_the_old_template_whatever_is_written(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    let before = stage.pods().await;
    // Template, scale and partition in one write.
    let all = json!({ "spec": { "replicas": 4, "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    stage.merge(Who::Person, &all).await;
    // Replace without a word of the partition, the claim or the block.
    stage.replace(&web(4, "app:3")).await;
    // Forced server-side apply, client-side apply.
    let mut pinned = web(4, "app:3");
    pinned["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
    let forced = ["apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"];
    stage.must(Who::Person, &forced, &pinned.to_string()).await;
    pinned["spec"]["template"]["spec"]["containers"][0]["image"] = "app:4".into();
    stage.must(Who::Person, &["apply", "-f", "-"], &pinned.to_string()).await;
    stage.must(Who::Person, &["rollout", "restart", "statefulset/web"], "").await;
    stage.ready(4).await;
    nothing_moved(&stage, &before).await;
    assert!(stage.pods().await.iter().all(|(_, _, image)| image == "app:1"));
}

async fn no_pod_moves_when_a_second_template_comes_in_mid_rollout(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(2) })).await;
    let rolled = |world: &World| world.is_ready_on("web-2", "app:2");
    stage.scene.until_settled("web-2 is rolled", rolled).await;
    let before = stage.pods().await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:3") } })).await;
    nothing_moved(&stage, &before).await;
}
