//! `sts-plus-hold` and the annotations: the claim and its release, break-glass, the switch, the operator's own notes, the record
//! of what was refused.

use serde_json::json;
use sts_plus_api::names;
use sts_plus_e2e::Ground;

use super::stage::{HOLD, Stage, Who, image, rolling, web};
use crate::rig::on_both_minors;

on_both_minors!(
    a_dropped_claim_is_put_back,
    a_changed_claim_is_put_back,
    a_released_set_is_let_go_with_the_partition_as_asked,
    a_release_without_dropping_the_claim_changes_nothing,
    break_glass_lets_exactly_its_value_through,
    break_glass_of_0_covers_a_missing_partition,
    break_glass_does_not_cover_a_new_template,
    the_hold_is_not_switched_off_by_a_person,
    a_hold_that_the_operator_has_switched_off_lets_writes_through,
    the_notes_of_the_operator_survive_a_replace,
    a_refusal_is_recorded_until_the_next_write,
    a_template_write_that_asks_for_nothing_leaves_no_record,
);

const DROP_CLAIM: [&str; 4] = ["annotate", "statefulset", "web", "sts.plus/phased-rollout-"];

// spec: hold
async fn a_dropped_claim_is_put_back(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.must(Who::Person, &DROP_CLAIM, "").await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
    let both = json!({ "metadata": { "annotations": { names::CLAIM: null } }, "spec": { "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    stage.merge(Who::Person, &both).await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
    assert_eq!(stage.partition().await, Some(HOLD));
    stage.replace(&web(0, "app:2")).await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
    stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(HOLD), "the write after the one that dropped the claim is held too");
}

async fn a_changed_claim_is_put_back(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let other = json!({ "metadata": { "annotations": { names::CLAIM: "other", names::RELEASE: "true" } } });
    stage.merge(Who::Person, &other).await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
}

async fn a_released_set_is_let_go_with_the_partition_as_asked(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let release =
        json!({ "metadata": { "annotations": { names::CLAIM: null, names::RELEASE: "true" } }, "spec": rolling(1) });
    let reply = stage.merge(Who::Person, &release).await;
    assert_eq!(stage.annotation(names::CLAIM).await, None);
    assert_eq!(stage.partition().await, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(0), "it is a normal set now");

    // A release that says nothing of the partition leaves it.
    let stage = Stage::claimed(ground, 3).await;
    stage.must(Who::Person, &[DROP_CLAIM.as_slice(), &["sts.plus/release=true"]].concat(), "").await;
    assert_eq!((stage.annotation(names::CLAIM).await, stage.partition().await), (None, Some(3)));

    // Any other value is no release.
    let stage = Stage::claimed(ground, 3).await;
    stage.must(Who::Person, &[DROP_CLAIM.as_slice(), &["sts.plus/release=false"]].concat(), "").await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
}

async fn a_release_without_dropping_the_claim_changes_nothing(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let body = json!({ "metadata": { "annotations": { names::RELEASE: "true" } }, "spec": rolling(0) });
    stage.merge(Who::Person, &body).await;
    assert_eq!(stage.partition().await, Some(3));
    // Left over, it does not release in a later replace that drops everything.
    stage.replace(&web(0, "app:1")).await;
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
    assert_eq!(stage.partition().await, Some(3));
}

// spec: hold
async fn break_glass_lets_exactly_its_value_through(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: "1" } }, "spec": rolling(0) });
    stage.merge(Who::Person, &allow).await;
    assert_eq!(stage.partition().await, Some(3), "0 is lower than the 1 that is allowed");
    stage.ask(2).await;
    assert_eq!(stage.partition().await, Some(3), "2 is another value than the 1 that is allowed");
    let reply = stage.ask(1).await;
    assert_eq!(stage.partition().await, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    for value in ["00", "+0", " 0", "0x0", "zero", ""] {
        let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: value } }, "spec": rolling(0) });
        stage.merge(Who::Person, &allow).await;
        assert_eq!(stage.partition().await, Some(1), "{value:?} is not the decimal 0");
    }
}

