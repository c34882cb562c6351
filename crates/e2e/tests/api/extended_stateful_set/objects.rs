//! The ExtendedStatefulSet `web` of these tests, and what the API server says to one.

use kube::api::{Api, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use sts_plus_e2e::{Scene, answer};

/// An ExtendedStatefulSet `web` with these fields in its spec, and these in the spec of its template.
pub fn set(spec: &Value, template: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedStatefulSet", "metadata": { "name": "web" },
        "spec": {
            "template": {
                "metadata": { "labels": { "team": "shop" } },
                "spec": {
                    "selector": { "matchLabels": { "app": "web" } },
                    "serviceName": "web",
                    "template": {
                        "metadata": { "labels": { "app": "web" } },
                        "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
                    },
                },
            },
        },
    });
    for (place, fields) in [("/spec", spec), ("/spec/template/spec", template)] {
        for (name, value) in fields.as_object().into_iter().flatten() {
            object.pointer_mut(place).unwrap_or(&mut Value::Null)[name] = value.clone();
        }
    }
    object
}

/// It, for those who want it by its name.
pub const WEB: &str = "extendedstatefulset/web";

/// The count in an object.
pub fn count(object: &Value) -> Option<i64> {
    object.pointer("/spec/template/spec/replicas").and_then(Value::as_i64)
}

/// A set as it is stored.
pub async fn stored(scene: &Scene, name: &str) -> Value {
    scene.get(&format!("extendedstatefulset/{name}")).await
}

/// The count of `web` as it is stored.
pub async fn stored_count(scene: &Scene) -> Option<i64> {
    count(&stored(scene, "web").await)
}

/// A merge patch of `web`: as it is stored then, or why it is refused.
pub async fn merged(scene: &Scene, body: &Value) -> Result<DynamicObject, String> {
    answer(scene.try_patch(WEB, body).await)
}

/// `/scale` as it is read.
pub async fn scale(scene: &Scene, name: &str) -> Value {
    let scale = sets(scene).get_subresource("scale", name).await.expect("it has a scale");
    serde_json::to_value(scale).expect("a scale is JSON")
}

/// A count is written to `/scale`; how the scale looks then, or why it is refused.
pub async fn scaled(scene: &Scene, name: &str, replicas: i32, dry_run: bool) -> Result<DynamicObject, String> {
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": { "name": name, "namespace": scene.namespace }, "spec": { "replicas": replicas },
    });
    let params = PostParams { dry_run, ..PostParams::default() };
    answer(sets(scene).replace_subresource("scale", name, &params, &scale).await)
}

fn sets(scene: &Scene) -> Api<DynamicObject> {
    scene.api("extendedstatefulset")
}
