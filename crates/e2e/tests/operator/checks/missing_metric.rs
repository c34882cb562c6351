//! A metric that does not exist at all: `onMissingMetric` Pass says so once, Hold waits for it.

use serde_json::Value;
use sts_plus_api::{Phase, Reason, Verdict};
use sts_plus_e2e::{Scene, World, objects};

use super::is_held_for;

/// An expression about a metric that nobody else has, and its name.
async fn unheard_of(scene: &Scene) -> (Value, String) {
    let metric = format!("app_{}", scene.namespace.replace('-', "_"));
    let expr = format!(r#"{metric}{{namespace="${{namespace}}"}}"#);
    (objects::with(Scene::gate().await, "/spec/check/query/expr", expr), metric)
}

// spec: pr§1, L060, L062
#[tokio::test]
async fn with_pass_it_passes_and_one_warning_names_the_metric() {
    let mut scene = Scene::new("missing-pass").await;
    let (gate, metric) = unheard_of(&scene).await;
    scene.settle(&objects::set(3), &gate).await;
    scene.release("app:2").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    let checks = end.status().checks;
    let said = format!("and Prometheus has no metric {metric}: passed (successWhen NoData, onMissingMetric Pass)");
    let is_said = checks.iter().all(|check| check.verdict == Verdict::NoData && check.message.contains(&said));
    assert!(is_said && !checks.is_empty(), "{checks:?}");
    let warnings = scene.until_events(Reason::PassedOnMissingMetric, 1).await;
    assert_eq!(warnings.len(), 1, "once, after ten checks: {warnings:?}");
    assert_eq!(warnings[0].type_.as_deref(), Some("Warning"));
    let note = warnings[0].note.clone().unwrap_or_default();
    assert!(note.contains(&format!("passed, but Prometheus has no metric {metric}")), "{note}");
    assert!(note.contains("set onMissingMetric to Hold"), "{note}");

    // Where the metric exists there is nothing to warn of.
    scene.ground.exporter.set(&metric, &[("namespace", "none")], 1.0);
    scene.ground.prometheus().await.wait_for(&metric, true).await.expect("the gauge is scraped");
    scene.release("app:3").await;
    let end = scene.until("complete", |world| world.is_complete("app:3")).await;
    let checks = end.status().checks;
    let is_said = checks.iter().any(|check| check.message.contains("has no metric"));
    assert!(!is_said && !checks.is_empty(), "{checks:?}");
    assert_eq!(scene.events_of(Reason::PassedOnMissingMetric).await.len(), 1);
    scene.end().await;
}

// spec: pr§1, L062, L066
#[tokio::test]
async fn with_hold_it_waits_until_the_metric_exists_and_uses_up_no_try() {
    let mut scene = Scene::new("missing-hold").await;
    let (gate, metric) = unheard_of(&scene).await;
    let gate = objects::with(gate, "/spec/check/query/onMissingMetric", "Hold");
    scene.settle(&objects::set(2), &objects::with(gate, "/spec/check/maxTries", 2)).await;
    let born = scene.world().uids();
    scene.release("app:2").await;
    // More of them than tries are allowed.
    let unproven = |world: &World| {
        let checks = world.status().checks;
        is_held_for(world, Reason::MetricMissing)
            && checks.len() >= 4
            && checks.iter().all(|check| check.verdict == Verdict::Unproven && !check.passed)
    };
    let held = scene.until("held", unproven).await;
    let message = held.status().message;
    assert!(message.contains("the metric does not exist") && message.contains(&metric), "{message}");
    assert!(held.is_held() && held.is(Phase::Held) && held.uids() == born);
    assert_eq!(held.status().current.map(|current| current.tries), Some(0));

    scene.ground.exporter.set(&metric, &[("namespace", "none")], 1.0);
    scene.until("complete", |world| world.is_complete("app:2")).await;
    // Of the application itself: a series, and it counts.
    scene.ground.exporter.set(&metric, &[("namespace", &scene.namespace)], 1.0);
    let query = format!(r#"{metric}{{namespace="{}"}}"#, scene.namespace);
    scene.ground.prometheus().await.wait_for(&query, true).await.expect("the gauge is scraped");
    scene.release("app:3").await;
    let failed = scene.until("failed", |world| world.is(Phase::Failed)).await;
    assert_eq!(failed.status().checks.last().map(|check| check.verdict), Some(Verdict::Data));
    scene.end().await;
}
