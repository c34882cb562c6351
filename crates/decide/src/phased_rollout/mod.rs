//! The rolling update of one plain StatefulSet for a PhasedRollout: finalizer, claim and release around the engine, and the status.

mod draft;
mod lifecycle;
mod status;

use jiff::Timestamp;
use sts_plus_api::names;

use crate::{
    claim::claimed_by,
    observed::{HoldState, Keeper, Observed, SetView},
    plan::Plan,
    roll::{self, Next, Policy, Seen},
    why::Words,
};
use draft::Draft;

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
        Err(why) => return draft.refused(&why),
    };
    // Paused wins: a person who presses stop is not asked what was going on.
    if observed.rollout.spec.skips_checks() && !observed.rollout.spec.paused {
        return lifecycle::skip(draft, set);
    }
    roll(draft, set)
}

fn roll<'a>(mut draft: Draft<'a>, set: &'a SetView) -> Plan {
    let observed = draft.observed;
    let policy = policy(observed, set);
    let status = &observed.rollout.status;
    let seen = Seen { set, pods: &observed.pods, answer: observed.tried.as_ref(), checks: &status.checks };
    match roll::next(&policy, &draft.memory, &seen, draft.now) {
        Next::Ask(request) => draft.ask(request),
        Next::Unchanged(moves, wake) => {
            draft.carry_out(moves);
            draft.wake = wake;
            draft.unchanged()
        }
        Next::Step(step) => draft.step(set, *step),
    }
}

fn policy<'a>(observed: &'a Observed, set: &SetView) -> Policy<'a> {
    let rollout = &observed.rollout;
    let spec = &rollout.spec;
    Policy {
        words: Words::PHASED_ROLLOUT,
        namespace: &rollout.namespace,
        check: &spec.check,
        paused: spec.paused,
        pause_before: &spec.pause_before,
        progress_deadline: spec.progress_deadline_seconds,
        stuck_pods: spec.stuck_pods,
        passes_broken: false,
        elsewhere: None,
        retry: Keeper::PhasedRollout.retry_given(&rollout.annotations),
        approve: rollout.annotations.get(names::APPROVE).map(String::as_str),
        config: &observed.config,
        refuses_templates: observed.hold == HoldState::Refusing,
        writes_template: false,
        is_ours: claimed_by(set) == Some(&rollout.name) && !set.annotations.contains_key(names::HOLD_SWITCH),
    }
}
