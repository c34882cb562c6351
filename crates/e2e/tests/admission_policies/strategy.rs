//! `sts-plus-hold-type`: leaving RollingUpdate in mid-rollout is refused; at rest it is allowed, and coming back is held.

use serde_json::{Value, json};
use sts_plus_api::names;

use crate::{
    rig::{Rig, on_both_minors},
    scene::{HOLD, Reply, Scene, Who, image, rolling},
};

on_both_minors!(
    leaving_rolling_update_is_refused_while_the_set_is_fully_held,
    leaving_rolling_update_is_refused_in_mid_rollout,
    leaving_rolling_update_is_refused_together_with_a_new_template,
    leaving_rolling_update_is_refused_while_a_revert_is_not_done,
    leaving_rolling_update_is_allowed_to_a_write_that_releases_the_set,
    leaving_rolling_update_at_rest_and_coming_back_moves_no_pod,
);

fn on_delete() -> Value {
    json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } })
}

async fn leave(scene: &Scene, body: &Value) -> anyhow::Result<Reply> {
    let args = ["patch", "statefulset", "web", "--type=merge", "-p", &body.to_string()];
    scene.kubectl(Who::Person, &args, "").await
}

fn refused(reply: &Reply) {
    let sentence = "spec.updateStrategy.type must stay RollingUpdate while a rollout of StatefulSet web is pending or running: delete \
                    PhasedRollout gate first. To take the set from the PhasedRollout, remove the annotation sts.plus/phased-rollout \
                    and set sts.plus/release: \"true\" in one write.";
    assert!(!reply.ok && reply.stderr.contains(sentence), "{}", reply.stderr);
}

async fn leaving_rolling_update_is_refused_while_the_set_is_fully_held(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(HOLD) })).await?;
    scene.ready(3).await?;
    refused(&leave(&scene, &on_delete()).await?);
    // Not by dropping the claim in the same write either.
    let mut body = on_delete();
    body["metadata"] = json!({ "annotations": { names::CLAIM: null } });
    refused(&leave(&scene, &body).await?);
    Ok(())
}

async fn leaving_rolling_update_is_refused_in_mid_rollout(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(2) })).await?;
    scene.ready(3).await?;
    refused(&leave(&scene, &on_delete()).await?);
    Ok(())
}

async fn leaving_rolling_update_is_refused_together_with_a_new_template(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.ready(3).await?;
    let mut body = on_delete();
    body["spec"]["template"] = image("app:2");
    refused(&leave(&scene, &body).await?);
    Ok(())
}

async fn leaving_rolling_update_is_refused_while_a_revert_is_not_done(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(2) })).await?;
    crate::rig::eventually("pod 2 is rolled", async || {
        anyhow::ensure!(scene.pods().await?.iter().any(|(_, _, image)| image == "app:2"), "not yet");
        scene.ready(3).await
    })
    .await?;
    // Now both revisions of the status are the old one, and pod 2 is still on the other.
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:1") } })).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(3) })).await?;
    scene.ready(3).await?;
    let status = &scene.web().await?["status"];
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    refused(&leave(&scene, &on_delete()).await?);
    Ok(())
}

async fn leaving_rolling_update_is_allowed_to_a_write_that_releases_the_set(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    scene.merge(Who::Operator, &json!({ "spec": rolling(HOLD) })).await?;
    let mut body = on_delete();
    body["metadata"] = json!({ "annotations": { names::CLAIM: null, names::RELEASE: "true" } });
    scene.merge(Who::Person, &body).await?;
    assert_eq!(scene.web().await?["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
    Ok(())
}

async fn leaving_rolling_update_at_rest_and_coming_back_moves_no_pod(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::with_pods(rig).await?;
    let before = scene.pods().await?;
    scene.ready(3).await?;
    scene.merge(Who::Person, &on_delete()).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    let back =
        json!({ "spec": { "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } } });
    let reply = scene.merge(Who::Person, &back).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(reply.warnings().len(), 1, "{}", reply.stderr);
    crate::pods::nothing_moved(&scene, &before).await
}
