//! What the streams have brought, what each kind is looked for by, and who is concerned by a change.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout};

use sts_plus_decide::RefusedPod;

use super::Cache;
use super::cache::{Key, Keyed};
use crate::views::{PodObject, RefusalObject, SetObject};

/// What is known of one scope without asking.
pub struct Caches {
    /// PhasedRollouts that could be decoded.
    pub rollouts: Cache<PhasedRollout>,
    /// ExtendedStatefulSets that could be decoded.
    pub owners: Cache<ExtendedStatefulSet>,
    /// All StatefulSets, projected.
    pub sets: Cache<SetObject>,
    /// The pods that StatefulSets control, projected.
    pub pods: Cache<PodObject>,
    /// Events about pods that could not be made. Nothing waits for them.
    pub refusals: Cache<RefusalObject>,
    /// Names and resource versions of all Services. Nothing waits for them.
    pub services: Cache<ServiceObject>,
}

/// A Service, of which only the metadata is sent.
pub type ServiceObject = PartialObjectMeta<Service>;

impl Caches {
    /// True if sets and pods are there to be decided on.
    #[must_use]
    pub fn are_ready(&self) -> bool {
        self.rollouts.is_ready() && self.sets.is_ready() && self.pods.is_ready()
    }

    /// Waits until they are, however long that takes. What we may not list is told where it is refused, and not waited for.
    pub async fn settle(&self) {
        tokio::join!(self.rollouts.ready(), self.sets.ready(), self.pods.ready());
    }

    /// A StatefulSet by name.
    #[must_use]
    pub fn set(&self, namespace: &str, name: &str) -> Option<Arc<SetObject>> {
        self.sets.get(&ObjectRef::new(name).within(namespace))
    }

    /// The StatefulSets that the ExtendedStatefulSet with this UID controls.
    #[must_use]
    pub fn sets_of(&self, namespace: &str, owner_uid: &str) -> Vec<Arc<SetObject>> {
        self.sets.find(&[OWNER, owner_uid], |set| set.namespace() == namespace && set.is_controlled_by(owner_uid))
    }

    /// The names of StatefulSets with this name, or this one and more after a dash, that the object with this UID does not control.
    #[must_use]
    pub fn foreign_sets(&self, namespace: &str, start: &str, owner_uid: &str) -> Vec<String> {
        let sets = self.sets.find(&[START, namespace, start], |set| {
            set.namespace() == namespace && set.name().starts_with(start) && !set.is_controlled_by(owner_uid)
        });
        sets.iter().map(|set| set.name().to_owned()).collect()
    }

    /// All ExtendedStatefulSets.
    #[must_use]
    pub fn all_owners(&self) -> Vec<ObjectRef<ExtendedStatefulSet>> {
        self.owners.state().iter().map(|owner| ObjectRef::from_obj(&**owner)).collect()
    }

    /// True if it is known which Services there are.
    #[must_use]
    pub fn know_services(&self) -> bool {
        self.services.is_ready()
    }

    /// The resource version of a Service. None if there is no such Service.
    #[must_use]
    pub fn service_version(&self, namespace: &str, name: &str) -> Option<String> {
        self.services.get(&ObjectRef::new(name).within(namespace))?.metadata.resource_version.clone()
    }

    /// The ExtendedStatefulSets that name a Service, or did and have not let it go yet. Its mark would not do: somebody may have taken it.
    #[must_use]
    pub fn owners_of_service(&self, namespace: &str, service: &str) -> Vec<ObjectRef<ExtendedStatefulSet>> {
        let concerned = self.owners.find(&[SERVICE, namespace, service], |owner| {
            owner.metadata.namespace.as_deref() == Some(namespace) && services_of(owner).any(|name| name == service)
        });
        concerned.iter().map(|owner| ObjectRef::from_obj(&**owner)).collect()
    }

    /// The pods that the StatefulSet with this UID controls.
    #[must_use]
    pub fn pods_of(&self, namespace: &str, set_uid: &str) -> Vec<Arc<PodObject>> {
        let is_its = |pod: &PodObject| pod.metadata.namespace.as_deref() == Some(namespace) && pod.belongs_to(set_uid);
        self.pods.find(&[SET, set_uid], is_its)
    }

    /// The pods that the controller of the StatefulSet with this UID could not make, newest first.
    #[must_use]
    pub fn refusals_of(&self, namespace: &str, set_uid: &str) -> Vec<RefusedPod> {
        let is_its =
            |event: &RefusalObject| event.metadata.namespace.as_deref() == Some(namespace) && event.is_about(set_uid);
        let mut pods: Vec<_> =
            self.refusals.find(&[SET, set_uid], is_its).iter().filter_map(|event| event.view()).collect();
        pods.sort_by_key(|pod| std::cmp::Reverse(pod.last));
        pods
    }

