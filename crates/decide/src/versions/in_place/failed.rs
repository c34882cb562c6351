//! In place, a version that has failed: what one StatefulSet has rejected is rolled in no other, whatever becomes of that one, until a person
//! wants it to be tried again.

use std::collections::BTreeSet;

use sts_plus_api::{Reason, UpgradeStep, VersionPhase, names};

use crate::{
    observed::Keeper,
    versions::{
        draft::Draft,
        keep,
        observed::ChildView,
        stand::{Motion, Stand},
        world::World,
    },
};

/// The version was rejected, and none of these StatefulSets knows of it: the one that does is gone, has no pods, or was made anew just now.
pub(super) fn stand(draft: &Draft, zones: &[&ChildView], target: i32) -> Option<Stand> {
    let is_paused = draft.observed.owner.spec.paused;
    let upgrade = draft.status.upgrade.as_ref().filter(|_| is_stale(draft) && !is_paused)?;
    if zones.iter().any(|child| rejection(draft, child, target).is_some()) {
        return None;
    }
    let message = format!(
        "version {target} was rejected and is held: {}; change spec.template, or set the annotation {} to a new value to try it again",
        upgrade.reason,
        names::RETRY_VERSION
    );
    Some(Stand::new(Motion::Stalled, VersionPhase::Failed, Reason::RevisionRejected, message))
}

/// The version was rejected, and nobody wants it to be tried again.
fn is_stale(draft: &Draft) -> bool {
    let given = Keeper::ExtendedStatefulSet.retry_given(&draft.observed.owner.annotations);
    let is_retried = given.is_some() && given != draft.status.retry;
    !is_retried && is_marked(draft)
}

pub(super) fn is_marked(draft: &Draft) -> bool {
    draft.status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == UpgradeStep::Stale)
}

/// The checks of the version have failed there.
pub(super) fn here(draft: &Draft, child: &ChildView, target: i32) -> bool {
    let Some(rollout) = draft.status.rollouts.get(&child.name) else { return false };
    let wanted = child.set.as_ref().and_then(|set| set.update_revision.as_ref());
    let has_failed = rollout.failure.as_ref().is_some_and(|failure| Some(&failure.revision) == wanted);
    has_failed || rejection(draft, child, target).is_some()
}

/// What is known of the StatefulSets that are there, and of those of the list: one that is made anew has the name of the one before.
pub(super) fn keep_rollouts(draft: &mut Draft, world: &World, target: i32) {
    let there = draft.observed.children.iter().map(|child| child.name.clone());
    let listed = world.zones.iter().map(|(zone, _)| world.name_of(target, zone.as_deref()));
    let names: BTreeSet<_> = there.chain(listed).collect();
    draft.status.rollouts.retain(|name, _| names.contains(name));
}

/// A version that was rejected is stale, and its StatefulSets say so; another one is not. One whose checks fail has failed once.
pub(super) fn mark(draft: &mut Draft, world: &World, target: i32) {
    let children = world.children(target);
    if children.iter().filter_map(|child| child.set.as_deref()).any(|set| !set.is_seen()) {
        // What the engine knows may be about the version before.
        return;
    }
    let failures = i32::from(children.iter().any(|child| here(draft, child, target)));
    let marks: Vec<_> = children.iter().map(|child| (*child, rejection(draft, child, target))).collect();
    let (was_stale, why) = (is_stale(draft), marks.iter().find_map(|(_, why)| why.clone()));
    if why.is_some() && !is_marked(draft) {
        // Only another value than this one ends it. One that comes later may be seen here before the engine has honoured it.
        draft.status.retry = Keeper::ExtendedStatefulSet.retry_given(&draft.observed.owner.annotations);
    }
    match (&mut draft.status.upgrade, why) {
        (Some(upgrade), Some(why)) => {
            (upgrade.step, upgrade.failures, upgrade.reason) = (UpgradeStep::Stale, 1, why);
        }
        (Some(upgrade), None) if !was_stale => {
            (upgrade.step, upgrade.failures, upgrade.reason) = (UpgradeStep::Rolling, failures, String::new());
        }
        _ => {}
    }
    for (child, why) in marks.into_iter().filter(|(child, why)| child.stale != *why) {
        keep::mark(draft, child, why);
    }
}

/// Why the version was rejected in a StatefulSet. One of a dropped zone does not get the next version.
pub(super) fn rejection(draft: &Draft, child: &ChildView, target: i32) -> Option<String> {
    let rollout = draft.status.rollouts.get(&child.name).filter(|_| child.version == target)?;
    let failed = || {
        let record = rollout.checks.iter().rev().find(|record| !record.passed).or(rollout.checks.last());
        let last = record.map_or("no check yet", |record| record.message.as_str());
        format!("its pods failed: {last}")
    };
    let is_rejected = rollout.target_revision.as_ref().is_some_and(|it| rollout.rejected_revisions.contains(it));
    is_rejected.then(failed)
}
