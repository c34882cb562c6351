//! The bodies of all writes. Pure.

use json_patch::Patch;
use serde_json::Value;
use sts_plus_api::{PhasedRollout, PhasedRolloutStatus, names};

use crate::patch::{self, remove, same_object, status_patch, test};

/// Adds our finalizer beside those of others. Nothing if it is there.
pub(super) fn add_finalizer(rollout: &PhasedRollout) -> Option<Patch> {
    patch::add_finalizer(rollout, names::FINALIZER)
}

/// Removes our finalizer and no other. Nothing if it is not there.
pub(super) fn remove_finalizer(rollout: &PhasedRollout) -> Option<Patch> {
    patch::remove_finalizer(rollout, names::FINALIZER)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