    /// The StatefulSets that a PhasedRollout claims and does not target.
    #[must_use]
    pub fn former_targets(&self, namespace: &str, rollout: &str, target: &str) -> Vec<Arc<SetObject>> {
        self.sets.find(&[CLAIM, namespace, rollout], |set| {
            set.namespace() == namespace && set.name() != target && set.claimed_by() == Some(rollout)
        })
    }

    /// The other PhasedRollouts with the same target, or one of its former ones, that are not being deleted.
    #[must_use]
    pub fn rivals_of(&self, rollout: &PhasedRollout, former: &[&str]) -> Vec<Arc<PhasedRollout>> {
        let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
        let targets = std::iter::once(rollout.spec.target_ref.as_str()).chain(former.iter().copied());
        let rivals = targets.flat_map(|target| {
            self.rollouts.find(&[TARGET, namespace, target], |other| {
                other.metadata.namespace == rollout.metadata.namespace
                    && other.metadata.name != rollout.metadata.name
                    && other.spec.target_ref == target
                    && other.metadata.deletion_timestamp.is_none()
            })
        });
        rivals.collect()
    }

    /// The PhasedRollouts that a change of the StatefulSet `set`, or of its pods, concerns: those that target it and the one that
    /// claims it.
    #[must_use]
    pub fn rollouts_of(
        &self,
        namespace: &str,
        set: &str,
        claimed_by: Option<&str>,
    ) -> HashSet<ObjectRef<PhasedRollout>> {
        let targeting = self.rollouts.find(&[TARGET, namespace, set], |rollout| {
            rollout.metadata.namespace.as_deref() == Some(namespace) && rollout.spec.target_ref == set
        });
        let claiming = claimed_by.and_then(|name| self.rollouts.get(&ObjectRef::new(name).within(namespace)));
        targeting.iter().chain(&claiming).map(|rollout| ObjectRef::from_obj(&**rollout)).collect()
    }

    /// All of them.
    #[must_use]
    pub fn all_rollouts(&self) -> Vec<ObjectRef<PhasedRollout>> {
        self.rollouts.state().iter().map(|rollout| ObjectRef::from_obj(&**rollout)).collect()
    }
}

/// The StatefulSet that a PhasedRollout targets.
const TARGET: &str = "target";
/// The PhasedRollout that claims a StatefulSet.
const CLAIM: &str = "claim";
/// What controls a StatefulSet.
const OWNER: &str = "owner";
/// What the name of a StatefulSet begins with.
const START: &str = "start";
/// The StatefulSet that controls a pod, or that an event is about.
const SET: &str = "set";
/// A Service of an ExtendedStatefulSet.
const SERVICE: &str = "service";

fn services_of(owner: &ExtendedStatefulSet) -> impl Iterator<Item = &String> {
    let strategy = &owner.spec.update_strategy;
    let named = strategy.active_service.iter().chain(&strategy.preview_service);
    named.chain(owner.status.iter().flat_map(|status| &status.services))
}

impl Keyed for PhasedRollout {
    fn keys(&self) -> Vec<Key> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        vec![Key::of(&[TARGET, namespace, &self.spec.target_ref])]
    }
}

impl Keyed for ExtendedStatefulSet {
    fn keys(&self) -> Vec<Key> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let services: HashSet<&String> = services_of(self).collect();
        services.into_iter().map(|service| Key::of(&[SERVICE, namespace, service])).collect()
    }
}

impl Keyed for SetObject {
    fn keys(&self) -> Vec<Key> {
        let (namespace, name) = (self.namespace(), self.name());
        let starts = name.match_indices('-').map(|(end, _)| &name[..end]).chain([name]);
        let claim = self.claimed_by().map(|rollout| Key::of(&[CLAIM, namespace, rollout]));
        let owner = self.controlled_by().map(|uid| Key::of(&[OWNER, uid]));
        starts.map(|start| Key::of(&[START, namespace, start])).chain(claim).chain(owner).collect()
    }
}

impl Keyed for PodObject {
    fn keys(&self) -> Vec<Key> {
        self.owner_set().map(|set| Key::of(&[SET, &set.uid])).into_iter().collect()
    }
}

impl Keyed for RefusalObject {
    fn keys(&self) -> Vec<Key> {
        self.set_uid().map(|uid| Key::of(&[SET, uid])).into_iter().collect()
    }
}

impl Keyed for ServiceObject {
    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::watch::Writer;

    fn filled<K: Keyed + serde::de::DeserializeOwned>(objects: Vec<Value>) -> Cache<K> {
        let mut writer = Writer::<K>::default();
        writer.apply(&Event::Init);
        for object in objects {
            writer.apply(&Event::InitApply(serde_json::from_value(object).unwrap()));
        }
        writer.apply(&Event::InitDone);
        writer.cache()
    }

