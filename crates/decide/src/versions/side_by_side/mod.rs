//! A new version comes into charge: canaries, their checks, all pods zone by zone, promotion. One that fails is tried again with
//! other pods, and at last marked as stale; the version in charge is never touched for it.

mod canary;
mod checks;
mod others;

use sts_plus_api::{Reason, Upgrade, UpgradeStep, VersionPhase, names};

use crate::{
    observed::Keeper,
    time::clock,
    versions::{
        draft::Draft,
        keep::{self, make, mark, scale, was_there},
        report, services,
        stand::{Motion, Stand, Step},
        templates, tidy, upgrade,
        world::World,
    },
};
use checks::Outcome;

/// One round on the way from `current` to `target`, or at rest if they are the same.
pub(super) fn advance(draft: &mut Draft, world: &World, current: i32, target: i32) -> Step {
    templates::tend(draft, world, current, target);
    keep::replicas(draft, world, current);
    services::select(draft, world, current, target);
    if draft.observed.owner.spec.paused {
        upgrade::stop_clock(draft);
        return Step::Stand(report::paused(draft, world, current));
    }
    if draft.actions.is_empty() {
        // One at a time; where it stands is told by what is to go.
        let _ = draft.observed.children.iter().any(|child| tidy::delete_blocked(draft, child));
    }
    if let Some(stand) = others::remove(draft, world, current, target) {
        return Step::Stand(stand);
    }
    if target == current {
        draft.status.upgrade = None;
        let dropped = tidy::dropped_zones(draft, world, current);
        return Step::Stand(dropped.unwrap_or_else(|| report::rest(world, current)));
    }
    step(draft, world, current, target)
}

/// One round of the upgrade.
fn step(draft: &mut Draft, world: &World, current: i32, target: i32) -> Step {
    let Some(upgrade) = draft.status.upgrade.clone().filter(|upgrade| upgrade.version == target) else {
        // Never: the target comes from there.
        return Step::Stand(Stand::moving(VersionPhase::Upgrading, Reason::UpgradeStarted, String::new()));
    };
    honour_retry(draft);
    let mut upgrade = draft.status.upgrade.clone().unwrap_or(upgrade);
    if matches!(upgrade.step, UpgradeStep::Canary | UpgradeStep::Rolling) {
        upgrade.since.get_or_insert(draft.now);
    }
    Step::Stand(match upgrade.step {
        UpgradeStep::Stale => stay_stale(draft, world, &upgrade, current),
        UpgradeStep::Clearing => clear(draft, world, upgrade),
        UpgradeStep::Waiting => wait(draft, world, upgrade, current),
        UpgradeStep::Canary => match canary::watch(draft, world, upgrade, current) {
            Outcome::Asks(request) => return Step::Ask(request),
            Outcome::Waits(stand) => stand,
            Outcome::Passed(upgrade, verdict) => passed(draft, world, upgrade, &verdict),
            Outcome::Failed(upgrade, why) => fail(draft, world, upgrade, &why, current),
            Outcome::Gone(upgrade) => start_over(draft, upgrade),
            Outcome::Unwanted(upgrade) => roll(draft, world, upgrade, current),
        },
        UpgradeStep::Rolling => roll(draft, world, upgrade, current),
    })
}

/// A new value of the annotation lets a stale version be tried again, once.
fn honour_retry(draft: &mut Draft) {
    let given = Keeper::ExtendedStatefulSet.retry_given(&draft.observed.owner.annotations);
    if given == draft.status.retry {
        return;
    }
    draft.status.retry.clone_from(&given);
    let Some(upgrade) = &mut draft.status.upgrade else { return };
    if given.is_some() && upgrade.step == UpgradeStep::Stale {
        upgrade.step = UpgradeStep::Waiting;
        (upgrade.failures, upgrade.since, upgrade.cycle) = (0, None, None);
        let note = format!("{} was set: version {} is tried again", names::RETRY_VERSION, upgrade.version);
        draft.normal(Reason::UpgradeStarted, &note);
    }
}

