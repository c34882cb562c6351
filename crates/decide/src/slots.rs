//! The pods of one set, index by index: which revision each carries, and what keeps it from being available. Never from the counters of the
//! StatefulSet's status, which lie (native-statefulset: counts include terminating pods, revisions can be equal while pods differ).

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::PhasedRolloutStatus;

use crate::{
    observed::{PodView, SetView},
    pods::{available_at, broken_at, describe_pod, describe_refused, is_broken, is_lost, is_ready, lost_at},
    units::{Ordinal, Partition, PodIndex},
};

/// A set and its pods at one moment. A slot without a pod is missing; it is at no revision.
pub(crate) struct Slots<'a> {
    pub(crate) set: &'a SetView,
    pub(crate) now: Timestamp,
    /// The update revision; what every pod should carry.
    pub(crate) wanted: &'a str,
    pods: BTreeMap<PodIndex, &'a PodView>,
    /// Pods outside the range of indexes, on their way out.
    surplus: Vec<&'a PodView>,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(set: &'a SetView, pods: &'a [PodView], wanted: &'a str, now: Timestamp) -> Self {
        let (mut inside, mut surplus) = (BTreeMap::new(), Vec::new());
        for pod in pods {
            let index = Ordinal(pod.ordinal).index(set.start);
            if (0..set.replicas).contains(&index.0) {
                inside.insert(index, pod);
            } else {
                surplus.push(pod);
            }
        }
        Self { set, now, wanted, pods: inside, surplus }
    }

    pub(crate) fn replicas(&self) -> i32 {
        self.set.replicas
    }

    /// The partition in force.
    pub(crate) fn partition(&self) -> Partition {
        Partition::of(self.set)
    }

    /// Existing pods with their indexes, ascending.
    pub(crate) fn pods(&self) -> impl DoubleEndedIterator<Item = (PodIndex, &'a PodView)> + Clone {
        self.pods.iter().map(|(index, pod)| (*index, *pod))
    }

    pub(crate) fn pod(&self, index: PodIndex) -> Option<&'a PodView> {
        self.pods.get(&index).copied()
    }

    /// The name that the pod at `index` has or will have.
    pub(crate) fn pod_name(&self, index: PodIndex) -> String {
        format!("{}-{}", self.set.name, index.ordinal(self.set.start).0)
    }

    pub(crate) fn is_wanted(&self, pod: &PodView) -> bool {
        pod.revision.as_deref() == Some(self.wanted)
    }

    /// Every slot has a pod, and it carries the wanted revision.
    pub(crate) fn all_wanted(&self) -> bool {
        self.off().next().is_none() && self.missing().is_none()
    }

    /// As [`Slots::all_wanted`], but for slots whose pods can only come at the wanted revision.
    pub(crate) fn is_rolled(&self) -> bool {
        let is_open = |index: PodIndex| self.has_flipped() || self.partition().opens(index);
        self.off().next().is_none() && self.missing().is_none_or(is_open)
    }

    /// Existing pods that carry another revision than the wanted one.
    pub(crate) fn off(&self) -> impl DoubleEndedIterator<Item = (PodIndex, &'a PodView)> + Clone {
        self.pods().filter(|(_, pod)| !self.is_wanted(pod))
    }

    /// A Ready pod that carries another revision than the wanted one, also one that is to go because of its index.
    pub(crate) fn old_ready(&self) -> Option<&'a PodView> {
        let inside = self.pods().map(|(_, pod)| pod);
        inside.chain(self.surplus.iter().copied()).find(|pod| !self.is_wanted(pod) && is_ready(pod))
    }

    /// The lowest index whose pod carries the wanted revision.
    pub(crate) fn lowest_wanted(&self) -> Option<PodIndex> {
        self.pods().find(|(_, pod)| self.is_wanted(pod)).map(|(index, _)| index)
    }

    /// The highest index below the partition whose pod is off the wanted revision: the next to be rolled.
    pub(crate) fn next_to_roll(&self) -> Option<PodIndex> {
        self.off().map(|(index, _)| index).rfind(|index| !self.partition().opens(*index))
    }

    fn opened(&self) -> impl Iterator<Item = PodIndex> + use<> {
        (self.partition().0.max(0)..self.set.replicas).map(PodIndex)
    }

    /// The lowest index that the partition opens and whose pod does not carry the wanted revision yet.
    pub(crate) fn in_flight(&self) -> Option<PodIndex> {
        self.opened().find(|index| self.pod(*index).is_none_or(|pod| !self.is_wanted(pod)))
    }

    /// The lowest index that the partition opens and that has no pod, or one that is on its way out.
    pub(crate) fn being_replaced(&self) -> Option<PodIndex> {
        self.opened().find(|index| self.pod(*index).is_none_or(|pod| pod.deleting))
    }

    pub(crate) fn has_flipped(&self) -> bool {
        self.set.current_revision.as_deref() == Some(self.wanted)
    }

    pub(crate) fn is_available(&self, pod: &PodView) -> bool {
        self.available_at(pod).is_some_and(|at| at <= self.now || self.set.min_ready_seconds == 0)
    }

    fn available_at(&self, pod: &PodView) -> Option<Timestamp> {
        available_at(pod, self.set.min_ready_seconds, self.now)
    }

    /// The last moment at which a pod became available; a streak of checks cannot be older.
    pub(crate) fn whole_since(&self) -> Option<Timestamp> {
        self.pods().filter_map(|(_, pod)| self.available_at(pod)).max()
    }

    pub(crate) fn is_broken(&self, pod: &PodView) -> bool {
        is_broken(pod, self.now)
    }

    /// The first thing that keeps the pods from all being there and available, leaving out the indexes in `except`. Pods at the wanted
    /// revision are judged before the others: what a release does is not hidden by what was broken before it.
    pub(crate) fn obstacle(&self, except: &[PodIndex]) -> Option<Obstacle<'a>> {
        let inside = self.obstacle_inside(except);
        let is_release = matches!(inside, Some(Obstacle::Broken(pod)) if self.is_wanted(pod));
        match self.surplus.first().filter(|_| !is_release) {
            Some(pod) if pod.deleting => Some(self.leaving(pod)),
            Some(pod) => Some(Obstacle::Surplus(pod)),
            None => inside,
        }
    }

    fn obstacle_inside(&self, except: &[PodIndex]) -> Option<Obstacle<'a>> {
        let pods = self.pods().filter(|(index, _)| !except.contains(index));
        let mut broken = pods.clone().filter(|(_, pod)| self.is_broken(pod));
        let first = broken.clone().find(|(_, pod)| self.is_wanted(pod)).or_else(|| broken.next());
        let terminating = pods.clone().find(|(_, pod)| pod.deleting);
        let unavailable = pods.clone().find(|(_, pod)| !self.is_available(pod));
        first
            .map(|(_, pod)| Obstacle::Broken(pod))
            .or_else(|| terminating.map(|(_, pod)| self.leaving(pod)))
            .or_else(|| self.missing().map(Obstacle::Missing))
            .or_else(|| unavailable.map(|(_, pod)| Obstacle::Unavailable(pod)))
    }

    fn leaving(&self, pod: &'a PodView) -> Obstacle<'a> {
        if is_lost(pod, self.now) { Obstacle::Lost(pod) } else { Obstacle::Terminating(pod) }
    }

    /// The lowest index that has no pod.
    pub(crate) fn missing(&self) -> Option<PodIndex> {
        if i32::try_from(self.pods.len()).is_ok_and(|count| count == self.set.replicas) {
            return None;
        }
        (0..self.set.replicas).map(PodIndex).find(|index| !self.pods.contains_key(index))
    }

    /// Why the controller cannot make the pod of `index`, if it said so, and whether that says nothing about the revision (a quota).
    pub(crate) fn refusal(&self, index: PodIndex) -> Option<(String, bool)> {
        let name = self.pod_name(index);
        let refused = self.set.refused_pods.iter().find(|refused| refused.name == name)?;
        let is_quota = refused.message.contains("exceeded quota");
        describe_refused(refused, self.set.changed).map(|words| (words, is_quota))
    }

    /// When the next pod changes its class (available, broken, lost) by time alone.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        let turns = |pod: &PodView| lost_at(pod).or_else(|| self.available_at(pod)).unwrap_or_else(|| broken_at(pod));
        let pods = self.pods().map(|(_, pod)| turns(pod));
        pods.chain(self.surplus.iter().filter_map(|pod| lost_at(pod))).filter(|at| *at > self.now).min()
    }

    /// The revision that most of the pods off the wanted one carry.
    pub(crate) fn most_common_revision_off(&self) -> Option<&'a str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for revision in self.off().filter_map(|(_, pod)| pod.revision.as_deref()) {
            *counts.entry(revision).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(revision, _)| revision)
    }

    pub(crate) fn carries(&self, revision: &str) -> bool {
        self.pods().any(|(_, pod)| pod.revision.as_deref() == Some(revision))
    }

    /// What people read of them, beside the replicas.
    pub(crate) fn count(&self, status: &mut PhasedRolloutStatus) {
        (status.updated_replicas, status.ready_replicas) = (self.count_wanted(), self.count_ready());
        status.updated = format!("{}/{}", status.updated_replicas, status.replicas);
    }

    pub(crate) fn count_wanted(&self) -> i32 {
        count(self.pods().filter(|(_, pod)| self.is_wanted(pod)))
    }

    pub(crate) fn count_ready(&self) -> i32 {
        count(self.pods().filter(|(_, pod)| is_ready(pod)))
    }
}

