//! The versions of an ExtendedStatefulSet, side by side: a chain of rooms, each of which either knows what comes next or hands over.
//!
//! `world` reads the children, `scaling` says how many pods, `choose` which version is wanted, `keep` looks after the version that is in
//! charge, `count` after the number of its pods while the template is refused, `in_place` rolls one StatefulSet to the next version, `empty`
//! does without pods there, `failed` knows what was rejected, `tidy` removes what is not needed any more, `leave` lets go, `upgrade` brings a
//! new version into charge with `cycle`, its checks, `report` tells people where it stands, and `told` what was done.
//!
//! What runs is never removed for something that does not run yet: a lower version goes only after a higher one was promoted with all
//! its pods available.

mod choose;
mod count;
mod cycle;
mod draft;
mod empty;
mod failed;
mod in_place;
mod keep;
mod leave;
mod observed;
mod plan;
mod report;
pub mod scaling;
mod templates;
mod tidy;
mod told;
mod upgrade;
mod world;

use jiff::Timestamp;
use sts_plus_api::{Reason, VersionPhase, VersionStrategyType};

use crate::CheckRequest;
use draft::{Draft, Motion, Stand};
pub use in_place::claim;
pub use observed::{ChildView, OrphanView, OwnerView, ServiceView, TemplateView, VersionsObserved};
pub use plan::{VersionAction, VersionsPlan};
use world::World;
pub use world::child_name;

/// Decides what comes next for one ExtendedStatefulSet.
///
/// Total: every input gives a plan. The same input gives the same plan. The plan has at most one action that removes pods of the
/// version that is in charge.
#[must_use]
pub fn decide_versions(observed: &VersionsObserved, now: Timestamp) -> VersionsPlan {
    let mut draft = Draft::new(observed, now);
    let world = World::new(observed, draft.replicas(), now);
    if observed.owner.deleting {
        return leave::go(draft, &world);
    }
    if !observed.owner.has_finalizer {
        return leave::guard(draft);
    }
    if !observed.orphans.is_empty() {
        return leave::adopt(draft);
    }
    match steer(&mut draft, &world) {
        Step::Stand(stand) => draft.finish(&world, &stand),
        Step::Ask(request) => draft.ask(request),
        Step::Unchanged => draft.finish_as_before(&world),
    }
}

/// Where it stands, or a try that is due.
enum Step {
    Stand(Stand),
    Ask(CheckRequest),
    /// Nothing is known that is not said already.
    Unchanged,
}

fn steer(draft: &mut Draft, world: &World) -> Step {
    leave::former_services(draft);
    if world.is_in_place {
        // Not every round looks at every StatefulSet, and what a hand has written there must not pass for ours by that.
        draft.observed.children.iter().for_each(|child| keep::leave(draft, child));
    }
    if let Some(stand) = refusal(draft) {
        count::follow(draft, world);
        upgrade::stop_clock(draft);
        return Step::Stand(stand);
    }
    let (current, target) = match choose::versions(draft, world) {
        Ok(chosen) => chosen,
        Err(stand) => {
            // What is in charge is looked after also when no other version can begin.
            let there = draft.status.current_version.filter(|version| !world.children(*version).is_empty());
            if let Some(current) = there.filter(|_| !world.is_in_place) {
                keep::replicas(draft, world, current);
            }
            return Step::Stand(stand);
        }
    };
    if world.is_in_place {
        return in_place::advance(draft, world, current, target);
    }
    templates::tend(draft, world, current, target);
    keep::replicas(draft, world, current);
    keep::services(draft, world, current, target);
    if draft.observed.owner.spec.paused {
        upgrade::stop_clock(draft);
        return Step::Stand(paused(draft, world, current));
    }
    if let Some(stand) = tidy::others(draft, world, current, target) {
        return Step::Stand(stand);
    }
    if target == current {
        draft.status.upgrade = None;
        let dropped = tidy::dropped_zones(draft, world, current);
        return Step::Stand(dropped.unwrap_or_else(|| report::rest(world, current)));
    }
    upgrade::advance(draft, world, current, target)
}

fn paused(draft: &Draft, world: &World, current: i32) -> Stand {
    let pods = |version: i32| world.children(version).iter().flat_map(|child| world.pods_at(child, version)).count();
    let others = world.versions().filter(|version| *version != current && pods(*version) > 0);
    let others: Vec<_> = others.map(|version| format!("; version {version} has pods too: {}", pods(version))).collect();
    let others = others.concat();
    let pending = if world.hash_of(current).is_some_and(|hash| *hash != draft.observed.template.hash) {
        "; spec.template asks for another version"
    } else {
        ""
    };
    let message =
        format!("spec.paused is true: version {current} stays as it is, and no step is made{others}{pending}");
    Stand::new(Motion::Held, VersionPhase::Paused, Reason::Paused, message)
}

/// Why nothing can be done with it as it is written. What runs is not touched.
fn refusal(draft: &Draft) -> Option<Stand> {
    let observed = draft.observed;
    let spec = &observed.owner.spec;
    let refused = |reason, message: String| {
        Some(Stand::new(
            Motion::Refused,
            VersionPhase::Blocked,
            reason,
            format!("{message}; nothing that runs is touched"),
        ))
    };
    if observed.template.has_claims && spec.update_strategy.kind == VersionStrategyType::SideBySide {
        let message = "spec.template.spec.volumeClaimTemplates are not supported side by side in this release: remove them, or use \
             spec.updateStrategy.type InPlace in a new ExtendedStatefulSet";
        return refused(Reason::NotSupported, message.to_owned());
    }
    if let Some(problem) = &observed.template.problem {
        return refused(Reason::TemplateRefused, format!("the API server refuses spec.template: {problem}"));
    }
    if let Err(written) = scaling::wanted(spec) {
        let written = written.map_or_else(|| "no number of replicas".to_owned(), |count| format!("{count} replicas"));
        return refused(Reason::OutsideLimits, format!("spec.scaling allows {written} not at all: correct it"));
    }
    None
}
