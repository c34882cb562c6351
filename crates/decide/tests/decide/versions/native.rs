//! The controllers of Kubernetes, as far as versions see them: pods one at a time, in order.

use jiff::{SignedDuration, Timestamp};
use sts_plus_decide::{ChildView, PodView};

use super::world::World;

impl World {
    /// The StatefulSet controller and the kubelet do one thing for each child. True if anything changed.
    pub fn tick(&mut self) -> bool {
        let before = self.children.clone();
        let (now, bad, empty, closed) = (self.now, &self.bad, &self.empty_zones, &self.closed_zones);
        for child in &mut self.children {
            let is_bad = bad.contains(&child.hash) || child.zone.as_ref().is_some_and(|zone| empty.contains(zone));
            let is_closed = child.zone.as_ref().is_some_and(|zone| closed.contains(zone));
            let may_change = |pod: &PodView| !pod.deleting && pod.ready == is_bad && (pod.ready || !is_closed);
            for pod in child.pods.iter_mut().filter(|pod| may_change(pod)) {
                (pod.ready, pod.ready_since) = (!is_bad, Some(now));
            }
            step(child, now, &mut self.uids);
        }
        self.children != before
    }
}

/// `OrderedReady`: a pod comes or goes only when those before it are Ready and none is on its way out.
fn step(child: &mut ChildView, now: Timestamp, uids: &mut u32) {
    if let Some(leaving) = child.pods.iter().position(|pod| pod.deleting) {
        child.pods.remove(leaving);
        return;
    }
    for ordinal in 0..child.replicas {
        match child.pods.iter().find(|pod| pod.ordinal == ordinal) {
            Some(pod) if is_available(child, pod, now) => {}
            Some(_) => return,
            None => {
                *uids += 1;
                child.pods.push(pod(&child.name, ordinal, *uids, now));
                return;
            }
        }
    }
    let surplus = child.pods.iter_mut().filter(|pod| pod.ordinal >= child.replicas).max_by_key(|pod| pod.ordinal);
    if let Some(surplus) = surplus {
        (surplus.deleting, surplus.gone_by) = (true, Some(now + SignedDuration::from_secs(30)));
    }
}

pub fn is_available(child: &ChildView, pod: &PodView, now: Timestamp) -> bool {
    let wait = SignedDuration::from_secs(i64::from(child.min_ready_seconds));
    pod.ready && !pod.deleting && pod.ready_since.is_none_or(|since| since + wait <= now)
}

pub fn pod(set: &str, ordinal: i32, uid: u32, now: Timestamp) -> PodView {
    PodView {
        name: format!("{set}-{ordinal}"),
        uid: format!("pod-{uid}"),
        ordinal,
        revision: None,
        created: now,
        deleting: false,
        gone_by: None,
        finished: false,
        ready: false,
        ready_since: None,
        problem: None,
        node: None,
        zone: None,
        version: None,
    }
}