/// What keeps the pods of a set from all being there and available, but for those that `is_exempt` (a pod, and whether it is broken).
pub(crate) fn unavailable(
    set: &SetView,
    pods: &[PodView],
    now: Timestamp,
    is_exempt: impl Fn(&PodView, bool) -> bool,
) -> Option<String> {
    let slots = Slots::new(set, pods, "", now);
    let exempt: Vec<_> =
        slots.pods().filter(|(_, pod)| is_exempt(pod, slots.is_broken(pod))).map(|(index, _)| index).collect();
    slots.obstacle(&exempt).map(|obstacle| obstacle.describe(&slots))
}

/// What keeps the pods from all being there and available.
#[derive(Clone, Copy)]
pub(crate) enum Obstacle<'a> {
    Broken(&'a PodView),
    /// Terminating for longer than its grace period.
    Lost(&'a PodView),
    Terminating(&'a PodView),
    /// Outside of the replicas, and nobody has deleted it yet.
    Surplus(&'a PodView),
    Missing(PodIndex),
    Unavailable(&'a PodView),
    /// Not a pod of this StatefulSet, in words.
    Elsewhere(&'a str),
}

impl Obstacle<'_> {
    /// True if waiting alone will probably not help.
    pub(crate) fn is_stubborn(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Lost(_))
    }

    /// A clause such as `web-2 is not Ready (app: CrashLoopBackOff) since 12:00:00 UTC`.
    pub(crate) fn describe(&self, slots: &Slots) -> String {
        match self {
            Self::Broken(pod) | Self::Lost(pod) | Self::Terminating(pod) | Self::Unavailable(pod) => {
                describe_pod(pod, slots.set.min_ready_seconds, slots.now)
            }
            Self::Surplus(pod) => describe_surplus(pod, slots),
            Self::Missing(index) => describe_missing(slots, *index),
            Self::Elsewhere(what) => format!("no pod of StatefulSet {} is rolled: {what}", slots.set.name),
        }
    }
}

/// Why the controller cannot make a pod, if that is known.
fn describe_missing(slots: &Slots, index: PodIndex) -> String {
    let pod = slots.pod_name(index);
    if let Some(stray) = slots.set.in_the_way.as_ref().filter(|stray| stray.name == pod) {
        return format!("StatefulSet {} cannot make a pod: {}", slots.set.name, stray.words);
    }
    slots.refusal(index).map_or_else(|| format!("{pod} does not exist yet"), |(words, _)| words)
}

/// `OrderedReady` scales down only while every pod that stays is available (kubernetes#123918).
fn describe_surplus(pod: &PodView, slots: &Slots) -> String {
    let awaited = slots.obstacle_inside(&[]).map(|obstacle| obstacle.describe(slots));
    let because = awaited.map(|what| format!(", perhaps because {what}")).unwrap_or_default();
    format!("{} is to go, and the StatefulSet controller has not deleted it yet{because}", pod.name)
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
