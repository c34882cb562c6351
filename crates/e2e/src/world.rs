//! How a namespace looks at one moment: its StatefulSets, pods, PhasedRollouts and ExtendedStatefulSets, with the questions that scenarios ask.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sts_plus_api::{ConditionType, ExtendedStatefulSet, Phase, PhasedRollout, PhasedRolloutStatus, names};

/// A namespace at one moment, by name.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// StatefulSets.
    pub sets: BTreeMap<String, StatefulSet>,
    /// Pods.
    pub pods: BTreeMap<String, Pod>,
    /// PhasedRollouts.
    pub rollouts: BTreeMap<String, PhasedRollout>,
    /// ExtendedStatefulSets.
    pub extended: BTreeMap<String, ExtendedStatefulSet>,
    /// The highest version seen of each kind, deletions included: each watch brings its kind in order.
    pub(crate) latest: [u64; 4],
}

impl World {
    /// The partition of `web`.
    pub fn partition(&self) -> Option<i32> {
        partition_of(self.sets.get("web")?)
    }

    /// The partition of a set.
    pub fn partition_of(&self, set: &str) -> Option<i32> {
        partition_of(self.sets.get(set)?)
    }

    /// True if `web` is under the full hold.
    pub fn is_held(&self) -> bool {
        self.partition() == Some(names::HOLD)
    }

    /// True if `gate` is about the newest revision of `web`.
    pub fn is_told(&self) -> bool {
        self.status().target_revision.as_deref() == Some(self.update_revision().as_str())
    }

    /// The status of `gate`; an empty one if there is none.
    pub fn status(&self) -> PhasedRolloutStatus {
        self.status_of("gate")
    }

    /// The status of a PhasedRollout; an empty one if there is none.
    pub fn status_of(&self, rollout: &str) -> PhasedRolloutStatus {
        self.rollouts.get(rollout).and_then(|rollout| rollout.status.clone()).unwrap_or_default()
    }

    /// Status and reason of a condition of `gate`, such as `True/Completed`.
    pub fn condition(&self, kind: ConditionType) -> String {
        self.condition_of("gate", kind)
    }

    /// Status and reason of a condition of a PhasedRollout.
    pub fn condition_of(&self, rollout: &str, kind: ConditionType) -> String {
        status_and_reason(&self.status_of(rollout).conditions, &kind.to_string())
    }

    /// The message of a condition of `gate`.
    pub fn message(&self, kind: ConditionType) -> String {
        self.message_of("gate", kind)
    }

    /// The message of a condition of a PhasedRollout.
    pub fn message_of(&self, rollout: &str, kind: ConditionType) -> String {
        message(&self.status_of(rollout).conditions, &kind.to_string()).to_owned()
    }

    /// True if `gate` has seen its own latest spec and is in `phase`.
    pub fn is(&self, phase: Phase) -> bool {
        let seen = |rollout: &PhasedRollout| {
            let status = rollout.status.clone().unwrap_or_default();
            status.phase == phase && status.observed_generation == rollout.metadata.generation
        };
        self.rollouts.get("gate").is_some_and(seen)
    }

    /// True if `gate` is complete, the pods carry `image` and are Ready, and the partition rests at the number of replicas.
    pub fn is_complete(&self, image: &str) -> bool {
        let replicas = self.sets.get("web").and_then(|set| set.spec.as_ref()?.replicas);
        self.is(Phase::Completed) && self.all_on(image) && self.partition() == replicas
    }

    /// True if `web` has as many Ready pods as it wants, all on `image`.
    pub fn all_on(&self, image: &str) -> bool {
        let Some(spec) = self.sets.get("web").and_then(|set| set.spec.as_ref()) else { return false };
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        self.pods.len() == wanted && self.pods.values().all(|pod| image_of(pod) == image && is_ready(pod))
    }

    /// The image of a pod; empty if it is not there.
    pub fn image(&self, pod: &str) -> &str {
        self.pods.get(pod).map_or("", image_of)
    }

    /// True if the pod is there, Ready, and on `image`.
    pub fn is_ready_on(&self, pod: &str, image: &str) -> bool {
        self.pods.get(pod).is_some_and(|pod| image_of(pod) == image && is_ready(pod))
    }

    /// The UIDs of the pods, by name.
    pub fn uids(&self) -> BTreeMap<String, String> {
        self.pods.iter().map(|(name, pod)| (name.clone(), uid_of(pod))).collect()
    }