    pub(in crate::watch) fn rollout(name: &str, target: &str) -> Value {
        json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": name, "namespace": "ns"}, "spec": {"targetRef": target, "skipCheck": true}})
    }

    pub(in crate::watch) fn caches() -> Caches {
        let elsewhere = json!({"apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout",
            "metadata": {"name": "far", "namespace": "other"}, "spec": {"targetRef": "web", "skipCheck": true}});
        let set = |name: &str, claim: Value| json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {"sts.plus/phased-rollout": claim}}});
        Caches {
            owners: filled(vec![
                owner("one", &json!("live"), &json!([])),
                owner("two", &json!(null), &json!(["live"])),
            ]),
            services: filled(vec![json!({"metadata": {"name": "live", "namespace": "ns", "resourceVersion": "7"}})]),
            rollouts: filled(vec![rollout("one", "web"), rollout("two", "web"), rollout("three", "db"), elsewhere]),
            sets: filled(vec![set("web", json!("one")), set("db", json!("one"))]),
            pods: filled(vec![json!({"metadata": {"name": "web-0", "namespace": "ns", "ownerReferences":
                [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": true}]}})]),
            refusals: filled(vec![
                refusal("one", "web-2", "2026-01-01T00:00:00Z"),
                refusal("two", "web-1", "2026-01-01T00:00:05Z"),
            ]),
        }
    }

    pub(in crate::watch) fn owner(name: &str, active: &Value, noted: &Value) -> Value {
        json!({"apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedStatefulSet",
            "metadata": {"name": name, "namespace": "ns"}, "status": {"services": noted},
            "spec": {"updateStrategy": {"activeService": active}, "template": {"spec": {"template": {}}}}})
    }

    #[test]
    fn a_service_concerns_those_that_name_it_and_those_that_have_not_let_it_go() {
        let caches = caches();
        let mut names: Vec<_> = caches.owners_of_service("ns", "live").into_iter().map(|owner| owner.name).collect();
        names.sort();
        assert_eq!(names, ["one", "two"]);
        assert!(caches.owners_of_service("ns", "next").is_empty());
        assert!(caches.owners_of_service("other", "live").is_empty());
        assert_eq!(caches.service_version("ns", "live").as_deref(), Some("7"));
        assert_eq!(caches.service_version("ns", "next"), None);
    }

    fn refusal(name: &str, pod: &str, last: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns"}, "involvedObject": {"name": "web", "uid": "web"},
            "message": format!("create Pod {pod} in StatefulSet web failed error: no"), "lastTimestamp": last})
    }

    #[test]
    fn refused_pods_are_found_by_the_uid_of_their_set_newest_first() {
        let pods: Vec<_> = caches().refusals_of("ns", "web").into_iter().map(|pod| pod.name).collect();
        assert_eq!(pods, ["web-1", "web-2"]);
        assert!(caches().refusals_of("ns", "another-web").is_empty());
    }

    pub(in crate::watch) fn names(refs: impl IntoIterator<Item = ObjectRef<PhasedRollout>>) -> Vec<String> {
        let mut names: Vec<String> = refs.into_iter().map(|r| r.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_set_concerns_its_targeters_and_its_claimer_in_its_namespace() {
        let caches = caches();
        assert_eq!(names(caches.rollouts_of("ns", "web", None)), ["one", "two"]);
        assert_eq!(names(caches.rollouts_of("ns", "db", Some("one"))), ["one", "three"]);
        assert!(caches.rollouts_of("ns", "none", None).is_empty());
    }

    #[test]
    fn former_targets_are_claimed_and_not_targeted() {
        let former = caches().former_targets("ns", "one", "web");
        assert_eq!(former.iter().map(|set| set.name()).collect::<Vec<_>>(), ["db"]);
    }

    #[test]
    fn rivals_have_the_same_target_and_another_name() {
        let caches = caches();
        let one: PhasedRollout = serde_json::from_value(rollout("one", "web")).unwrap();
        let names = |former: &[&str]| {
            let rivals = caches.rivals_of(&one, former);
            rivals.iter().filter_map(|rival| rival.metadata.name.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(names(&[]), BTreeSet::from(["two".to_owned()]));
        assert_eq!(names(&["db"]), BTreeSet::from(["two".to_owned(), "three".to_owned()]));
    }

    #[test]
    fn pods_are_found_by_the_uid_of_their_set() {
        assert_eq!(caches().pods_of("ns", "web").len(), 1);
        assert!(caches().pods_of("ns", "another-web").is_empty());
        assert!(caches().are_ready());
    }
}
