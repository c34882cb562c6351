//! The count: `/scale`, and `sts-plus-replicas`, which fills in one where none is written.

use anyhow::ensure;
use serde_json::{Value, json};

use crate::{
    rig::{Rig, on_both_minors},
    scene::{Scene, count, set},
};

on_both_minors!(
    a_missing_count_is_filled_in_and_scale_works,
    a_count_that_is_written_stays,
    the_limits_hold_for_kubectl_scale_too,
    clamp_lets_any_count_through_scale,
    replacing_without_a_count_keeps_the_old_one,
    applying_without_a_count_keeps_the_scaled_one,
    a_count_that_is_taken_out_comes_back,
    old_counts_and_new_limits_that_do_not_fit_are_refused,
    scale_tells_an_autoscaler_what_it_needs,
    the_policy_leaves_status_and_other_writes_alone,
);

fn limits() -> Value {
    json!({ "scaling": { "min": 3, "max": 9, "oddOnly": true } })
}

async fn a_missing_count_is_filled_in_and_scale_works(rig: &'static Rig) -> anyhow::Result<()> {
    let cases = [
        (json!({}), 1),
        (json!({ "min": 0 }), 0),
        (json!({ "min": 4 }), 4),
        (json!({ "min": 4, "oddOnly": true }), 5),
        (json!({ "max": 0 }), 0),
        (json!({ "min": 0, "oddOnly": true, "policy": "Clamp" }), 1),
        (json!({ "min": i32::MAX - 1, "oddOnly": true }), i64::from(i32::MAX)),
    ];
    for (scaling, expected) in cases {
        let scene = Scene::new(rig).await?;
        scene.must(&["create", "-f", "-"], &set(&json!({ "scaling": scaling }), &json!({})).to_string()).await?;
        assert_eq!(scene.count().await?, Some(expected), "{scaling}");
        // A 0 is left out there.
        assert_eq!(scene.scale("web").await?["spec"]["replicas"].as_i64().unwrap_or(0), expected, "{scaling}");
        if scaling["max"].is_null() {
            scene.must(&["scale", "ests/web", "--replicas=2147483647"], "").await?;
            assert_eq!(scene.count().await?, Some(i64::from(i32::MAX)));
        }
    }
    Ok(())
}

async fn a_count_that_is_written_stays(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    for replicas in [0, 1, 4] {
        let stored = scene.accepted(&set(&json!({}), &json!({ "replicas": replicas }))).await?;
        assert_eq!(count(&stored), Some(replicas));
    }
    scene.create(&set(&json!({}), &json!({ "replicas": 4 }))).await?;
    scene.must(&["replace", "-f", "-"], &set(&json!({}), &json!({ "replicas": 2 })).to_string()).await?;
    assert_eq!(scene.count().await?, Some(2), "a written count wins over the old one");
    Ok(())
}

async fn the_limits_hold_for_kubectl_scale_too(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await?;
    let refused = [
        ("1", "spec.template.spec.replicas is 1, and spec.scaling.min allows at least 3"),
        ("11", "spec.template.spec.replicas is 11, and spec.scaling.max allows at most 9"),
        ("4", "spec.template.spec.replicas is 4, and spec.scaling.oddOnly allows only odd numbers: choose an odd one"),
    ];
    for (replicas, sentence) in refused {
        let answer = scene.kubectl(&["scale", "ests/web", "--replicas", replicas], "").await?;
        ensure!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{replicas}: {answer:?}");
        assert_eq!(scene.count().await?, Some(5));
    }
    ensure!(scene.scaled("web", -1).await?.is_err(), "-1 is accepted");
    for replicas in ["3", "9", "7"] {
        scene.must(&["scale", "ests/web", "--replicas", replicas], "").await?;
        assert_eq!(scene.count().await?.map(|count| count.to_string()).as_deref(), Some(replicas));
    }
    Ok(())
}

async fn clamp_lets_any_count_through_scale(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut spec = limits();
    spec["scaling"]["policy"] = "Clamp".into();
    scene.create(&set(&spec, &json!({}))).await?;
    for replicas in [4, 0, 1, 100, 5] {
        scene.must(&["scale", "ests/web", "--replicas", &replicas.to_string()], "").await?;
        assert_eq!(scene.count().await?, Some(replicas), "as it was written");
    }
    ensure!(scene.scaled("web", -1).await?.is_err(), "-1 is accepted");
    Ok(())
}

