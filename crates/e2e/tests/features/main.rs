//! What a PhasedRollout does when things go wrong, wait for a person, or come to an end in other ways than a good rollout: each on the
//! real control plane, with what was written counted from the audit log and what happened to pods read from a tape.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod failing;
mod leaving;
mod quiet;
mod rollback;
mod stuck;
mod told;
mod unhealthy;
mod waiting;

use serde_json::{Value, json};
use sts_plus_e2e::{Entry, Scene, Seen, World, objects};

/// A gate with these fields of `spec.check` besides those of [`Scene::gate`].
async fn gate(check: Value) -> Value {
    let mut gate = Scene::gate().await;
    let fields = check.as_object().expect("a map").clone();
    gate["spec"]["check"].as_object_mut().expect("a map").extend(fields);
    gate
}

/// A set of `replicas` pods with this pod management policy.
fn set(replicas: i32, policy: &str) -> Value {
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

/// True once the newest revision of `web` is the one that `gate` is about.
fn is_told(world: &World) -> bool {
    world.controller_has_seen() && world.is_told()
}

/// The part of the spec of the template that another image is.
fn template(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}
