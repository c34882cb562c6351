//! The pods of the new version that are tried first.

use jiff::Timestamp;
use sts_plus_api::{Reason, Upgrade, UpgradeStep, VersionPhase};

use crate::{
    time::{after, clock},
    versions::{
        draft::Draft,
        keep::{has_drifted, scale},
        observed::ChildView,
        side_by_side::checks::{self, Outcome},
        stand::Stand,
        upgrade::interrupt,
        world::World,
    },
};

/// The pods of the new version that are tried first, all of them in one zone where pods can come up.
pub(super) fn count(draft: &Draft, world: &World, version: i32) -> i32 {
    let there = world.canary_zone(version).map_or(0, |(_, count)| count);
    draft.observed.owner.spec.update_strategy.canaries.min(there)
}

pub(super) fn in_words(canaries: i32) -> String {
    if canaries == 1 { "1 canary".to_owned() } else { format!("{canaries} canaries") }
}

/// They come up, and are checked.
pub(super) fn watch(draft: &mut Draft, world: &World, mut upgrade: Upgrade, current: i32) -> Outcome {
    let version = upgrade.version;
    let zone = world.canary_zone(version).and_then(|(zone, _)| zone);
    let count = count(draft, world, version);
    if count == 0 {
        (upgrade.step, upgrade.since, upgrade.cycle) = (UpgradeStep::Rolling, Some(draft.now), None);
        return Outcome::Unwanted(upgrade);
    }
    let Some(child) = world.child(version, zone) else { return Outcome::Gone(upgrade) };
    if end_elsewhere(draft, world, child) && child.replicas == 0 {
        (upgrade.since, upgrade.cycle) = (None, None);
        draft.wake_now();
        let message =
            format!("version {version}: the zone of its canaries is gone; they begin again in {}", child.name);
        return starting(draft, upgrade, message);
    }
    if child.replicas == 0 {
        (upgrade.since, upgrade.cycle) = (Some(draft.now), None);
    }
    begin_anew(draft, &mut upgrade, child);
    if child.replicas != count {
        scale(draft, child, count);
    }
    let obstacle = world.obstacle(Some(child), &child.name, count);
    let may_fail = obstacle.is_some() || draft.observed.owner.spec.update_strategy.check.is_some();
    if let Some(end) = overdue(draft, &upgrade).filter(|_| may_fail) {
        let what = obstacle.unwrap_or_else(|| format!("the checks of {} have not passed", child.name));
        return Outcome::Failed(upgrade, format!("the canaries were not well by {}: {what}", clock(end)));
    }
    if let Some(obstacle) = obstacle {
        interrupt(&mut upgrade);
        let message = format!("version {version}: waiting for {}: {obstacle}", in_words(count));
        return starting(draft, upgrade, message);
    }
    checks::run(draft, world, upgrade, child, current)
}

fn starting(draft: &mut Draft, upgrade: Upgrade, message: String) -> Outcome {
    draft.status.upgrade = Some(upgrade);
    Outcome::Waits(Stand::moving(VersionPhase::Canary, Reason::CanaryStarting, message))
}

/// Canaries in another zone than theirs end: their zone was dropped from the list, or no node carries it any more. True if there were any.
fn end_elsewhere(draft: &mut Draft, world: &World, canary: &ChildView) -> bool {
    let children = world.children(canary.version).iter();
    let elsewhere: Vec<_> = children.filter(|child| child.zone != canary.zone && child.replicas > 0).collect();
    for child in &elsewhere {
        scale(draft, child, 0);
    }
    !elsewhere.is_empty()
}

/// Pods that were asked for in a write that a crash kept from being noted have all the time of the step.
pub(super) fn begin_anew(draft: &Draft, upgrade: &mut Upgrade, child: &ChildView) {
    if has_drifted(draft, child) {
        upgrade.since = Some(draft.now);
    }
}

/// When the step should have ended, if that is over; else it is looked at again then.
pub(super) fn overdue(draft: &mut Draft, upgrade: &Upgrade) -> Option<Timestamp> {
    let watch = draft.observed.owner.spec.update_strategy.canary_watch_seconds;
    let end = after(upgrade.since.unwrap_or(draft.now), watch);
    if end <= draft.now {
        return Some(end);
    }
    draft.wake_at(end);
    None
}
