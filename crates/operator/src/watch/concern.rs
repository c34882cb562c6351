//! Whom a change concerns. Without a client.

use std::collections::HashSet;

use kube::Resource as _;
use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout, names};

use super::cache::{Change, Keyed};
use super::caches::{Caches, ServiceObject};
use super::interest::is_news;
use crate::views::{PodObject, RefusalObject, SetObject};

/// Who looks again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Concerned {
    pub(super) rollouts: HashSet<ObjectRef<PhasedRollout>>,
    pub(super) owners: HashSet<ObjectRef<ExtendedStatefulSet>>,
}

/// A kind of which a change makes somebody look again.
pub(super) trait Concerns: Keyed {
    /// Who that is. `caches` know the change already.
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned;
}

impl Concerned {
    /// The ExtendedStatefulSet that made a StatefulSet or pod with these labels, if it is there.
    fn maker_of(&mut self, metadata: &ObjectMeta, caches: &Caches) {
        let label = metadata.labels.as_ref().and_then(|labels| labels.get(names::OWNER));
        if let (Some(owner), Some(namespace)) = (label, &metadata.namespace) {
            let owner = caches.owners.get(&ObjectRef::new(owner).within(namespace));
            self.owners.extend(owner.iter().map(|owner| ObjectRef::from_obj(&**owner)));
        }
    }
}

/// The object itself and its rivals, but not for a status that we wrote.
impl Concerns for PhasedRollout {
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        if change.now.as_ref().is_none_or(|now| is_news(change.before.as_deref(), now)) {
            for rollout in change.objects() {
                let rivals = caches.rivals_of(rollout, &[]);
                concerned.rollouts.insert(ObjectRef::from_obj(rollout));
                concerned.rollouts.extend(rivals.iter().map(|rival| ObjectRef::from_obj(&**rival)));
            }
        }
        concerned
    }
}

/// The object itself, but not for a status that we wrote.
impl Concerns for ExtendedStatefulSet {
    fn concerned(change: &Change<Self>, _: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        if change.now.as_ref().is_none_or(|now| is_news(change.before.as_deref(), now)) {
            concerned.owners.extend(change.objects().map(ObjectRef::from_obj));
        }
        concerned
    }
}

/// The PhasedRollouts that target or claim it, or did, and the ExtendedStatefulSet that made it.
impl Concerns for SetObject {
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        for set in change.objects() {
            concerned.maker_of(set.meta(), caches);
            concerned.rollouts.extend(caches.rollouts_of(set.namespace(), set.name(), set.claimed_by()));
        }
        concerned
    }
}

/// Those that the StatefulSet concerns which controls it.
impl Concerns for PodObject {
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        for pod in change.objects() {
            concerned.maker_of(&pod.metadata, caches);
            if let (Some(namespace), Some(owner)) = (pod.metadata.namespace.as_deref(), pod.owner_set()) {
                let claim = caches.set(namespace, &owner.name).and_then(|set| set.claimed_by().map(str::to_owned));
                concerned.rollouts.extend(caches.rollouts_of(namespace, &owner.name, claim.as_deref()));
            }
        }
        concerned
    }
}

/// A pod that could not be made (a quota, a policy): those that target the StatefulSet, and the ExtendedStatefulSet that made it, say why they
/// wait.
impl Concerns for RefusalObject {
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        if let Some(event) = &change.now
            && let (Some(namespace), Some(name)) = (event.metadata.namespace.as_deref(), event.set())
        {
            let set = caches.set(namespace, name);
            let claim = set.as_ref().and_then(|set| set.claimed_by());
            concerned.rollouts.extend(caches.rollouts_of(namespace, name, claim));
            if let Some(set) = &set {
                concerned.maker_of(set.meta(), caches);
            }
        }
        concerned
    }
}

/// The ExtendedStatefulSets whose versions it selects. Which ones these are says the name: the mark of ours is an annotation, by which the API
/// server selects nothing.
impl Concerns for ServiceObject {
    fn concerned(change: &Change<Self>, caches: &Caches) -> Concerned {
        let mut concerned = Concerned::default();
        for service in change.objects() {
            if let (Some(namespace), Some(name)) = (&service.metadata.namespace, &service.metadata.name) {
                concerned.owners.extend(caches.owners_of_service(namespace, name));
            }
        }
        concerned
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::watch::caches::tests::{caches, names, rollout};

    fn change<K: DeserializeOwned>(before: Option<Value>, now: Option<Value>) -> Change<K> {
        let object = |value| Arc::new(serde_json::from_value(value).unwrap());
        Change { before: before.map(object), now: now.map(object) }
    }

    fn set(annotations: &Value) -> Value {
        json!({"metadata": {"name": "other", "namespace": "ns", "uid": "o", "annotations": annotations,
            "labels": {names::OWNER: "two"}}})
    }

    fn woken<K: Concerns>(change: &Change<K>) -> Vec<String> {
        names(K::concerned(change, &caches()).rollouts)
    }

    #[test]
    fn who_claimed_a_set_hears_that_the_claim_is_gone() {
        let lost = change::<SetObject>(Some(set(&json!({names::CLAIM: "three"}))), Some(set(&json!({}))));
        assert_eq!(woken(&lost), ["three"]);
        let owners = SetObject::concerned(&lost, &caches()).owners;
        assert_eq!(owners.into_iter().map(|owner| owner.name).collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn a_pod_that_its_set_has_let_go_concerns_those_that_roll_the_set() {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": true}]);
        let pod = |owners: Value| json!({"metadata": {"name": "web-0", "namespace": "ns", "ownerReferences": owners}});
        assert_eq!(woken(&change::<PodObject>(Some(pod(owner.clone())), None)), ["one", "two"]);
        assert_eq!(woken(&change::<PodObject>(None, Some(pod(owner)))), ["one", "two"]);
        assert!(woken(&change::<PodObject>(None, Some(pod(json!([]))))).is_empty());
    }

    #[test]
    fn rivals_hear_of_news_and_nobody_hears_of_a_status() {
        let status = |phase: &str| {
            let mut value = rollout("one", "web");
            value["status"] = json!({"phase": phase, "observedGeneration": 1});
            value
        };
        assert_eq!(woken(&change::<PhasedRollout>(None, Some(status("Idle")))), ["one", "two"]);
        assert!(woken(&change::<PhasedRollout>(Some(status("Idle")), Some(status("Rolling")))).is_empty());
        assert_eq!(woken(&change::<PhasedRollout>(Some(status("Idle")), None)), ["one", "two"]);
    }

    #[test]
    fn a_pod_that_could_not_be_made_concerns_those_that_roll_its_set() {
        let event =
            json!({"metadata": {"name": "e", "namespace": "ns"}, "involvedObject": {"name": "web", "uid": "web"}});
        assert_eq!(woken(&change::<RefusalObject>(None, Some(event.clone()))), ["one", "two"]);
        assert!(woken(&change::<RefusalObject>(Some(event), None)).is_empty(), "it got old");
    }
}
