//! `sts-plus-hold` and the annotations: the claim and its release, break-glass, the switch, the operator's own notes, the record
//! of what was refused.

use serde_json::json;
use sts_plus_api::names;

use crate::{
    rig::{Rig, on_both_minors},
    scene::{HOLD, Scene, Who, image, rolling, web},
};

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

async fn a_dropped_claim_is_put_back(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.must(Who::Person, &DROP_CLAIM, "").await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    let both = json!({ "metadata": { "annotations": { names::CLAIM: null } }, "spec": { "template": image("app:2"), "updateStrategy": rolling(0)["updateStrategy"] } });
    scene.merge(Who::Person, &both).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    assert_eq!(scene.partition().await?, Some(HOLD));
    scene.replace(&web(0, "app:2")).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    scene.ask(0).await?;
    assert_eq!(scene.partition().await?, Some(HOLD), "the write after the one that dropped the claim is held too");
    Ok(())
}

async fn a_changed_claim_is_put_back(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let other = json!({ "metadata": { "annotations": { names::CLAIM: "other", names::RELEASE: "true" } } });
    scene.merge(Who::Person, &other).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    Ok(())
}

async fn a_released_set_is_let_go_with_the_partition_as_asked(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let release =
        json!({ "metadata": { "annotations": { names::CLAIM: null, names::RELEASE: "true" } }, "spec": rolling(1) });
    let reply = scene.merge(Who::Person, &release).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?, None);
    assert_eq!(scene.partition().await?, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    scene.ask(0).await?;
    assert_eq!(scene.partition().await?, Some(0), "it is a normal set now");

    // A release that says nothing of the partition leaves it.
    let scene = Scene::claimed(rig, 3).await?;
    scene.must(Who::Person, &[DROP_CLAIM.as_slice(), &["sts.plus/release=true"]].concat(), "").await?;
    assert_eq!((scene.annotation(names::CLAIM).await?, scene.partition().await?), (None, Some(3)));

    // Any other value is no release.
    let scene = Scene::claimed(rig, 3).await?;
    scene.must(Who::Person, &[DROP_CLAIM.as_slice(), &["sts.plus/release=false"]].concat(), "").await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    Ok(())
}

async fn a_release_without_dropping_the_claim_changes_nothing(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let body = json!({ "metadata": { "annotations": { names::RELEASE: "true" } }, "spec": rolling(0) });
    scene.merge(Who::Person, &body).await?;
    assert_eq!(scene.partition().await?, Some(3));
    // Left over, it does not release in a later replace that drops everything.
    scene.replace(&web(0, "app:1")).await?;
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    assert_eq!(scene.partition().await?, Some(3));
    Ok(())
}

async fn break_glass_lets_exactly_its_value_through(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: "1" } }, "spec": rolling(0) });
    scene.merge(Who::Person, &allow).await?;
    assert_eq!(scene.partition().await?, Some(3), "0 is lower than the 1 that is allowed");
    scene.ask(2).await?;
    assert_eq!(scene.partition().await?, Some(3), "2 is another value than the 1 that is allowed");
    let reply = scene.ask(1).await?;
    assert_eq!(scene.partition().await?, Some(1));
    assert_eq!(reply.warnings(), [""; 0]);
    for value in ["00", "+0", " 0", "0x0", "zero", ""] {
        let allow = json!({ "metadata": { "annotations": { names::ALLOW_PARTITION: value } }, "spec": rolling(0) });
        scene.merge(Who::Person, &allow).await?;
        assert_eq!(scene.partition().await?, Some(1), "{value:?} is not the decimal 0");
    }
    Ok(())
}

async fn break_glass_of_0_covers_a_missing_partition(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let mut set = web(0, "app:1");
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate" });
    set["metadata"]["annotations"] = json!({ names::ALLOW_PARTITION: "0" });
    scene.replace(&set).await?;
    assert_eq!(scene.partition().await?, None);
    Ok(())
}

