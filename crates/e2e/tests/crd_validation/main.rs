//! The CRD on real API servers: what it refuses, and with which sentence; what it fills in; how it prints.

#![allow(clippy::indexing_slicing, reason = "a test may panic; an index into JSON does not")]

mod fields;
mod pairs;
#[path = "../rig/mod.rs"]
mod rig;
mod rules;
#[path = "../rig/schema.rs"]
mod schema;
mod shape;

use anyhow::ensure;
use serde_json::{Value, json};
use testcluster::Cluster;

/// A PhasedRollout with this `spec.check`.
fn with_check(check: &Value) -> Value {
    json!({
        "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "metadata": { "name": "gate" },
        "spec": { "targetRef": "web", "check": check },
    })
}

/// What kubectl says to a server-side dry run of creating it: an error, or nothing.
async fn create(cluster: &Cluster, namespace: &str, object: &Value) -> anyhow::Result<Result<(), String>> {
    let args = ["--namespace", namespace, "create", "--dry-run=server", "-f", "-"];
    let output = cluster.kubectl_as(cluster.kubeconfig(), &args, &object.to_string()).await?;
    let error = String::from_utf8(output.stderr)?;
    Ok(if output.status.success() { Ok(()) } else { Err(error) })
}

/// It is refused, and the answer holds each of these.
async fn refused(rig: &'static rig::Rig, object: &Value, sentences: &[&str]) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let error = create(cluster, &namespace, object).await?.err().unwrap_or_default();
    ensure!(!error.is_empty(), "it is accepted: {object}");
    for sentence in sentences {
        ensure!(error.contains(sentence), "it is refused without {sentence:?}:\n{error}");
    }
    Ok(())
}

/// It is accepted.
async fn accepted(rig: &'static rig::Rig, object: &Value) -> anyhow::Result<()> {
    let (cluster, namespace) = rig.namespace().await?;
    let answer = create(cluster, &namespace, object).await?;
    ensure!(answer.is_ok(), "it is refused: {answer:?}\n{object}");
    Ok(())
}
