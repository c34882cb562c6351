//! The versions of an ExtendedStatefulSet.
//!
//! `world` reads the children, `scaling` says how many pods, `choose` which version is wanted. Then `side_by_side` brings a new version into
//! charge beside the one that is, or `in_place` has the rollout engine move the pods of one StatefulSet. Both use `keep`, which looks after
//! StatefulSets, `services`, `templates`, `tidy`, which removes what is not needed any more, and `upgrade`. `count` looks after the number of
//! pods while the template is refused, `leave` lets go, `report` tells people where it stands, and `told` what was done.
//!
//! What runs is never removed for something that does not run yet: a lower version goes only after a higher one was promoted with all
//! its pods available.

mod choose;
mod count;
mod draft;
mod in_place;
mod keep;
mod leave;
mod observed;
mod plan;
mod report;
pub mod scaling;
mod services;
mod side_by_side;
mod stand;
mod templates;
mod tidy;
mod told;
mod upgrade;
mod world;

use jiff::Timestamp;
use sts_plus_api::{Reason, VersionPhase, VersionStrategyType};

use draft::Draft;
use stand::{Motion, Stand, Step};
use world::World;

pub use in_place::claim;
pub use observed::{ChildView, OrphanView, OwnerView, ServiceView, TemplateView, VersionsObserved};
pub use plan::{VersionAction, VersionsPlan};
pub use world::child_name;

/// Decides what comes next for one ExtendedStatefulSet.
///
/// Total: every input gives a plan. The same input gives the same plan. The plan has at most one action that removes pods of the
/// version that is in charge.
#[must_use]
pub fn decide_versions(observed: &VersionsObserved, now: Timestamp) -> VersionsPlan {
    let mut draft = Draft::new(observed, now);
    let world = World::new(observed, scaling::zones(&observed.owner.spec), now);
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
        Step::Stand(stand) => report::finish(draft, &world, &stand),
        Step::Ask(request) => draft.ask(request),
        Step::Unchanged => report::finish_as_before(draft, &world),
    }
}

fn steer(draft: &mut Draft, world: &World) -> Step {
    services::release_former(draft);
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
    side_by_side::advance(draft, world, current, target)
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
