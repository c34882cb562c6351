//! In place: one StatefulSet for each zone, whose pods the rollout engine of PhasedRollout moves to the next version, one at a time.
//!
//! A new version is written to all zones at once, under the full hold; then zone by zone is rolled. At most one zone moves: the others
//! are given to the engine as paused, so that it looks after their hold.

mod empty;
mod engine;
mod failed;
mod turns;
mod words;

use std::collections::BTreeMap;

use sts_plus_api::{Reason, VersionPhase, names};

use crate::{
    claim::is_released,
    observed::{PodView, SetView},
    plan::{Action, CheckRequest, NewPartition},
    units::{Ordinal, Partition},
    versions::{
        draft::Draft,
        keep,
        observed::ChildView,
        plan::VersionAction,
        report,
        stand::{Motion, Stand, Step},
        templates, tidy, upgrade,
        world::World,
    },
};

pub use engine::claim;

/// One round on the way from `current` to `target`, or at rest if they are the same.
pub(super) fn advance(draft: &mut Draft, world: &World, current: i32, target: i32) -> Step {
    if let Some(message) = world.conflict(target) {
        return Step::Stand(Stand::new(Motion::Refused, VersionPhase::Blocked, Reason::NameConflict, message));
    }
    if draft.observed.owner.status.last_version < draft.status.last_version {
        // The status was lost. What knows the number may be the StatefulSet that is written next.
        draft.wake_now();
        let message = format!("version {} is known again from the StatefulSets", draft.status.last_version);
        return Step::Stand(Stand::moving(VersionPhase::Progressing, Reason::Progressing, message));
    }
    templates::tend(draft, world, current, target);
    write_template(draft, world, current, target);
    hold_dropped(draft, world, target);
    let is_free = draft.actions.is_empty() && !draft.observed.owner.spec.paused;
    if is_free && let Some(child) = world.children(target).iter().find(|child| tidy::delete_blocked(draft, child)) {
        let message = format!("version {target}: StatefulSet {} has more pods than are wanted", child.name);
        return Step::Stand(Stand::moving(VersionPhase::Progressing, Reason::Progressing, message));
    }
    if draft.actions.iter().any(|action| !matches!(action, VersionAction::Forget { .. })) {
        // What the engine is to decide on is about to change.
        draft.wake_now();
        let (phase, what_runs) = if target == current {
            (VersionPhase::Progressing, "")
        } else {
            (VersionPhase::Upgrading, "; what runs is held")
        };
        let message = format!("version {target} is written to its StatefulSets{what_runs}");
        return Step::Stand(Stand::moving(phase, Reason::VersionRolling, message));
    }
    let is_starting = |child: &ChildView| {
        keep::is_settling(child) || (target != current && child.version == current && keep::is_coming(child, target))
    };
    let starts = |(zone, count): &(Option<String>, i32)| {
        world.child(target, zone.as_deref()).filter(|child| *count > 0 && is_starting(child))
    };
    if let Some(child) = world.zones.iter().find_map(starts) {
        return Step::Stand(words::not_yet(child, current, target));
    }
    failed::keep_rollouts(draft, world, target);
    if target != current && world.wanted() == 0 {
        return Step::Stand(empty::stand(draft, world, current, target));
    }
    let Round { check, stand, is_unchanged } = roll(draft, world, current, target);
    if let Some(request) = check.filter(|_| draft.actions.is_empty()) {
        return Step::Ask(request);
    }
    if is_unchanged && draft.actions.is_empty() {
        return Step::Unchanged;
    }
    failed::mark(draft, world, target);
    if stand.as_ref().is_some_and(|stand| stand.phase == VersionPhase::Failed) {
        tidy::dropped_meanwhile(draft, world, current);
    }
    Step::Stand(match stand {
        Some(stand) if stand.motion == Motion::Stalled => words::with_zones(stand, world, target),
        Some(stand) if target == current => report::in_time(world, current, stand),
        Some(stand) => stand,
        None if draft.observed.owner.spec.paused => report::paused(draft, world, current),
        None if target != current => upgrade::promote(draft, world, target, current),
        None => {
            draft.status.upgrade = None;
            tidy::dropped_zones(draft, world, current).unwrap_or_else(|| report::rest(world, current))
        }
    })
}

