//! How one set is rolled, for whoever wants it: one pod at a time, each step allowed by a check cycle. It knows no kind of object.
//!
//! `begin` (claim, drift, new revision) → `empty` (no pods) → `failing` (rejected, retry) → `rollback` → `repair` → `cycle` (checks) → one more
//! pod. Each works on the `round`, none on another; `memory` is what survives.

mod begin;
mod cycle;
mod empty;
mod failing;
mod memory;
mod repair;
mod rollback;
mod round;

use std::borrow::Cow;

use jiff::Timestamp;
use sts_plus_api::{CheckRecord, Reason};

use crate::{
    hold::{self, Circumstances, Wish},
    observed::{PodView, SetView, Try},
    plan::{CheckRequest, Event},
    slots::Slots,
    time::{later, seconds_of},
    units::{Partition, PodIndex},
    why::{Kind, Motion, Why},
};
use cycle::Judged;
use failing::Outcome;
use memory::Stage;
use round::Round;

pub(crate) use memory::Memory;
pub(crate) use round::{Move, Policy};

/// What comes next for a set.
pub(crate) enum Next {
    /// Nothing is known that is not written already.
    Unchanged(Vec<Move>, Option<Timestamp>),
    /// A check is due; its answer decides.
    Ask(CheckRequest),
    Step(Box<Step>),
}

/// What is to be done and remembered, and why.
pub(crate) struct Step {
    pub(crate) memory: Memory,
    pub(crate) why: Why,
    /// The wanted revision that it is about; empty while nobody knows it.
    pub(crate) revision: String,
    /// The partition to write.
    pub(crate) partition: Option<Partition>,
    pub(crate) moves: Vec<Move>,
    pub(crate) events: Vec<Event>,
    /// The last verdicts, if they are not as they were.
    pub(crate) checks: Option<Vec<CheckRecord>>,
    pub(crate) wake: Option<Timestamp>,
}

/// What was seen of a set.
pub(crate) struct Seen<'a> {
    pub(crate) set: &'a SetView,
    pub(crate) pods: &'a [PodView],
    pub(crate) answer: Option<&'a Try>,
    pub(crate) checks: &'a [CheckRecord],
}

/// Where a round ends.
enum Flow {
    Stands(Why),
    Asks(CheckRequest),
    Unchanged,
}

/// Decides what comes next. Total, and the same for the same input.
pub(crate) fn next(policy: &Policy, before: &Memory, seen: &Seen, now: Timestamp) -> Next {
    let mut memory = before.clone();
    memory.bind(seen.set);
    let is_seen = seen.set.is_seen();
    let wanted = seen.set.update_revision.as_deref().filter(|_| is_seen);
    let known = memory.wanted.clone().unwrap_or_default();
    let slots = Slots::new(seen.set, seen.pods, wanted.unwrap_or(&known), now);
    let mut round = Round {
        policy,
        slots,
        now,
        memory,
        before,
        answer: seen.answer,
        checks: Cow::Borrowed(seen.checks),
        wish: Wish::Keep,
        moves: Vec::new(),
        events: Vec::new(),
        wake: None,
    };
    let must_claim = !policy.is_ours || round.memory.wanted.is_none();
    let flow = if wanted.is_none() {
        begin::unseen(&mut round, must_claim).map_or(Flow::Unchanged, Flow::Stands)
    } else if must_claim {
        Flow::Stands(begin::claim(&mut round))
    } else if let Some(why) = begin::undo_drift(&mut round) {
        Flow::Stands(why)
    } else {
        roll(&mut round)
    };
    match flow {
        Flow::Stands(why) => Next::Step(Box::new(finish(round, why))),
        Flow::Asks(request) => Next::Ask(request),
        Flow::Unchanged => Next::Unchanged(round.moves, round.wake),
    }
}

