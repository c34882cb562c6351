//! A PhasedRollout on the real control plane, by section of its specification. What was written is counted from the audit log, and what
//! happened to pods is read from a tape.

mod approval;
mod autoscaler;
mod availability;
mod begins_held;
mod broken;
mod claim;
mod conflicts;
mod cures;
mod deletion;
mod failing;
mod going_back;
mod hold;
mod input;
mod lifecycle;
mod order;
mod repair;
mod rollback;
mod scaling;
mod status;
mod stuck;
mod times;
mod unasked;
mod writers;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, names};
use sts_plus_e2e::moves::{self, Move};
use sts_plus_e2e::{Entry, Scene, Seen, World, objects};

/// A gate with these fields of `spec.check` besides those of [`Scene::gate`].
pub async fn gate(check: Value) -> Value {
    let mut gate = Scene::gate().await;
    let fields = check.as_object().expect("a map").clone();
    gate["spec"]["check"].as_object_mut().expect("a map").extend(fields);
    gate
}

/// A quick PhasedRollout without preflight, whose checks may fail that often: for a release that fails at its first pod.
async fn gate_that_fails_after(tries: i32) -> Value {
    gate(json!({ "preflight": false, "final": false, "successThreshold": 1, "maxTries": tries })).await
}

/// A pod that is Ready and still recovering, by its metric: asked about the pod of the cycle.
pub const RECOVERING: &str = r#"app_recovering{namespace="${namespace}",pod="${pod}"}"#;

/// The checks with [`RECOVERING`] of this pod fail from now on, or no longer; returns when Prometheus knows.
pub async fn recovers(scene: &Scene, pod: &str, does: bool) {
    let labels = [("namespace", scene.namespace.as_str()), ("pod", pod)];
    if does {
        scene.ground.exporter.set("app_recovering", &labels, 1.0);
    } else {
        scene.ground.exporter.remove("app_recovering", &labels);
    }
    let query = format!(r#"app_recovering{{namespace="{}",pod="{pod}"}}"#, scene.namespace);
    scene.ground.prometheus().await.wait_for(&query, does).await.expect("the gauge is scraped");
}

/// A set of `replicas` pods with this pod management policy.
pub fn set(replicas: i32, policy: &str) -> Value {
    objects::with(objects::set(replicas), "/spec/podManagementPolicy", policy)
}

/// The version with which a pod of this name began to leave, for the life that began at or after `from`.
fn left(entries: &[Entry], pod: &str, from: u64) -> Option<u64> {
    let leaves = |entry: &&Entry| match &entry.seen {
        Seen::Pod(seen) => {
            entry.version > from
                && seen.metadata.name.as_deref() == Some(pod)
                && (entry.gone || seen.metadata.deletion_timestamp.is_some())
        }
        _ => false,
    };
    entries.iter().find(leaves).map(|entry| entry.version)
}

/// The version with which a pod of this name was Ready, after `from`.
fn ready(entries: &[Entry], pod: &str, from: u64) -> Option<u64> {
    let is_ready = |entry: &&Entry| match &entry.seen {
        Seen::Pod(seen) => {
            entry.version > from
                && !entry.gone
                && seen.metadata.name.as_deref() == Some(pod)
                && sts_plus_e2e::is_ready(seen)
        }
        _ => false,
    };
    entries.iter().find(is_ready).map(|entry| entry.version)
}

/// Versions and values of the partition of `web` as it changed.
fn partitions(entries: &[Entry]) -> Vec<(u64, Option<i32>)> {
    let mut all: Vec<(u64, Option<i32>)> = Vec::new();
    for entry in entries {
        if let Seen::Set(set) = &entry.seen
            && set.metadata.name.as_deref() == Some("web")
        {
            let partition = sts_plus_e2e::partition_of(set);
            if all.last().is_none_or(|(_, last)| *last != partition) {
                all.push((entry.version, partition));
            }
        }
    }
    all
}

/// The part of the spec of the template that another image is.
fn template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

/// A quick PhasedRollout, which waits for a person before this index.
async fn gate_that_waits_before(index: i32) -> Value {
    objects::with(Scene::quick_gate().await, "/spec/pauseBefore", json!([index]))
}

/// As [`moves::assert_gated`] where there is no preflight: the first pod goes by a step alone, the others after a check that passed.
fn assert_gated_after(first: &str, scene: &Scene, good: &str) -> Vec<Move> {
    let moves = moves::assert_allowed(&scene.tape.entries(), good);
    let checked = moves.iter().filter(|moved| moved.from == good && moved.pod != first);
    moves::assert_passed(checked, &scene.asked(), 1);
    moves
}

/// Fails unless each of these pods has moved, and for the first time after a check that passed.
fn assert_first_moves_passed(scene: &Scene, pods: &[&str]) {
    let moves = moves::of(&scene.tape.entries());
    let first = |pod: &&str| moves.iter().find(|moved| moved.pod == *pod).expect("it has moved");
    moves::assert_passed(pods.iter().map(first), &scene.asked(), 1);
}

/// Releases `image` and waits until the rollout has come to where a person is awaited.
async fn release_until_awaited(scene: &Scene, image: &str) -> Arc<World> {
    scene.release(image).await;
    scene.until_settled("a person is awaited", is_awaiting).await
}

/// True if the revision of the set waits for a person.
fn is_awaiting(world: &World) -> bool {
    world.condition(ConditionType::Held) == "True/AwaitingApproval" && world.is_told()
}

/// The person's word for the pod at `index` and the revision that is wanted now.
async fn approve(scene: &Scene, index: i32) {
    let word = format!("{}/{index}", scene.world().update_revision());
    scene.annotate(names::APPROVE, &word).await;
}

async fn scale(scene: &Scene, replicas: i32) {
    scene.patch("statefulset/web", &json!({ "spec": { "replicas": replicas } })).await;
}

/// Sets or, with null, removes an annotation of a pod.
async fn annotate_pod(scene: &Scene, pod: &str, key: &str, value: impl Into<Value>) {
    scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "annotations": { key: value.into() } } })).await;
}

/// A pod stays Terminating when it is deleted, until [`end_pod`].
async fn never_ends(scene: &Scene, pod: &str) {
    annotate_pod(scene, pod, "sts-plus.test/stop-after", "3600s").await;
}

/// As a person does who knows that the node of the pod is gone.
async fn end_pod(scene: &Scene, pod: &str) {
    scene.kubectl_ok(&["delete", "pod", pod, "--force", "--grace-period=0", "--wait=false"], "").await;
}

/// How many checks passed from `start` on, until the step to `partition` was seen.
fn passes_before_step(scene: &Scene, start: Timestamp, partition: i32) -> usize {
    let entries = scene.tape.entries();
    let steps = moves::steps(&entries);
    let step = steps.iter().find(|step| step.partition == partition).expect("the step was made");
    scene.asked().iter().filter(|asked| (start..step.seen).contains(&asked.at) && asked.has_passed()).count()
}
