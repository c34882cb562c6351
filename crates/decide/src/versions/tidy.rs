//! What is not needed any more goes: zones that were dropped, and pods that their controller would keep.

use sts_plus_api::{Reason, VersionPhase};

use crate::{
    observed::PodView,
    plan::Action,
    pods::is_ready,
    units::Ordinal,
    versions::{
        draft::Draft,
        keep::scale,
        observed::ChildView,
        plan::VersionAction,
        report,
        stand::{Motion, Stand},
        world::World,
    },
};

/// Held by a pod that nobody ends. Only a person can know that its process does not run any more.
pub(super) fn lost(world: &World, children: &[&ChildView], what: &str) -> Option<Stand> {
    let pod = world.lost(children)?;
    let message = format!("{what}, and waits until the pod is gone: {pod}");
    Some(Stand::new(Motion::Held, VersionPhase::Held, Reason::BlockedByPod, message))
}

pub(super) fn delete(draft: &mut Draft, child: &ChildView) {
    draft.act(VersionAction::Delete { name: child.name.clone(), uid: child.uid.clone() });
}

/// A zone that is not in the list goes pod by pod, with all pods of the others available before each: a typo must not cost a quorum.
pub(super) fn dropped_zones(draft: &mut Draft, world: &World, version: i32) -> Option<Stand> {
    let child = world.children(version).iter().find(|child| !world.is_listed(child))?;
    let stand = |message| Some(Stand::moving(VersionPhase::CleaningUp, Reason::VersionRemoved, message));
    let name = &child.name;
    let is_alone = world.zones.iter().all(|(zone, _)| world.child(version, zone.as_deref()).is_none());
    if is_alone {
        return stand(format!(
            "StatefulSet {name} of a zone that was dropped stays: it is all that there is of version {version}"
        ));
    }
    // A zone that no node carries counts here: it may be the misspelt name of this one.
    if let Some(obstacle) = world.obstacle_anywhere(version) {
        let words = |what: &str| format!("StatefulSet {name} of a zone that was dropped stays: {what}");
        let cleaning = (VersionPhase::CleaningUp, Reason::VersionRemoved);
        return Some(report::waiting(world, version, cleaning, &obstacle, words));
    }
    let there = i32::try_from(child.pods.len()).unwrap_or(i32::MAX);
    let is_dead = !child.pods.iter().any(is_ready);
    if delete_blocked(draft, child) {
        // The next look sees it leave.
    } else if child.replicas == 0 && there == 0 {
        delete(draft, child);
    } else if is_dead && child.replicas > 0 {
        // Nothing to protect, and OrderedReady would remove no pod behind one that is not Ready.
        scale(draft, child, 0);
    } else if there <= child.replicas && !child.pods.iter().any(|pod| pod.deleting) {
        scale(draft, child, there.saturating_sub(1));
    }
    let message = format!("StatefulSet {name} of a zone that was dropped goes pod by pod; {there} are left");
    lost(world, &[child], &message).or_else(|| stand(message))
}

/// A version that has failed may stay so for long, and a zone that was dropped must not stay with it. The failure is what is told.
pub(super) fn dropped_meanwhile(draft: &mut Draft, world: &World, current: i32) {
    if draft.actions.is_empty() {
        let _ = dropped_zones(draft, world, current);
    }
}

/// With `OrderedReady` the StatefulSet controller removes no surplus pod while one below it is not Ready (native-statefulset B5): it is
/// deleted here, and goes in any case. True if one was.
pub(super) fn delete_blocked(draft: &mut Draft, child: &ChildView) -> bool {
    let may_be_blocked = child.set.as_ref().is_none_or(|set| !set.parallel && set.is_seen());
    let top = child.pods.iter().max_by_key(|pod| pod.ordinal).filter(|_| may_be_blocked && !child.deleting);
    let is_surplus = |pod: &&PodView| match &child.set {
        Some(set) => Ordinal(pod.ordinal).index(set.start).0 >= child.replicas,
        None => i32::try_from(child.pods.len()).is_ok_and(|there| there > child.replicas),
    };
    let Some(top) = top.filter(is_surplus).filter(|_| !child.pods.iter().any(|pod| pod.deleting)) else { return false };
    let is_blocked = child.pods.iter().any(|pod| pod.ordinal < top.ordinal && !is_ready(pod));
    if is_blocked {
        let (name, uid) = (top.name.clone(), top.uid.clone());
        let note =
            format!("{name} is one too many, and a pod below it that is not Ready keeps it from going: it is deleted");
        draft.normal(Reason::PodDeleted, &note);
        draft.act(VersionAction::Roll(Action::DeletePod { name, uid }));
    }
    is_blocked
}
