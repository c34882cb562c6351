//! Puts objects into the cluster: many at once, as fast as the API server takes them.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use kube::{Api, Client};
use serde_json::{Value, json};
use sts_plus_e2e::objects;

use crate::kubelet::NODE;

/// Requests at the same time.
const AT_ONCE: usize = 32;
/// What every pod runs at first.
pub const FIRST_IMAGE: &str = "app:1";

/// Each of so many, some at a time, until one fails.
pub async fn each<F: Future<Output = anyhow::Result<()>>>(
    count: usize,
    act: impl FnMut(usize) -> F,
) -> anyhow::Result<()> {
    futures::stream::iter(0..count).map(act).buffer_unordered(AT_ONCE).try_collect().await
}

/// Creates an object in a namespace.
pub async fn create(client: &Client, namespace: &str, object: Value) -> anyhow::Result<()> {
    let api = api_of(client, Some(namespace), &object)?;
    post(&api, object).await
}

/// Creates a namespace. Pods can be created in it when this returns.
pub async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let api = api_of(client, None, &object)?;
    post(&api, object).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    while accounts.get_opt("default").await?.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    Ok(())
}

fn api_of(client: &Client, namespace: Option<&str>, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
    let types: TypeMeta = serde_json::from_value(object.clone())?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    Ok(match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    })
}

async fn post(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    api.create(&PostParams::default(), &object).await.with_context(|| format!("{name} cannot be created"))?;
    Ok(())
}

/// A StatefulSet whose pods belong to the stand-in.
pub fn set(name: &str, replicas: i32) -> Value {
    objects::with(objects::named(objects::set(replicas), name), "/spec/template/spec/nodeName", NODE)
}

/// A PhasedRollout of `set` with these fields of `spec.check` besides those of [`objects::rollout`].
pub fn rollout(url: &str, name: &str, set: &str, expr: &str, check: &Value) -> Value {
    let rollout = objects::with(objects::rollout(url), "/metadata/name", name);
    let rollout = objects::with(rollout, "/spec/targetRef", set);
    let rollout = objects::with(rollout, "/spec/check/query/expr", expr);
    let fields = check.as_object().into_iter().flatten();
    fields.fold(rollout, |rollout, (key, value)| objects::with(rollout, &format!("/spec/check/{key}"), value.clone()))
}

/// Changes the image of a StatefulSet.
pub async fn release(client: &Client, namespace: &str, set: &str, image: &str) -> anyhow::Result<()> {
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let body = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } });
    api.patch(set, &PatchParams::default(), &Patch::Merge(body)).await.with_context(|| format!("release of {set}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_has_its_target_and_its_own_check() {
        let check = json!({ "initialDelaySeconds": 7, "final": false });
        let rollout = rollout("http://prom", "gate-1", "set-1", "up == 0", &check);
        let at = |pointer: &str| rollout.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!((at("/metadata/name"), at("/spec/targetRef")), (json!("gate-1"), json!("set-1")));
        assert_eq!((at("/spec/check/initialDelaySeconds"), at("/spec/check/final")), (json!(7), json!(false)));
        assert_eq!((at("/spec/check/successThreshold"), at("/spec/check/query/expr")), (json!(2), json!("up == 0")));
    }
}
