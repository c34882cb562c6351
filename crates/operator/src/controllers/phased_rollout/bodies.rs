//! The bodies of all writes. Pure.

use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};
use sts_plus_api::{PhasedRollout, PhasedRolloutStatus, names};
use sts_plus_decide::NewPartition;

use crate::patch::{add, remove, status_patch, test};
use crate::views::SetObject;

const ROLLING_UPDATE: [&str; 3] = ["spec", "updateStrategy", "rollingUpdate"];

/// One patch of a StatefulSet that is refused if its spec is not the one that was read. Nothing if there is nothing to write.
pub(super) fn set_patch(
    set: &SetObject,
    uid: &str,
    generation: i64,
    partition: NewPartition,
    annotations: &BTreeMap<&'static str, Option<String>>,
) -> Option<Patch> {
    let mut changes = partition_change(set, partition);
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

fn partition_change(set: &SetObject, partition: NewPartition) -> Vec<PatchOperation> {
    let view = set.view();
    let field = ROLLING_UPDATE.into_iter().chain(["partition"]);
    match partition {
        NewPartition::Set(value) if view.partition == Some(value) => Vec::new(),
        NewPartition::Set(value) if view.has_rolling_update => vec![add(field, value)],
        NewPartition::Set(value) => vec![add(ROLLING_UPDATE, json!({"partition": value}))],
        NewPartition::Remove if view.partition.is_some() => vec![remove(field)],
        NewPartition::Keep | NewPartition::Remove => Vec::new(),
    }
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

/// Adds our finalizer beside those of others. Nothing if it is there.
pub(super) fn add_finalizer(rollout: &PhasedRollout) -> Option<Patch> {
    let finalizers = rollout.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == names::FINALIZER) {
        return None;
    }
    let write = if rollout.metadata.finalizers.is_some() {
        add(["metadata", "finalizers", "-"], names::FINALIZER)
    } else {
        add(["metadata", "finalizers"], json!([names::FINALIZER]))
    };
    Some(Patch(vec![same_object(rollout), same_version(rollout), write]))
}

/// Removes our finalizer and no other. Nothing if it is not there.
pub(super) fn remove_finalizer(rollout: &PhasedRollout) -> Option<Patch> {
    let finalizers = rollout.metadata.finalizers.as_deref().unwrap_or_default();
    let at = finalizers.iter().position(|finalizer| finalizer == names::FINALIZER)?.to_string();
    let path = ["metadata", "finalizers", at.as_str()];
    Some(Patch(vec![same_object(rollout), test(path, names::FINALIZER), remove(path)]))
}

/// Removes an annotation that has the value that was read. Nothing if it is not there.
pub(super) fn consume_annotation(rollout: &PhasedRollout, key: &str) -> Option<Patch> {
    let value = rollout.metadata.annotations.as_ref()?.get(key)?;
    let path = ["metadata", "annotations", key];
    Some(Patch(vec![same_object(rollout), test(path, value.as_str()), remove(path)]))
}

/// The whole status; see [`status_patch`].
pub(super) fn status(rollout: &PhasedRollout, resource_version: Option<&str>, status: &PhasedRolloutStatus) -> Value {
    status_patch(rollout, resource_version, &rollout.status, status)
}

fn same_object(rollout: &PhasedRollout) -> PatchOperation {
    test(["metadata", "uid"], rollout.metadata.uid.as_deref())
}

fn same_version(rollout: &PhasedRollout) -> PatchOperation {
    test(["metadata", "resourceVersion"], rollout.metadata.resource_version.as_deref())
}

#[cfg(test)]
mod tests {
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

    fn rollout(finalizers: &Value, annotations: &Value) -> (PhasedRollout, Value) {
        let mut document = json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": "pr", "namespace": "ns", "uid": "u", "resourceVersion": "9"},
            "spec": {"targetRef": "web", "skipCheck": true}});
        for (key, value) in [("finalizers", finalizers), ("annotations", annotations)] {
            if !value.is_null() {
                document["metadata"][key] = value.clone();
            }
        }
        (serde_json::from_value(document.clone()).unwrap(), document)
    }

    #[test]
    fn finalizers_of_others_stay() {
        let (object, mut document) = rollout(&json!(["a/b", "c/d"]), &Value::Null);
        json_patch::patch(&mut document, &add_finalizer(&object).unwrap()).unwrap();
        assert_eq!(document["metadata"]["finalizers"], json!(["a/b", "c/d", names::FINALIZER]));
        let (object, mut document) = rollout(&json!(["a/b", names::FINALIZER, "c/d"]), &Value::Null);
        assert!(add_finalizer(&object).is_none());
        json_patch::patch(&mut document, &remove_finalizer(&object).unwrap()).unwrap();
        assert_eq!(document["metadata"]["finalizers"], json!(["a/b", "c/d"]));
        let (object, mut document) = rollout(&Value::Null, &Value::Null);
        assert!(remove_finalizer(&object).is_none());
        json_patch::patch(&mut document, &add_finalizer(&object).unwrap()).unwrap();
        assert_eq!(document["metadata"]["finalizers"], json!([names::FINALIZER]));
    }

    #[test]
    fn a_finalizer_that_moved_is_not_removed_by_its_old_place() {
        let (object, _) = rollout(&json!(["a/b", names::FINALIZER]), &Value::Null);
        let (_, mut document) = rollout(&json!([names::FINALIZER]), &Value::Null);
        assert!(json_patch::patch(&mut document, &remove_finalizer(&object).unwrap()).is_err());
    }

    #[test]
    fn an_annotation_is_consumed_with_the_value_that_was_honoured() {
        let (object, mut document) = rollout(&Value::Null, &json!({names::APPROVE: "web-a/1", "other": "x"}));
        let patch = consume_annotation(&object, names::APPROVE).unwrap();
        let mut changed = document.clone();
        changed["metadata"]["annotations"][names::APPROVE] = json!("web-b/1");
        assert!(json_patch::patch(&mut changed, &patch).is_err());
        json_patch::patch(&mut document, &patch).unwrap();
        assert_eq!(document["metadata"]["annotations"], json!({"other": "x"}));
        assert!(consume_annotation(&object, names::RETRY).is_none());
    }

    #[test]
    fn a_status_carries_the_version_that_it_is_based_on() {
        let (object, _) = rollout(&Value::Null, &Value::Null);
        let body = status(&object, Some("12"), &PhasedRolloutStatus::default());
        assert_eq!(body["metadata"], json!({"name": "pr", "namespace": "ns", "uid": "u", "resourceVersion": "12"}));
        assert_eq!(
            (body["apiVersion"].as_str(), body["kind"].as_str()),
            (Some("sts.plus/v1alpha1"), Some("PhasedRollout"))
        );
        assert!(body.get("spec").is_none());
    }

    #[test]
    fn a_status_takes_away_what_is_not_in_it() {
        let (mut object, _) = rollout(&Value::Null, &Value::Null);
        let current =
            json!({"index": 1, "pod": "web-1", "step": "Pod", "since": "2026-01-01T00:00:00Z", "failed": true});
        let before =
            json!({"phase": "Held", "neverHealthy": true, "current": current, "rejectedRevisions": ["a", "b"]});
        let after = json!({"phase": "Idle", "current": {"index": 0, "pod": "web-0", "step": "Pod"}, "rejectedRevisions": ["b"]});
        let after: PhasedRolloutStatus = serde_json::from_value(after).unwrap();
        object.status = Some(serde_json::from_value(before.clone()).unwrap());
        let mut document = json!({"status": object.status});
        json_patch::merge(&mut document, &status(&object, None, &after));
        assert_eq!(document["status"], json!(after));
    }
}
