//! What is not needed any more goes: versions beside the one in charge and the one that is wanted, and zones that were dropped.

use sts_plus_api::{Reason, UpgradeStep, VersionPhase};

use super::{
    ChildView, VersionAction,
    draft::{Draft, Motion, Stand},
    keep::scale,
    report,
    world::World,
};
use crate::{Action, PodView, units::Ordinal};
use crate::{
    pods::is_ready,
    time::{after, clock},
};

/// Removes versions that are neither in charge nor wanted: first their pods, then their StatefulSets.
pub(super) fn others(draft: &mut Draft, world: &World, current: i32, target: i32) -> Option<Stand> {
    if world.children(current).is_empty() {
        // Somebody else has deleted them, or has their name: whatever runs, nothing else does, and it goes when they are back.
        return None;
    }
    let mut stays = None;
    // The clock of an upgrade that has begun runs: it is not stopped for lower versions. They go after its promotion.
    let step = draft.status.upgrade.as_ref().filter(|upgrade| upgrade.version == target).map(|upgrade| upgrade.step);
    let is_underway = matches!(step, Some(UpgradeStep::Canary | UpgradeStep::Rolling | UpgradeStep::Clearing));
    for version in world.versions().filter(|version| *version != current && *version != target) {
        if version < current && is_underway {
            continue;
        }
        if version < current
            && let Some(stand) = still_needed(draft, world, version, current)
        {
            // The next version does not wait for that: it may be what is needed now.
            stays = stays.or(stand.filter(|_| target == current));
            continue;
        }
        remove(draft, world, version);
        if let Some(stand) = lost(world, world.children(version), &format!("version {version} is removed")) {
            return Some(stand);
        }
        let message = format!("version {version} is removed");
        return Some(Stand::new(Motion::Moving, VersionPhase::CleaningUp, Reason::VersionRemoved, message));
    }
    stays
}

/// A lower version stays for scaleDownDelaySeconds after the promotion, and until the version in charge has all its pods and its
/// Service: nothing that runs goes for something that does not. Where it stands then, if that is to be told.
#[allow(clippy::option_option, reason = "whether it stays, and whether there is something to be told")]
fn still_needed(draft: &mut Draft, world: &World, version: i32, current: i32) -> Option<Option<Stand>> {
    if let Some(obstacle) = world.obstacle_of(current) {
        let stays = left(world, version);
        let words = |what: &str| format!("{stays} while version {current} is not as it should be: {what}");
        let cleaning = (VersionPhase::CleaningUp, Reason::VersionRolling);
        return Some(Some(report::waiting(world, current, cleaning, &obstacle, words)));
    }
    let is_switched = |service: &super::ServiceView| service.version.as_deref() == Some(current.to_string().as_str());
    let active = draft.observed.active.as_ref().filter(|service| service.exists && !service.is_foreign);
    if active.is_some_and(|service| !is_switched(service)) {
        return Some(Some(Stand::new(
            Motion::Moving,
            VersionPhase::CleaningUp,
            Reason::ServiceSwitched,
            format!("version {version} stays until the Service selects version {current}"),
        )));
    }
    // The delay is for the way back to the version that was in charge before, not for those before that one.
    let is_previous =
        world.versions().filter(|lower| *lower < current && world.has_pods(*lower)).max() == Some(version);
    if !is_previous {
        return None;
    }
    let delay = draft.observed.owner.spec.update_strategy.scale_down_delay_seconds;
    let end = draft.status.promotion_time.map(|time| after(time, delay)).filter(|end| *end > world.now)?;
    draft.wake_at(end);
    let message =
        format!("version {current} is in charge; version {version} stays until {} (scaleDownDelaySeconds)", clock(end));
    Some(Some(Stand::new(Motion::Moving, VersionPhase::CleaningUp, Reason::Promoted, message)))
}

/// What stays of a version: the removal may have begun, and a stale one has no pods.
fn left(world: &World, version: i32) -> String {
    let children = world.children(version);
    if children.iter().all(|child| child.replicas > 0 && !child.deleting) {
        format!("version {version} stays")
    } else if children.iter().any(|child| child.replicas > 0 && !child.deleting) {
        format!("what is left of version {version} stays")
    } else {
        format!("version {version} is to have no pods any more, and its StatefulSets stay")
    }
}

/// Held by a pod that nobody ends. Only a person can know that its process does not run any more.
pub(super) fn lost(world: &World, children: &[&ChildView], what: &str) -> Option<Stand> {
    let pod = world.lost(children)?;
    let message = format!("{what}, and waits until the pod is gone: {pod}");
    Some(Stand::new(Motion::Held, VersionPhase::Held, Reason::BlockedByPod, message))
}

/// The next thing to do on the way to none of it: pods first, one StatefulSet at a time.
pub(super) fn remove(draft: &mut Draft, world: &World, version: i32) {
    let children = world.children(version);
    match children.iter().find(|child| child.replicas > 0 && !child.deleting) {
        Some(child) => scale(draft, child, 0),
        None => {
            for child in children.iter().filter(|child| child.pods.is_empty() && !child.deleting) {
                delete(draft, child);
            }
        }
    }
}

fn delete(draft: &mut Draft, child: &ChildView) {
    draft.act(VersionAction::Delete { name: child.name.clone(), uid: child.uid.clone() });
}

/// A zone that is not in the list goes pod by pod, with all pods of the others available before each: a typo must not cost a quorum.
pub(super) fn dropped_zones(draft: &mut Draft, world: &World, version: i32) -> Option<Stand> {
    let child = world.children(version).iter().find(|child| !world.is_listed(child))?;
    let stand = |message| Some(Stand::new(Motion::Moving, VersionPhase::CleaningUp, Reason::VersionRemoved, message));
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
/// deleted here. In place only. True if one was.
pub(super) fn delete_blocked(draft: &mut Draft, child: &ChildView) -> bool {
    let Some(set) = child.set.as_ref().filter(|set| !set.parallel && set.observed_generation >= set.generation) else {
        return false;
    };
    let top = child.pods.iter().max_by_key(|pod| pod.ordinal);
    let is_surplus = |pod: &&PodView| Ordinal(pod.ordinal).index(set.start).0 >= child.replicas;
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
