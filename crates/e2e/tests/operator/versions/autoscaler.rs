//! The `HorizontalPodAutoscaler` controller of Kubernetes on the `/scale` of an ExtendedStatefulSet.

use serde_json::{Value, json};
use sts_plus_e2e::{Scene, View, eventually, objects};

use crate::autoscaling::{self, hpa};

const OWNERS: &str = "extendedstatefulsets";
/// How often it looks at the count again while nothing may change.
const PERIODS: usize = 10;

/// `db` with counts of 3, 5, 7 or 9, and an autoscaler with other ideas.
async fn scaled(name: &str, policy: &str, min: i32) -> Scene {
    let scaling = json!({ "min": 3, "max": 9, "oddOnly": true, "policy": policy });
    let scene = Scene::with_versions(name, &objects::with(objects::extended("db"), "/spec/scaling", scaling)).await;
    scene.create(&hpa("fissile.cloudfoundry.org/v1alpha1", "ExtendedStatefulSet", "db", (min, 20))).await;
    scene
}

async fn limit(scene: &Scene, min: i32, max: i32) {
    let limits: Value = json!({ "spec": { "minReplicas": min, "maxReplicas": max } });
    scene.kubectl_ok(&["patch", "hpa", "db", "--type=merge", "--patch", &limits.to_string()], "").await;
}

fn are_there(view: &View, count: usize) -> bool {
    view.is_only(1) && view.uids("db-v1-").len() == count
}

// spec: es§2, L125, L141, L148
#[tokio::test]
async fn with_clamp_an_autoscaler_gets_the_nearest_allowed_count_and_rests() {
    let scene = scaled("hpa-clamp", "Clamp", 6).await;
    let five = |view: &View| are_there(view, 5) && view.condition("ScalingLimited") == "True/Clamped";
    let five = scene.until_versions("five for six", five).await;
    assert_eq!(five.status.replicas, 5, "what the autoscaler sees");
    autoscaling::until_looked_at(&scene, OWNERS, PERIODS).await;
    assert_eq!(scene.trace(), ["db-v1 3", "db-v1 5"], "no swing");
    limit(&scene, 12, 20).await;
    scene.until_versions("nine for twelve", |view| are_there(view, 9)).await;
    limit(&scene, 1, 3).await;
    let three = |view: &View| are_there(view, 3) && view.condition("ScalingLimited").starts_with("False/");
    scene.until_versions("three", three).await;
    autoscaling::until_looked_at(&scene, OWNERS, 2).await;
    assert_eq!(scene.trace(), ["db-v1 3", "db-v1 5", "db-v1 9", "db-v1 3"]);
    assert_eq!(autoscaling::writes(&scene, OWNERS), [200, 200, 200], "one for each of its limits");
    let mut refused = scene.requests();
    refused.retain(|entry| entry.code == 409 || entry.code == 422);
    assert!(refused.len() <= 3, "at most one for each change: {refused:?}");
    scene.end().await;
}

// spec: es§2, L125, L148
#[tokio::test]
async fn with_reject_an_autoscaler_hears_why_and_nothing_moves_until_it_asks_for_what_is_allowed() {
    let scene = scaled("hpa-reject", "Reject", 4).await;
    let why = "spec.template.spec.replicas";
    let told = async || {
        let reply = scene.kubectl_ok(&["get", "hpa", "db", "-o", "jsonpath={.status.conditions}"], "").await;
        reply.stdout.contains("FailedUpdateScale") && reply.stdout.contains(why)
    };
    eventually("the autoscaler says why", told).await;
    autoscaling::until_looked_at(&scene, OWNERS, PERIODS).await;
    assert_eq!(scene.trace(), ["db-v1 3"]);
    let answers = autoscaling::writes(&scene, OWNERS);
    assert!(!answers.is_empty() && answers.iter().all(|code| *code == 422), "a rule, and no conflict: {answers:?}");
    limit(&scene, 5, 20).await;
    scene.until_versions("five", |view| are_there(view, 5)).await;
    assert_eq!(autoscaling::writes(&scene, OWNERS).last(), Some(&200));
    assert_eq!(scene.trace(), ["db-v1 3", "db-v1 5"]);
    scene.end().await;
}
