//! The `HorizontalPodAutoscaler` controller of Kubernetes, as scenarios use it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_e2e::Scene;
use testcluster::AuditEntry;

/// On a busy machine it looks again after more than the second that it was told.
const PATIENCE: Duration = Duration::from_mins(3);

/// An autoscaler of the same name for an object with a count within `limits`. There are no metrics: it acts on its limits alone.
pub fn hpa(api: &str, kind: &str, name: &str, limits: (i32, i32)) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": name },
        "spec": {
            "scaleTargetRef": { "apiVersion": api, "kind": kind, "name": name },
            "minReplicas": limits.0,
            "maxReplicas": limits.1,
            "metrics": [{
                "type": "Resource",
                "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } },
            }],
        },
    })
}

/// True for a request of the controller about `/scale` of a resource.
fn is_of_it(entry: &AuditEntry, resource: &str) -> bool {
    entry.user.ends_with(":horizontal-pod-autoscaler") && entry.resource == resource && entry.subresource == "scale"
}

fn requests(scene: &Scene, resource: &str) -> Vec<Arc<AuditEntry>> {
    let log = scene.ground.cluster.audit_log();
    let mut requests = log.entries_in(&scene.namespace).expect("the audit log can be read");
    requests.retain(|entry| is_of_it(entry, resource));
    requests
}

/// What its writes of a count were answered with.
pub fn writes(scene: &Scene, resource: &str) -> Vec<u16> {
    requests(scene, resource).iter().filter(|entry| entry.is_write()).map(|entry| entry.code).collect()
}

/// Waits until it has looked at the count as often as this from now on.
pub async fn until_looked_at(scene: &Scene, resource: &str, times: usize) {
    let looks = |entries: &[Arc<AuditEntry>]| {
        entries.iter().filter(|entry| is_of_it(entry, resource) && entry.verb == "get").count()
    };
    let before = looks(&requests(scene, resource));
    let log = scene.ground.cluster.audit_log();
    let looked = log.until(&scene.namespace, PATIENCE, |entries| looks(entries) >= before + times).await;
    looked.expect("the autoscaler is at work");
}
