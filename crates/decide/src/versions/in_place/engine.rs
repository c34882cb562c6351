//! What the engine is asked about one StatefulSet, and what becomes of its answer.

use std::collections::BTreeSet;

use sts_plus_api::{Check, PhasedRolloutStatus, StuckPods, VersionCheck, names};

use crate::{
    claim::{self, claimed_by},
    hold,
    observed::{ConfigProblem, Keeper, SetView, Try},
    plan::{Action, CheckRequest, EventTarget},
    roll::{self, Memory, Next, Policy, Seen},
    slots::Slots,
    versions::{draft::Draft, in_place::failed, observed::ChildView, plan::VersionAction},
    why::{Why, Words},
};

/// What a StatefulSet of an ExtendedStatefulSet says of whom it belongs to. No PhasedRollout can have this name, so none takes the
/// StatefulSet for its own.
#[must_use]
pub fn claim(owner: &str) -> String {
    format!("{}/{owner}", Keeper::ExtendedStatefulSet)
}

/// What the engine says to one StatefulSet. One whose turn it is not is paused to it.
pub(super) fn ask(
    draft: &Draft,
    child: &ChildView,
    set: &SetView,
    current: i32,
    paused: bool,
    elsewhere: Option<&str>,
) -> Result<Next, Why> {
    let owner = &draft.observed.owner;
    let strategy = &owner.spec.update_strategy;
    let name = claim(&owner.name);
    if let Some(why) = claim::refusal(set, &name) {
        return Err(why);
    }
    let unchecked = || Check { preflight: false, final_check: false, ..Check::default() };
    let check = strategy.check.as_ref().map_or_else(unchecked, VersionCheck::to_check);
    let config: Vec<_> = draft.observed.config.iter().map(named_here).collect();
    let answer = draft
        .observed
        .tried
        .as_ref()
        .map(|tried| Try { config: tried.config.iter().map(named_here).collect(), ..tried.clone() });
    let status = owner.status.rollouts.get(&child.name).cloned().unwrap_or_else(|| unknown(draft, child, set, current));
    let policy = Policy {
        words: words(owner.spec.paused),
        namespace: &owner.namespace,
        check: &check,
        paused,
        pause_before: &[],
        progress_deadline: Some(strategy.canary_watch_seconds),
        stuck_pods: StuckPods::default(),
        passes_broken: strategy.update_not_ready,
        elsewhere,
        retry: Keeper::ExtendedStatefulSet.retry_given(&owner.annotations),
        approve: None,
        config: &config,
        // A new template comes from the operator alone, with the hold in the same write.
        refuses_templates: false,
        writes_template: true,
        is_ours: claimed_by(set) == Some(&name) && !set.annotations.contains_key(names::HOLD_SWITCH),
    };
    let seen = Seen { set, pods: &child.pods, answer: answer.as_ref(), checks: &status.checks };
    Ok(roll::next(&policy, &Memory::load(&status), &seen, draft.now))
}

fn words(is_paused: bool) -> Words {
    Words {
        keeper: Keeper::ExtendedStatefulSet,
        deadline: "spec.updateStrategy.canaryWatchSeconds",
        paused: if is_paused { "spec.paused is true" } else { "it is not the turn of this StatefulSet" },
    }
}

/// The field under the name that it has here.
fn named_here(problem: &ConfigProblem) -> ConfigProblem {
    let message = problem.message.replace("spec.check", "spec.updateStrategy.check");
    ConfigProblem { reason: problem.reason, message }
}

/// Nothing is noted of it, or what was noted is lost: the version in charge tells what the last good revision is, and the mark of the
/// StatefulSet that the newest one was rejected. A version that began after that is not the one that was marked.
fn unknown(draft: &Draft, child: &ChildView, set: &SetView, current: i32) -> PhasedRolloutStatus {
    let at_current = child.pods.iter().filter(|pod| pod.version == Some(current));
    let carried: BTreeSet<_> = at_current.filter_map(|pod| pod.revision.as_deref()).collect();
    let mut status = PhasedRolloutStatus { target: Some(child.name.clone()), ..PhasedRolloutStatus::default() };
    status.target_uid = Some(child.uid.clone());
    if let [good] = Vec::from_iter(carried).as_slice() {
        status.previous_revision = Some((*good).to_owned());
    }
    let rejected = child.stale.as_ref().filter(|_| failed::is_marked(draft)).and(set.update_revision.clone());
    status.rejected_revisions.extend(rejected);
    status.put_seal();
    status
}

pub(super) fn is_quiet(next: &Result<Next, Why>) -> bool {
    match next {
        Ok(Next::Step(step)) => step.partition.is_none() && step.moves.is_empty(),
        Ok(Next::Unchanged(moves, _)) => moves.is_empty(),
        Ok(Next::Ask(_)) => false,
        Err(_) => true,
    }
}

/// Takes over what the engine wants for one StatefulSet: the check that is due, and where it stands if that is news.
pub(super) fn absorb(
    draft: &mut Draft,
    child: &ChildView,
    set: &SetView,
    next: Result<Next, Why>,
    is_mute: bool,
) -> (Option<CheckRequest>, Option<Why>) {
    let step = match next {
        Err(why) => return (None, Some(why)),
        Ok(Next::Ask(request)) => return (Some(request), None),
        Ok(Next::Unchanged(_, wake)) => {
            if let Some(wake) = wake {
                draft.wake_at(wake);
            }
            return (None, None);
        }
        Ok(Next::Step(step)) => step,
    };
    let before = draft.status.rollouts.get(&child.name).cloned().unwrap_or_default();
    if let Some(partition) = step.partition {
        let owner = claim(&draft.observed.owner.name);
        draft.act(VersionAction::Roll(hold::patch(set, &owner, &step.revision, partition)));
    }
    for one in step.moves {
        draft.act(VersionAction::Roll(Action::from(one)));
    }
    // What the engine tells of a pause is no news.
    for event in step.events.iter().filter(|event| event.on == EventTarget::Rollout && !is_mute) {
        draft.tell(event.severity, event.reason, &event.note);
    }
    if let Some(wake) = step.wake {
        draft.wake_at(wake);
    }
    let slots = Slots::new(set, &child.pods, &step.revision, draft.now);
    let mut status = before;
    step.memory.store(&mut status, |index| slots.pod_name(index));
    if let Some(checks) = step.checks {
        status.checks = checks;
    }
    status.phase = step.why.phase;
    status.message.clone_from(&step.why.message);
    status.observed_generation = Some(draft.observed.owner.generation);
    status.replicas = slots.replicas();
    slots.count(&mut status);
    status.conditions.clear();
    status.put_seal();
    draft.status.rollouts.insert(child.name.clone(), status);
    (None, Some(step.why))
}
