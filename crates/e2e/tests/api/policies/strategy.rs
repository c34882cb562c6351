//! `sts-plus-hold-type`: leaving RollingUpdate in mid-rollout is refused; at rest it is allowed, and coming back is held.

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Ground, World};

use super::stage::{HOLD, Stage, Who, image, rolling};
use crate::rig::on_both_minors;

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

async fn refused(stage: &Stage, body: &Value) {
    let sentence = "spec.updateStrategy.type must stay RollingUpdate while a rollout of StatefulSet web is pending or running: delete \
                    PhasedRollout gate first. To take the set from the PhasedRollout, remove the annotation sts.plus/phased-rollout \
                    and set sts.plus/release: \"true\" in one write.";
    let reply = stage.try_merge(Who::Person, body).await;
    assert!(reply.refusal.as_ref().is_some_and(|refusal| refusal.contains(sentence)), "{reply:?}");
}

async fn leaving_rolling_update_is_refused_while_the_set_is_fully_held(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(HOLD) })).await;
    stage.ready(3).await;
    refused(&stage, &on_delete()).await;
    // Not by dropping the claim in the same write either.
    let mut body = on_delete();
    body["metadata"] = json!({ "annotations": { names::CLAIM: null } });
    refused(&stage, &body).await;
}

// spec: hold
async fn leaving_rolling_update_is_refused_in_mid_rollout(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(2) })).await;
    stage.ready(3).await;
    refused(&stage, &on_delete()).await;
}

async fn leaving_rolling_update_is_refused_together_with_a_new_template(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.ready(3).await;
    let mut body = on_delete();
    body["spec"]["template"] = image("app:2");
    refused(&stage, &body).await;
}

async fn leaving_rolling_update_is_refused_while_a_revert_is_not_done(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(2) })).await;
    let rolled = |world: &World| world.is_ready_on("web-2", "app:2");
    stage.scene.until_settled("web-2 is rolled", rolled).await;
    // Now both revisions of the status are the old one, and pod 2 is still on the other.
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:1") } })).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(3) })).await;
    stage.ready(3).await;
    let status = &stage.web().await["status"];
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    refused(&stage, &on_delete()).await;
}

async fn leaving_rolling_update_is_allowed_to_a_write_that_releases_the_set(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    stage.merge(Who::Operator, &json!({ "spec": rolling(HOLD) })).await;
    let mut body = on_delete();
    body["metadata"] = json!({ "annotations": { names::CLAIM: null, names::RELEASE: "true" } });
    stage.merge(Who::Person, &body).await;
    assert_eq!(stage.web().await["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
}

async fn leaving_rolling_update_at_rest_and_coming_back_moves_no_pod(ground: &'static Ground) {
    let stage = Stage::with_pods(ground).await;
    let before = stage.pods().await;
    stage.ready(3).await;
    stage.merge(Who::Person, &on_delete()).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    let back =
        json!({ "spec": { "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } } });
    let reply = stage.merge(Who::Person, &back).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(reply.warnings().len(), 1, "{reply:?}");
    super::pods::nothing_moved(&stage, &before).await;
}
