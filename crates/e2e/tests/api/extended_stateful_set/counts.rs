//! The count: `/scale`, and `sts-plus-replicas`, which fills in one where none is written.

use serde_json::{Value, json};
use sts_plus_e2e::{Ground, Scene};

use super::objects::{WEB, count, merged, scale, scaled, set, stored, stored_count};
use crate::rig::{accepted, on_both_minors, reported};

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

// spec: es§2
async fn a_missing_count_is_filled_in_and_scale_works(ground: &'static Ground) {
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
        let scene = Scene::on(ground, "ests").await;
        scene.create(&set(&json!({ "scaling": scaling }), &json!({}))).await;
        assert_eq!(stored_count(&scene).await, Some(expected), "{scaling}");
        // A 0 is left out there.
        assert_eq!(scale(&scene, "web").await["spec"]["replicas"].as_i64().unwrap_or(0), expected, "{scaling}");
        if scaling["max"].is_null() {
            scaled(&scene, "web", i32::MAX, false).await.expect("it is scaled");
            assert_eq!(stored_count(&scene).await, Some(i64::from(i32::MAX)));
        }
    }
}

async fn a_count_that_is_written_stays(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    for replicas in [0, 1, 4] {
        let stored = accepted(&scene, &set(&json!({}), &json!({ "replicas": replicas }))).await;
        assert_eq!(count(&stored), Some(replicas));
    }
    scene.create(&set(&json!({}), &json!({ "replicas": 4 }))).await;
    scene.kubectl_ok(&["replace", "-f", "-"], &set(&json!({}), &json!({ "replicas": 2 })).to_string()).await;
    assert_eq!(stored_count(&scene).await, Some(2), "a written count wins over the old one");
}

// spec: es§2, L024, L125
async fn the_limits_hold_for_kubectl_scale_too(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await;
    let refused = [
        ("1", "spec.template.spec.replicas is 1, and spec.scaling.min allows at least 3"),
        ("11", "spec.template.spec.replicas is 11, and spec.scaling.max allows at most 9"),
        ("4", "spec.template.spec.replicas is 4, and spec.scaling.oddOnly allows only odd numbers: choose an odd one"),
    ];
    for (replicas, sentence) in refused {
        let answer = scene.kubectl(&["scale", "ests/web", "--replicas", replicas], "").await;
        assert!(!answer.ok && answer.stderr.contains(sentence), "{replicas}: {answer:?}");
        assert_eq!(stored_count(&scene).await, Some(5));
    }
    assert!(scaled(&scene, "web", -1, true).await.is_err(), "-1 is accepted");
    for replicas in ["3", "9", "7"] {
        scene.kubectl_ok(&["scale", "ests/web", "--replicas", replicas], "").await;
        assert_eq!(stored_count(&scene).await.map(|count| count.to_string()).as_deref(), Some(replicas));
    }
}

async fn clamp_lets_any_count_through_scale(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let mut spec = limits();
    spec["scaling"]["policy"] = "Clamp".into();
    scene.create(&set(&spec, &json!({}))).await;
    for replicas in [4, 0, 1, 100, 5] {
        scaled(&scene, "web", replicas, false).await.expect("it is scaled");
        assert_eq!(stored_count(&scene).await, Some(i64::from(replicas)), "as it was written");
    }
    assert!(scaled(&scene, "web", -1, true).await.is_err(), "-1 is accepted");
}

async fn replacing_without_a_count_keeps_the_old_one(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    let mut object = set(&limits(), &json!({}));
    scene.create(&object).await;
    scene.kubectl_ok(&["scale", "ests/web", "--replicas=7"], "").await;
    object["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
    scene.kubectl_ok(&["replace", "-f", "-"], &object.to_string()).await;
    let stored = stored(&scene, "web").await;
    assert_eq!(count(&stored), Some(7));
    assert_eq!(stored["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"], "app:2");
    // Also 0, which is no missing count, and where the old one is the lowest.
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&json!({}), &json!({ "replicas": 0 }))).await;
    scene.kubectl_ok(&["replace", "-f", "-"], &set(&json!({}), &json!({})).to_string()).await;
    assert_eq!(stored_count(&scene).await, Some(0));
}