    /// True if the StatefulSet controller has seen the latest spec of `web`. It writes this last in a run, so whatever it does
    /// because of that spec has been done.
    pub fn controller_has_seen(&self) -> bool {
        self.sets.get("web").is_some_and(|set| {
            let seen = set.status.as_ref().and_then(|status| status.observed_generation);
            seen.is_some() && seen >= set.metadata.generation
        })
    }

    /// `status.updateRevision` of `web`.
    pub fn update_revision(&self) -> String {
        let status = self.sets.get("web").and_then(|set| set.status.as_ref());
        status.and_then(|status| status.update_revision.clone()).unwrap_or_default()
    }

    /// Since when a pod is Ready.
    pub fn ready_since(&self, pod: &str) -> Option<Timestamp> {
        ready_since(self.pods.get(pod)?)
    }

    /// The highest version that was seen of anything.
    pub fn latest_version(&self) -> u64 {
        self.latest.into_iter().max().unwrap_or_default()
    }

    /// An annotation of `web`.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotation_of("web", key)
    }

    /// An annotation of a set.
    pub fn annotation_of(&self, set: &str, key: &str) -> Option<&str> {
        annotation_of(self.sets.get(set)?, key)
    }
}

/// The versions of everything in a namespace, as the API server has it stored.
pub(crate) struct Stored {
    sets: Versions,
    pods: Versions,
    rollouts: Versions,
    extended: Versions,
}

/// The versions of one kind, by name, and of the list itself.
type Versions = (BTreeMap<String, u64>, u64);

impl Stored {
    pub(crate) async fn read(client: &Client, namespace: &str) -> Self {
        let (sets, pods, rollouts, extended) = tokio::join!(
            versions::<StatefulSet>(client, namespace),
            versions::<Pod>(client, namespace),
            versions::<PhasedRollout>(client, namespace),
            versions::<ExtendedStatefulSet>(client, namespace),
        );
        Self { sets, pods, rollouts, extended }
    }

    /// True if `world` is at least as new.
    pub(crate) fn is_in(&self, world: &World) -> bool {
        let [sets, pods, rollouts, extended] = world.latest;
        is_in(&self.sets, &world.sets, sets)
            && is_in(&self.pods, &world.pods, pods)
            && is_in(&self.rollouts, &world.rollouts, rollouts)
            && is_in(&self.extended, &world.extended, extended)
    }
}

fn is_in<K: Resource>((stored, list): &Versions, seen: &BTreeMap<String, K>, latest: u64) -> bool {
    // One that is seen and not stored has been deleted, unless it is younger than the list.
    let is_known = |(name, object): (&String, &K)| stored.contains_key(name) || version_of(object) > *list;
    stored.values().all(|version| *version <= latest) && seen.iter().all(is_known)
}

fn version_of<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

async fn versions<K>(client: &Client, namespace: &str) -> Versions
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let list = api.list_metadata(&ListParams::default()).await.expect("objects can be listed");
    let version = list.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    let items = list.items.iter().map(|object| (object.name_any(), version_of(object)));
    (items.collect(), version.unwrap_or_default())
}

/// A condition as `status/reason`; empty if it is not there.
pub(crate) fn status_and_reason(conditions: &[Condition], kind: &str) -> String {
    find(conditions, kind).map(|found| format!("{}/{}", found.status, found.reason)).unwrap_or_default()
}

/// The message of a condition; empty if it is not there.
pub(crate) fn message<'a>(conditions: &'a [Condition], kind: &str) -> &'a str {
    find(conditions, kind).map_or("", |found| &found.message)
}

fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The partition of a StatefulSet.
pub fn partition_of(set: &StatefulSet) -> Option<i32> {
    set.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref()?.partition
}

/// The ordinal of the first pod of a StatefulSet.
pub fn start_of(set: &StatefulSet) -> i32 {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    ordinals.and_then(|ordinals| ordinals.start).unwrap_or_default()
}

/// An annotation of a StatefulSet.
pub fn annotation_of<'a>(set: &'a StatefulSet, key: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The first image of a pod template.
pub fn template_image(set: &StatefulSet) -> &str {
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.and_then(|spec| spec.containers.first()?.image.as_deref()).unwrap_or_default()
}

/// The first image of a pod.
pub fn image_of(pod: &Pod) -> &str {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.containers.first()?.image.as_deref()).unwrap_or_default()
}

/// The UID of a pod.
pub fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// The revision that a pod carries.
pub fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get("controller-revision-hash")).map_or("", String::as_str)
}

/// True if a pod is Ready and stays.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && ready_since(pod).is_some()
}

/// Since when a pod is Ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}
