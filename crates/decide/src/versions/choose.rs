//! Which version is in charge, and which one the template asks for.

use std::cmp::Reverse;

use sts_plus_api::{Reason, Upgrade, UpgradeStep, VersionPhase};

use crate::{
    observed::{Keeper, SetView},
    versions::{
        draft::Draft,
        observed::ChildView,
        stand::{Motion, Stand},
        world::World,
    },
};

/// A StatefulSet whose name is longer makes no pods (native-statefulset B2).
const NAME_CHARACTERS: usize = 52;

/// The version that is in charge, and the one that is wanted. An error says where it stands when nothing else is to be done now.
pub(super) fn versions(draft: &mut Draft, world: &World) -> Result<(i32, i32), Stand> {
    let hash = &draft.observed.template.hash;
    let kept = draft.observed.kept.keys().next_back().copied();
    let highest = world.versions().next_back().max(kept).unwrap_or(0);
    draft.status.last_version = draft.status.last_version.max(highest);

    let is_there = |version: &i32| !world.children(*version).is_empty() || draft.observed.kept.contains_key(version);
    let noted = draft.status.current_version.filter(is_there);
    let current = noted.or_else(|| found(world));
    if let Some(found) = current.filter(|found| draft.status.current_version != Some(*found))
        && let Some(lost) = draft.status.current_version.replace(found)
    {
        let note = format!(
            "the StatefulSets of version {lost}, which was in charge, were deleted by somebody else; version {found} is in charge"
        );
        draft.warn(Reason::ChildGone, &note);
    }
    let is_wanted = |version: i32| world.hash_of(version) == Some(hash);
    // Before the first StatefulSet of a version is there, its number and digest are in the status alone.
    let begun = draft.status.upgrade.as_ref().filter(|upgrade| upgrade.hash == *hash).map(|upgrade| upgrade.version);
    match current {
        Some(current) if is_wanted(current) => {
            abort(draft, current);
            Ok((current, current))
        }
        Some(current) => {
            let is_paused = draft.observed.owner.spec.paused;
            let underway = draft.status.upgrade.as_ref().map(|upgrade| upgrade.version);
            if !is_paused
                && let Some(standing) = world.versions().find(|version| *version < current && is_wanted(*version))
                && world.stands(standing)
            {
                return Ok(return_to(draft, current, standing));
            }
            match begun.filter(|begun| *begun != current) {
                Some(begun) => Ok((current, begun)),
                None if let Some(found) =
                    world.versions().find(|version| *version > current && is_wanted(*version)) =>
                {
                    Ok((current, resume(draft, world, found)))
                }
                // No number is given, and what is on its way stays as well.
                None if is_paused => Ok((current, underway.unwrap_or(current))),
                None => Err(begin(draft, world, Some(current))),
            }
        }
        None if draft.observed.owner.spec.paused && draft.status.details.is_empty() => {
            let message = "spec.paused is true: nothing is started until it is false".to_owned();
            Err(Stand::new(Motion::Held, VersionPhase::Paused, Reason::Paused, message))
        }
        None => {
            let gone = draft.status.current_version.filter(|_| is_known(draft, hash));
            match begun.or(gone) {
                Some(first) => {
                    draft.status.current_version = Some(first);
                    abort(draft, first);
                    Ok((first, first))
                }
                None => Err(begin(draft, world, None)),
            }
        }
    }
}

/// The version that was in charge had this digest: its StatefulSets were deleted by somebody else.
fn is_known(draft: &Draft, hash: &str) -> bool {
    let current = draft.status.current_version;
    draft.status.details.iter().any(|detail| Some(detail.version) == current && detail.hash == *hash)
}

/// The version that is in charge as far as the StatefulSets tell, when the status does not know one: the largest one, the lower one of two.
/// Which pods are Ready says nothing: after a restore a canary may come up first. Zones that were dropped do not count while others are there,
/// and a version on whose way its StatefulSet is, is not in charge yet.
fn found(world: &World) -> Option<i32> {
    let children = || world.observed.children.iter().filter(|child| world.is_listed(child));
    let counts = |child: &ChildView| world.is_listed(child) || children().next().is_none();
    let size = |child: &ChildView, version: i32| -> usize {
        if world.is_in_place {
            return world.pods_at(child, version).count();
        }
        child.set.as_deref().map_or(0, |set| usize::try_from(set.replicas).unwrap_or(0))
    };
    let size_of = |version: i32| -> usize {
        let children = world.children(version).iter().filter(|child| counts(child));
        children.map(|child| size(child, version)).sum()
    };
    let is_on_its_way = |version: i32| {
        let is_awaited = |set: &SetView| set.current_revision != set.update_revision;
        children().any(|child| child.version == version && child.set.as_deref().is_some_and(is_awaited))
    };
    let known = || world.versions().chain(world.observed.kept.keys().copied().filter(|_| world.is_in_place));
    let most = |versions: &mut dyn Iterator<Item = i32>| {
        let sound = versions.filter(|version| world.stale(*version).is_none());
        sound.max_by_key(|version| (size_of(*version), Reverse(*version)))
    };
    most(&mut known().filter(|version| !is_on_its_way(*version))).or_else(|| most(&mut world.versions()))
}

