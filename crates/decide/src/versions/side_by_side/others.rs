//! Versions beside the one in charge and the one that is wanted go: first their pods, then their StatefulSets.

use sts_plus_api::{Reason, UpgradeStep, VersionPhase};

use crate::{
    time::{after, clock},
    versions::{draft::Draft, keep::scale, observed::ServiceView, report, stand::Stand, tidy, world::World},
};

/// Removes versions that are neither in charge nor wanted: first their pods, then their StatefulSets.
pub(super) fn remove(draft: &mut Draft, world: &World, current: i32, target: i32) -> Option<Stand> {
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
        empty(draft, world, version);
        if let Some(stand) = tidy::lost(world, world.children(version), &format!("version {version} is removed")) {
            return Some(stand);
        }
        let message = format!("version {version} is removed");
        return Some(Stand::moving(VersionPhase::CleaningUp, Reason::VersionRemoved, message));
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
    let is_switched = |service: &ServiceView| service.version.as_deref() == Some(current.to_string().as_str());
    let active = draft.observed.active.as_ref().filter(|service| service.exists && !service.is_foreign);
    if active.is_some_and(|service| !is_switched(service)) {
        return Some(Some(Stand::moving(
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
    Some(Some(Stand::moving(VersionPhase::CleaningUp, Reason::Promoted, message)))
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

/// The next thing to do on the way to none of it: pods first, one StatefulSet at a time.
fn empty(draft: &mut Draft, world: &World, version: i32) {
    let children = world.children(version);
    match children.iter().find(|child| child.replicas > 0 && !child.deleting) {
        Some(child) => scale(draft, child, 0),
        None => {
            for child in children.iter().filter(|child| child.pods.is_empty() && !child.deleting) {
                tidy::delete(draft, child);
            }
        }
    }
}
