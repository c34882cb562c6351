//! The laws of the engine, each a predicate on one move. They know what happened, not how it was decided; what a law has to remember is in
//! the `Mind`, which belongs to a state as the world does.

use std::collections::BTreeSet;
use std::sync::Arc;

use sts_plus_api::{DeletionPolicy, OnFailure, Phase, PhasedRolloutSpec, PhasedRolloutStatus, Step, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Pod, Set, World};

use super::Node;
use super::moves::{Kept, Move, template};
use super::openings::HEIR;

/// A pass older than a period and this much allows nothing.
const STALE: i64 = 60;
/// As many passes as any world here needs.
pub const PASSES: usize = 2;

/// As many tries as any world here has.
pub const TRIES: i32 = 2;

/// What the laws remember.
#[derive(Clone, Debug, Default)]
pub struct Mind {
    /// Template and index pairs that may move.
    pub approved: BTreeSet<(u32, i32)>,
    /// When the last passes in a row were asked for, with all pods there ever since.
    pub passes: Vec<i64>,
    /// Answers that count since the cycle began, no more than [`TRIES`], and whether one of them refused.
    pub answers: i32,
    pub is_refused: bool,
    /// When a pod at the revision was first ill, or could not be made, since the last answer.
    pub ill_since: Option<i64>,
    /// The template that has failed with onFailure Pause.
    pub paused: Option<u32>,
    /// Templates that a rollback has begun to take back.
    pub gone_back: BTreeSet<u32>,
    /// Pods that were available before they were rolled, and are not yet again.
    pub ours: BTreeSet<i32>,
    /// A person has opened the set for this template.
    pub by_hand: bool,
    /// When a pod was sent away to be made anew, where there is a deadline for progress.
    pub moved: Option<i64>,
    /// Of the check that the passes are about.
    pub check: u64,
    /// As it was before the status was written last.
    pub older: Option<Arc<Mind>>,
}

/// What the actor saw: the world before the move, or what was kept from an earlier look.
pub struct Eyes<'a> {
    pub step: Move,
    pub kept: Option<&'a Kept>,
    pub before: &'a Node,
}

impl<'a> Eyes<'a> {
    pub fn world(&self) -> &'a World {
        let seen = self.kept.filter(|kept| kept.answer.is_none()).map(|kept| &kept.world);
        seen.unwrap_or(&self.before.world)
    }

    /// What was known then.
    pub fn mind(&self) -> &'a Mind {
        let mind = &self.before.mind;
        match self.kept.filter(|kept| kept.answer.is_none()) {
            Some(kept) => &kept.mind,
            None if self.step == Move::OldStatus => mind.older.as_deref().unwrap_or(mind),
            None => mind,
        }
    }

    /// It acts on something that is no longer so.
    pub fn is_older(&self) -> bool {
        self.step == Move::OldStatus || self.kept.is_some_and(|kept| kept.answer.is_none())
    }

    pub fn set(&self) -> Option<&'a Set> {
        self.world().sets.get(SET)
    }
}

/// One move of the operator, as the laws see it.
pub struct Act<'a> {
    pub eyes: &'a Eyes<'a>,
    /// The set as it was seen, and as it is.
    pub seen: &'a Set,
    pub before: &'a Set,
    pub after: &'a Set,
    pub spec: &'a PhasedRolloutSpec,
    /// When an answer was heard in it, and which.
    pub heard: Option<(i64, &'static str)>,
    pub now: i64,
    /// Indexes that it opened and whose pods are not at the revision.
    pub opened: Vec<i32>,
}

pub type Breaches = Vec<String>;

impl Mind {
    /// S3: at most one pod is unavailable because of us.
    pub fn s3(&self) -> Option<String> {
        (self.ours.len() > 1).then(|| format!("S3: {:?} are unavailable because of us", self.ours))
    }

