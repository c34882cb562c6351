//! What follows from the children: which versions there are, and which of their pods are available. Never from the counters of a
//! StatefulSet's status, which lie (native-statefulset: counts include terminating pods).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sts_plus_api::VersionStrategyType;

use crate::{
    observed::PodView,
    pods::{available_at, describe_pod, describe_refused, is_lost, is_ready, lost_at, unready_since},
    time::after,
    versions::observed::{ChildView, OwnerView, VersionsObserved},
};

/// The name of the StatefulSet of a version: `<name>-v<N>`, with zones `<name>-<zone>-v<N>`; in place without the version.
#[must_use]
pub fn child_name(name: &str, kind: VersionStrategyType, version: i32, zone: Option<&str>) -> String {
    let zone = zone.map(|zone| format!("-{zone}")).unwrap_or_default();
    match kind {
        VersionStrategyType::SideBySide => format!("{name}{zone}-v{version}"),
        VersionStrategyType::InPlace => format!("{name}{zone}"),
    }
}

/// In place: the versions of the StatefulSets and of their pods, and those that the status knows. None without a StatefulSet.
fn versions_in_place(observed: &VersionsObserved) -> BTreeSet<i32> {
    let status = &observed.owner.status;
    let upgrade = status.upgrade.as_ref().map(|upgrade| upgrade.version);
    let noted = upgrade.into_iter().chain(status.current_version).filter(|_| !observed.children.is_empty());
    let pods = observed.children.iter().flat_map(|child| &child.pods).filter_map(|pod| pod.version);
    observed.children.iter().map(|child| child.version).chain(pods).chain(noted).collect()
}

/// A pod that does not come up, or that leaves and is not ended.
struct Awaited {
    since: Timestamp,
    /// The pod, what is the matter, and since when.
    what: String,
}

/// Why the controller of the StatefulSet cannot make a pod that is not there, if it said so.
pub(super) fn why_missing(child: &ChildView) -> Option<String> {
    let refused = child.refused.as_ref().filter(|refused| child.pods.iter().all(|pod| pod.name != refused.name));
    refused.and_then(|refused| describe_refused(refused, child.changed))
}

pub(super) struct World<'a> {
    pub(super) observed: &'a VersionsObserved,
    pub(super) now: Timestamp,
    /// The zones in their order, each with the pods that it should have.
    pub(super) zones: Vec<(Option<String>, i32)>,
    pub(super) is_in_place: bool,
    versions: BTreeMap<i32, Vec<&'a ChildView>>,
}

impl<'a> World<'a> {
    pub(super) fn new(observed: &'a VersionsObserved, zones: Vec<(Option<String>, i32)>, now: Timestamp) -> Self {
        let is_in_place = observed.owner.spec.update_strategy.kind == VersionStrategyType::InPlace;
        let mut children: Vec<&ChildView> = observed.children.iter().collect();
        children.sort_by(|a, b| a.name.cmp(&b.name));
        let mut versions: BTreeMap<i32, Vec<&ChildView>> = BTreeMap::new();
        if is_in_place {
            // Every version is in the same StatefulSets.
            versions.extend(versions_in_place(observed).into_iter().map(|version| (version, children.clone())));
        } else {
            for child in children {
                versions.entry(child.version).or_default().push(child);
            }
        }
        Self { observed, now, zones, is_in_place, versions }
    }

    /// True if the zone of the StatefulSet is in the list.
    pub(super) fn is_listed(&self, child: &ChildView) -> bool {
        self.zones.iter().any(|(zone, _)| *zone == child.zone)
    }

