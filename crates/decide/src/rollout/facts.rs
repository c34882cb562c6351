//! What follows from the pods: the truth about revisions and health. Never from the counters of the StatefulSet's status, which
//! lie (native-statefulset: counts include terminating pods, revisions can be equal while pods differ).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    PodView, RefusedPod, SetView,
    units::{Ordinal, Partition, PodIndex},
};

/// A pod that is not Ready for this long counts as broken where the specification says "here also".
const BROKEN_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// A pod that is still there this long after its grace period has nobody who ends it: a kubelet is done within seconds.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// A set and its pods at one moment.
pub(crate) struct Facts<'a> {
    pub(crate) set: &'a SetView,
    pub(crate) now: Timestamp,
    /// The update revision; what every pod should carry.
    pub(crate) wanted: &'a str,
    pods: BTreeMap<PodIndex, &'a PodView>,
    /// Pods outside the range of indexes, on their way out.
    condemned: Vec<&'a PodView>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(set: &'a SetView, pods: &'a [PodView], wanted: &'a str, now: Timestamp) -> Self {
        let mut inside = BTreeMap::new();
        let mut condemned = Vec::new();
        for pod in pods {
            let index = Ordinal(pod.ordinal).index(set.start);
            if (0..set.replicas).contains(&index.0) {
                inside.insert(index, pod);
            } else {
                condemned.push(pod);
            }
        }
        Self { set, now, wanted, pods: inside, condemned }
    }

    pub(crate) fn replicas(&self) -> i32 {
        self.set.replicas
    }

    /// The partition in force. An absent one opens everything.
    pub(crate) fn partition(&self) -> Partition {
        partition(self.set)
    }

    pub(crate) fn indexes(&self) -> impl DoubleEndedIterator<Item = PodIndex> + use<> {
        (0..self.set.replicas).map(PodIndex)
    }

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

    /// Existing pods that carry another revision than the wanted one.
    pub(crate) fn off(&self) -> impl DoubleEndedIterator<Item = (PodIndex, &'a PodView)> + Clone {
        self.pods().filter(|(_, pod)| !self.is_wanted(pod))
    }

    /// A Ready pod that carries another revision than the wanted one, also one that is to go because of its index.
    pub(crate) fn old_ready(&self) -> Option<&'a PodView> {
        let inside = self.pods().map(|(_, pod)| pod);
        inside.chain(self.condemned.iter().copied()).find(|pod| !self.is_wanted(pod) && is_ready(pod))
    }

    /// The lowest index whose pod carries the wanted revision.
    pub(crate) fn lowest_wanted(&self) -> Option<PodIndex> {
        self.pods().find(|(_, pod)| self.is_wanted(pod)).map(|(index, _)| index)
    }

    /// The highest index below the partition whose pod is off the wanted revision: the next to be rolled.
    pub(crate) fn next_to_roll(&self) -> Option<PodIndex> {
        self.off().map(|(index, _)| index).rfind(|index| !self.partition().opens(*index))
    }

    /// The lowest index that the partition opens and whose pod does not carry the wanted revision yet.
    pub(crate) fn in_flight(&self) -> Option<PodIndex> {
        let first = self.partition().0.max(0);
        (first..self.set.replicas).map(PodIndex).find(|index| self.pod(*index).is_none_or(|pod| !self.is_wanted(pod)))
    }

    /// The lowest index that the partition opens and that has no pod, or one that is on its way out.
    pub(crate) fn being_replaced(&self) -> Option<PodIndex> {
        let first = self.partition().0.max(0);
        (first..self.set.replicas).map(PodIndex).find(|index| self.pod(*index).is_none_or(|pod| pod.deleting))
    }

    pub(crate) fn has_flipped(&self) -> bool {
        self.set.current_revision.as_deref() == Some(self.wanted)
    }

    /// When the pod is or becomes available; `None` if it is not Ready.
    pub(crate) fn available_at(&self, pod: &PodView) -> Option<Timestamp> {
        available_at(pod, self.set.min_ready_seconds, self.now)
    }

    pub(crate) fn is_available(&self, pod: &PodView) -> bool {
        self.available_at(pod).is_some_and(|at| at <= self.now || self.set.min_ready_seconds == 0)
    }

    /// The last moment at which a pod became available; a streak of checks cannot be older.
    pub(crate) fn all_available_since(&self) -> Option<Timestamp> {
        self.pods().filter_map(|(_, pod)| self.available_at(pod)).max()
    }

    /// Stuck, or not Ready for 60 s for any reason.
    pub(crate) fn is_broken(&self, pod: &PodView) -> bool {
        is_stuck(pod) || (!pod.deleting && !is_ready(pod) && broken_at(pod) <= self.now)
    }

    /// The first thing that keeps the pods from all being there and available, leaving out the indexes in `except`.
    pub(crate) fn obstacle(&self, except: &[PodIndex]) -> Option<Obstacle<'a>> {
        if let Some(pod) = self.condemned.first() {
            return Some(if pod.deleting { self.leaving(pod) } else { Obstacle::Surplus(pod) });
        }
        self.obstacle_inside(except)
    }

    fn obstacle_inside(&self, except: &[PodIndex]) -> Option<Obstacle<'a>> {
        let pods = self.pods().filter(|(index, _)| !except.contains(index));
        let broken = pods.clone().find(|(_, pod)| self.is_broken(pod));
        let terminating = pods.clone().find(|(_, pod)| pod.deleting);
        let unavailable = pods.clone().find(|(_, pod)| !self.is_available(pod));
        broken
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
        self.indexes().find(|index| !self.pods.contains_key(index))
    }

    /// When the next pod changes its class (available, broken, lost) by time alone.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        let turns = |pod: &PodView| lost_at(pod).or_else(|| self.available_at(pod)).unwrap_or_else(|| broken_at(pod));
        let pods = self.pods().map(|(_, pod)| turns(pod));
        pods.chain(self.condemned.iter().filter_map(|pod| lost_at(pod))).filter(|at| *at > self.now).min()
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
    let facts = Facts::new(set, pods, "", now);
    let exempt: Vec<_> =
        facts.pods().filter(|(_, pod)| is_exempt(pod, facts.is_broken(pod))).map(|(index, _)| index).collect();
    facts.obstacle(&exempt).map(|obstacle| obstacle.describe(&facts))
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
    pub(crate) fn describe(&self, facts: &Facts) -> String {
        match self {
            Self::Broken(pod) | Self::Lost(pod) | Self::Terminating(pod) | Self::Unavailable(pod) => {
                describe_pod(pod, facts.set.min_ready_seconds, facts.now)
            }
            Self::Surplus(pod) => describe_surplus(pod, facts),
            Self::Missing(index) => describe_missing(facts, &facts.pod_name(*index)),
            Self::Elsewhere(what) => format!("no pod of StatefulSet {} is rolled: {what}", facts.set.name),
        }
    }
}

