//! The writes of the rollout engine to a StatefulSet and its pods, for every kind of object that a rollout belongs to.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use kube::api::{self, DeleteParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use sts_plus_api::names;
use sts_plus_decide::{Action, NewPartition};

use super::partition;
use crate::client::deadline;
use crate::errors::Error;
use crate::patch::{add, by, remove, test};
use crate::views::{PodObject, SetObject};
use crate::written::Written;

/// What such a write needs.
pub(super) struct Roll<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) written: &'a Written,
}

impl Roll<'_> {
    /// A step of the engine; the StatefulSet as it is then, if it was written. What is about the object itself its own controller writes.
    pub(super) async fn step(
        &self,
        action: &Action,
        sets: &BTreeMap<String, SetObject>,
    ) -> Result<Option<SetObject>, Error> {
        match action {
            Action::PatchSet { set, uid, generation, partition, annotations } => {
                self.patch_set(sets.get(set), set, uid, *generation, *partition, annotations).await
            }
            Action::DeletePod { name, uid } => self.delete_pod(name, uid).await.map(|()| None),
            Action::AddFinalizer | Action::RemoveFinalizer | Action::ConsumeAnnotation(_) => Ok(None),
        }
    }

    /// One patch of the StatefulSet, if it is as it was read; the StatefulSet as it is then, if there was something to write.
    async fn patch_set(
        &self,
        seen: Option<&SetObject>,
        name: &str,
        uid: &str,
        generation: i64,
        partition: NewPartition,
        annotations: &BTreeMap<&'static str, Option<String>>,
    ) -> Result<Option<SetObject>, Error> {
        let Some(seen) = seen else {
            return Err(Error::Unusable {
                what: format!("the plan for StatefulSet {name}"),
                problem: "the set was not looked at".to_owned(),
            });
        };
        let Some(patch) = set_patch(seen, uid, generation, partition, annotations) else { return Ok(None) };
        partition::is_worth_trying(seen, partition, self.written)?;
        let sets: Api<SetObject> = Api::namespaced(self.client.clone(), self.namespace);
        let patch = api::Patch::Json::<()>(patch);
        let call = format!("patching StatefulSet {name}");
        let written = deadline(call, sets.patch(name, &by(names::MANAGER_HOLD), &patch)).await?;
        self.written.remember(written.uid(), written.metadata.resource_version.as_deref());
        partition::is_granted(partition, &written, self.written)?;
        Ok(Some(written))
    }

    /// A pod that is gone already is as good as deleted; one of the same name with another UID is not touched.
    async fn delete_pod(&self, name: &str, uid: &str) -> Result<(), Error> {
        let pods: Api<PodObject> = Api::namespaced(self.client.clone(), self.namespace);
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match deadline(format!("deleting pod {name}"), pods.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// One patch of a StatefulSet that is refused if its spec is not the one that was read. Nothing if there is nothing to write.
fn set_patch(
    set: &SetObject,
    uid: &str,
    generation: i64,
    partition: NewPartition,
    annotations: &BTreeMap<&'static str, Option<String>>,
) -> Option<Patch> {
    let mut changes = partition::change(set, partition);
    let fresh_map = set.metadata.annotations.is_none();
    let annotation_changes = annotation_changes(set, annotations, fresh_map);
    let makes_map = fresh_map && !annotation_changes.is_empty();
    changes.extend(annotation_changes);
    if changes.is_empty() {
        return None;
    }
    let mut operations = vec![test(["metadata", "uid"], uid), test(["metadata", "generation"], generation)];
    if makes_map {
        // Annotations do not count in the generation: without this, a map that somebody made meanwhile would be replaced.
        operations.push(test(["metadata", "resourceVersion"], set.metadata.resource_version.as_deref()));
    }
    operations.extend(changes);
    Some(Patch(operations))
}

fn annotation_changes(
    set: &SetObject,
    annotations: &BTreeMap<&'static str, Option<String>>,
    fresh_map: bool,
) -> Vec<PatchOperation> {
    if fresh_map {
        let map: BTreeMap<_, _> =
            annotations.iter().filter_map(|(key, value)| value.as_ref().map(|value| (key, value))).collect();
        return if map.is_empty() { Vec::new() } else { vec![add(["metadata", "annotations"], json!(map))] };
    }
    let changes = annotations.iter().filter_map(|(key, value)| {
        let path = ["metadata", "annotations", key];
        match (set.annotation(key), value) {
            (Some(old), Some(new)) if old == new => None,
            (_, Some(new)) => Some(add(path, new.as_str())),
            (Some(_), None) => Some(remove(path)),
            (None, None) => None,
        }
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn document(annotations: &Value, strategy: &Value) -> Value {
        let mut document = json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 4, "resourceVersion": "9"},
            "spec": {"replicas": 3, "updateStrategy": strategy},
        });
        if !annotations.is_null() {
            document["metadata"]["annotations"] = annotations.clone();
        }
        document
    }

    fn held() -> Value {
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}})
    }

    fn patched(
        document: &Value,
        partition: NewPartition,
        annotations: &[(&'static str, Option<&str>)],
    ) -> Option<(Patch, Value)> {
        let set = serde_json::from_value::<SetObject>(document.clone()).unwrap().shrunk();
        let annotations = annotations.iter().map(|(key, value)| (*key, value.map(str::to_owned))).collect();
        let patch = set_patch(&set, "u", 4, partition, &annotations)?;
        let mut after = document.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        Some((patch, after))
    }

    // spec: pr§4
    #[test]
    fn a_step_is_guarded_by_uid_and_generation() {
        let document = document(&json!({names::CLAIM: "pr"}), &held());
        let (patch, after) = patched(&document, NewPartition::Set(2), &[]).unwrap();
        assert_eq!(
            serde_json::to_value(&patch).unwrap(),
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/metadata/generation", "value": 4},
                {"op": "add", "path": "/spec/updateStrategy/rollingUpdate/partition", "value": 2},
            ])
        );
        assert_eq!(after["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 2);
        let mut newer = document.clone();
        newer["metadata"]["generation"] = json!(5);
        assert!(json_patch::patch(&mut newer, &patch).is_err(), "a second, stale step is refused");
    }

    #[test]
    fn the_block_is_made_if_it_is_missing() {
        let document = document(&json!({"other": "x"}), &json!({"type": "RollingUpdate"}));
        let (_, after) = patched(&document, NewPartition::Set(3), &[]).unwrap();
        assert_eq!(after["spec"]["updateStrategy"], held());
    }

    #[test]
    fn a_removal_of_the_partition_leaves_the_rest() {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3, "maxUnavailable": 2}});
        let (_, after) = patched(&document(&json!({"a": "b"}), &strategy), NewPartition::Remove, &[]).unwrap();
        assert_eq!(after["spec"]["updateStrategy"]["rollingUpdate"], json!({"maxUnavailable": 2}));
        assert!(
            patched(&document(&json!({"a": "b"}), &json!({"type": "RollingUpdate"})), NewPartition::Remove, &[])
                .is_none()
        );
    }

    #[test]
    fn annotations_of_others_stay() {
        let document = document(&json!({"foreign/one": "x", names::ALLOW_PARTITION: "1"}), &held());
        let changes = [(names::CLAIM, Some("pr")), (names::ALLOW_PARTITION, None), (names::REFUSED_PARTITION, None)];
        let (patch, after) = patched(&document, NewPartition::Keep, &changes).unwrap();
        assert_eq!(after["metadata"]["annotations"], json!({"foreign/one": "x", names::CLAIM: "pr"}));
        let paths: Vec<_> =
            serde_json::to_value(&patch).unwrap().as_array().unwrap().iter().map(|op| op["path"].clone()).collect();
        assert!(paths.contains(&json!("/metadata/annotations/sts.plus~1phased-rollout")), "{paths:?}");
    }

    #[test]
    fn the_first_annotation_makes_the_map_and_only_if_nobody_else_did() {
        let document = document(&Value::Null, &held());
        let (patch, after) = patched(&document, NewPartition::Keep, &[(names::CLAIM, Some("pr"))]).unwrap();
        assert_eq!(after["metadata"]["annotations"], json!({names::CLAIM: "pr"}));
        let mut meanwhile = document.clone();
        meanwhile["metadata"]["annotations"] = json!({"foreign": "x"});
        meanwhile["metadata"]["resourceVersion"] = json!("10");
        assert!(json_patch::patch(&mut meanwhile, &patch).is_err());
    }

    #[test]
    fn nothing_is_written_when_nothing_changes() {
        let document = document(&json!({names::CLAIM: "pr"}), &held());
        assert!(
            patched(&document, NewPartition::Set(3), &[(names::CLAIM, Some("pr")), (names::RELEASE, None)]).is_none()
        );
        assert!(patched(&document, NewPartition::Keep, &[]).is_none());
    }
}
