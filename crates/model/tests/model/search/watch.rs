//! What the laws remember of each move, and which of them it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sts_plus_api::{OnFailure, PhasedRolloutSpec, PhasedRolloutStatus, Step, names};
use sts_plus_model::world::{ROLLOUT, SET, second};
use sts_plus_model::{Deed, Pod, Rollout, Set, Who, World};

use super::laws::{
    Act, Breaches, Exempt, Eyes, Mind, PASSES, TRIES, exemption, s1, s2, s4, s4_release, s5_missing, s6, s7, s8,
    s8_ends, s10, s11_progress,
};
use super::moves::{Deeds, Move, template};

impl Mind {
    /// Follows one move. Gives the laws that it breaks.
    pub fn watch(&mut self, eyes: &Eyes, after: &World) -> Breaches {
        let mut breaches = Vec::new();
        let (before, step) = (&eyes.before.world, eyes.step);
        let is_operator = matches!(step, Move::Operator(_) | Move::Kill(_) | Move::OldStatus | Move::Act);
        if is_operator {
            self.watch_operator(eyes, after, &mut breaches);
        }
        if let Move::People(deed) = step {
            self.people(deed, before, after);
        }
        if matches!(step, Move::Controller(_)) {
            breaches.extend(self.s5(before, after));
        }
        let moved = self.moved;
        self.follow_pods(eyes, after);
        if is_operator && !after.tale.has_status() {
            // Nobody has noted it.
            self.moved = moved;
        }
        breaches.extend(self.s3());
        breaches
    }

    fn watch_operator(&mut self, eyes: &Eyes, after: &World, breaches: &mut Breaches) {
        let sets = (eyes.set(), eyes.before.world.sets.get(SET), after.sets.get(SET));
        let (Some(seen), Some(before), Some(set)) = sets else { return };
        let Some(own) = eyes.world().rollouts.get(ROLLOUT) else { return };
        let is_older = eyes.is_older();
        let live = self.clone();
        if is_older {
            self.keep_counts(eyes.mind());
        }
        let old = self.clone();
        let heard = heard(eyes, after);
        self.hear(seen, &own.spec, heard, eyes.world());
        let act =
            Act { eyes, seen, before, after: set, spec: &own.spec, heard, now: after.now, opened: opened(before, set) };
        breaches.extend(s4_release(&act));
        if !act.opened.is_empty() {
            let why = exemption(&act);
            if why.is_none() {
                breaches.extend(s1(&act, self));
                breaches.extend(s2(&act, self));
                breaches.extend(s4(&act));
                breaches.extend(s7(&act, self));
            }
            if !matches!(why, Some(Exempt::SkipCheck | Exempt::Release)) {
                breaches.extend(s8(&act, self));
            }
            self.approved.extend(act.opened.iter().map(|index| (set.template, *index)));
        }
        // Zero replicas: what comes starts on the template that is there (exception of S5).
        if set.replicas == 0 && set.partition == Some(0) {
            self.approved.extend((0..8).map(|index| (set.template, index)));
        }
        if let Some(now) = after.rollouts.get(ROLLOUT).filter(|_| after.tale.has_status()) {
            let was = &eyes.before.world.rollouts[ROLLOUT].status;
            breaches.extend(s6(&act, self, was, &now.status, after));
            breaches.extend(s8_ends(&act, &now.status));
            breaches.extend(s10(&act, was, &now.status));
            breaches.extend(s5_missing(&act, &now.status));
            breaches.extend(s11_progress(&act, self, was, &now.status));
            self.remember(&act, was, &now.status);
            self.older = Some(Arc::new(Self { older: None, ..live }));
        } else if is_older {
            self.keep_counts(&live);
        } else {
            // What is not written down was not heard.
            self.keep_counts(&old);
        }
        if !act.opened.is_empty() {
            self.begin_cycle();
        }
    }

    fn keep_counts(&mut self, old: &Self) {
        self.passes.clone_from(&old.passes);
        (self.answers, self.is_refused, self.ill_since, self.check) =
            (old.answers, old.is_refused, old.ill_since, old.check);
    }

    /// A pod that is ill stays ill: its time goes on in the next cycle.
    fn begin_cycle(&mut self) {
        self.passes.clear();
        (self.answers, self.is_refused) = (0, false);
    }