/// Every zone has its StatefulSet, with the template of the version and as many pods as are wanted.
fn write_template(draft: &mut Draft, world: &World, current: i32, target: i32) {
    // Paused, the template may already be that of a version that has no number yet; and what a version was is not known if the status
    // was lost.
    let known = templates::hash_of(draft, world, target);
    let is_written = known.map_or(draft.observed.children.is_empty(), |hash| hash == draft.observed.template.hash);
    for (zone, count, now) in keep::turns(world, target) {
        match world.child(target, zone) {
            // What a person has taken back is not written to, and the engine says so.
            Some(child) if child.deleting || child.set.as_ref().is_some_and(|set| is_released(set)) => {}
            Some(child) if target != current && empty::rests(draft, world, child, count, current) => {
                empty::keep(draft, child, current, count, now);
            }
            Some(child)
                if is_written
                    && (child.version != target || child.hash != draft.observed.template.hash)
                    && !keep::is_coming(child, target) =>
            {
                keep::apply(draft, child, target, now, names::HOLD);
            }
            Some(child) => keep::keep(draft, child, count, now),
            // Somebody else has deleted it, or the zone is a new one: its pods come as the version in charge, and go to the next one as the
            // others do.
            None if !is_anew(draft, world, current, zone) && templates::is_known(draft, world, current) => {
                keep::make(draft, world, current, zone, count);
            }
            None if is_written && (target == current || draft.observed.children.is_empty()) => {
                keep::make(draft, world, target, zone, count);
            }
            None => {}
        }
    }
}

/// Nothing is there, and nothing was when the version on its way began: a person made room for what no StatefulSet takes in its life.
fn is_anew(draft: &Draft, world: &World, current: i32, zone: Option<&str>) -> bool {
    draft.observed.children.is_empty() && !keep::was_there(draft, &world.name_of(current, zone))
}

/// A zone that was dropped while it moved is nobody's turn any more: nothing of it moves beside another one.
fn hold_dropped(draft: &mut Draft, world: &World, version: i32) {
    for child in world.children(version).iter().filter(|child| !world.is_listed(child) && !child.deleting) {
        let Some(set) = &child.set else { continue };
        let opens = |pod: &PodView| Partition::of(set).opens(Ordinal(pod.ordinal).index(set.start));
        let moves = |pod: &&PodView| opens(pod) && pod.revision != set.update_revision;
        let Some(revision) = set.update_revision.as_ref().filter(|_| child.pods.iter().any(|pod| moves(&pod))) else {
            continue;
        };
        draft.act(VersionAction::Roll(Action::PatchSet {
            set: set.name.clone(),
            uid: set.uid.clone(),
            generation: set.generation,
            partition: NewPartition::Set(names::HOLD),
            annotations: BTreeMap::from([(names::WRITTEN_PARTITION, Some(format!("{revision}/{}", names::HOLD)))]),
        }));
    }
}

/// What the engine wants.
struct Round {
    /// A try that is due.
    check: Option<CheckRequest>,
    /// Where the first zone that is not done stands.
    stand: Option<Stand>,
    /// Of that zone nothing is known that is not written already.
    is_unchanged: bool,
}

fn roll(draft: &mut Draft, world: &World, current: i32, target: i32) -> Round {
    // A zone that no node carries comes last, and no upgrade waits for it.
    let is_carried = |child: &ChildView| world.is_carried(child.zone.as_deref());
    let is_awaited =
        |child: &ChildView| is_carried(child) || (target == current && world.is_served(child.zone.as_deref()));
    let mut zones = turns::taking_part(draft, world, current, target);
    zones.sort_by_key(|child| (!is_carried(child), turns::turn(draft, child, current, target)));
    let mut round = Round { check: None, stand: failed::stand(draft, &zones, target), is_unchanged: false };
    for child in zones {
        let Some(set) = &child.set else { continue };
        let must_wait = draft.observed.owner.spec.paused || round.stand.is_some() || round.check.is_some();
        let elsewhere = turns::elsewhere(draft, world, child, current, target);
        let next = engine::ask(draft, child, set, current, must_wait, elsewhere.as_deref());
        let is_quiet = engine::is_quiet(&next);
        let (check, why) = engine::absorb(draft, child, set, next, must_wait);
        if must_wait {
            continue;
        }
        round.check = check;
        let is_done = is_quiet && is_rolled(draft, child, set, target);
        let stand = match &why {
            Some(why) => words::with_cure(words::stand(why, target), draft, child, set, target),
            None => words::not_yet(child, current, target),
        };
        let stand =
            if stand.motion == Motion::Rest && !is_done { words::not_yet(child, current, target) } else { stand };
        let stand = words::in_the_way(child, target).filter(|_| stand.motion != Motion::Stalled).unwrap_or(stand);
        if !(is_done && stand.motion == Motion::Rest) && is_awaited(child) {
            round.is_unchanged = why.is_none() && round.check.is_none();
            round.stand = Some(stand);
        }
    }
    round
}

/// The engine may rest because it does not know yet that another template was written. Then the pods do not carry the version.
fn is_rolled(draft: &Draft, child: &ChildView, set: &SetView, target: i32) -> bool {
    let known = draft.status.rollouts.get(&child.name).and_then(|rollout| rollout.target_revision.as_ref());
    let is_seen = set.is_seen() && known == set.update_revision.as_ref();
    is_seen && child.pods.iter().all(|pod| pod.version == Some(target))
}