/// The set is ours, and the wanted revision is known.
fn roll(round: &mut Round) -> Flow {
    if round.slots.replicas() == 0 {
        return Flow::Stands(empty::no_pods(round));
    }
    empty::forget_good(&mut round.memory);
    if round.memory.good.is_none() && round.slots.pods().next().is_some() {
        round.memory.good = Some(round.last_good());
    }
    let is_news = round.memory.wanted.as_deref() != Some(round.slots.wanted);
    let has_strayed = round.slots.off().next().is_some() && round.memory.is_settled();
    if is_news || has_strayed {
        return Flow::Stands(begin::begin(round));
    }
    if let Some(approval) = used_approval(round) {
        round.moves.push(approval);
        round.wake_now();
        return Flow::Unchanged;
    }
    failing::honour_retry(round);
    begin::announce_births(round);
    begin::announce_slipped(round);
    let is_rolling_back = round.memory.activity.is_rolling_back();
    if round.is_rejected() && !is_rolling_back {
        return Flow::Stands(failing::rejected(round));
    }
    if is_rolling_back && !round.policy.paused {
        return Flow::Stands(rollback::next(round));
    }
    if round.memory.is_settled() {
        return Flow::Stands(at_rest(round));
    }
    if round.slots.is_rolled() { all_at_revision(round) } else { in_motion(round) }
}

/// Every pod that is there carries the wanted revision.
fn all_at_revision(round: &mut Round) -> Flow {
    let is_flipped = round.slots.has_flipped();
    let index = round.last_rolled();
    let is_whole = round.slots.obstacle(&[]).is_none();
    if is_whole {
        // Hold first, status second.
        round.rest();
    }
    if round.policy.paused {
        return Flow::Stands(paused(round));
    }
    if is_whole && !is_flipped {
        let mut cycle = round.take_cycle(Kind::Final, index);
        cycle.interrupt();
        round.put_cycle(Kind::Final, index, cycle);
        return Flow::Stands(Why::awaiting_flip(&round.slots));
    }
    if is_whole && !round.policy.check.final_check {
        return Flow::Stands(complete(round));
    }
    gate(round, Kind::Final, index, &[])
}

fn at_rest(round: &mut Round) -> Why {
    round.rest();
    if let Some(problem) = round.policy.config.first() {
        round.wake_at(crate::checks::retry_time(round.policy.check, round.now));
        return Why::unusable(problem);
    }
    Why::at_rest(&round.slots, round.memory.is_completed())
}

fn paused(round: &mut Round) -> Why {
    if let Some(cycle) = round.memory.activity.cycle_mut() {
        cycle.pause();
    }
    Why::paused(&round.slots, round.policy.words)
}

/// Some pod is off the wanted revision.
fn in_motion(round: &mut Round) -> Flow {
    if let Some(why) = hold_in_full(round) {
        return Flow::Stands(why);
    }
    if round.policy.paused {
        return Flow::Stands(paused(round));
    }
    // What has failed stays failed, whatever pods come and go: nothing is opened for it before that is over.
    if round.memory.failure.is_none()
        && let Some(why) = repair::note_health(round).or_else(|| repair::next(round))
    {
        return Flow::Stands(why);
    }
    let exempt = repair::exempt(round);
    if let Some(index) = round.slots.in_flight() {
        if let Some(why) = repair::unstick(round) {
            return Flow::Stands(why);
        }
        let judged = cycle::wait(round, index, &exempt);
        return follow(round, Kind::Pod, index, judged);
    }
    if round.slots.lowest_wanted().is_none() {
        return preflight(round, &exempt);
    }
    let index = round.last_rolled();
    gate(round, Kind::Pod, index, &exempt)
}

/// The pods that we rolled are gone (scaled down): nothing stands for this revision any more, and a scale-up must not start pods
/// on it, paused or not.
fn hold_in_full(round: &mut Round) -> Option<Why> {
    let stands = round.slots.lowest_wanted().is_some() || round.slots.in_flight().is_some();
    if stands || round.slots.partition() == Partition::HOLD {
        return None;
    }
    round.wish = Wish::Full;
    round.wake_now();
    Some(if round.policy.paused { paused(round) } else { Why::held_as_a_whole(&round.slots) })
}