    /// For another template, or because a person asks for it: what was ill gets its time once more.
    fn begin_anew(&mut self) {
        self.begin_cycle();
        self.ill_since = None;
    }

    /// An answer, and what it is worth.
    fn hear(&mut self, set: &Set, spec: &PhasedRolloutSpec, heard: Option<(i64, &'static str)>, world: &World) {
        let check = digest(spec);
        if self.check != check {
            self.passes.clear();
            self.check = check;
        }
        let Some((time, outcome)) = heard else { return };
        // What was asked before the pods were all there says nothing about them.
        let whole = set.pods.values().map(|pod| pod.since).max();
        if !world.is_whole(set) || whole.is_some_and(|whole| time < whole) {
            return;
        }
        self.ill_since = None;
        if outcome != "pass" {
            // Answers may be heard in another order than they were asked for: what was asked before a pass does not come after it.
            self.passes.retain(|pass| *pass >= time);
        }
        match outcome {
            "pass" => {
                self.answers = more(self.answers);
                // Two in one period count once.
                if self.passes.last().is_none_or(|last| time - last >= i64::from(spec.check.period_seconds)) {
                    self.passes.push(time);
                }
                if self.passes.len() > PASSES {
                    self.passes.remove(0);
                }
            }
            "fail" => (self.answers, self.is_refused) = (more(self.answers), true),
            _ => {}
        }
    }

    /// What a status says from now on.
    fn remember(&mut self, act: &Act, was: &PhasedRolloutStatus, is: &PhasedRolloutStatus) {
        if let Some(failure) = is.failure.as_ref().filter(|_| was.failure.is_none()) {
            let failed = template(Some(&failure.revision));
            if failure.policy == OnFailure::Pause {
                self.paused = Some(failed);
            }
        }
        let has_begun = |status: &PhasedRolloutStatus| {
            status.current.as_ref().is_some_and(|current| current.step == Step::Rollback)
        };
        if has_begun(is) && !has_begun(was) {
            self.gone_back.insert(act.seen.template);
        }
        if is.phase == sts_plus_api::Phase::Paused && act.spec.paused {
            self.passes.clear();
            self.ill_since = None;
        }
        if is.completion_time.is_some() && was.completion_time.is_none() {
            self.begin_cycle();
        }
    }

    fn people(&mut self, deed: Deeds, before: &World, after: &World) {
        let template_of = |world: &World| world.sets.get(SET).map(|set| (set.template, set.uid.clone()));
        let (old, new) = (template_of(before), template_of(after));
        if old != new {
            self.approved.clear();
            self.begin_anew();
            (self.paused, self.by_hand) = (None, false);
        }
        match deed {
            Deeds::Retry if is_failed(before) => {
                self.begin_anew();
                self.paused = None;
                if let Some((template, _)) = new {
                    self.gone_back.remove(&template);
                }
            }
            Deeds::BreakGlass(_) | Deeds::Partition(_) => {
                let Some((old, set)) = before.sets.get(SET).zip(after.sets.get(SET)) else { return };
                if set.threshold() < old.threshold() && (matches!(deed, Deeds::BreakGlass(_)) || !after.policy) {
                    self.by_hand = true;
                    let allowed = set.threshold()..set.replicas;
                    self.approved.extend(allowed.map(|index| (set.template, index)));
                    (self.paused, self.gone_back) = (None, BTreeSet::new());
                }
            }
            Deeds::SkipCheck(true) | Deeds::Leave(_) | Deeds::Target(false) | Deeds::Scale(0) => {
                (self.paused, self.gone_back) = (None, BTreeSet::new());
            }
            Deeds::Break(ordinal) | Deeds::Delete(ordinal) => drop(self.ours.remove(&ordinal)),
            _ => {}
        }
    }

    /// Whether a deletion by that one is our doing.
    fn is_ours(&self, who: Who, eyes: &Eyes, after: &World) -> bool {
        let before = &eyes.before.world;
        let (old, set) = (before.sets.get(SET), after.sets.get(SET));
        match who {
            // What the controller does for a template that the operator has not seen yet, without the policies, or after a person has opened the
            // set or has let it go, is not.
            Who::Native => {
                let is_written = |set: &Set| {
                    let written =
                        set.annotations.get(names::WRITTEN_PARTITION).and_then(|written| written.rsplit_once('/'));
                    written.is_some_and(|(revision, _)| revision == set.wanted())
                };
                let is_held = |own: &Rollout| !own.deleting && !own.spec.skips_checks() && own.spec.target_ref == SET;
                (after.policy || old.is_some_and(is_written))
                    && !self.by_hand
                    && before.rollouts.get(ROLLOUT).is_some_and(is_held)
            }
            // A deletion tests the UID of the pod, and can test nothing of the set: that no other operator has opened it meanwhile is what the
            // lease is for.
            Who::Operator => !eyes.is_older() || eyes.set().map(|set| set.generation) == set.map(|set| set.generation),
            Who::User => false,
        }
    }

    /// What is disturbed, ill, or back.
    fn follow_pods(&mut self, eyes: &Eyes, after: &World) {
        let before = &eyes.before.world;
        let Some(set) = after.sets.get(SET) else { return };
        if !after.is_whole(set) {
            self.passes.clear();
        }
        let wanted = set.wanted();
        let is_ill = |pod: &Pod| pod.revision == wanted && !pod.is_healthy();
        let is_refused = set.refused.iter().any(|refused| !refused.message.contains("exceeded quota"));
        if set.pods.values().any(is_ill) || is_refused {
            self.ill_since.get_or_insert(after.now);
        }
        let old: BTreeMap<i32, Pod> = before.sets.get(SET).map(|set| set.pods.clone()).unwrap_or_default();
        let has_deadline = after.rollouts.get(ROLLOUT).is_some_and(|own| own.spec.progress_deadline_seconds.is_some());
        for deed in after.tale.deeds() {
            if let Deed::Deleted(who @ (Who::Native | Who::Operator), name) = deed {
                let ordinal = name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok()).unwrap_or(0);
                if has_deadline && set.ordinals().any(|one| one == ordinal) {
                    self.moved = Some(after.now);
                }
                let was_well = old.get(&ordinal).is_some_and(|pod| pod.is_available(set.min_ready, after.now));
                if was_well && self.is_ours(*who, eyes, after) {
                    self.ours.insert(ordinal);
                }
            }
        }
        let is_there =
            |ordinal: &i32| set.pods.get(ordinal).is_some_and(|pod| pod.is_available(set.min_ready, after.now));
        let range: Vec<i32> = set.ordinals().collect();
        self.ours.retain(|ordinal| range.contains(ordinal) && !is_there(ordinal));
    }
}