// spec: es§2
async fn applying_without_a_count_keeps_the_scaled_one(ground: &'static Ground) {
    for flags in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        let scene = Scene::on(ground, "ests").await;
        let mut object = set(&limits(), &json!({}));
        scene.kubectl_ok(flags, &object.to_string()).await;
        assert_eq!(stored_count(&scene).await, Some(3));
        scene.kubectl_ok(&["scale", "ests/web", "--replicas=7"], "").await;
        scene.kubectl_ok(flags, &object.to_string()).await;
        assert_eq!(stored_count(&scene).await, Some(7), "{flags:?}");
        object["spec"]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2".into();
        scene.kubectl_ok(flags, &object.to_string()).await;
        assert_eq!(stored_count(&scene).await, Some(7), "{flags:?}");
    }
    // The count was in the manifest and is left out of the next one, since an autoscaler is in charge now: nothing scales down.
    for flags in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        let scene = Scene::on(ground, "ests").await;
        scene.kubectl_ok(flags, &set(&limits(), &json!({ "replicas": 5 })).to_string()).await;
        scene.kubectl_ok(flags, &set(&limits(), &json!({})).to_string()).await;
        assert_eq!(stored_count(&scene).await, Some(5), "{flags:?}");
    }
}

async fn a_count_that_is_taken_out_comes_back(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await;
    let merge = merged(&scene, &json!({ "spec": { "template": { "spec": { "replicas": null } } } })).await;
    assert!(merge.is_ok() && stored_count(&scene).await == Some(5), "{merge:?}");
    let remove = json!([{ "op": "remove", "path": "/spec/template/spec/replicas" }]).to_string();
    scene.kubectl_ok(&["patch", "ests", "web", "--type=json", "-p", &remove], "").await;
    assert_eq!(stored_count(&scene).await, Some(5));
    assert_eq!(stored(&scene, "web").await["metadata"]["generation"], 1, "nothing has changed");
}

/// The old count is nobody's wish for the new limits; what to do about it is said.
async fn old_counts_and_new_limits_that_do_not_fit_are_refused(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await;
    let narrower = set(&json!({ "scaling": { "min": 7 } }), &json!({}));
    let sentence = "spec.template.spec.replicas is 5, and spec.scaling.min allows at least 7";
    for verb in ["replace", "apply"] {
        let answer = scene.kubectl(&[verb, "-f", "-"], &narrower.to_string()).await;
        assert!(!answer.ok && answer.stderr.contains(sentence), "{verb}: {answer:?}");
    }
    let patch = merged(&scene, &json!({ "spec": { "scaling": { "max": 4, "min": 1 } } })).await;
    assert!(patch.as_ref().is_err_and(|error| error.contains("spec.scaling.max allows at most 4")), "{patch:?}");
    let both = json!({ "spec": { "scaling": { "min": 7 }, "template": { "spec": { "replicas": 7 } } } });
    assert!(merged(&scene, &both).await.is_ok(), "limits and count in one write");
}

async fn scale_tells_an_autoscaler_what_it_needs(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&limits(), &json!({}))).await;
    reported(&scene, WEB, &json!({ "replicas": 2, "selector": "app=web,version=1" })).await;
    let scale = scale(&scene, "web").await;
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(scale["status"], json!({ "replicas": 2, "selector": "app=web,version=1" }));
}

async fn the_policy_leaves_status_and_other_writes_alone(ground: &'static Ground) {
    let scene = Scene::on(ground, "ests").await;
    scene.create(&set(&limits(), &json!({ "replicas": 5 }))).await;
    let before = stored(&scene, "web").await;
    scene.kubectl_ok(&["label", "ests", "web", "a=b"], "").await;
    scene.kubectl_ok(&["annotate", "ests", "web", "a=b"], "").await;
    reported(&scene, WEB, &json!({ "replicas": 2 })).await;
    let after = stored(&scene, "web").await;
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
}
