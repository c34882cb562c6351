//! Pieces of the bodies of writes. Pure.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use kube::Resource;
use kube::api::PatchParams;
use serde::Serialize;
use serde_json::{Value, json};

/// A patch in the name of a field manager.
pub(crate) fn by(manager: &str) -> PatchParams {
    PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() }
}

/// The whole status, as a merge patch. UID and resourceVersion make the API server refuse it if anybody, such as a second operator,
/// wrote the object since it was read. What others put into the status goes: server-side apply would leave their fields as they are.
pub(crate) fn status_patch<K: Resource<DynamicType = ()>>(
    object: &K,
    resource_version: Option<&str>,
    before: &impl Serialize,
    status: &impl Serialize,
) -> Value {
    let mut new = json!(status);
    remove_absent(&json!(before), &mut new);
    let meta = object.meta();
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
            "resourceVersion": resource_version,
        },
        "status": new,
    })
}

/// In a merge patch null removes a field; lists are replaced as they are.
fn remove_absent(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else { return };
    for (key, before) in old {
        match new.get_mut(key) {
            Some(after) => remove_absent(before, after),
            None => drop(new.insert(key.clone(), Value::Null)),
        }
    }
}

pub(crate) fn test<'a>(path: impl IntoIterator<Item = &'a str>, value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value: value.into() })
}

pub(crate) fn add<'a>(path: impl IntoIterator<Item = &'a str>, value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value: value.into() })
}

pub(crate) fn remove<'a>(path: impl IntoIterator<Item = &'a str>) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path) })
}

/// Adds our finalizer beside those of others. Nothing if it is there.
pub(crate) fn add_finalizer<K: Resource>(object: &K, name: &str) -> Option<Patch> {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == name) {
        return None;
    }
    let write = if object.meta().finalizers.is_some() {
        add(["metadata", "finalizers", "-"], name)
    } else {
        add(["metadata", "finalizers"], json!([name]))
    };
    Some(Patch(vec![same_object(object), same_version(object), write]))
}

/// Removes our finalizer and no other. Nothing if it is not there.
pub(crate) fn remove_finalizer<K: Resource>(object: &K, name: &str) -> Option<Patch> {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    let at = finalizers.iter().position(|finalizer| finalizer == name)?.to_string();
    let path = ["metadata", "finalizers", at.as_str()];
    Some(Patch(vec![same_object(object), test(path, name), remove(path)]))
}

pub(crate) fn same_object<K: Resource>(object: &K) -> PatchOperation {
    test(["metadata", "uid"], object.meta().uid.as_deref())
}

pub(crate) fn same_version<K: Resource>(object: &K) -> PatchOperation {
    test(["metadata", "resourceVersion"], object.meta().resource_version.as_deref())
}