    /// S5: with the policies on, no pod carries a revision at an index that was not approved for it.
    pub fn s5(&self, before: &World, after: &World) -> Option<String> {
        let (old, set) = (before.sets.get(SET)?, after.sets.get(SET)?);
        let is_held = set.annotations.contains_key(names::CLAIM) && !set.annotations.contains_key(names::HOLD_SWITCH);
        if !after.policy || !is_held {
            return None;
        }
        let good = before.ledger.good(SET)?;
        let is_allowed = |index: i32, revision: &str| {
            let made = template(Some(revision));
            let given = [&old.status.current, &set.status.current].iter().any(|c| c.as_deref() == Some(revision));
            let scaled = index >= set.threshold() && self.approved.iter().any(|(approved, _)| *approved == made);
            given || good == revision || scaled || self.approved.contains(&(made, index))
        };
        after.tale.deeds().find_map(|deed| match deed {
            Deed::Created(name, _, revision) => {
                let index: i32 = name.rsplit_once('-')?.1.parse().ok()?;
                (!is_allowed(index, revision)).then(|| format!("S5: {name} is made at {revision}, unapproved"))
            }
            _ => None,
        })
    }
}

/// The exceptions that engine.md lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    SkipCheck,
    Release,
    Repair,
    NeverHealthy,
}

pub fn exemption(act: &Act) -> Option<Exempt> {
    let own = act.eyes.world().rollouts.get(ROLLOUT)?;
    if own.deleting || act.spec.target_ref != SET {
        return Some(Exempt::Release);
    }
    if act.spec.skips_checks() && !act.spec.paused {
        return Some(Exempt::SkipCheck);
    }
    if act.eyes.world().may_repair(act.seen, &act.opened) {
        return Some(Exempt::Repair);
    }
    World::never_healthy(act.seen, &act.opened).then_some(Exempt::NeverHealthy)
}

/// S1: one more index, all above it are at the revision or approved, and the template is the one that the approval names.
pub fn s1(act: &Act, mind: &Mind) -> Option<String> {
    let (set, wanted) = (act.after, act.after.wanted());
    let breach = |why: String| Some(format!("S1: opened {:?} for {wanted}: {why}", act.opened));
    if act.opened.len() > 1 {
        return breach("more than one".to_owned());
    }
    let written = set.annotations.get(names::WRITTEN_PARTITION).map(String::as_str).unwrap_or_default();
    if written != format!("{wanted}/{}", set.threshold()) {
        return breach(format!("written for {written}"));
    }
    let is_there = |index: i32| act.before.pods.get(&(index + set.start)).is_some_and(|pod| pod.revision == wanted);
    let is_allowed =
        |index: i32| is_there(index) || act.opened.contains(&index) || mind.approved.contains(&(set.template, index));
    let unapproved = (set.threshold().max(0)..set.replicas).find(|index| !is_allowed(*index));
    unapproved.and_then(|index| breach(format!("{index} is neither there nor approved")))
}

/// S2: an approval needs all slots filled and available, all above at the revision, and fresh passes in a row, each asked after the delay,
/// a period apart; and a person's word where pauseBefore asks for it.
pub fn s2(act: &Act, mind: &Mind) -> Option<String> {
    let (set, check) = (act.seen, &act.spec.check);
    let wanted = set.wanted();
    let breach = |why: String| Some(format!("S2: opened {:?} for {wanted}: {why}", act.opened));
    if !act.eyes.world().is_whole(set) {
        return breach(format!("pods are {}", set.layout()));
    }
    let first_opened = act.opened.first().copied().unwrap_or(0);
    let is_above = |(ordinal, pod): &(&i32, &Pod)| **ordinal - set.start > first_opened && pod.revision != wanted;
    if set.pods.iter().any(|entry| is_above(&entry)) {
        return breach("not the highest index".to_owned());
    }
    let asks = act.spec.pause_before.contains(&first_opened);
    let own = act.eyes.world().rollouts.get(ROLLOUT)?;
    let approval = format!("{wanted}/{first_opened}");
    if asks && own.annotations.get(names::APPROVE) != Some(&approval) {
        return breach("nobody approved".to_owned());
    }
    let is_first = !set.pods.values().any(|pod| pod.revision == wanted);
    if (is_first && !check.preflight) || check.on_failure == OnFailure::Proceed {
        return None;
    }
    let delay = if is_first { 0 } else { i64::from(check.initial_delay_seconds) };
    let period = i64::from(check.period_seconds);
    let needed = usize::try_from(check.success_threshold).unwrap_or(PASSES).min(PASSES);
    let whole = set.pods.values().map(|pod| pod.since + i64::from(set.min_ready)).max().unwrap_or(0);
    let passes = mind.passes.iter().rev().take(needed).rev().copied().collect::<Vec<_>>();
    match passes.first() {
        Some(_) if passes.len() < needed => breach(format!("{} of {needed} passes", passes.len())),
        None => breach("no pass".to_owned()),
        Some(first) if *first < whole + delay => breach(format!("asked {} s too early", whole + delay - first)),
        _ if passes.last().is_some_and(|last| act.now - last > period + STALE) => breach("a stale pass".to_owned()),
        _ => None,
    }
}

