//! The template of each version is kept for as long as the version is there, so that a StatefulSet that somebody deletes or
//! changes is put back also when `spec.template` is another one by then.

use std::collections::BTreeSet;

use crate::versions::{draft::Draft, plan::VersionAction, world::World};

/// What a version is made from is kept before anything of it is made, and goes with it.
pub(super) fn tend(draft: &mut Draft, world: &World, current: i32, target: i32) {
    let kept = &draft.observed.kept;
    let wanted = BTreeSet::from([current, target]);
    let is_of_template = |version: &&i32| is_of_template(draft, world, **version);
    let missing: Vec<i32> =
        wanted.iter().filter(|version| !kept.contains_key(version)).filter(is_of_template).copied().collect();
    let is_needed = |version: &i32| wanted.contains(version) || !world.children(*version).is_empty();
    let surplus = kept.keys().copied().filter(|version| !is_needed(version));
    let actions = missing.into_iter().map(|version| VersionAction::Remember { version });
    let actions: Vec<_> = actions.chain(surplus.map(|version| VersionAction::Forget { version })).collect();
    draft.actions.extend(actions);
}

/// True if what a StatefulSet of the version is made from is known.
pub(super) fn is_known(draft: &Draft, world: &World, version: i32) -> bool {
    is_of_template(draft, world, version) || draft.observed.kept.contains_key(&version)
}

/// True if `spec.template` is that of the version. Side by side one of which nothing is known comes from there; in place it may be one that
/// pods still carry, and whose digest was lost with the status.
fn is_of_template(draft: &Draft, world: &World, version: i32) -> bool {
    hash_of(draft, world, version).map_or(!world.is_in_place, |hash| *hash == draft.observed.template.hash)
}

/// The digest of a version, also of one of which nothing but the upgrade to it is there.
pub(super) fn hash_of<'d>(draft: &'d Draft, world: &World<'d>, version: i32) -> Option<&'d str> {
    let upgrade = draft.status.upgrade.as_ref().filter(|upgrade| upgrade.version == version);
    world.hash_of(version).or(upgrade.map(|upgrade| upgrade.hash.as_str()))
}
