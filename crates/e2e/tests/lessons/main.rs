//! What has hurt users of systems like this one, on the real control plane: scaling, ordinals, pods that come late or do not go,
//! several writers, and times.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod pods;
mod scaling;
mod times;
mod writers;

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, names};
use sts_plus_e2e::{Scene, World, moves, objects};

/// The default PhasedRollout, which waits for a person before this index.
async fn gate_that_waits_before(index: i32) -> Value {
    objects::with(Scene::gate().await, "/spec/pauseBefore", json!([index]))
}

/// Releases `image` and waits until the rollout has come to where a person is awaited.
async fn release_until_awaited(scene: &Scene, image: &str) -> World {
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
    scene.kubectl_ok(&["scale", "statefulset", "web", &format!("--replicas={replicas}")], "").await;
}

/// Sets or, with null, removes an annotation of a pod.
async fn annotate_pod(scene: &Scene, pod: &str, key: &str, value: impl Into<Value>) {
    scene.patch(&format!("pod/{pod}"), &json!({ "metadata": { "annotations": { key: value.into() } } })).await;
}

/// The time and outcome of the tries that were made from `start` on, until the step to `partition` was seen.
fn tries_before_step(scene: &Scene, start: Timestamp, partition: i32) -> Vec<(Timestamp, bool)> {
    let entries = scene.tape.entries();
    let steps = moves::steps(&entries);
    let step = steps.iter().find(|step| step.partition == partition).expect("the step was made");
    moves::tries(&entries).range(start..step.seen).map(|(time, passed)| (*time, *passed)).collect()
}
