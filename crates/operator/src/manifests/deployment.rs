//! The operator as a Deployment, for the restricted Pod Security level.

use serde_json::{Value, json};

use crate::rbac;

/// One replica with `image`.
pub(super) fn deployment(namespace: &str, image: &str) -> Value {
    let selector = json!({ "app.kubernetes.io/name": rbac::NAME });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": rbac::NAME, "namespace": namespace, "labels": super::labels() },
        "spec": {
            "replicas": 1,
            // Two operators at a time are of no use, and without a Lease they would get in each other's way.
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": super::labels() },
                "spec": {
                    "serviceAccountName": rbac::NAME,
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
                    "containers": [{
                        "name": "operator",
                        "image": image,
                        "args": ["run"],
                        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "256Mi" } },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}