/// Nothing of the new version runs before all pods of the running one are well, unless updateNotReady says otherwise. A version without
/// any Ready pod is not waited for: there is nothing to protect, and the new one may be the fix.
fn wait(draft: &mut Draft, world: &World, mut upgrade: Upgrade, current: i32) -> Stand {
    let version = upgrade.version;
    let may_be_unready = draft.observed.owner.spec.update_strategy.update_not_ready || !world.has_ready(current);
    if let Some(obstacle) = world.obstacle_of_those_there(current).filter(|_| !may_be_unready) {
        let message = format!(
            "version {version} waits until all pods of version {current} are available: {obstacle}; set \
             spec.updateStrategy.updateNotReady to true to go on without"
        );
        return Stand::new(Motion::Stalled, VersionPhase::Held, Reason::RunningVersionNotReady, message);
    }
    if let Some(stand) = make_zones(draft, world, version) {
        return stand;
    }
    let has_canaries = canary::count(draft, world, version) > 0;
    upgrade.step = if has_canaries { UpgradeStep::Canary } else { UpgradeStep::Rolling };
    upgrade.since = Some(draft.now);
    draft.status.upgrade = Some(upgrade);
    draft.wake_now();
    begins(version)
}

fn begins(version: i32) -> Stand {
    Stand::moving(VersionPhase::Upgrading, Reason::UpgradeStarted, format!("version {version} begins"))
}

/// The StatefulSets of zones that have none yet, without pods. Where it stands, if one was missing.
fn make_zones(draft: &mut Draft, world: &World, version: i32) -> Option<Stand> {
    if let Some(message) = world.conflict(version) {
        return Some(Stand::new(Motion::Refused, VersionPhase::Blocked, Reason::NameConflict, message));
    }
    let zones = world.zones.iter().map(|(zone, _)| zone.as_deref());
    let missing: Vec<_> = zones.filter(|zone| world.child(version, *zone).is_none()).collect();
    for zone in &missing {
        make(draft, world, version, *zone, 0);
    }
    if missing.is_empty() {
        return None;
    }
    draft.wake_now();
    Some(begins(version))
}

/// The canaries are well.
fn passed(draft: &mut Draft, world: &World, mut upgrade: Upgrade, verdict: &str) -> Stand {
    let version = upgrade.version;
    let count = canary::count(draft, world, version);
    (upgrade.step, upgrade.since, upgrade.cycle) = (UpgradeStep::Rolling, Some(draft.now), None);
    draft.status.upgrade = Some(upgrade);
    draft.wake_now();
    let are = if count == 1 { "is" } else { "are" };
    let canaries = canary::in_words(count);
    let message = format!("version {version}: {canaries} {are} well ({verdict}); all pods are started");
    draft.normal(Reason::VersionRolling, &message);
    Stand::moving(VersionPhase::Upgrading, Reason::VersionRolling, message)
}

/// All pods, zone by zone: the next one begins when the one before has all its pods available. A zone that no node carries is not waited for.
/// What has begun goes on and stays, in whatever order the list is by now.
fn roll(draft: &mut Draft, world: &World, mut upgrade: Upgrade, current: i32) -> Stand {
    let version = upgrade.version;
    let mut zones: Vec<_> = world.zones.iter().collect();
    zones.sort_by_key(|(zone, _)| !world.has_begun(version, zone.as_deref()));
    for (zone, count) in zones {
        let Some(child) = world.child(version, zone.as_deref()) else {
            let was_there = was_there(draft, &world.name_of(version, zone.as_deref()));
            // A zone that is new in the list has nothing that would have to be tried again.
            let new = if was_there { None } else { make_zones(draft, world, version) };
            return new.unwrap_or_else(|| start_over(draft, upgrade));
        };
        if child.replicas != *count {
            scale(draft, child, *count);
            // Each zone has its own time; a change of the number of pods is a step of its own as well.
            upgrade.since = Some(draft.now);
            draft.status.upgrade = Some(upgrade);
            let message = format!("version {version}: StatefulSet {} gets {count} pods", child.name);
            return Stand::moving(VersionPhase::Upgrading, Reason::VersionRolling, message);
        }
        canary::begin_anew(draft, &mut upgrade, child);
        let obstacle = world.obstacle(Some(child), &child.name, *count);
        let Some(obstacle) = obstacle.filter(|_| world.is_carried(zone.as_deref())) else { continue };
        if let Some(end) = canary::overdue(draft, &upgrade) {
            let why = format!("not all pods were there by {}: {obstacle}", clock(end));
            return fail(draft, world, upgrade, &why, current);
        }
        let message = format!("version {version}: waiting for all pods: {obstacle}");
        draft.status.upgrade = Some(upgrade);
        return Stand::moving(VersionPhase::Upgrading, Reason::VersionRolling, message);
    }
    for child in world.children(version).iter().filter(|child| child.stale.is_some()) {
        mark(draft, child, None);
    }
    upgrade::promote(draft, world, version, current)
}

