//! While the template cannot be used as it is written, the number of pods is still what is wanted: nothing of the template is written for it.

use sts_plus_api::ZoneReplicas;

use crate::{
    claim::is_released,
    versions::{draft::Draft, keep, observed::ChildView, world::World},
};

/// The version in charge gets the pods that are wanted, and no StatefulSet is made.
pub(super) fn follow(draft: &mut Draft, world: &World) {
    let Some(current) = draft.status.current_version else { return };
    let is_missing = |(zone, _): &(Option<String>, i32)| world.child(current, zone.as_deref()).is_none();
    // A zone that cannot be made yet has a share of the pods all the same: the others do not give theirs up for it.
    let only_grows =
        draft.observed.owner.spec.zone_replicas == ZoneReplicas::Spread && world.zones.iter().any(is_missing);
    for (zone, count, now) in keep::turns(world, current) {
        let Some(child) = world.child(current, zone).filter(|child| !child.deleting) else { continue };
        let is_right = child.replicas == now || (only_grows && now < child.replicas);
        if is_right || (world.is_in_place && !is_at_rest(draft, child, current)) {
            keep::leave(draft, child);
            continue;
        }
        keep::tell_drift(draft, child, count);
        keep::scale(draft, child, now);
    }
}

/// In place: whatever pod comes is of the version in charge. In the middle of an upgrade it might be of one that is not approved.
fn is_at_rest(draft: &Draft, child: &ChildView, current: i32) -> bool {
    let is_settled = draft.status.upgrade.is_none() && child.version == current;
    is_settled
        && child.set.as_ref().is_some_and(|set| {
            keep::has_taken(set)
                && set.update_revision.is_some()
                && child.pods.iter().all(|pod| pod.revision == set.update_revision)
                && !is_released(set)
        })
}