async fn break_glass_of_0_covers_a_missing_partition(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
    set["metadata"]["annotations"] = json!({ names::ALLOW_PARTITION: "0" });
    stage.replace(&set).await;
    assert_eq!(stage.partition().await, None);
}

async fn break_glass_does_not_cover_a_new_template(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let body = json!({
        "metadata": { "annotations": { names::ALLOW_PARTITION: "1" } },
        "spec": { "template": image("app:2"), "updateStrategy": rolling(1)["updateStrategy"] },
    });
    stage.merge(Who::Person, &body).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(stage.annotation(names::REFUSED_PARTITION).await.as_deref(), Some("1"));
}

async fn the_hold_is_not_switched_off_by_a_person(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let off =
        json!({ "metadata": { "annotations": { names::HOLD_SWITCH: "off" } }, "spec": { "template": image("app:2") } });
    stage.merge(Who::Person, &off).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(stage.annotation(names::HOLD_SWITCH).await, None, "a second write would be exempt otherwise");
    stage.ask(0).await;
    assert_eq!(stage.partition().await, Some(HOLD));
}

async fn a_hold_that_the_operator_has_switched_off_lets_writes_through(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let off = json!({ "metadata": { "annotations": { names::HOLD_SWITCH: "off" } }, "spec": { "updateStrategy": { "rollingUpdate": { "partition": null } } } });
    stage.merge(Who::Operator, &off).await;
    let reply = stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    assert_eq!(stage.partition().await, Some(0));
    assert_eq!(reply.warnings(), [""; 0]);
    stage
        .merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }))
        .await;
    stage.merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } })).await;
    assert_eq!(stage.partition().await, None);
    // A replace drops the claim and the switch: both stay, or the set would be held again against skipCheck.
    stage.replace(&web(0, "app:3")).await;
    assert_eq!(stage.annotation(names::HOLD_SWITCH).await.as_deref(), Some("off"));
    assert_eq!(stage.annotation(names::CLAIM).await.as_deref(), Some("gate"));
    assert_eq!(stage.partition().await, Some(0));
    // A person can switch it on no more than off.
    stage.must(Who::Person, &["annotate", "statefulset", "web", "sts.plus/hold-"], "").await;
    assert_eq!(stage.annotation(names::HOLD_SWITCH).await.as_deref(), Some("off"));
}

async fn the_notes_of_the_operator_survive_a_replace(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.replace(&web(0, "app:1")).await;
    assert_eq!(stage.annotation(names::WRITTEN_PARTITION).await.as_deref(), Some("r/3"));
    let note = format!("{}=r/0", names::WRITTEN_PARTITION);
    stage.must(Who::Person, &["annotate", "--overwrite", "statefulset", "web", &note, "other=kept"], "").await;
    assert_eq!(stage.annotation(names::WRITTEN_PARTITION).await.as_deref(), Some("r/3"));
    assert_eq!(stage.annotation("other").await.as_deref(), Some("kept"), "annotations of others are left alone");
}

async fn a_refusal_is_recorded_until_the_next_write(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    let recorded = async || stage.annotation(names::REFUSED_PARTITION).await.map(|text| text.parse::<i32>());
    for _ in 0..3 {
        stage.ask(0).await;
        assert_eq!(recorded().await, Some(Ok(0)));
    }
    stage.ask(1).await;
    assert_eq!(recorded().await, Some(Ok(1)));
    stage.must(Who::Person, &["label", "statefulset", "web", "a=b"], "").await;
    assert_eq!(recorded().await, None);
}

async fn a_template_write_that_asks_for_nothing_leaves_no_record(ground: &'static Ground) {
    let stage = Stage::claimed(ground, 3).await;
    stage.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await;
    assert_eq!(stage.partition().await, Some(HOLD));
    assert_eq!(stage.annotation(names::REFUSED_PARTITION).await, None);
}