/// A StatefulSet of the new version was deleted by somebody else.
fn start_over(draft: &mut Draft, mut upgrade: Upgrade) -> Stand {
    let message = format!("version {}: a StatefulSet of it is gone; it begins again", upgrade.version);
    (upgrade.step, upgrade.since, upgrade.cycle) = (UpgradeStep::Waiting, None, None);
    draft.status.upgrade = Some(upgrade);
    draft.wake_now();
    Stand::moving(VersionPhase::Upgrading, Reason::ChildGone, message)
}

/// A try failed: another one with other pods, or the end.
fn fail(draft: &mut Draft, world: &World, mut upgrade: Upgrade, why: &str, current: i32) -> Stand {
    upgrade.failures = upgrade.failures.saturating_add(1);
    (upgrade.since, upgrade.cycle, upgrade.reason) = (None, None, why.to_owned());
    let tries = draft.observed.owner.spec.update_strategy.retry_count;
    let version = upgrade.version;
    if upgrade.failures <= tries {
        let all = tries.saturating_add(1);
        let note = format!("version {version}: try {} of {all} failed, {why}; other pods are tried", upgrade.failures);
        draft.warn(Reason::CanaryRetried, &note);
        upgrade.step = UpgradeStep::Clearing;
        return clear(draft, world, upgrade);
    }
    upgrade.step = UpgradeStep::Stale;
    stay_stale(draft, world, &upgrade, current)
}

/// The pods of a try that failed go before others come.
fn clear(draft: &mut Draft, world: &World, mut upgrade: Upgrade) -> Stand {
    let version = upgrade.version;
    for child in world.children(version).iter().filter(|child| child.replicas > 0) {
        scale(draft, child, 0);
    }
    if !world.has_pods(version) {
        (upgrade.step, upgrade.since) = (UpgradeStep::Waiting, None);
        draft.wake_now();
    }
    let message = format!("version {version}: the pods of the try that failed are removed ({})", upgrade.reason);
    draft.status.upgrade = Some(upgrade);
    if let Some(stand) = tidy::lost(world, world.children(version), &message) {
        return stand;
    }
    Stand::moving(VersionPhase::Upgrading, Reason::CanaryRetried, message)
}

/// Marked, without pods, and kept until the next version.
fn stay_stale(draft: &mut Draft, world: &World, upgrade: &Upgrade, current: i32) -> Stand {
    let Upgrade { version, reason, .. } = upgrade;
    for child in world.children(*version) {
        if child.stale.as_deref() != Some(reason) {
            mark(draft, child, Some(reason.clone()));
        }
        if child.replicas > 0 {
            scale(draft, child, 0);
        }
    }
    tidy::dropped_meanwhile(draft, world, current);
    draft.status.upgrade = Some(upgrade.clone());
    let message = format!(
        "version {version} is stale: {reason}; version {current} stays in charge; change spec.template, or set the annotation {} to a \
         new value to try it again",
        names::RETRY_VERSION
    );
    Stand::new(Motion::Stalled, VersionPhase::Failed, Reason::VersionStale, message)
}