/// No pod carries the wanted revision: everything is held until the checks allow the first one.
fn preflight(round: &mut Round, exempt: &[PodIndex]) -> Flow {
    let Some(next) = round.slots.next_to_roll() else {
        // Every pod is missing: they come back on the current revision.
        let what = round.slots.obstacle(&[]).map(|obstacle| obstacle.describe(&round.slots)).unwrap_or_default();
        return Flow::Stands(Why::not_rolled_yet(&round.slots, &what));
    };
    // What failed stays failed when the pods that showed it are scaled away: the next one is not tried for that.
    let has_failed = round.memory.failure.is_some();
    if (round.policy.check.preflight || has_failed) && !round.memory.never_healthy {
        return gate(round, Kind::Preflight, next, exempt);
    }
    if let Some(obstacle) = round.obstacle(Kind::Preflight, exempt) {
        let cycle = round.take_cycle(Kind::Preflight, next);
        let judged = cycle::obstructed(round, Kind::Preflight, next, cycle, obstacle);
        return follow(round, Kind::Preflight, next, judged);
    }
    // Checks that cannot be made would hold the rollout after this pod. A set that was never healthy has nothing to lose.
    if let Some(problem) = round.policy.config.first().filter(|_| !round.memory.never_healthy) {
        round.wake_at(crate::checks::retry_time(round.policy.check, round.now));
        return Flow::Stands(Why::unusable(problem));
    }
    open(round, Kind::Preflight, next, "no preflight checks")
}

fn gate(round: &mut Round, kind: Kind, index: PodIndex, exempt: &[PodIndex]) -> Flow {
    let judged = cycle::run(round, kind, index, exempt);
    follow(round, kind, index, judged)
}

/// What a cycle has come to becomes a step.
fn follow(round: &mut Round, kind: Kind, index: PodIndex, judged: Judged) -> Flow {
    match judged {
        Judged::Stands(why) => Flow::Stands(why),
        Judged::Asks(request) => Flow::Asks(request),
        Judged::Passed(verdict) => {
            if kind != Kind::Final {
                note_pass(round);
            }
            advance(round, kind, &verdict)
        }
        Judged::Failed(reason, message) => {
            if kind == Kind::Preflight
                && let Some(pod) = repair::disowned(round)
            {
                round.wake_now();
                let why = format!("{pod} does not pass its checks any more; it is replaced without them");
                return Flow::Stands(Why::repairing(why));
            }
            match failing::fail(round, kind, index, reason, &message) {
                Outcome::Proceed(verdict) => advance(round, kind, &verdict),
                Outcome::RollBack => Flow::Stands(rollback::next(round)),
                Outcome::Stands(why) => Flow::Stands(why),
            }
        }
    }
}

/// A cycle allows the next pod, or the end.
fn advance(round: &mut Round, kind: Kind, verdict: &str) -> Flow {
    if kind == Kind::Final {
        return Flow::Stands(complete(round));
    }
    let Some(next) = round.slots.next_to_roll() else { return Flow::Unchanged };
    open(round, kind, next, verdict)
}

/// Pods at the revision have passed where they are. A preflight covers none: nothing is at the revision yet.
fn note_pass(round: &mut Round) {
    let covered = round.slots.lowest_wanted().map_or(i32::MAX, |index| index.0);
    let since = round.memory.activity.cycle().and_then(|cycle| cycle.whole_since).unwrap_or(round.now);
    round.memory.pass(round.slots.wanted, covered, since);
}

