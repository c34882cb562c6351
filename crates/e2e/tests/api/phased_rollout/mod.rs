//! The CRD on real API servers: what it refuses, and with which sentence; what it fills in; how it prints.

mod fields;
mod pairs;
mod rules;
mod shape;

use serde_json::{Value, json};

/// A PhasedRollout with this `spec.check`.
fn with_check(check: &Value) -> Value {
    json!({
        "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "metadata": { "name": "gate" },
        "spec": { "targetRef": "web", "check": check },
    })
}