    /// The versions of which there is a StatefulSet, in ascending order.
    pub(super) fn versions(&self) -> impl DoubleEndedIterator<Item = i32> + '_ {
        self.versions.keys().copied()
    }

    pub(super) fn children(&self, version: i32) -> &[&'a ChildView] {
        self.versions.get(&version).map_or(&[], Vec::as_slice)
    }

    pub(super) fn child(&self, version: i32, zone: Option<&str>) -> Option<&'a ChildView> {
        self.children(version).iter().copied().find(|child| child.zone.as_deref() == zone)
    }

    /// The digest of a version. In place only that of the newest one is at a StatefulSet.
    pub(super) fn hash_of(&self, version: i32) -> Option<&'a str> {
        let child = self.children(version).iter().find(|child| child.version == version);
        let kept = || self.observed.kept.get(&version).map(String::as_str);
        let noted = || self.observed.owner.status.details.iter().find(|detail| detail.version == version);
        let noted = || noted().map(|detail| detail.hash.as_str()).filter(|_| self.is_in_place);
        child.map(|child| child.hash.as_str()).or_else(kept).or_else(noted).filter(|hash| !hash.is_empty())
    }

    /// The pods of a StatefulSet that carry the version.
    pub(super) fn pods_at(&self, child: &'a ChildView, version: i32) -> impl Iterator<Item = &'a PodView> {
        let is_in_place = self.is_in_place;
        child.pods.iter().filter(move |pod| !is_in_place || pod.version == Some(version))
    }

    /// The name of a StatefulSet; see [`child_name`].
    pub(super) fn name_of(&self, version: i32, zone: Option<&str>) -> String {
        let OwnerView { name, spec, .. } = &self.observed.owner;
        child_name(name, spec.update_strategy.kind, version, zone)
    }

    /// A StatefulSet that is not ours and has the name of one that the version still needs.
    pub(super) fn conflict(&self, version: i32) -> Option<String> {
        let missing = self.zones.iter().filter(|(zone, _)| self.child(version, zone.as_deref()).is_none());
        let name = missing
            .map(|(zone, _)| self.name_of(version, zone.as_deref()))
            .find(|name| self.observed.foreign.contains(name))?;
        Some(format!(
            "StatefulSet {name} exists and does not belong to this ExtendedStatefulSet: delete or rename one of them; no pod is started"
        ))
    }

    /// Pods that are wanted over all zones.
    pub(super) fn wanted(&self) -> i32 {
        self.zones.iter().map(|(_, count)| *count).fold(0, i32::saturating_add)
    }

    pub(super) fn is_available(&self, child: &ChildView, pod: &PodView) -> bool {
        available_at(pod, child.min_ready_seconds, self.now).is_some_and(|at| at <= self.now)
    }

    /// What keeps `count` pods of the child from being there and available.
    pub(super) fn obstacle(&self, child: Option<&ChildView>, name: &str, count: i32) -> Option<String> {
        let Some(child) = child else {
            return (count > 0).then(|| format!("StatefulSet {name} does not exist yet"));
        };
        let unavailable = child.pods.iter().find(|pod| !self.is_available(child, pod));
        if let Some(pod) = unavailable {
            return Some(describe_pod(pod, child.min_ready_seconds, self.now));
        }
        let there = i32::try_from(child.pods.len()).unwrap_or(i32::MAX);
        if there != count {
            let refused = || why_missing(child).filter(|_| there < count);
            let why = child.in_the_way.clone().or_else(refused).map(|why| format!(": {why}")).unwrap_or_default();
            return Some(format!("StatefulSet {name} has {there} of {count} pods{why}"));
        }
        (child.replicas != count)
            .then(|| format!("StatefulSet {name} is to have {count} pods and not {}", child.replicas))
    }

    /// True if pods can come up in the zone: a node carries it. If no node carries any, all of them are waited for.
    pub(super) fn is_carried(&self, zone: Option<&str>) -> bool {
        let empty = &self.observed.empty_zones;
        let is_empty = |zone: Option<&str>| zone.is_some_and(|zone| empty.iter().any(|empty| empty == zone));
        !is_empty(zone) || self.zones.iter().all(|(zone, _)| is_empty(zone.as_deref()))
    }

    /// True if the zone is waited for: pods can come up there, or one that is Ready has to be kept.
    pub(super) fn is_served(&self, zone: Option<&str>) -> bool {
        let is_there = |child: &ChildView| child.zone.as_deref() == zone;
        self.is_carried(zone)
            || self.observed.children.iter().any(|child| is_there(child) && child.pods.iter().any(is_ready))
    }

    /// True if pods are wanted in a zone where none can come up.
    pub(super) fn has_empty_zone(&self) -> bool {
        self.zones.iter().any(|(zone, count)| *count > 0 && !self.is_carried(zone.as_deref()))
    }

    /// The zones that are waited for.
    fn served(&self) -> impl Iterator<Item = &(Option<String>, i32)> {
        self.zones.iter().filter(|(zone, _)| self.is_served(zone.as_deref()))
    }

    /// The zone of the canaries, with its pods: the one in which the version has pods already, in whatever order the list is by now, else
    /// the first one in which pods can come up.
    pub(super) fn canary_zone(&self, version: i32) -> Option<(Option<&str>, i32)> {
        let has_begun = |(zone, count): &&(Option<String>, i32)| *count > 0 && self.has_begun(version, zone.as_deref());
        let carried = || self.zones.iter().filter(|(zone, _)| self.is_carried(zone.as_deref()));
        let zone = carried().find(has_begun).or_else(|| carried().next());
        zone.map(|(zone, count)| (zone.as_deref(), *count))
    }

    /// True if the version has pods in the zone, or is about to.
    pub(super) fn has_begun(&self, version: i32, zone: Option<&str>) -> bool {
        self.child(version, zone).is_some_and(|child| child.replicas > 0)
    }

    /// What keeps the version from having all its pods available in every zone that is waited for.
    pub(super) fn obstacle_of(&self, version: i32) -> Option<String> {
        self.obstacle_in(version, self.served())
    }

    /// A version that all listed zones run, with all their pods. Zones that were dropped decide nothing.
    pub(super) fn stands(&self, version: i32) -> bool {
        let carries = |child: &ChildView| child.pods.iter().all(|pod| pod.version == Some(version));
        let is_carried = |(zone, _): &(Option<String>, i32)| self.child(version, zone.as_deref()).is_some_and(carries);
        self.obstacle_of(version).is_none() && (!self.is_in_place || self.zones.iter().all(is_carried))
    }

    /// Why the version is stale, as its StatefulSets are marked.
    pub(super) fn stale(&self, version: i32) -> Option<&'a str> {
        let mut marked = self.children(version).iter().filter(|child| child.version == version);
        marked.find_map(|child| child.stale.as_deref())
    }

    /// The same for all zones.
    pub(super) fn obstacle_anywhere(&self, version: i32) -> Option<String> {
        self.obstacle_in(version, self.zones.iter())
    }

    fn obstacle_in<'z>(
        &self,
        version: i32,
        mut zones: impl Iterator<Item = &'z (Option<String>, i32)>,
    ) -> Option<String> {
        zones.find_map(|(zone, count)| {
            let name = self.name_of(version, zone.as_deref());
            self.obstacle(self.child(version, zone.as_deref()), &name, *count)
        })
    }

    /// The same for the zones that it has: where it has none, one may be about to be made, or not be known any more.
    pub(super) fn obstacle_of_those_there(&self, version: i32) -> Option<String> {
        self.served().find_map(|(zone, count)| {
            let child = self.child(version, zone.as_deref())?;
            self.obstacle(Some(child), &child.name, *count)
        })
    }

    pub(super) fn has_ready(&self, version: i32) -> bool {
        self.children(version).iter().any(|child| self.pods_at(child, version).any(is_ready))
    }

    pub(super) fn has_pods(&self, version: i32) -> bool {
        self.children(version).iter().any(|child| !child.pods.is_empty() || child.replicas > 0)
    }

    /// A pod that leaves and that nobody ends, in words: its node may be gone, and it is never deleted by force.
    pub(super) fn lost(&self, children: &[&ChildView]) -> Option<String> {
        let (child, pod) = children.iter().find_map(|child| {
            let pod = child.pods.iter().find(|pod| is_lost(pod, self.now))?;
            Some((child, pod))
        })?;
        Some(describe_pod(pod, child.min_ready_seconds, self.now))
    }

    /// When the next pod becomes available, or counts as lost, or one of the version in charge has not come up in time, by time alone.
    pub(super) fn next_change(&self, current: Option<i32>) -> Option<Timestamp> {
        let of = |child: &ChildView, pod: &PodView| {
            lost_at(pod).or_else(|| available_at(pod, child.min_ready_seconds, self.now)).filter(|at| *at > self.now)
        };
        let children = self.observed.children.iter();
        let changes = children.flat_map(|child| child.pods.iter().filter_map(move |pod| of(child, pod)));
        let awaited = current.into_iter().flat_map(|version| self.awaited(version)).map(|pod| self.deadline(&pod));
        changes.chain(awaited.filter(|at| *at > self.now)).min()
    }

    /// A pod of the version that has not come up within the watch time, in words.
    pub(super) fn overdue(&self, version: i32) -> Option<String> {
        let first = self.awaited(version).min_by_key(|pod| pod.since).filter(|pod| self.deadline(pod) <= self.now)?;
        let seconds = self.observed.owner.spec.update_strategy.canary_watch_seconds;
        Some(format!("{}; that is longer than spec.updateStrategy.canaryWatchSeconds {seconds}", first.what))
    }

    fn deadline(&self, pod: &Awaited) -> Timestamp {
        after(pod.since, self.observed.owner.spec.update_strategy.canary_watch_seconds)
    }

    /// The pods of the version that are not Ready or cannot be made, in the zones of the list.
    fn awaited(&self, version: i32) -> impl Iterator<Item = Awaited> {
        let children = self.children(version).iter().copied().filter(|child| self.is_listed(child));
        children.flat_map(move |child| {
            let pods = child.pods.iter().filter(|pod| !is_ready(pod)).map(move |pod| Awaited {
                since: pod.gone_by.filter(|_| pod.deleting).unwrap_or_else(|| unready_since(pod)),
                what: describe_pod(pod, child.min_ready_seconds, self.now),
            });
            let is_wanted = |_: &String| i32::try_from(child.pods.len()).is_ok_and(|there| there < child.replicas);
            let since = child.refused.as_ref().map(|refused| child.changed.unwrap_or(refused.since).max(refused.since));
            let missing = why_missing(child).filter(is_wanted).zip(since).map(|(what, since)| Awaited { since, what });
            pods.chain(missing)
        })
    }
}
