//! What of an event is kept, and what is news. Pure.

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout};

use super::ServiceObject;
use crate::views::PodObject;

/// The event with its object changed.
pub(super) fn each<K>(event: Event<K>, change: impl FnOnce(K) -> K) -> Event<K> {
    match event {
        Event::Apply(object) => Event::Apply(change(object)),
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

/// An object that cannot be decoded is reported and skipped; if it could be decoded before, it is gone for us.
pub(super) fn decoded<K: Decoded>(event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
    let report = |bad: &kube::core::error_boundary::InvalidObject| {
        let (namespace, name) = (bad.metadata.namespace.as_deref(), bad.metadata.name.as_deref());
        tracing::error!(
            namespace,
            name,
            "this {} cannot be read and is skipped: {}",
            K::KIND,
            crate::errors::cut(&bad.error, 512)
        );
    };
    let event = each(event, |DeserializeGuard(object)| DeserializeGuard(object.map(shrunk)));
    match event {
        Event::Apply(DeserializeGuard(Ok(rollout))) => Some(Event::Apply(rollout)),
        Event::Apply(DeserializeGuard(Err(bad))) => {
            report(&bad);
            K::tombstone(bad.metadata).map(Event::Delete)
        }
        Event::InitApply(DeserializeGuard(Ok(rollout))) => Some(Event::InitApply(rollout)),
        Event::InitApply(DeserializeGuard(Err(bad))) => {
            report(&bad);
            None
        }
        Event::Delete(DeserializeGuard(Ok(rollout))) => Some(Event::Delete(rollout)),
        Event::Delete(DeserializeGuard(Err(bad))) => K::tombstone(bad.metadata).map(Event::Delete),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

/// What kubectl keeps of the whole object, for its own next `apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Without what is large and read by nobody here.
fn shrunk<K: Resource>(mut object: K) -> K {
    let metadata = object.meta_mut();
    metadata.managed_fields = None;
    if let Some(annotations) = metadata.annotations.as_mut() {
        annotations.remove(LAST_APPLIED);
    }
    object
}

/// A kind that may be stored in a form that cannot be read.
pub(super) trait Decoded: Resource + Sized {
    const KIND: &'static str;

    /// One that stands for an object of which only the metadata is known.
    fn tombstone(metadata: ObjectMeta) -> Option<Self>;

    /// True if its status says of what generation it is, as every status of ours does.
    fn has_status(&self) -> bool;
}

impl Decoded for PhasedRollout {
    const KIND: &'static str = "PhasedRollout";

    fn tombstone(metadata: ObjectMeta) -> Option<Self> {
        let spec = serde_json::from_value(serde_json::json!({"targetRef": ""})).ok()?;
        Some(Self { metadata, spec, status: None })
    }

    fn has_status(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.observed_generation.is_some())
    }
}

impl Decoded for ExtendedStatefulSet {
    const KIND: &'static str = "ExtendedStatefulSet";

    fn tombstone(metadata: ObjectMeta) -> Option<Self> {
        let spec = serde_json::from_value(serde_json::json!({"template": {}})).ok()?;
        Some(Self { metadata, spec, status: None })
    }

    fn has_status(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.observed_generation.is_some())
    }
}

/// Its name and its resource version are all that is kept.
pub(super) fn versioned(mut service: ServiceObject) -> ServiceObject {
    let ObjectMeta { name, namespace, resource_version, .. } = service.metadata;
    service.metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
    service
}

/// Pods that no StatefulSet controls are dropped; one that was let go is gone for us.
pub(super) fn owned(event: Event<PodObject>) -> Option<Event<PodObject>> {
    match event {
        Event::InitApply(pod) if pod.owner_set().is_none() => None,
        Event::Apply(pod) if pod.owner_set().is_none() => Some(Event::Delete(pod)),
        event => Some(event),
    }
}

/// True if something that people or other controllers write has changed, or if somebody has wiped the status. Our own writes of the status
/// are none: every decision would wake itself.
pub(super) fn is_news<K: Decoded>(before: Option<&K>, now: &K) -> bool {
    let Some(before) = before else { return true };
    let (was, is) = (before.meta(), now.meta());
    was.uid != is.uid
        || was.generation != is.generation
        || was.annotations != is.annotations
        || was.finalizers != is.finalizers
        || was.deletion_timestamp.is_some() != is.deletion_timestamp.is_some()
        || (before.has_status() && !now.has_status())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rollout(change: &Value) -> PhasedRollout {
        let mut value = json!({
            "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": "pr", "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"},
            "spec": {"targetRef": "web", "skipCheck": true},
        });
        json_patch::merge(&mut value, change);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_status_alone_is_no_news() {
        let (bare, status) = (rollout(&json!({})), json!({"phase": "Rolling", "observedGeneration": 1}));
        let written = rollout(&json!({"metadata": {"resourceVersion": "2"}, "status": status}));
        assert!(is_news(None, &bare));
        assert!(!is_news(Some(&bare), &written));
        assert!(is_news(Some(&written), &rollout(&json!({"status": {}}))), "somebody wiped it");
    }

    #[test]
    fn spec_annotations_finalizers_and_deletion_are_news() {
        for change in [
            json!({"metadata": {"generation": 2}}),
            json!({"metadata": {"annotations": {"sts.plus/retry": "1"}}}),
            json!({"metadata": {"finalizers": ["x"]}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"uid": "another"}}),
        ] {
            assert!(is_news(Some(&rollout(&json!({}))), &rollout(&change)), "{change}");
        }
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let metadata = json!({"managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "sts.plus/retry": "1"}});
        let guard = DeserializeGuard(Ok(rollout(&json!({ "metadata": metadata }))));
        let Some(Event::Apply(kept)) = decoded(Event::Apply(guard)) else { panic!("it is kept") };
        let annotations: Vec<_> = kept.metadata.annotations.into_iter().flatten().map(|(key, _)| key).collect();
        assert_eq!((kept.metadata.managed_fields, annotations), (None, vec!["sts.plus/retry".to_owned()]));
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_skipped_and_forgotten() {
        let bad = || -> DeserializeGuard<PhasedRollout> {
            serde_json::from_value(
                json!({"metadata": {"name": "pr", "namespace": "default"}, "spec": {"targetRef": 1}}),
            )
            .unwrap()
        };
        assert!(decoded(Event::InitApply(bad())).is_none());
        assert!(
            matches!(decoded(Event::Apply(bad())), Some(Event::Delete(gone)) if gone.metadata.name.as_deref() == Some("pr"))
        );
    }

    #[test]
    fn a_pod_that_is_let_go_is_gone() {
        let pod = |owners: Value| -> PodObject {
            serde_json::from_value(json!({"metadata": {"name": "web-0", "ownerReferences": owners}})).unwrap()
        };
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true}]);
        assert!(matches!(owned(Event::Apply(pod(owner.clone()))), Some(Event::Apply(_))));
        assert!(matches!(owned(Event::Apply(pod(json!([])))), Some(Event::Delete(_))));
        assert!(owned(Event::InitApply(pod(json!([])))).is_none());
        assert!(matches!(owned(Event::InitApply(pod(owner))), Some(Event::InitApply(_))));
    }
}