/// One more pod, once a person who wants to be asked has said yes.
fn open(round: &mut Round, kind: Kind, next: PodIndex, verdict: &str) -> Flow {
    let (wanted, pod) = (round.slots.wanted, round.slots.pod_name(next));
    let is_approved = is_approved(round, next);
    if round.policy.pause_before.contains(&next.0) && !round.memory.never_healthy && !is_approved {
        if round.memory.activity.cycle().is_none() {
            round.put_cycle(kind, next, crate::checks::Cycle::default());
        }
        return Flow::Stands(Why::awaiting_approval(&pod, wanted, next.0, round.policy.approve));
    }
    if is_approved {
        round.moves.push(Move::ConsumeApproval);
    }
    let (before, after) = (round.slots.partition().0, Partition::opening(next).0);
    let is_last = round.slots.off().all(|(index, _)| index == next);
    round.wish = Wish::Open(next);
    round.put_cycle(if is_last { Kind::Final } else { Kind::Pod }, next, crate::checks::Cycle::default());
    round.memory.progress(round.now);
    let note = format!("partition {before} -> {after}: {pod} is rolled to {wanted}; {verdict}");
    round.normal(Reason::PartitionLowered, &note);
    Flow::Stands(Why::rolling(format!("{pod} is being rolled to {wanted} (partition {after})")))
}

fn is_approved(round: &Round, next: PodIndex) -> bool {
    round.policy.approve.is_some_and(|given| *given == format!("{}/{}", round.slots.wanted, next.0))
}

/// An approval whose step was made, but which a crash kept from being removed with it.
fn used_approval(round: &Round) -> Option<Move> {
    let is_used = |(index, pod): (PodIndex, &PodView)| round.slots.is_wanted(pod) && is_approved(round, index);
    (round.policy.approve.is_some() && round.slots.pods().any(is_used)).then_some(Move::ConsumeApproval)
}

/// The end of a rollout. The partition is at rest already.
fn complete(round: &mut Round) -> Why {
    let slots = &round.slots;
    let (wanted, all, name) = (slots.wanted, slots.replicas(), &slots.set.name);
    let note = format!("all {all} pods of StatefulSet {name} carry {wanted}; the rollout is complete");
    round.memory.complete(wanted, round.policy.check.final_check, round.now);
    round.normal_on_both(Reason::Completed, &note);
    Why::at_rest(&round.slots, true)
}

fn finish(mut round: Round, why: Why) -> Step {
    if begin::announce_interrupted_step(&mut round) {
        round.memory.progress(round.now);
    }
    let why = overdue(&mut round, why);
    let around = Circumstances {
        motion: why.motion,
        is_rejected: round.is_rejected(),
        is_settled: round.memory.is_settled(),
        refuses_templates: round.policy.refuses_templates,
    };
    let has_moves = round.wish == Wish::Keep && !round.moves.is_empty();
    let partition = hold::partition(round.wish, &round.slots, &around).filter(|_| !has_moves);
    round.memory.partition = partition.map(|partition| partition.0).or(round.slots.set.partition);
    if let Some(change) = round.slots.next_change() {
        round.wake_at(change);
    }
    Step {
        memory: round.memory,
        why,
        revision: round.slots.wanted.to_owned(),
        partition,
        moves: round.moves,
        events: round.events,
        checks: match round.checks {
            Cow::Borrowed(_) => None,
            Cow::Owned(checks) => Some(checks),
        },
        wake: round.wake,
    }
}

/// No progress within progressDeadlineSeconds: told, and held for a scale-up. Checks go on, and the next progress clears it.
fn overdue(round: &mut Round, why: Why) -> Why {
    let Stage::Rolling { progress, .. } = &mut round.memory.stage else { return why };
    // Time in which a person is awaited is no time without progress.
    *progress = if matches!(why.reason, Reason::Paused | Reason::AwaitingApproval) {
        None
    } else {
        progress.or(Some(round.now))
    };
    let Some(since) = *progress else { return why };
    let is_running = matches!(why.motion, Motion::Moving | Motion::Held);
    let Some(seconds) = round.policy.progress_deadline.filter(|_| is_running) else { return why };
    let deadline = later(since, seconds_of(seconds));
    if deadline > round.now {
        round.wake_at(deadline);
        return why;
    }
    why.overdue(round.policy.words, since, seconds)
}