/// Why the controller cannot make a pod, if that is known.
fn describe_missing(facts: &Facts, pod: &str) -> String {
    if let Some(stray) = facts.set.in_the_way.as_ref().filter(|stray| stray.name == pod) {
        return format!("StatefulSet {} cannot make a pod: {}", facts.set.name, stray.words);
    }
    let refused = facts.set.refused_pods.iter().find(|refused| refused.name == pod);
    let told = refused.and_then(|refused| describe_refused(refused, facts.set.changed));
    told.unwrap_or_else(|| format!("{pod} does not exist yet"))
}

/// Nothing if it was said before the set was changed last: then it is about another pod of this name.
pub(crate) fn describe_refused(refused: &RefusedPod, changed: Option<Timestamp>) -> Option<String> {
    let changed = changed.unwrap_or(Timestamp::MIN);
    if refused.last < changed {
        return None;
    }
    let pod = &refused.name;
    let reason = if refused.message.contains("exceeded quota") { "QuotaExceeded" } else { "FailedCreate" };
    let since = super::report::clock(refused.since.max(changed));
    Some(format!("{pod} cannot be created since {since} ({reason}: {})", refused.message))
}

/// What keeps a pod from being available, and since when.
pub(crate) fn describe_pod(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> String {
    let name = &pod.name;
    if is_lost(pod, now) {
        describe_lost(pod)
    } else if pod.deleting {
        format!("{name} is terminating")
    } else if is_ready(pod) {
        format!("{name} is Ready but not yet available (minReadySeconds {min_ready_seconds})")
    } else {
        describe_broken(pod)
    }
}

/// Pod, container, reason, and since when.
pub(crate) fn describe_broken(pod: &PodView) -> String {
    let since = super::report::clock(unready_since(pod));
    match &pod.problem {
        Some(problem) if problem.container.is_empty() => {
            format!("{} is not Ready since {since} ({}: {})", pod.name, problem.reason, problem.message)
        }
        Some(problem) => {
            format!("{} is not Ready since {since} (container {}: {})", pod.name, problem.container, problem.reason)
        }
        None => format!("{} is not Ready since {since}", pod.name),
    }
}

/// Nobody but the kubelet knows whether its process runs on, so only a person may delete it by force.
fn describe_lost(pod: &PodView) -> String {
    let end = pod.gone_by.map(super::report::clock).unwrap_or_default();
    let node = pod.node.as_deref().unwrap_or("unknown");
    format!(
        "{} is terminating and its grace period ended at {end}: its node {node} may be lost, and it is not deleted by force",
        pod.name
    )
}

/// `OrderedReady` scales down only while every pod that stays is available (kubernetes#123918).
fn describe_surplus(pod: &PodView, facts: &Facts) -> String {
    let awaited = facts.obstacle_inside(&[]).map(|obstacle| obstacle.describe(facts));
    let because = awaited.map(|what| format!(", perhaps because {what}")).unwrap_or_default();
    format!("{} is to go, and the StatefulSet controller has not deleted it yet{because}", pod.name)
}

/// When the pod is or becomes available; `None` if it is not Ready.
pub(crate) fn available_at(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> Option<Timestamp> {
    is_ready(pod).then(|| pod.ready_since.map_or(now, |since| after(since, min_ready_seconds)))
}

pub(crate) fn is_ready(pod: &PodView) -> bool {
    pod.ready && !pod.deleting && !pod.finished
}

/// Waits for a reason that the native controller never resolves by itself (phased-rollout §6).
pub(crate) fn is_stuck(pod: &PodView) -> bool {
    !pod.deleting && !is_ready(pod) && pod.problem.is_some()
}

/// When a pod that is not Ready counts as broken for that alone.
fn broken_at(pod: &PodView) -> Timestamp {
    later(unready_since(pod), BROKEN_AFTER)
}

/// True if a pod that leaves is one that nobody ends.
pub(crate) fn is_lost(pod: &PodView, now: Timestamp) -> bool {
    lost_at(pod).is_some_and(|at| at <= now)
}

/// When a pod that leaves counts as one that nobody ends.
pub(crate) fn lost_at(pod: &PodView) -> Option<Timestamp> {
    pod.gone_by.filter(|_| pod.deleting).map(|end| later(end, LOST_AFTER))
}

/// Since when a pod that is not Ready is so.
pub(crate) fn unready_since(pod: &PodView) -> Timestamp {
    pod.ready_since.filter(|_| !pod.ready).unwrap_or(pod.created)
}

/// The partition in force. An absent one opens everything.
pub(crate) fn partition(set: &SetView) -> Partition {
    Partition(set.partition.unwrap_or(0))
}

/// `time` plus `seconds`, never failing.
pub(crate) fn after(time: Timestamp, seconds: i32) -> Timestamp {
    later(time, SignedDuration::from_secs(i64::from(seconds)))
}

/// `time` plus `wait`, never failing.
pub(crate) fn later(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