/// The status was lost: the StatefulSets say that the version was on its way, or that it has failed.
fn resume(draft: &mut Draft, world: &World, version: i32) -> i32 {
    let mut upgrade = upgrade_to(version, &draft.observed.template.hash);
    if let Some(reason) = world.stale(version) {
        (upgrade.step, upgrade.failures, upgrade.reason) = (UpgradeStep::Stale, 1, reason.to_owned());
        // What was given before it was lost has been used up.
        draft.status.retry = Keeper::ExtendedStatefulSet.retry_given(&draft.observed.owner.annotations);
    }
    draft.status.upgrade = Some(upgrade);
    draft.status.update_version = Some(version);
    version
}

fn upgrade_to(version: i32, hash: &str) -> Upgrade {
    Upgrade {
        version,
        hash: hash.to_owned(),
        step: UpgradeStep::Waiting,
        failures: 0,
        since: None,
        cycle: None,
        reason: String::new(),
    }
}

/// The template is that of the version in charge: what was on its way is given up.
fn abort(draft: &mut Draft, current: i32) {
    draft.status.update_version = None;
    let Some(upgrade) = draft.status.upgrade.take() else { return };
    if upgrade.version != current {
        let note = format!(
            "spec.template is back at that of version {current}, which runs; version {} is removed",
            upgrade.version
        );
        draft.normal(Reason::UpgradeAborted, &note);
    }
}

/// The template is that of the version before, which still has all its pods: it is in charge again at once.
fn return_to(draft: &mut Draft, current: i32, standing: i32) -> (i32, i32) {
    draft.status.current_version = Some(standing);
    (draft.status.update_version, draft.status.upgrade) = (None, None);
    draft.status.promotion_time = Some(draft.now);
    let note = format!(
        "spec.template is back at that of version {standing}, which still runs with all its pods: it is in charge again, and version \
         {current} is removed"
    );
    draft.normal(Reason::UpgradeAborted, &note);
    (standing, standing)
}

/// A new number. It is in the status before anything carries it, so that it is never used again.
fn begin(draft: &mut Draft, world: &World, from: Option<i32>) -> Stand {
    let blocked = |reason, message: String| Stand::new(Motion::Refused, VersionPhase::Blocked, reason, message);
    let Some(version) = draft.status.last_version.checked_add(1) else {
        return blocked(Reason::NameTooLong, "there are no more numbers for versions".to_owned());
    };
    let names = || world.zones.iter().map(|(zone, _)| world.name_of(version, zone.as_deref()));
    if let Some(name) = names().find(|name| name.len() > NAME_CHARACTERS) {
        let surplus = name.len() - NAME_CHARACTERS;
        let message = format!(
            "StatefulSet {name} would have {} characters, {surplus} more than the {NAME_CHARACTERS} that it can have: make an \
             ExtendedStatefulSet with a shorter name; nothing that runs is touched",
            name.len()
        );
        return blocked(Reason::NameTooLong, message);
    }
    if let Some(message) = world.conflict(version) {
        return blocked(Reason::NameConflict, message);
    }
    draft.status.last_version = version;
    draft.status.upgrade = Some(upgrade_to(version, &draft.observed.template.hash));
    draft.status.checks.clear();
    draft.wake_now();
    let (phase, note) = if let Some(from) = from {
        draft.status.update_version = Some(version);
        (VersionPhase::Upgrading, format!("upgrade from version {from} to version {version} started"))
    } else {
        draft.status.current_version = Some(version);
        (VersionPhase::Progressing, format!("version {version} is installed"))
    };
    draft.normal(Reason::UpgradeStarted, &note);
    Stand::moving(phase, Reason::UpgradeStarted, note)
}
