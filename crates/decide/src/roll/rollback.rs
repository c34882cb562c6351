//! Rolled pods go back one at a time, without a template edit: they are deleted under the full hold and come back at the current revision
//! (native-statefulset B7).

use jiff::Timestamp;
use sts_plus_api::Reason;

use crate::{
    hold::Wish,
    observed::PodView,
    roll::{failing, memory::Activity, round::Round},
    units::{Partition, PodIndex},
    why::Why,
};

pub(super) fn next(round: &mut Round) -> Why {
    let good = round.last_good();
    let wanted = round.slots.wanted;
    let begun = begun(round);
    if round.slots.partition() != Partition::HOLD {
        round.wish = Wish::Full;
        return Why::rolling_back(format!("pods of {wanted} go back to {good}; the partition is raised first"));
    }
    // What is created under the full hold comes back at the current revision, unless the control plane is broken. A pod that has not
    // moved is no reason to stop.
    let is_back = |pod: &PodView| begun.is_some_and(|begun| pod.created > begun);
    let came_back_wrong = |pod: &PodView| is_back(pod) && !pod.deleting && pod.revision.as_deref() != Some(&good);
    if let Some((_, pod)) = round.slots.pods().find(|(_, pod)| came_back_wrong(pod)) {
        let carried = pod.revision.as_deref().unwrap_or("no revision");
        let message = format!("{} carries {carried} and not {good}; the rollback is stopped and held", pod.name);
        return Why::rollback_stopped(message);
    }
    let rolled: Vec<_> = round.slots.pods().filter(|(_, pod)| round.slots.is_wanted(pod)).collect();
    if rolled.is_empty() {
        return match round.slots.obstacle(&[]) {
            Some(obstacle) => Why::rolling_back(format!("waiting: {}", obstacle.describe(&round.slots))),
            None => over(round, &good),
        };
    }
    if round.slots.set.current_revision.as_deref() != Some(&good) {
        let current = round.slots.set.current_revision.as_deref().unwrap_or("no revision");
        return Why::rollback_stopped(format!(
            "{current} is the current revision: going back to {good} needs a template change"
        ));
    }
    // A pod that is gone takes the reason with it: the failure stands in the status before the first one is deleted, or an operator
    // that comes after a crash would roll it out again.
    let mut message = format!("{} pods of {wanted} go back to {good}", rolled.len());
    if begun.is_none() {
        round.wake_now();
    } else if let Some(pod) = first(round, &rolled) {
        round.delete(pod);
        round.normal(Reason::PodDeleted, &format!("{} is deleted and comes back at {good}", pod.name));
    } else if let Some(obstacle) = round.slots.obstacle(&[]) {
        message = format!("{message}; waiting: {}", obstacle.describe(&round.slots));
    }
    Why::rolling_back(message)
}

/// When the full hold of this rollback was seen first; `None` if that is now.
fn begun(round: &mut Round) -> Option<Timestamp> {
    let now = round.now;
    let Activity::RollingBack(_, since) = &mut round.memory.activity else { return None };
    let begun = *since;
    since.get_or_insert(now);
    begun
}

/// Broken pods first, and they do not wait; a Ready one only while everything else is available.
fn first<'a>(round: &Round<'a>, rolled: &[(PodIndex, &'a PodView)]) -> Option<&'a PodView> {
    let broken = rolled.iter().find(|(_, pod)| round.slots.is_broken(pod));
    let healthy = || rolled.first().filter(|_| round.slots.obstacle(&[]).is_none());
    broken.or_else(healthy).map(|(_, pod)| *pod)
}

fn over(round: &mut Round, good: &str) -> Why {
    let slots = &round.slots;
    let (name, wanted) = (&slots.set.name, slots.wanted);
    let note = if slots.pods().all(|(_, pod)| pod.revision.as_deref() == Some(good)) {
        format!("all pods of StatefulSet {name} are back on {good}; {wanted} is rejected")
    } else {
        format!("no pod of StatefulSet {name} carries {wanted} any more; it is rejected")
    };
    round.normal_on_both(Reason::RolledBack, &note);
    failing::rejected(round)
}
