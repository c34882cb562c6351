//! The version that is in charge keeps all its pods, and its StatefulSets what was written to them.

use sts_plus_api::{Reason, names};

use crate::{
    hold,
    observed::SetView,
    versions::{
        draft::Draft,
        observed::ChildView,
        plan::VersionAction,
        templates,
        world::{World, why_missing},
    },
};

/// Its StatefulSets are there, as they were written, with as many pods as are wanted.
pub(super) fn replicas(draft: &mut Draft, world: &World, version: i32) {
    let is_known = templates::is_known(draft, world, version);
    for (zone, count, now) in turns(world, version) {
        match world.child(version, zone) {
            Some(child) => {
                if child.stale.is_some() {
                    // Nothing else is left: the other version was deleted by somebody else.
                    mark(draft, child, None);
                }
                keep(draft, child, count, now);
            }
            None if is_known => make(draft, world, version, zone, count),
            None => {}
        }
    }
}

/// The pods that each zone should have, and those that it has from now on: pods leave in one zone at a time, and the next one waits until
/// those of the one before are gone.
pub(super) fn turns<'w>(world: &'w World, version: i32) -> Vec<(Option<&'w str>, i32, i32)> {
    let mut shrinking =
        world.children(version).iter().find(|child| has_surplus(child)).map(|child| child.name.as_str());
    let turn = |(zone, count): &'w (Option<String>, i32)| {
        let zone = zone.as_deref();
        let now = match world.child(version, zone) {
            Some(child) if child.replicas > *count && *shrinking.get_or_insert(&child.name) != child.name => {
                child.replicas
            }
            _ => *count,
        };
        (zone, *count, now)
    };
    world.zones.iter().map(turn).collect()
}

/// A StatefulSet of the template.
pub(super) fn make(draft: &mut Draft, world: &World, version: i32, zone: Option<&str>, replicas: i32) {
    let name = world.name_of(version, zone);
    if draft.observed.foreign.contains(&name) {
        return;
    }
    if was_there(draft, &name) {
        draft.warn(Reason::ChildGone, &format!("StatefulSet {name} was deleted by somebody else; it is made anew"));
    }
    draft.act(VersionAction::Create { name, zone: zone.map(str::to_owned), version, replicas });
}

/// True if there was a StatefulSet of this name when the status was written last.
pub(super) fn was_there(draft: &Draft, name: &str) -> bool {
    draft.observed.owner.status.sets_named(name).next().is_some()
}

fn has_surplus(child: &ChildView) -> bool {
    i32::try_from(child.pods.len()).is_ok_and(|there| there > child.replicas)
}

/// One StatefulSet, that should have `count` pods, and has so many from `now` on.
pub(super) fn keep(draft: &mut Draft, child: &ChildView, count: i32, now: i32) {
    if child.deleting {
        return;
    }
    let is_foreign_write = tell_drift(draft, child, count);
    let template = &draft.observed.template;
    let is_newest = child.hash == template.hash;
    let is_outdated = is_newest && child.settings != template.settings;
    // Between its birth and its first note anybody may have written to it.
    let is_foreign_write = is_foreign_write || is_unknown(draft, child);
    let can_restore = is_newest || draft.observed.kept.get(&child.version) == Some(&child.hash);
    if is_outdated || (is_foreign_write && can_restore) {
        // Without pods the controller may have made what was written by hand the current revision, and pods would start on it.
        let now = if is_foreign_write && is_empty(child) { 0 } else { now };
        apply(draft, child, child.version, now, kept_partition(child));
    } else if child.replicas != now && !is_settling(child) {
        scale(draft, child, now);
    }
}

/// Somebody else has written to it, which is told. True if so.
pub(super) fn tell_drift(draft: &mut Draft, child: &ChildView, count: i32) -> bool {
    if !has_drifted(draft, child) {
        return false;
    }
    draft.untold.remove(&child.name);
    let ChildView { name, replicas, .. } = child;
    let what = if *replicas == count {
        format!("StatefulSet {name} was changed by somebody else; what the template says is put back")
    } else {
        format!("StatefulSet {name} was scaled to {replicas} by somebody else; it is put back to {count}")
    };
    draft.warn(Reason::ChildDrift, &what);
    true
}