async fn break_glass_does_not_cover_a_new_template(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let body = json!({
        "metadata": { "annotations": { names::ALLOW_PARTITION: "1" } },
        "spec": { "template": image("app:2"), "updateStrategy": rolling(1)["updateStrategy"] },
    });
    scene.merge(Who::Person, &body).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(scene.annotation(names::REFUSED_PARTITION).await?.as_deref(), Some("1"));
    Ok(())
}

async fn the_hold_is_not_switched_off_by_a_person(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let off =
        json!({ "metadata": { "annotations": { names::HOLD_SWITCH: "off" } }, "spec": { "template": image("app:2") } });
    scene.merge(Who::Person, &off).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(scene.annotation(names::HOLD_SWITCH).await?, None, "a second write would be exempt otherwise");
    scene.ask(0).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    Ok(())
}

async fn a_hold_that_the_operator_has_switched_off_lets_writes_through(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let off = json!({ "metadata": { "annotations": { names::HOLD_SWITCH: "off" } }, "spec": { "updateStrategy": { "rollingUpdate": { "partition": null } } } });
    scene.merge(Who::Operator, &off).await?;
    let reply = scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    assert_eq!(scene.partition().await?, Some(0));
    assert_eq!(reply.warnings(), [""; 0]);
    scene
        .merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } }))
        .await?;
    scene.merge(Who::Person, &json!({ "spec": { "updateStrategy": { "type": "RollingUpdate" } } })).await?;
    assert_eq!(scene.partition().await?, None);
    // A replace drops the claim and the switch: both stay, or the set would be held again against skipCheck.
    scene.replace(&web(0, "app:3")).await?;
    assert_eq!(scene.annotation(names::HOLD_SWITCH).await?.as_deref(), Some("off"));
    assert_eq!(scene.annotation(names::CLAIM).await?.as_deref(), Some("gate"));
    assert_eq!(scene.partition().await?, Some(0));
    // A person can switch it on no more than off.
    scene.must(Who::Person, &["annotate", "statefulset", "web", "sts.plus/hold-"], "").await?;
    assert_eq!(scene.annotation(names::HOLD_SWITCH).await?.as_deref(), Some("off"));
    Ok(())
}

async fn the_notes_of_the_operator_survive_a_replace(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.replace(&web(0, "app:1")).await?;
    assert_eq!(scene.annotation(names::WRITTEN_PARTITION).await?.as_deref(), Some("r/3"));
    let note = format!("{}=r/0", names::WRITTEN_PARTITION);
    scene.must(Who::Person, &["annotate", "--overwrite", "statefulset", "web", &note, "other=kept"], "").await?;
    assert_eq!(scene.annotation(names::WRITTEN_PARTITION).await?.as_deref(), Some("r/3"));
    assert_eq!(scene.annotation("other").await?.as_deref(), Some("kept"), "annotations of others are left alone");
    Ok(())
}

async fn a_refusal_is_recorded_until_the_next_write(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    let recorded =
        async || anyhow::Ok(scene.annotation(names::REFUSED_PARTITION).await?.map(|text| text.parse::<i32>()));
    for _ in 0..3 {
        scene.ask(0).await?;
        assert_eq!(recorded().await?, Some(Ok(0)));
    }
    scene.ask(1).await?;
    assert_eq!(recorded().await?, Some(Ok(1)));
    scene.must(Who::Person, &["label", "statefulset", "web", "a=b"], "").await?;
    assert_eq!(recorded().await?, None);
    Ok(())
}

async fn a_template_write_that_asks_for_nothing_leaves_no_record(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::claimed(rig, 3).await?;
    scene.merge(Who::Person, &json!({ "spec": { "template": image("app:2") } })).await?;
    assert_eq!(scene.partition().await?, Some(HOLD));
    assert_eq!(scene.annotation(names::REFUSED_PARTITION).await?, None);
    Ok(())
}
