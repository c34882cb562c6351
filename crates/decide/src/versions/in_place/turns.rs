//! Whose turn it is: at most one zone moves.

use crate::{
    observed::PodView,
    pods::is_ready,
    slots::unavailable,
    versions::{draft::Draft, in_place::failed, observed::ChildView, world::World},
};

/// The StatefulSets that the engine looks after, in the order of the list: those that have pods, and one of a dropped zone that has rejected
/// the version, since that is rolled in no other zone then.
pub(super) fn taking_part<'w>(draft: &Draft, world: &World<'w>, current: i32, target: i32) -> Vec<&'w ChildView> {
    let has_part = |count: i32| count > 0 || target == current;
    let listed = world.zones.iter().filter(|(_, count)| has_part(*count));
    let listed = listed.filter_map(|(zone, _)| world.child(target, zone.as_deref()));
    let dropped = world.children(target).iter().copied().filter(|child| !world.is_listed(child));
    listed
        .chain(dropped.filter(|child| !child.pods.is_empty() && failed::rejection(draft, child, target).is_some()))
        .collect()
}

/// What keeps pods of the other zones from being available, as those of one StatefulSet are waited for. Those that carry neither version are
/// what an upgrade repairs. Where no node carries the zone, a pod that leaves would not come back.
pub(super) fn elsewhere(draft: &Draft, world: &World, here: &ChildView, current: i32, target: i32) -> Option<String> {
    if let Some(zone) = here.zone.as_deref().filter(|zone| !world.is_carried(Some(zone))) {
        let label = &draft.observed.owner.spec.zone_node_label;
        return Some(format!("no node has the label {label} with {zone}, and a pod that leaves would not come back"));
    }
    let may_be_broken = draft.observed.owner.spec.update_strategy.update_not_ready;
    let is_other = |child: &&ChildView| child.name != here.name && world.is_served(child.zone.as_deref());
    let others = world.zones.iter().filter_map(|(zone, _)| world.child(target, zone.as_deref())).filter(is_other);
    let is_stray = |pod: &PodView| pod.version != Some(current) && pod.version != Some(target);
    let obstacle = others.filter_map(|child| Some((child, child.set.as_deref()?))).find_map(|(child, set)| {
        unavailable(set, &child.pods, draft.now, |pod, is_broken| is_stray(pod) || (is_broken && may_be_broken))
    });
    let cure = if may_be_broken { "" } else { "; set spec.updateStrategy.updateNotReady to true to go on without" };
    obstacle.map(|obstacle| format!("a pod of another zone is away: {obstacle}{cure}"))
}

/// A zone where the version has failed keeps the others waiting, and the zone that moves goes on, in whatever order the list is by now. Then
/// pods that neither the old nor the new version wants are repaired (phased-rollout §4.9), and a zone of which no pod is Ready; then what
/// has begun.
pub(super) fn turn(draft: &Draft, child: &ChildView, current: i32, target: i32) -> u8 {
    let partition = child.set.as_ref().and_then(|set| set.partition);
    if failed::here(draft, child, target) {
        0
    } else if partition.is_some_and(|partition| partition < child.replicas) {
        1
    } else if has_strays(child, current, target) || !child.pods.iter().any(is_ready) {
        2
    } else if child.pods.iter().any(|pod| pod.version == Some(target)) {
        3
    } else {
        4
    }
}

fn has_strays(child: &ChildView, current: i32, target: i32) -> bool {
    child.pods.iter().any(|pod| pod.version != Some(target) && (target == current || pod.version != Some(current)))
}