/// S4: nothing is opened by an answer that is none, also where refusals are ignored.
pub fn s4(act: &Act) -> Option<String> {
    let (_, outcome) = act.heard?;
    let is_none = !matches!(outcome, "pass" | "fail");
    is_none.then(|| format!("S4: opened {:?} on the answer {outcome}", act.opened))
}

/// S4: the partition is removed only where that was asked for, or where nothing can roll.
pub fn s4_release(act: &Act) -> Option<String> {
    if act.after.partition.is_some() || act.before.partition.is_none() {
        return None;
    }
    let own = act.eyes.world().rollouts.get(ROLLOUT)?;
    let is_let_go = own.deleting || act.spec.target_ref != SET;
    if is_let_go && act.eyes.world().rollouts.contains_key(HEIR) {
        return Some("S4: the partition is removed before the heir has the set".to_owned());
    }
    if act.spec.skips_checks() && !act.spec.paused && !is_let_go {
        return None;
    }
    let set = act.seen;
    let is_exempt = set.annotations.contains_key(names::HOLD_SWITCH);
    let is_at_rest =
        set.pods.values().all(|pod| pod.revision == set.wanted()) && set.status.current == Some(set.wanted());
    match act.spec.deletion_policy {
        _ if !is_let_go => Some("S4: the partition is removed".to_owned()),
        Some(DeletionPolicy::Release) => None,
        None if is_at_rest || is_exempt => None,
        policy => Some(format!("S4: released with {policy:?} and {}", set.layout())),
    }
}

/// S6: a cycle fails only if an answer refused, or a pod was ill for as long as all tries take.
pub fn s6(
    act: &Act,
    mind: &Mind,
    was: &PhasedRolloutStatus,
    is: &PhasedRolloutStatus,
    after: &World,
) -> Option<String> {
    let is_ignored = |deed: &Deed| matches!(deed, Deed::Event(_, reason, _) if reason == "ChecksIgnored");
    let has_failed = (is.failure.is_some() && was.failure.is_none())
        || is.rejected_revisions.len() > was.rejected_revisions.len()
        || after.tale.deeds().any(is_ignored);
    if !has_failed {
        return None;
    }
    let check = &act.spec.check;
    let all = i64::from(check.max_tries * check.period_seconds);
    let is_refused = mind.is_refused && mind.answers >= check.max_tries.min(TRIES);
    let is_ill = mind.ill_since.is_some_and(|since| act.now - since >= all);
    (!is_refused && !is_ill).then(|| {
        let Mind { answers, is_refused, ill_since, .. } = mind;
        format!(
            "S6: failed after {answers} answers, refused {is_refused}, ill since {ill_since:?}: {}",
            act.seen.layout()
        )
    })
}