/// In place: it has no pods, and is to have none yet.
fn is_empty(child: &ChildView) -> bool {
    child.set.is_some() && child.replicas == 0 && child.pods.is_empty()
}

/// In place: it has no pods, and its controller has not made what was written the current revision yet: a pod that comes under the hold would
/// start on something else. Without pods that is a matter of its next look.
pub(super) fn is_settling(child: &ChildView) -> bool {
    is_empty(child) && !child.deleting && child.set.as_ref().is_some_and(|set| !has_taken(set))
}

/// Its controller has made what was written the current revision.
pub(super) fn has_taken(set: &SetView) -> bool {
    set.is_seen() && set.current_revision == set.update_revision
}

/// In place: its first pod has not come yet. Before that the controller would make any other template the current revision, and the hold would
/// keep no pod from it. One whose pods cannot be made waits for nothing: the next template may be the cure.
pub(super) fn is_coming(child: &ChildView, target: i32) -> bool {
    let is_refused = || why_missing(child).is_some();
    child.set.is_some() && child.version != target && child.replicas > 0 && child.pods.is_empty() && !is_refused()
}

/// Everything of the template, with a partition in the same write.
pub(super) fn apply(draft: &mut Draft, child: &ChildView, version: i32, replicas: i32, partition: i32) {
    let (name, zone) = (child.name.clone(), child.zone.clone());
    draft.act(VersionAction::Apply { name, zone, version, replicas, partition });
}

/// Side by side it is the full hold. In place it stays where the engine wrote it, or above; only what a person allowed is kept lower.
fn kept_partition(child: &ChildView) -> i32 {
    child.set.as_ref().map_or(names::HOLD, |set| hold::kept(set))
}

pub(super) fn mark(draft: &mut Draft, child: &ChildView, stale: Option<String>) {
    draft.act(VersionAction::Mark { name: child.name.clone(), uid: child.uid.clone(), stale });
}

pub(super) fn scale(draft: &mut Draft, child: &ChildView, replicas: i32) {
    let (name, uid) = (child.name.clone(), child.uid.clone());
    draft.act(VersionAction::Scale { name, uid, generation: child.generation, replicas });
}

/// What somebody else has written to it stays for now. It is told when it is put back, and not taken for ours until then.
pub(super) fn leave(draft: &mut Draft, child: &ChildView) {
    if has_drifted(draft, child) {
        draft.untold.insert(child.name.clone());
    }
}

/// The generation to be noted of it: the one that the operator left there, or is about to; 0 if there is none.
pub(super) fn to_be_noted(draft: &Draft, child: &ChildView) -> i64 {
    let writes = |action: &VersionAction| matches!(action, VersionAction::Apply { name, .. } if *name == child.name);
    let is_ours = || !is_unknown(draft, child) && !draft.untold.contains(&child.name);
    if is_ours() || draft.actions.iter().any(writes) {
        child.generation
    } else {
        noted(draft, child).next().unwrap_or_default()
    }
}

/// What the operator left there was never noted, and it is not as it was born.
fn is_unknown(draft: &Draft, child: &ChildView) -> bool {
    child.generation > 1 && noted(draft, child).next().is_none()
}

/// Its spec is not what the operator left there, as far as that is noted: somebody else wrote to it, or a crash kept our own write from being
/// noted.
pub(super) fn has_drifted(draft: &Draft, child: &ChildView) -> bool {
    noted(draft, child).any(|generation| generation != child.generation)
}

/// The generations that the operator left it at, as the status knows them.
fn noted<'d>(draft: &'d Draft, child: &'d ChildView) -> impl Iterator<Item = i64> + 'd {
    let sets = draft.observed.owner.status.sets_named(&child.name);
    sets.map(|set| set.generation).filter(|generation| *generation != 0)
}
