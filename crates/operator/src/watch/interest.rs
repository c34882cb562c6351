//! What of an event is kept, and what is news. Pure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

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

/// A kind that may be stored in a form that cannot be read.
pub(super) trait Decoded: Sized {
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

/// What was seen of each object, so that a write of its status alone is no news: every decision would wake itself.
#[derive(Debug, Default)]
pub(super) struct Seen {
    last: HashMap<(Option<String>, Option<String>), Last>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    hash: u64,
    has_status: bool,
}

impl Seen {
    /// True if something that people or other controllers write has changed, or if somebody has wiped the status.
    pub(super) fn is_news(&mut self, object: &(impl Resource + Decoded)) -> bool {
        let meta = object.meta();
        let mut hasher = DefaultHasher::new();
        meta.uid.hash(&mut hasher);
        meta.generation.hash(&mut hasher);
        meta.annotations.hash(&mut hasher);
        meta.finalizers.hash(&mut hasher);
        meta.deletion_timestamp.is_some().hash(&mut hasher);
        let now = Last { hash: hasher.finish(), has_status: object.has_status() };
        let before = self.last.insert(key(object), now);
        before.is_none_or(|before| before.hash != now.hash || (before.has_status && !now.has_status))
    }

    pub(super) fn forget(&mut self, object: &impl Resource) {
        self.last.remove(&key(object));
    }
}

fn key(object: &impl Resource) -> (Option<String>, Option<String>) {
    (object.meta().namespace.clone(), object.meta().name.clone())
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
        let mut seen = Seen::default();
        assert!(seen.is_news(&rollout(&json!({}))));
        let status =
            json!({"metadata": {"resourceVersion": "2"}, "status": {"phase": "Rolling", "observedGeneration": 1}});
        assert!(!seen.is_news(&rollout(&status)));
        assert!(seen.is_news(&rollout(&json!({"status": {}}))), "somebody wiped it");
        assert!(!seen.is_news(&rollout(&status)), "it is written anew");
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
            let mut seen = Seen::default();
            seen.is_news(&rollout(&json!({})));
            assert!(seen.is_news(&rollout(&change)), "{change}");
        }
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
