//! What one pod says of itself: whether it is there, available, broken or lost, and since when.

use jiff::{SignedDuration, Timestamp};

use crate::{
    observed::{PodView, RefusedPod},
    time::{after, clock, later},
};

/// A pod that is not Ready for this long counts as broken where the specification says "here also".
const BROKEN_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// A pod that is still there this long after its grace period has nobody who ends it: a kubelet is done within seconds.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(30);

pub(crate) fn is_ready(pod: &PodView) -> bool {
    pod.ready && !pod.deleting && !pod.finished
}

/// When the pod is or becomes available; `None` if it is not Ready.
pub(crate) fn available_at(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> Option<Timestamp> {
    is_ready(pod).then(|| pod.ready_since.map_or(now, |since| after(since, min_ready_seconds)))
}

/// Waits for a reason that the native controller never resolves by itself (phased-rollout §6).
pub(crate) fn is_stuck(pod: &PodView) -> bool {
    !pod.deleting && !is_ready(pod) && pod.problem.is_some()
}

/// Stuck, or not Ready for 60 s for any reason.
pub(crate) fn is_broken(pod: &PodView, now: Timestamp) -> bool {
    is_stuck(pod) || (!pod.deleting && !is_ready(pod) && broken_at(pod) <= now)
}

/// When a pod that is not Ready counts as broken for that alone.
pub(crate) fn broken_at(pod: &PodView) -> Timestamp {
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
    let since = clock(unready_since(pod));
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
    let end = pod.gone_by.map(clock).unwrap_or_default();
    let node = pod.node.as_deref().unwrap_or("unknown");
    format!(
        "{} is terminating and its grace period ended at {end}: its node {node} may be lost, and it is not deleted by force",
        pod.name
    )
}

/// Nothing if it was said before the set was changed last: then it is about another pod of this name.
pub(crate) fn describe_refused(refused: &RefusedPod, changed: Option<Timestamp>) -> Option<String> {
    let changed = changed.unwrap_or(Timestamp::MIN);
    if refused.last < changed {
        return None;
    }
    let pod = &refused.name;
    let reason = if refused.message.contains("exceeded quota") { "QuotaExceeded" } else { "FailedCreate" };
    let since = clock(refused.since.max(changed));
    Some(format!("{pod} cannot be created since {since} ({reason}: {})", refused.message))
}
