//! The objects: the ExtendedStatefulSet, what is known of its StatefulSets beside what Kubernetes knows, and its Services.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::{ExtendedStatefulSetStatus, VersionStrategyType, ZoneReplicas};
use sts_plus_decide::{ServiceView, VersionsObserved, child_name};

use super::Owner;
use crate::Shared;
use crate::world::{Pod, Release, Set, template_of};

/// The name of the ExtendedStatefulSet.
pub const OWNER: &str = "web";
/// Templates of one version, and one more than there are: what a hand has written into a StatefulSet.
const TEMPLATES: u32 = 16;
/// What a hand has written into a StatefulSet.
pub const BY_HAND: u32 = TEMPLATES - 1;

/// What stands in the annotations and labels of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marks {
    /// Its zone.
    pub zone: Option<String>,
    /// Its version.
    pub version: i32,
    /// Which template it was made from, and which settings.
    pub template: u32,
    /// The settings.
    pub settings: u32,
    /// Why it is stale, if it is marked so.
    pub stale: Option<String>,
}

/// One ExtendedStatefulSet in its cluster.
#[derive(Clone, Debug)]
pub struct World {
    /// StatefulSets, pods and time.
    pub native: crate::World,
    /// What people have written.
    pub owner: Shared<Owner>,
    /// Its status.
    pub status: Shared<ExtendedStatefulSetStatus>,
    /// The status before the last write of it.
    pub older: Shared<ExtendedStatefulSetStatus>,
    /// Counts the writes of the status, as `metadata.resourceVersion` does.
    pub status_version: u64,
    /// What stands at each StatefulSet.
    pub marks: Shared<BTreeMap<String, Marks>>,
    /// The templates and settings that are kept, by version.
    pub kept: Shared<BTreeMap<i32, (u32, u32)>>,
    /// StatefulSets of others that are in the way.
    pub foreign: Vec<String>,
    /// The Service that follows the version in charge.
    pub active: Option<ServiceView>,
    /// The Service that follows the newest version.
    pub preview: Option<ServiceView>,
    /// Zones that no node carries.
    pub closed_zones: Vec<String>,
    /// Templates that the API server refuses.
    pub refused: BTreeSet<u32>,
    /// Templates whose pods cannot be made.
    pub unmakeable: BTreeSet<u32>,
    /// How pods and metrics of a template behave; the default for those that are not named.
    pub releases: Shared<BTreeMap<u32, Release>>,
    /// True if the template says `podManagementPolicy: Parallel`.
    pub parallel: bool,
    /// When the operator decides again if nothing happens.
    pub wake: Option<i64>,
    /// What it saw last; it decides again when that changes.
    pub seen: Option<Shared<VersionsObserved>>,
    /// What the operator did that no operator may.
    pub breaches: Vec<String>,
}

