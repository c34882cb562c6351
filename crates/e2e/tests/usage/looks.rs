//! How it looks from outside: kubectl wait, columns, `kubectl rollout restart`, the samples, and a status that survives.

use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, PhasedRolloutStatus, names};
use sts_plus_e2e::{Entry, Scene, Seen, World, moves, objects, template_image};

#[tokio::test]
async fn kubectl_can_wait_for_rolled_out() {
    let scene = Scene::at_rest("wait", 2, &Scene::gate().await).await;
    assert_eq!(scene.world().condition(ConditionType::RolledOut), "True/NotVerified");
    scene.release("app:2").await;
    scene.until("not any more", |world| world.condition(ConditionType::RolledOut).starts_with("False/")).await;
    let wait = ["wait", "phasedrollout/gate", "--for=condition=RolledOut", "--timeout=50s"];
    scene.kubectl_ok(&wait, "").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(end.condition(ConditionType::RolledOut), "True/Completed");
    scene.end().await;
}

#[tokio::test]
async fn a_template_change_is_told_within_a_second() {
    let scene = Scene::at_rest("soon", 1, &objects::with(Scene::gate().await, "/spec/paused", true)).await;
    let mut took = Vec::new();
    for image in ["app:2", "app:3", "app:4"] {
        scene.release(image).await;
        let told = World::is_told;
        scene.until("told", |world| world.controller_has_seen() && told(world)).await;
        took.push(told_after(&scene.tape.entries(), image));
    }
    // Of three, since the machine may be busy.
    let fastest = took.iter().min().copied().unwrap_or(Duration::MAX);
    assert!(fastest < Duration::from_secs(1), "{took:?}");
    scene.end().await;
}

/// From the change of the template to the first status of its revision, as both arrived here.
fn told_after(entries: &[Entry], image: &str) -> Duration {
    let set = |entry: &Entry| matches!(&entry.seen, Seen::Set(set) if template_image(set) == image);
    let changed = entries.iter().find(|entry| set(entry)).expect("the change is recorded");
    let target = |entry: &Entry| match &entry.seen {
        Seen::Rollout(gate) => gate.status.as_ref().and_then(|status| status.target_revision.clone()),
        _ => None,
    };
    let before = entries.iter().rev().filter(|entry| entry.version < changed.version).find_map(target);
    let news =
        |entry: &&Entry| entry.version > changed.version && target(entry).is_some_and(|target| Some(target) != before);
    let told = entries.iter().find(news).expect("the status is recorded");
    Duration::try_from(told.arrived.duration_since(changed.arrived)).unwrap_or(Duration::ZERO)
}

#[tokio::test]
async fn the_columns_tell_target_phase_progress_partition_and_message() {
    let scene = Scene::at_rest("columns", 2, &Scene::gate().await).await;
    let table = scene.kubectl_ok(&["get", "pr"], "").await.stdout;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "TARGET", "PHASE", "UPDATED", "PARTITION", "MESSAGE", "AGE"]);
    assert_eq!(lines[1][..5], ["gate", "web", "Idle", "2/2", "2"], "{table}");
    assert!(table.contains("all 2 pods carry"), "{table}");
    scene.end().await;
}

#[tokio::test]
async fn kubectl_rollout_restart_starts_a_gated_rollout() {
    let scene = Scene::at_rest("restart", 3, &Scene::gate().await).await;
    let born = scene.world().uids();
    scene.kubectl_ok(&["rollout", "restart", "statefulset/web"], "").await;
    let end = scene
        .until("complete", |world| {
            world.is(Phase::Completed) && world.uids().values().all(|uid| !born.values().any(|old| old == uid))
        })
        .await;
    assert_eq!(end.partition(), Some(3));
    let moved = moves::assert_gated(&scene.tape.entries(), "app:1", 2);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-2", "web-1", "web-0"]);
    scene.end().await;
}

#[tokio::test]
async fn the_samples_apply_unchanged_and_stay_so() {
    let mut scene = Scene::new("samples").await;
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/samples");
    let first = scene.kubectl_ok(&["apply", "-f", samples], "").await;
    assert_eq!(first.stderr, "", "no warning");
    scene.start_operator();
    let at_rest =
        |world: &World| world.status_of("phasedrollout-sample").phase == Phase::Idle && world.partition() == Some(3);
    scene.until("at rest", at_rest).await;
    let again = scene.kubectl_ok(&["apply", "-f", samples], "").await;
    // kubectl cannot see that the stringData of a Secret is the same.
    let mut others = again.stdout.lines().filter(|line| !line.starts_with("secret/"));
    assert!(others.all(|line| line.ends_with(" unchanged")), "{}", again.stdout);
    let held = scene.world();
    assert_eq!((held.partition(), held.annotation(names::CLAIM)), (Some(3), Some("phasedrollout-sample")));
    scene.end().await;
}

#[tokio::test]
async fn every_field_of_the_status_survives_the_api_server() {
    let scene = Scene::new("status").await;
    scene.create(&Scene::gate().await).await;
    let path = "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.status}";
    let schema = scene.kubectl_ok(&["get", "crd", "phasedrollouts.sts.plus", "-o", path], "").await.stdout;
    let status = sample(&serde_json::from_str(&schema).expect("a schema is JSON"));
    assert!(status.as_object().is_some_and(|fields| fields.len() > 20), "{status}");
    let typed: PhasedRolloutStatus = serde_json::from_value(status.clone()).expect("the operator can read it");
    assert_eq!(serde_json::to_value(typed).expect("a status is JSON"), status, "and would write it like this");
    let body = json!({ "status": status }).to_string();
    scene.kubectl_ok(&["patch", "pr", "gate", "--subresource=status", "--type=merge", "-p", &body], "").await;
    let stored = scene.kubectl_ok(&["get", "pr", "gate", "-o", "json"], "").await.stdout;
    let stored: Value = serde_json::from_str(&stored).expect("kubectl prints JSON");
    assert_eq!(stored["status"], status);
    scene.end().await;
}

/// A value of a schema in which every field is set.
fn sample(schema: &Value) -> Value {
    if let Some(first) = schema.pointer("/enum/0") {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields.map(|(name, schema)| (name.clone(), sample(schema))).collect()
        }
        Some("array") => json!([sample(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(7),
        _ if schema["format"] == "date-time" => json!("2026-01-02T03:04:05Z"),
        _ => json!("word"),
    }
}
