//! The rollout engine: a chain of rooms, each of which either knows what comes next or hands over.
//!
//! `lifecycle` (finalizer, claim, release) → `engine` (hold, new revision, rest) → `repair` (pods of failed revisions) → `gate`
//! (checks) → `step` (one more pod); `empty` where there are no pods. `facts` reads the pods, `memory` keeps what must survive a restart,
//! `report` tells people.

mod draft;
mod empty;
mod engine;
mod facts;
mod failure;
mod gate;
mod lifecycle;
mod memory;
mod repair;
mod report;
mod step;

use jiff::Timestamp;

use crate::{Observed, Plan};
use draft::Draft;

pub(crate) use draft::was_ready_for;
pub(crate) use facts::{
    after, available_at, describe_pod, describe_refused, is_lost, is_ready, lost_at, partition, unavailable,
    unready_since,
};
pub(crate) use failure::retry_given;
pub(crate) use gate::{count_try, retry_later, retry_time};
pub(crate) use lifecycle::is_released;
pub(crate) use memory::{kept_partition, rejects_target};
pub(crate) use report::{clock, dated, keep_checks, last_words, plain};

/// Decides what comes next for one PhasedRollout.
///
/// Total: every input gives a plan. The same input gives the same plan. The plan carries at most one change that can disturb
/// pods, and each of its writes is safe when it happens twice.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    let draft = Draft::new(observed, now);
    if observed.rollout.deleting {
        return lifecycle::delete(draft);
    }
    if !observed.rollout.has_finalizer {
        return lifecycle::guard(draft);
    }
    if let Some(former) = observed.former_targets.first() {
        return lifecycle::release_former(draft, former);
    }
    let set = match lifecycle::accept(observed) {
        Ok(set) => set,
        Err(stand) => return draft.refused(&stand),
    };
    // Paused wins: a person who presses stop is not asked what was going on.
    if observed.rollout.spec.skips_checks() && !observed.rollout.spec.paused {
        return lifecycle::skip(draft, set);
    }
    engine::roll(draft, set)
}