fn more(answers: i32) -> i32 {
    answers.saturating_add(1).min(TRIES)
}

fn is_failed(world: &World) -> bool {
    let Some(own) = world.rollouts.get(ROLLOUT) else { return false };
    own.status.failure.is_some() || !own.status.rejected_revisions.is_empty()
}

/// Indexes that the operator opened and whose pods are not at the revision.
fn opened(before: &Set, after: &Set) -> Vec<i32> {
    let wanted = after.wanted();
    let is_off = |index: &i32| before.pods.get(&(index + after.start)).is_none_or(|pod| pod.revision != wanted);
    let falls = (after.threshold()..before.threshold().min(after.replicas)).filter(is_off);
    if after.uid == before.uid { falls.collect() } else { Vec::new() }
}

/// The answer that was heard in a move, and when it was asked for.
fn heard(eyes: &Eyes, after: &World) -> Option<(i64, &'static str)> {
    let asked = after.tale.deeds().find_map(|deed| match deed {
        Deed::Checked(_, outcome) => Some((after.now, *outcome)),
        _ => None,
    });
    let kept = eyes.kept.and_then(|kept| kept.answer.as_ref());
    asked.or_else(|| {
        let answer = kept?;
        let verdict = answer.records.first()?.verdict;
        let outcome = match verdict {
            sts_plus_api::Verdict::NoData => "pass",
            sts_plus_api::Verdict::Data => "fail",
            _ => "error",
        };
        Some((second(answer.time), outcome))
    })
}

fn digest(spec: &PhasedRolloutSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    (spec.check.success_threshold, spec.check.on_failure).hash(&mut hasher);
    hasher.finish()
}
