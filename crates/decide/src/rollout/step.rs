//! One more pod: lowering the partition by exactly one pod, waiting for it, and the end of the rollout.

use sts_plus_api::{Current, Phase, Reason, Step, names};

use super::{
    draft::Draft,
    engine,
    facts::Facts,
    gate, memory, repair,
    report::{Motion, Stand},
};
use crate::{
    Action, EventTarget, Plan, PodView, Severity,
    units::{Partition, PodIndex},
};

/// A cycle has passed: the next pod, or the end.
pub(crate) fn advance<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, cycle: &Current, verdict: &str) -> Plan {
    match cycle.step {
        Step::Final => complete(draft, facts),
        Step::Preflight | Step::Pod | Step::Repair | Step::Rollback => {
            let Some(next) = facts.next_to_roll() else { return draft.unchanged() };
            // A preflight covers no pod: nothing is at the revision yet.
            let covered = facts.lowest_wanted().map_or(facts.replicas(), |index| index.0);
            memory::pass(&mut draft.status, facts.wanted, covered);
            if let Some(stand) = awaits_approval(&draft, facts, next) {
                draft.status.current = Some(cycle.clone());
                return draft.finish(facts, &stand);
            }
            roll(draft, facts, next, verdict)
        }
    }
}

/// The first pod without a preflight.
pub(crate) fn first<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, next: PodIndex, exempt: &[PodIndex]) -> Plan {
    if let Some(obstacle) = gate::obstacle(&draft, facts, Step::Preflight, exempt) {
        let current = gate::resume(&draft, facts, Step::Preflight, next);
        return gate::obstructed(draft, facts, current, obstacle);
    }
    // Checks that cannot be made would hold the rollout after this pod. A set that was never healthy has nothing to lose.
    if let Some(problem) = draft.observed.config.first().filter(|_| !draft.status.never_healthy) {
        let current = gate::resume(&draft, facts, Step::Preflight, next);
        return gate::unusable(draft, facts, current, problem);
    }
    if let Some(stand) = awaits_approval(&draft, facts, next) {
        gate::remember(&mut draft, facts, Step::Preflight, next);
        return draft.finish(facts, &stand);
    }
    roll(draft, facts, next, "no preflight checks")
}

fn roll<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, next: PodIndex, verdict: &str) -> Plan {
    let before = facts.partition();
    let partition = Partition::opening(next);
    draft.set_partition(facts.set, facts.wanted, partition);
    if approval(&draft, facts, next) {
        draft.act(Action::ConsumeAnnotation(names::APPROVE));
    }
    let pod = facts.pod_name(next);
    let is_last = facts.off().all(|(index, _)| index == next);
    draft.status.last_progress_time = Some(draft.now);
    draft.status.current = Some(gate::fresh(facts, if is_last { Step::Final } else { Step::Pod }, next));
    let note = format!("partition {} -> {}: {pod} is rolled to {}; {verdict}", before.0, partition.0, facts.wanted);
    draft.normal(Reason::PartitionLowered, &note);
    let message = format!("{pod} is being rolled to {} (partition {})", facts.wanted, partition.0);
    draft.finish(facts, &Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

fn approval(draft: &Draft, facts: &Facts, next: PodIndex) -> bool {
    let given = draft.observed.rollout.annotations.get(names::APPROVE);
    given.is_some_and(|given| *given == format!("{}/{}", facts.wanted, next.0))
}

/// An approval whose step was made, but which a crash kept from being removed with it.
pub(crate) fn forget_used_approval(draft: &mut Draft, facts: &Facts) -> bool {
    let used = |(index, pod): (PodIndex, &PodView)| approval(draft, facts, index) && facts.is_wanted(pod);
    if !facts.pods().any(used) {
        return false;
    }
    draft.act(Action::ConsumeAnnotation(names::APPROVE));
    draft.wake_now();
    true
}

fn awaits_approval(draft: &Draft, facts: &Facts, next: PodIndex) -> Option<Stand> {
    let spec = &draft.observed.rollout.spec;
    if !spec.pause_before.contains(&next.0) || draft.status.never_healthy || approval(draft, facts, next) {
        return None;
    }
    let other = match draft.observed.rollout.annotations.get(names::APPROVE) {
        Some(given) => format!("; the annotation says {given}, which is not this step and is ignored"),
        None => String::new(),
    };
    let message = format!(
        "spec.pauseBefore: {} waits for the annotation {}: {}/{}{other}",
        facts.pod_name(next),
        names::APPROVE,
        facts.wanted,
        next.0
    );
    Some(Stand::new(Motion::Held, Phase::Paused, Reason::AwaitingApproval, message))
}

/// The partition is open for `index` and its pod is not at the revision yet.
pub(crate) fn wait<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, index: PodIndex, exempt: &[PodIndex]) -> Plan {
    if let Some(stand) = repair::unstick(&mut draft, facts) {
        return draft.finish(facts, &stand);
    }
    let opened = memory::opened(facts).unwrap_or(index);
    let is_this = |current: &Current| matches!(current.step, Step::Pod | Step::Final) && current.index == opened.0;
    let noted = draft.status.current.take().filter(is_this);
    let mut current = noted.unwrap_or_else(|| gate::fresh(facts, Step::Pod, opened));
    current.since = None;
    if let Some(obstacle) = facts.obstacle(exempt) {
        return gate::obstructed(draft, facts, current, obstacle);
    }
    draft.status.current = Some(current);
    let message = format!("{} is about to be rolled to {}", facts.pod_name(index), facts.wanted);
    draft.finish(facts, &Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

/// Every pod carries the revision and is available, but the StatefulSet's status does not say so yet.
pub(crate) fn await_flip<'a>(mut draft: Draft<'a>, facts: &Facts<'a>, index: PodIndex) -> Plan {
    gate::remember(&mut draft, facts, Step::Final, index);
    let message = format!(
        "all {} pods carry {}; its controller has not yet made it the current revision",
        facts.replicas(),
        facts.wanted
    );
    draft.finish(facts, &Stand::new(Motion::Moving, Phase::Rolling, Reason::PodRolling, message))
}

/// The end of a rollout. The partition is at rest already.
pub(crate) fn complete<'a>(mut draft: Draft<'a>, facts: &Facts<'a>) -> Plan {
    memory::complete(&mut draft.status, facts.wanted, draft.observed.rollout.spec.check.final_check, draft.now);
    let note = format!(
        "all {} pods of StatefulSet {} carry {}; the rollout is complete",
        facts.replicas(),
        facts.set.name,
        facts.wanted
    );
    draft.normal(Reason::Completed, &note);
    draft.tell(EventTarget::Set, Severity::Normal, Reason::Completed, &note);
    draft.finish(facts, &engine::rest(facts, true))
}
