//! The operator as a Deployment, for the restricted Pod Security level: two replicas on different nodes, of which one works and the
//! other stands by, and a budget that never lets both go at once.

use serde_json::{Value, json};

use crate::rbac;

/// Where the operator answers health and metrics.
const PORT: u16 = 8080;

/// The Deployment with `image`, started with these flags of `run`, and its budget.
pub(super) fn objects(namespace: &str, image: &str, flags: &[String]) -> Vec<Value> {
    vec![deployment(namespace, image, flags), budget(namespace)]
}

fn deployment(namespace: &str, image: &str, flags: &[String]) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": rbac::NAME, "namespace": namespace, "labels": super::labels() },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": selector() },
            "template": {
                "metadata": { "labels": super::labels() },
                "spec": {
                    "serviceAccountName": rbac::NAME,
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": { "matchLabels": selector() },
                    }],
                    "containers": [container(image, flags)],
                },
            },
        },
    })
}

fn container(image: &str, flags: &[String]) -> Value {
    let args: Vec<&str> = std::iter::once("run").chain(flags.iter().map(String::as_str)).collect();
    json!({
        "name": "operator",
        "image": image,
        "args": args,
        "env": [{ "name": "POD_NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } }],
        "ports": [{ "name": "web", "containerPort": PORT }],
        "livenessProbe": { "httpGet": { "path": "/livez", "port": "web" }, "periodSeconds": 20, "timeoutSeconds": 5 },
        "readinessProbe": { "httpGet": { "path": "/readyz", "port": "web" }, "periodSeconds": 5, "timeoutSeconds": 5 },
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "256Mi" } },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    })
}

fn budget(namespace: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": rbac::NAME, "namespace": namespace, "labels": super::labels() },
        // A pod that is not Ready is of no use to anybody and must not keep a node from being drained.
        "spec": { "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": { "matchLabels": selector() } },
    })
}

fn selector() -> Value {
    json!({ "app.kubernetes.io/name": rbac::NAME })
}
