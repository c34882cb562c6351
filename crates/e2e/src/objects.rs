//! What scenarios put into the cluster: a StatefulSet `web`, a PhasedRollout `gate` with short times, and Secrets.

use serde_json::{Map, Value, json};

/// The application's metric: a series for each pod of a release that is ill (see [`crate::Tape`]). Alert style.
pub const ERRORS: &str = r#"app_errors{namespace="${namespace}"}"#;

/// A StatefulSet `web` with image `app:1`.
pub fn set(replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "web" },
        "spec": {
            "serviceName": "web",
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "app", "image": "app:1" }],
                },
            },
        },
    })
}

/// `set` under another name, with pods of its own.
#[must_use]
pub fn named(set: Value, name: &str) -> Value {
    let set = with(set, "/metadata/name", name);
    let set = with(set, "/spec/selector/matchLabels/app", name);
    with(set, "/spec/template/metadata/labels/app", name)
}

/// A PhasedRollout `gate` of `web` that asks the Prometheus at `url` for [`ERRORS`]: no delay, a check each second, two in a row.
pub fn rollout(url: &str) -> Value {
    json!({
        "apiVersion": "sts.plus/v1alpha1",
        "kind": "PhasedRollout",
        "metadata": { "name": "gate" },
        "spec": {
            "targetRef": "web",
            "check": {
                "initialDelaySeconds": 0,
                "periodSeconds": 1,
                "successThreshold": 2,
                "maxTries": 5,
                "query": { "expr": ERRORS, "url": url },
            },
        },
    })
}

/// `rollout` for where the gate is not the subject: one check that passes before each pod, and none after the last one.
#[must_use]
pub fn quick(rollout: Value) -> Value {
    with(with(rollout, "/spec/check/successThreshold", 1), "/spec/check/final", false)
}

/// A Secret with these keys.
pub fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: Map<String, Value> = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data })
}

/// `object` with `value` at a JSON pointer; maps on the way are made.
#[must_use]
pub fn with(mut object: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let mut at = &mut object;
    for key in pointer.split('/').skip(1) {
        let key = key.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Array(items) => {
                let index: usize = key.parse().expect("an index of a list");
                items.get_mut(index).expect("an item of a list")
            }
            other => {
                if !other.is_object() {
                    *other = json!({});
                }
                other.as_object_mut().expect("a map").entry(key).or_insert(Value::Null)
            }
        };
    }
    *at = value.into();
    object
}

/// `object` without what is at a JSON pointer.
#[must_use]
pub fn without(mut object: Value, pointer: &str) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
    if let Some(Value::Object(map)) = object.pointer_mut(parent) {
        map.remove(&key.replace("~1", "/").replace("~0", "~"));
    }
    object
}

/// An ExtendedStatefulSet with three pods on `app:1` and one canary.
pub fn extended(name: &str) -> Value {
    json!({
        "apiVersion": "fissile.cloudfoundry.org/v1alpha1",
        "kind": "ExtendedStatefulSet",
        "metadata": { "name": name },
        "spec": {
            "updateStrategy": { "canaries": 1, "canaryWatchSeconds": 60 },
            "template": {
                "metadata": { "labels": { "mine": "yes" } },
                "spec": {
                    "replicas": 3,
                    "serviceName": name,
                    "selector": { "matchLabels": { "app": name } },
                    "template": {
                        "metadata": { "labels": { "app": name } },
                        "spec": {
                            "terminationGracePeriodSeconds": 1,
                            "containers": [{ "name": "app", "image": "app:1" }],
                        },
                    },
                },
            },
        },
    })
}

/// A Service for the pods of [`extended`] `db`.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "selector": { "app": "db" }, "ports": [{ "port": 80 }] },
    })
}

/// `set` with another image.
#[must_use]
pub fn image(set: Value, image: &str) -> Value {
    with(set, "/spec/template/spec/containers/0/image", image)
}