impl World {
    /// Nothing but what was written.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        let mut native = crate::World::empty();
        // What is promised about pods is said anew, since here the version counts and not the revision.
        native.ledger.without_policy = true;
        Self {
            native,
            owner: owner.into(),
            status: Shared::default(),
            older: Shared::default(),
            status_version: 0,
            marks: Shared::default(),
            kept: Shared::default(),
            foreign: Vec::new(),
            active: None,
            preview: None,
            closed_zones: Vec::new(),
            refused: BTreeSet::new(),
            unmakeable: BTreeSet::new(),
            releases: Shared::default(),
            parallel: false,
            wake: None,
            seen: None,
            breaches: Vec::new(),
        }
    }

    /// True if its versions are in one StatefulSet.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.owner.spec.update_strategy.kind == VersionStrategyType::InPlace
    }

    /// How a template behaves.
    #[must_use]
    pub fn release(&self, template: u32) -> Release {
        self.releases.get(&template).copied().unwrap_or_default()
    }

    /// Pods that are made from now on behave as their templates say.
    pub fn behave(&mut self) {
        let written: BTreeSet<u32> = self.native.sets.values().map(|set| set.template).collect();
        let known: BTreeSet<u32> = self.native.releases.keys().copied().chain(written).collect();
        for number in known {
            let release = self.release(number % TEMPLATES);
            self.native.releases.insert(number, release);
            if self.unmakeable.contains(&(number % TEMPLATES)) {
                self.native.refused_templates.insert(number);
            } else {
                self.native.refused_templates.remove(&number);
            }
        }
    }

    /// The zones, each with the pods that are wanted there.
    #[must_use]
    pub fn wanted(&self) -> Vec<(Option<String>, i32)> {
        let replicas = self.owner.replicas();
        let zones = self.owner.spec.all_zones();
        let Ok(count) = i32::try_from(zones.len()) else { return Vec::new() };
        if count == 0 {
            return vec![(None, replicas)];
        }
        let share = |at: i32| match self.owner.spec.zone_replicas {
            ZoneReplicas::PerZone => replicas,
            ZoneReplicas::Spread => replicas / count + i32::from(at < replicas % count),
        };
        (0..count).zip(zones).map(|(at, zone)| (Some(zone.clone()), share(at))).collect()
    }

    /// Pods that are wanted in a zone; none if it is not in the list.
    #[must_use]
    pub fn wanted_in(&self, zone: Option<&String>) -> Option<i32> {
        self.wanted().into_iter().find(|(name, _)| name.as_ref() == zone).map(|(_, count)| count)
    }

    /// The name of a StatefulSet.
    #[must_use]
    pub fn name_of(&self, version: i32, zone: Option<&str>) -> String {
        child_name(OWNER, self.owner.spec.update_strategy.kind, version, zone)
    }

    /// The StatefulSets of a version: side by side those that are its own, in place all.
    pub fn sets_of(&self, version: i32) -> impl Iterator<Item = &Set> {
        let is_of =
            move |name: &String| self.is_in_place() || self.marks.get(name).is_some_and(|m| m.version == version);
        self.native.sets.iter().filter(move |(name, _)| is_of(name)).map(|(_, set)| set)
    }

    /// The StatefulSet of a version in a zone.
    #[must_use]
    pub fn set_in(&self, version: i32, zone: Option<&str>) -> Option<&Set> {
        let set = self.native.sets.get(&self.name_of(version, zone))?;
        (self.marks.get(&set.name)?.zone.as_deref() == zone).then_some(set)
    }

    /// True if pods can come up there. If no zone of the list is carried, all of them are waited for.
    #[must_use]
    pub fn is_carried(&self, zone: Option<&String>) -> bool {
        let is_closed = |zone: &String| self.closed_zones.contains(zone);
        !zone.is_some_and(is_closed) || self.owner.spec.all_zones().iter().all(is_closed)
    }

    /// All its pods are there and available, in every zone that is carried, and no other.
    #[must_use]
    pub fn is_complete(&self, version: i32) -> bool {
        let wanted = self.wanted();
        let mut zones = wanted.iter().filter(|(zone, _)| self.is_carried(zone.as_ref()));
        zones.all(|(zone, count)| match self.set_in(version, zone.as_deref()) {
            Some(set) => set.replicas == *count && self.native.is_whole(set) && self.is_at(set, version),
            None => *count == 0,
        })
    }

    /// All pods that are there carry the version.
    #[must_use]
    pub fn is_at(&self, set: &Set, version: i32) -> bool {
        set.pods.values().all(|pod| version_of(&pod.revision) == version)
    }

    /// Available pods that carry the version.
    #[must_use]
    pub fn available(&self, version: i32) -> usize {
        let is_one = |set: &Set, pod: &Pod| {
            version_of(&pod.revision) == version && pod.is_available(set.min_ready, self.native.now)
        };
        self.sets_of(version).map(|set| set.pods.values().filter(|pod| is_one(set, pod)).count()).sum()
    }

    /// Which template a version is made from, as far as anything tells.
    #[must_use]
    pub fn template_of_version(&self, version: i32) -> Option<u32> {
        let marked = self.marks.values().find(|marks| marks.version == version).map(|marks| marks.template);
        marked.or_else(|| self.kept.get(&version).map(|(template, _)| *template))
    }

    /// One line for each StatefulSet: name, version, replicas, partition and pods.
    #[must_use]
    pub fn layout(&self) -> String {
        let one = |set: &Set| {
            let pods = set.pods.iter().map(|(ordinal, pod)| {
                let mark = match (pod.gone_at, pod.ready) {
                    (Some(_), _) => "-",
                    (None, false) => "!",
                    (None, true) => "",
                };
                format!("{ordinal}:v{}{mark}", version_of(&pod.revision))
            });
            let pods = pods.collect::<Vec<_>>().join(" ");
            let partition = match set.partition {
                None => "none".to_owned(),
                Some(i32::MAX) => "hold".to_owned(),
                Some(at) => at.to_string(),
            };
            let stale = self.marks.get(&set.name).filter(|marks| marks.stale.is_some()).map_or("", |_| " stale");
            format!("{} of {} at v{} {partition}{stale} [{pods}]", set.name, set.replicas, set.template / TEMPLATES)
        };
        self.native.sets.values().map(one).collect::<Vec<_>>().join("; ")
    }
}

/// The number of a pod template for the native loop.
#[must_use]
pub fn number(version: i32, template: u32) -> u32 {
    u32::try_from(version).unwrap_or(0) * TEMPLATES + template
}

/// The version that a revision of a StatefulSet is of.
#[must_use]
pub fn version_of(revision: &str) -> i32 {
    i32::try_from(template_of(revision) / TEMPLATES).unwrap_or(0)
}

/// The template that a revision of a StatefulSet is of.
#[must_use]
pub fn content_of(revision: &str) -> u32 {
    template_of(revision) % TEMPLATES
}