async fn replacing_without_a_count_keeps_the_old_one(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    let mut object = set(&limits(), &json!({}));
    scene.create(&object).await?;
    scene.must(&["scale", "ests/web", "--replicas=7"], "").await?;
    object["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
    scene.must(&["replace", "-f", "-"], &object.to_string()).await?;
    let stored = scene.get("web").await?;
    assert_eq!(count(&stored), Some(7));
    assert_eq!(stored["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"], "app:2");
    // Also 0, which is no missing count, and where the old one is the lowest.
    let scene = Scene::new(rig).await?;
    scene.create(&set(&json!({}), &json!({ "replicas": 0 }))).await?;
    scene.must(&["replace", "-f", "-"], &set(&json!({}), &json!({})).to_string()).await?;
    assert_eq!(scene.count().await?, Some(0));
    Ok(())
}

async fn applying_without_a_count_keeps_the_scaled_one(rig: &'static Rig) -> anyhow::Result<()> {
    for flags in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        let scene = Scene::new(rig).await?;
        let mut object = set(&limits(), &json!({}));
        scene.must(flags, &object.to_string()).await?;
        assert_eq!(scene.count().await?, Some(3));
        scene.must(&["scale", "ests/web", "--replicas=7"], "").await?;
        scene.must(flags, &object.to_string()).await?;
        assert_eq!(scene.count().await?, Some(7), "{flags:?}");
        object["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
        scene.must(flags, &object.to_string()).await?;
        assert_eq!(scene.count().await?, Some(7), "{flags:?}");
    }
    // The count was in the manifest and is left out of the next one, since an autoscaler is in charge now: nothing scales down.
    for flags in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        let scene = Scene::new(rig).await?;
        scene.must(flags, &set(&limits(), &json!({ "replicas": 5 })).to_string()).await?;
        scene.must(flags, &set(&limits(), &json!({})).to_string()).await?;
        assert_eq!(scene.count().await?, Some(5), "{flags:?}");
    }
    Ok(())
}

async fn a_count_that_is_taken_out_comes_back(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await?;
    let merge = scene.merge(&json!({ "spec": { "template": { "spec": { "replicas": null } } } })).await?;
    ensure!(merge.is_ok() && scene.count().await? == Some(5), "{merge:?}");
    let remove = json!([{ "op": "remove", "path": "/spec/template/spec/replicas" }]).to_string();
    scene.must(&["patch", "ests", "web", "--type=json", "-p", &remove], "").await?;
    assert_eq!(scene.count().await?, Some(5));
    assert_eq!(scene.get("web").await?["metadata"]["generation"], 1, "nothing has changed");
    Ok(())
}

/// The old count is nobody's wish for the new limits; what to do about it is said.
async fn old_counts_and_new_limits_that_do_not_fit_are_refused(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await?;
    let narrower = set(&json!({ "scaling": { "min": 7 } }), &json!({}));
    let sentence = "spec.template.spec.replicas is 5, and spec.scaling.min allows at least 7";
    for verb in ["replace", "apply"] {
        let answer = scene.kubectl(&[verb, "-f", "-"], &narrower.to_string()).await?;
        ensure!(answer.as_ref().is_err_and(|error| error.contains(sentence)), "{verb}: {answer:?}");
    }
    let patch = scene.merge(&json!({ "spec": { "scaling": { "max": 4, "min": 1 } } })).await?;
    ensure!(patch.as_ref().is_err_and(|error| error.contains("spec.scaling.max allows at most 4")), "{patch:?}");
    let both = json!({ "spec": { "scaling": { "min": 7 }, "template": { "spec": { "replicas": 7 } } } });
    ensure!(scene.merge(&both).await?.is_ok(), "limits and count in one write");
    Ok(())
}

async fn scale_tells_an_autoscaler_what_it_needs(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&limits(), &json!({}))).await?;
    let status = json!({ "status": { "replicas": 2, "selector": "app=web,version=1" } }).to_string();
    scene.must(&["patch", "ests", "web", "--subresource=status", "--type=merge", "-p", &status], "").await?;
    let scale = scene.scale("web").await?;
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(scale["status"], json!({ "replicas": 2, "selector": "app=web,version=1" }));
    Ok(())
}

async fn the_policy_leaves_status_and_other_writes_alone(rig: &'static Rig) -> anyhow::Result<()> {
    let scene = Scene::new(rig).await?;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await?;
    let before = scene.get("web").await?;
    scene.must(&["label", "ests", "web", "a=b"], "").await?;
    scene.must(&["annotate", "ests", "web", "a=b"], "").await?;
    let status = json!({ "status": { "replicas": 2 } }).to_string();
    scene.must(&["patch", "ests", "web", "--subresource=status", "--type=merge", "-p", &status], "").await?;
    let after = scene.get("web").await?;
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    Ok(())
}