/// S7: after Pause nothing opens without a person.
pub fn s7(act: &Act, mind: &Mind) -> Option<String> {
    let is_paused = mind.paused == Some(act.after.template) && act.eyes.mind().paused == mind.paused;
    is_paused.then(|| format!("S7: opened {:?} after Pause", act.opened))
}

/// S8: a revision that is taken back, or was, is not started again.
pub fn s8(act: &Act, mind: &Mind) -> Option<String> {
    let failed = act.after.template;
    let is_taken_back = mind.gone_back.contains(&failed) && act.eyes.mind().gone_back.contains(&failed);
    is_taken_back.then(|| format!("S8: opened {:?} for a revision that was taken back", act.opened))
}

/// S8: a rollback ends with every pod at the earlier revision.
pub fn s8_ends(act: &Act, is: &PhasedRolloutStatus) -> Option<String> {
    let wanted = act.seen.wanted();
    let stays = act.seen.pods.values().any(|pod| pod.revision == wanted);
    let is_over = is.phase == Phase::RolledBack && is.target_revision.as_ref() == Some(&wanted);
    (is_over && stays).then(|| format!("S8: rolled back with {}", act.seen.layout()))
}

/// S5: a missing pod is never settled: neither is the set at rest, nor are its checks the final ones.
pub fn s5_missing(act: &Act, is: &PhasedRolloutStatus) -> Option<String> {
    let (set, wanted) = (act.seen, act.seen.wanted());
    // What is open may come at the revision.
    let is_missing = |ordinal: i32| !set.pods.contains_key(&ordinal) && ordinal - set.start < set.threshold();
    let is_missing = set.ordinals().any(is_missing);
    let has_flipped = set.status.current.as_ref() == Some(&wanted);
    let is_final = is.current.as_ref().is_some_and(|current| current.step == Step::Final);
    let is_settled = is_final || matches!(is.phase, Phase::Idle | Phase::Completed);
    let is_of_it = is.target_revision.as_ref() == Some(&wanted);
    (is_missing && is_settled && is_of_it && !has_flipped)
        .then(|| format!("S5: {:?} with {} of {} pods", is.phase, set.layout(), set.replicas))
}

/// S11: no progress is told only if no pod has moved for as long, as far as was seen.
pub fn s11_progress(act: &Act, mind: &Mind, was: &PhasedRolloutStatus, is: &PhasedRolloutStatus) -> Option<String> {
    let is_told =
        |status: &PhasedRolloutStatus| status.conditions.iter().any(|one| one.reason == "ProgressDeadlineExceeded");
    let mind = if act.eyes.is_older() { act.eyes.mind() } else { mind };
    let ago = act.now - mind.moved?;
    (is_told(is) && !is_told(was) && ago < i64::from(act.spec.progress_deadline_seconds?))
        .then(|| format!("S11: no progress is told {ago} s after a pod has moved"))
}

/// S10: Completed and `RolledOut` only when true.
pub fn s10(act: &Act, was: &PhasedRolloutStatus, is: &PhasedRolloutStatus) -> Option<String> {
    let is_true = |status: &PhasedRolloutStatus| sts_plus_api::is_true(&status.conditions, "RolledOut");
    let is_latched = is_true(was) && was.target_revision == is.target_revision;
    let completes = is.completion_time.is_some() && was.completion_time.is_none();
    let set = act.seen;
    if is_true(is) && set.status.observed_generation < set.generation {
        return Some(format!("S10: RolledOut, and the controller has not seen the latest change: {}", set.layout()));
    }
    if !(completes || (is_true(is) && !is_latched)) || set.replicas == 0 {
        return None;
    }
    let all_there =
        set.ordinals().all(|ordinal| set.pods.get(&ordinal).is_some_and(|pod| pod.revision == set.wanted()));
    let is_whole = act.eyes.world().is_whole(set);
    let has_flipped = set.status.current == Some(set.wanted()) && set.status.observed_generation == set.generation;
    let has_ended = !completes || has_flipped;
    (!(all_there && is_whole && has_ended)).then(|| format!("S10: {:?} with {}", is.phase, set.layout()))
}
