//! The number of pods: limits, `/scale`, an HPA.

use serde_json::json;
use sts_plus_api::{Reason, VersionPhase};
use sts_plus_e2e::{Scene, View, objects};

use super::in_place::plain;
use super::scale;

// spec: es§2
#[tokio::test]
async fn scaling_makes_no_version_and_restarts_no_pod() {
    let mut db = objects::extended("db");
    db["spec"]["scaling"] = json!({ "min": 1, "max": 5, "oddOnly": true });
    let scene = Scene::with_versions("scale", &db).await;
    let before = scene.view();
    let scaled = |count: i32| ["scale".to_owned(), "ests".to_owned(), "db".to_owned(), format!("--replicas={count}")];
    for (count, is_allowed) in [(5, true), (4, false), (7, false), (0, false), (1, true), (3, true)] {
        let args = scaled(count);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let reply = scene.kubectl(&args, "").await;
        assert_eq!(reply.ok, is_allowed, "{count}: {}", reply.stderr);
        if is_allowed {
            let there = usize::try_from(count).expect("a count");
            scene.until_versions("as many pods", |view| view.is_only(1) && view.uids("db-v1-").len() == there).await;
        } else {
            assert!(reply.stderr.contains("spec.template.spec.replicas"), "{}", reply.stderr);
        }
    }
    let after = scene.view();
    assert_eq!(after.uids("db-v1-0"), before.uids("db-v1-0"));
    assert_eq!(after.status.last_version, 1);
    scene.end().await;
}

/// L148, L151: an HPA that asks for what is not allowed settles; there is no swing and no conflict.
// spec: es§2, L148
#[tokio::test]
async fn with_clamp_an_autoscaler_settles() {
    let mut db = objects::extended("db");
    db["spec"]["scaling"] = json!({ "min": 3, "max": 9, "oddOnly": true, "policy": "Clamp" });
    let scene = Scene::with_versions("clamp", &db).await;
    let before = scene.trace();
    for _ in 0..10 {
        scale(&scene, "extendedstatefulset/db", 4).await;
    }
    let clamped = scene
        .until_versions("clamped", |view| {
            view.condition("ScalingLimited") == "True/Clamped" && view.is(VersionPhase::Ready)
        })
        .await;
    assert_eq!((clamped.status.replicas, clamped.uids("db-v1-").len()), (3, 3), "downward on a tie");
    assert!(clamped.message("ScalingLimited").contains("4; spec.scaling makes it 3"));
    let shown = scene.kubectl_ok(&["get", "ests", "db", "--subresource=scale", "-o", "json"], "").await;
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!((&shown["spec"]["replicas"], &shown["status"]["replicas"]), (&json!(4), &json!(3)));
    let selector = shown["status"]["selector"].as_str().expect("a selector").to_owned();
    let pods = scene.kubectl_ok(&["get", "pods", "-l", &selector, "-o", "name"], "").await;
    assert_eq!(pods.stdout.lines().count(), 3, "{selector}");
    assert_eq!(scene.trace(), before, "no child was written");
    scale(&scene, "extendedstatefulset/db", 6).await;
    scene.until_versions("five pods", |view| view.is_only(1) && view.uids("db-v1-").len() == 5).await;
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn a_version_without_pods_is_promoted_unverified_and_that_is_said() {
    let scene = Scene::with_versions("none", &objects::extended("db")).await;
    scene.change(&json!({ "spec": { "template": { "spec": { "replicas": 0 } } } })).await;
    scene.until_versions("no pods", |view| view.is(VersionPhase::Ready) && view.uids("").is_empty()).await;
    scene.release_version("app:2").await;
    let after = scene
        .until_versions("version 2", |view| view.is(VersionPhase::Ready) && view.status.current_version == Some(2))
        .await;
    assert_eq!(after.status.versions, std::collections::BTreeMap::from([("2".to_owned(), false)]));
    assert_eq!(scene.until_events(sts_plus_api::Reason::PromotedUnverified, 1).await.len(), 1);
    scene.end().await;
}

// spec: es§3
#[tokio::test]
async fn with_one_pod_the_canary_is_the_whole_version() {
    let mut db = objects::extended("db");
    db["spec"]["template"]["spec"]["replicas"] = json!(1);
    let scene = Scene::with_versions("one", &db).await;
    scene.release_version("app:2").await;
    scene.until_versions("version 2 alone", |view| view.is_only(2)).await;
    assert_eq!(scene.trace(), ["db-v1 1", "db-v2 0", "db-v2 1", "db-v1 0", "db-v1 gone"]);
    scene.assert_never_fewer_than(1);
    scene.end().await;
}

/// Nothing of a template that the API server refuses is written, and the number of pods is no template.
// spec: es§2
#[tokio::test]
async fn while_the_template_is_refused_the_running_version_is_scaled() {
    for (name, db, set) in [("refused-scale", objects::extended("db"), "db-v1"), ("refused-in-place", plain(), "db")] {
        let scene = Scene::with_versions(name, &db).await;
        let before = scene.view();
        let template = |view: &View| view.world.sets[set].spec.clone().map(|spec| spec.template);
        scene
            .change(&json!({ "spec": { "template": { "spec": { "template": { "spec": { "noSuchField": 1 } } } } } }))
            .await;
        let is_refused = |view: &View| view.is_told() && view.condition("TemplateValid") == "False/TemplateRefused";
        scene.until_versions("refused", is_refused).await;
        scale(&scene, "extendedstatefulset/db", 4).await;
        let grown = scene.until_versions("four", |view| is_refused(view) && view.status.ready == "4/4").await;
        assert!(grown.status.message.contains("noSuchField"), "{}", grown.status.message);
        scale(&scene, &format!("statefulset/{set}"), 1).await;
        scene.until_events(Reason::ChildDrift, 1).await;
        let replicas = |view: &View| view.world.sets[set].spec.as_ref().and_then(|spec| spec.replicas);
        let is_back = |view: &View| is_refused(view) && view.status.ready == "4/4" && replicas(view) == Some(4);
        let back = scene.until_versions("four again", is_back).await;
        assert_eq!((template(&back), back.status.last_version), (template(&before), 1));
        scene.end().await;
    }
}
