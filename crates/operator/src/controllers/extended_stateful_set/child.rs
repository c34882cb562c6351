//! How a StatefulSet of ours comes to be what was rendered and nothing else: it is made by POST, and later its whole spec is replaced, under the
//! UID and resource version on which that was decided. Server-side apply would refuse what a create accepts (a name twice in a list), and
//! leave in a list what others have added. What the API server fills in, it fills in as at a create.

use std::collections::BTreeSet;

use http::Uri;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DynamicObject, GetParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::Request;
use kube::{Resource as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sts_plus_api::names;

use super::Context;
use super::observe::Scene;
use crate::client::deadline;
use crate::errors::Error;
use crate::patch::{add, by, remove, test};
use crate::views::SetObject;

/// Whether it is written, or only asked what would come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Write,
    Try,
}

impl Mode {
    fn call(self, what: &str, name: &str) -> String {
        match self {
            Self::Write => format!("{what} StatefulSet {name}"),
            Self::Try => format!("trying StatefulSet {name}"),
        }
    }
}

/// Makes it.
pub(super) async fn make<K: DeserializeOwned>(
    name: &str,
    body: &Value,
    mode: Mode,
    scene: &Scene,
    context: &Context,
) -> Result<K, Error> {
    let params = PostParams { dry_run: mode == Mode::Try, field_manager: Some(names::MANAGER_VERSIONS.to_owned()) };
    let call = mode.call("making", name);
    let request = Request::new(path(scene)).create(&params, body.to_string().into_bytes());
    let asked = async {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        // A field that it does not know is refused, and not dropped.
        let uri = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() = uri
            .parse::<Uri>()
            .map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error.into())))?;
        context.client.request(request).await
    };
    deadline(call, asked).await
}

/// Makes the one that is `there` what `body` says, if it is the one that was seen.
pub(super) async fn replace<K: DeserializeOwned>(
    there: &DynamicObject,
    body: &Value,
    mode: Mode,
    scene: &Scene,
    context: &Context,
) -> Result<K, Error> {
    let name = &there.name_any();
    let is_seen = |seen: &SetObject| {
        there.metadata.uid == seen.metadata.uid && there.metadata.resource_version == seen.metadata.resource_version
    };
    if !scene.sets.get(name).is_some_and(is_seen) {
        return Err(Error::Outdated { what: format!("StatefulSet {name}") });
    }
    let params = PatchParams {
        dry_run: mode == Mode::Try,
        field_validation: Some(ValidationDirective::Strict),
        ..by(names::MANAGER_VERSIONS)
    };
    let patch = Patch::Json::<()>(replacement(there, body));
    let request = Request::new(path(scene)).patch(name, &params, &patch).map_err(kube::Error::BuildRequest);
    deadline(mode.call("replacing", name), async { context.client.request(request?).await }).await
}

/// The StatefulSet as it is.
pub(super) async fn read(name: &str, scene: &Scene, context: &Context) -> Result<DynamicObject, Error> {
    let request = Request::new(path(scene)).get(name, &GetParams::default()).map_err(kube::Error::BuildRequest);
    deadline(format!("reading StatefulSet {name}"), async { context.client.request(request?).await }).await
}

fn path(scene: &Scene) -> String {
    StatefulSet::url_path(&(), Some(scene.namespace()))
}

/// The whole spec, and of labels and annotations those that are ours: what others write there stays, what we wrote and do not any more goes.
fn replacement(there: &DynamicObject, body: &Value) -> json_patch::Patch {
    let mut operations = vec![
        test(["metadata", "uid"], json!(there.metadata.uid)),
        test(["metadata", "resourceVersion"], json!(there.metadata.resource_version)),
    ];
    let parts = [("labels", &there.metadata.labels), ("annotations", &there.metadata.annotations)];
    for (part, found) in parts {
        let none = Map::new();
        let wanted = body.pointer(&format!("/metadata/{part}")).and_then(Value::as_object).unwrap_or(&none);
        if found.is_none() {
            operations.push(add(["metadata", part], json!({})));
        }
        let found = found.clone().unwrap_or_default();
        for key in
            written_by_us(there, part).iter().filter(|key| found.contains_key(*key) && !wanted.contains_key(*key))
        {
            operations.push(remove(["metadata", part, key.as_str()]));
        }
        for (key, value) in wanted.iter().filter(|(key, value)| found.get(*key).map(String::as_str) != value.as_str()) {
            operations.push(add(["metadata", part, key.as_str()], value.clone()));
        }
    }
    operations.push(add(["spec"], body.get("spec").cloned().unwrap_or_default()));
    json_patch::Patch(operations)
}

/// The keys that the field manager of our StatefulSets has written, by PATCH, POST, or the apply of an earlier release.
fn written_by_us(there: &DynamicObject, part: &str) -> BTreeSet<String> {
    let entries = there.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry.manager.as_deref() == Some(names::MANAGER_VERSIONS));
    let fields =
        ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer(&format!("/f:metadata/f:{part}"))?.as_object());
    fields.flat_map(|fields| fields.keys().filter_map(|key| key.strip_prefix("f:"))).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_is_replaced_as_a_whole_and_of_the_rest_what_is_ours() {
        let there = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": "db-v1", "uid": "u", "resourceVersion": "7",
                "labels": { "ours": "1", "dropped": "1", "of-a-tool": "x" },
                "managedFields": [
                    { "manager": names::MANAGER_VERSIONS, "fieldsV1": { "f:metadata": { "f:labels": {
                        ".": {}, "f:ours": {}, "f:dropped": {}, "f:gone-already": {} } } } },
                    { "manager": "a-tool", "fieldsV1": { "f:metadata": { "f:labels": { "f:of-a-tool": {} } } } },
                ],
            },
            "spec": { "minReadySeconds": 5, "template": { "spec": { "containers": [{ "name": "a", "env": [{ "name": "ADDED" }] }] } } },
        });
        let spec = json!({ "replicas": 2, "template": { "spec": { "containers": [{ "name": "a" }] } } });
        let body = json!({
            "metadata": { "labels": { "ours": "2" }, "annotations": { "mark": "m" } },
            "spec": spec,
        });
        let (mut document, mut another) = (there.clone(), there.clone());
        let there: DynamicObject = serde_json::from_value(there).unwrap();
        json_patch::patch(&mut document, &replacement(&there, &body)).unwrap();
        assert_eq!(document["spec"], spec, "nothing that others have added, and nothing that was taken out");
        assert_eq!(document["metadata"]["labels"], json!({ "ours": "2", "of-a-tool": "x" }));
        assert_eq!(document["metadata"]["annotations"], json!({ "mark": "m" }));
        another["metadata"]["resourceVersion"] = json!("8");
        assert!(json_patch::patch(&mut another, &replacement(&there, &body)).is_err(), "it was written since");
    }
}
