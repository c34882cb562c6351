//! S1 to S10 in place, for each StatefulSet as for one that a PhasedRollout rolls, and over all of them: at most one pod is away because of us,
//! and a version is promoted when every zone has it.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::{Check, OnFailure, PhasedRolloutStatus, VersionCheck, names};
use sts_plus_model::versions::World;
use sts_plus_model::world::template_of;
use sts_plus_model::{Deed, Pod, Set};

use super::{
    laws::{Act, Breaches, ENOUGH, Mind, STALE},
    worlds::is_held,
};

/// One StatefulSet, as the laws see it.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// Template and index pairs that may move.
    pub approved: BTreeSet<(u32, i32)>,
    /// When the last passes in a row were asked for, with all pods there ever since.
    pub passes: Vec<i64>,
    /// Answers that count since the cycle began, no more than [`ENOUGH`], and whether one of them refused.
    pub answers: i32,
    pub is_refused: bool,
    /// When a pod at the revision was first ill, or could not be made, since the last answer.
    pub ill_since: Option<i64>,
    /// The template that has failed with onFailure Pause.
    pub paused: Option<u32>,
    /// Templates that a rollback has begun to take back.
    pub gone_back: BTreeSet<u32>,
    /// A hand has opened it.
    pub by_hand: bool,
    /// A pod was made since all had passed.
    pub has_moved: bool,
    /// The template that all this is about. What a hand has written and the operator puts back is not looked at.
    pub template: u32,
}

impl Zone {
    pub fn counts_of(&mut self, old: &Self) {
        self.passes.clone_from(&old.passes);
        (self.answers, self.is_refused, self.ill_since) = (old.answers, old.is_refused, old.ill_since);
    }

    /// A pod that is ill stays ill: its time goes on in the next cycle.
    pub fn begin_cycle(&mut self) {
        self.passes.clear();
        (self.answers, self.is_refused) = (0, false);
    }

    /// For another template, or because a person asks for it: what was ill gets its time once more.
    pub fn begin_anew(&mut self) {
        self.begin_cycle();
        self.ill_since = None;
    }
}

/// The check as the engine has it.
fn check(world: &World) -> Check {
    let unchecked = || Check { preflight: false, final_check: false, success_threshold: 0, ..Check::default() };
    world.owner.spec.update_strategy.check.as_ref().map_or_else(unchecked, VersionCheck::to_check)
}

/// An answer, and what it is worth.
pub fn hear(mind: &mut Mind, act: &Act) {
    let Some(heard) = &act.heard else { return };
    let Some((name, _)) = heard.about.rsplit_once("-r") else { return };
    let Some(set) = act.seen.native.sets.get(name) else { return };
    let zone = mind.zones.entry(name.to_owned()).or_default();
    // What was asked before the pods were all there says nothing about them.
    let whole = set.pods.values().map(|pod| pod.since).max();
    if !act.seen.native.is_whole(set) || whole.is_some_and(|whole| heard.time < whole) {
        return;
    }
    zone.ill_since = None;
    match heard.outcome {
        "pass" => {
            zone.answers = (zone.answers + 1).min(ENOUGH);
            zone.passes.push(heard.time);
            if zone.passes.len() > 2 {
                zone.passes.remove(0);
            }
        }
        "fail" => {
            (zone.answers, zone.is_refused) = ((zone.answers + 1).min(ENOUGH), true);
            zone.passes.clear();
        }
        _ => zone.passes.clear(),
    }
}

/// One StatefulSet in one move of the operator.
struct Turn<'a> {
    act: &'a Act<'a>,
    name: &'a str,
    /// As it was seen, as it was, and as it is.
    seen: &'a Set,
    before: &'a Set,
    after: &'a Set,
    check: Check,
    opened: Vec<i32>,
}

/// Indexes that the operator opened and whose pods are not at the revision.
fn opened(before: &Set, after: &Set) -> Vec<i32> {
    let wanted = after.wanted();
    let is_off = |index: &i32| before.pods.get(index).is_none_or(|pod| pod.revision != wanted);
    let falls = (after.threshold()..before.threshold().min(after.replicas)).filter(is_off);
    if after.uid == before.uid { falls.collect() } else { Vec::new() }
}

/// The laws of one move of the operator.
pub fn all(mind: &mut Mind, act: &Act) -> Breaches {
    let mut breaches = Breaches::new();
    for (name, after) in &act.after.native.sets {
        let Some(before) = act.before.native.sets.get(name) else { continue };
        let seen = act.seen.native.sets.get(name).unwrap_or(before);
        let opened = opened(before, after);
        let turn = Turn { act, name, seen, before, after, check: check(act.seen), opened };
        breaches.extend(turn.opens(mind));
        breaches.extend(turn.ends(mind));
    }
    for (name, set) in &act.before.native.sets {
        if !act.after.native.sets.contains_key(name) && (!set.pods.is_empty() || set.replicas > 0) {
            breaches.push(format!("S12: {name} is deleted with pods: {}", act.before.layout()));
        }
    }
    breaches.extend(promoted(mind, act));
    breaches.extend(shrinks(mind, act));
    breaches
}

impl Turn<'_> {
    fn opens(&self, mind: &mut Mind) -> Breaches {
        let mut breaches = Breaches::new();
        let zone = mind.zones.entry(self.name.to_owned()).or_default();
        let template = self.after.template;
        if !self.opened.is_empty() {
            let is_exempt = self.act.seen.native.may_repair(self.seen, &self.opened)
                || sts_plus_model::World::never_healthy(self.seen, &self.opened);
            let is_new = self.after.template != self.before.template;
            if !is_exempt {
                breaches.extend(self.s1(zone));
                breaches.extend(self.s2(zone));
                breaches.extend(self.others());
                breaches.extend(self.s4());
                let known = self.act.eyes.mind().zones.get(self.name).cloned().unwrap_or_default();
                if zone.paused == Some(template) && known.paused == zone.paused {
                    breaches.push(format!("S7: {} opened {:?} after Pause", self.name, self.opened));
                }
                if is_new {
                    breaches.push(format!("S1: {} opened {:?} with another template", self.name, self.opened));
                }
                if zone.gone_back.contains(&template) && known.gone_back.contains(&template) {
                    breaches.push(format!("S8: {} opened {:?} for what was taken back", self.name, self.opened));
                }
            }
            zone.approved.extend(self.opened.iter().map(|index| (template, *index)));
        }
        // Zero replicas: what comes starts on the template that is there (exception of S5).
        if self.after.replicas == 0 {
            zone.approved.extend((0..8).map(|index| (template, index)));
        }
        if self.after.partition != self.before.partition {
            zone.by_hand = false;
        }
        breaches
    }

    /// S1: one more index, all above it are at the revision or approved, and the template is the one that the approval names.
    fn s1(&self, zone: &Zone) -> Option<String> {
        let (set, wanted) = (self.after, self.after.wanted());
        let breach = |why: String| Some(format!("S1: {} opened {:?}: {why}", self.name, self.opened));
        if self.opened.len() > 1 {
            return breach("more than one".to_owned());
        }
        let written = set.annotations.get(names::WRITTEN_PARTITION).map(String::as_str).unwrap_or_default();
        if written != format!("{wanted}/{}", set.threshold()) {
            return breach(format!("written for {written}"));
        }
        let is_there = |index: i32| self.before.pods.get(&index).is_some_and(|pod| pod.revision == wanted);
        let is_allowed = |index: i32| {
            is_there(index) || self.opened.contains(&index) || zone.approved.contains(&(set.template, index))
        };
        let unapproved = (set.threshold().max(0)..set.replicas).find(|index| !is_allowed(*index));
        unapproved.and_then(|index| breach(format!("{index} is neither there nor approved")))
    }

    /// S2: all slots filled and available, all above at the revision, and fresh passes in a row, each asked after the delay, a period apart.
    fn s2(&self, zone: &Zone) -> Option<String> {
        let (set, check) = (self.seen, &self.check);
        let wanted = set.wanted();
        let breach = |why: String| Some(format!("S2: {} opened {:?} for {wanted}: {why}", self.name, self.opened));
        let may_be_broken = self.act.seen.owner.spec.update_strategy.update_not_ready;
        if !self.act.seen.native.is_whole(set) && !may_be_broken {
            return breach(format!("pods are {}", set.layout()));
        }
        let first = self.opened.first().copied().unwrap_or(0);
        if set.pods.iter().any(|(index, pod)| *index > first && pod.revision != wanted) {
            return breach("not the highest index".to_owned());
        }
        let is_first = !set.pods.values().any(|pod| pod.revision == wanted);
        let is_checked = self.act.seen.owner.spec.update_strategy.check.is_some();
        if !is_checked || (is_first && !check.preflight) || check.on_failure == OnFailure::Proceed || may_be_broken {
            return None;
        }
        let delay = if is_first { 0 } else { i64::from(check.initial_delay_seconds) };
        fresh(zone, set, check, delay, self.act.now).and_then(breach)
    }

    /// All pods of the other zones are available: those of neither version are what is repaired.
    fn others(&self) -> Option<String> {
        let seen = self.act.seen;
        if seen.owner.spec.update_strategy.update_not_ready {
            return None;
        }
        let others = seen.native.sets.iter().filter(|(name, _)| **name != self.name);
        let listed = others.filter(|(name, _)| {
            seen.marks.get(*name).is_some_and(|marks| seen.wanted_in(marks.zone.as_ref()).is_some())
        });
        let is_away = |set: &Set| {
            let good = seen.native.ledger.good(&set.name);
            let counts = |pod: &Pod| good == Some(&pod.revision) || pod.revision == set.wanted();
            set.pods.values().any(|pod| counts(pod) && !pod.is_available(set.min_ready, seen.native.now))
        };
        let away = listed.map(|(_, set)| set).find(|set| is_away(set))?;
        Some(format!("S3: {} opened {:?} beside {}: {}", self.name, self.opened, away.name, seen.layout()))
    }

    /// S4: nothing is opened by an answer that is none.
    fn s4(&self) -> Option<String> {
        let heard = self.act.heard.as_ref().filter(|heard| heard.about == self.after.wanted())?;
        let is_none = !matches!(heard.outcome, "pass" | "fail");
        is_none.then(|| format!("S4: {} opened {:?} on the answer {}", self.name, self.opened, heard.outcome))
    }

    fn ends(&self, mind: &mut Mind) -> Breaches {
        let empty = PhasedRolloutStatus::default();
        let Some(is) = self.act.is.and_then(|is| is.rollouts.get(self.name)) else { return Breaches::new() };
        let was = self.act.was.rollouts.get(self.name).unwrap_or(&empty);
        let is_lost = mind.is_lost;
        let zone = mind.zones.entry(self.name.to_owned()).or_default();
        let mut breaches = Breaches::new();
        let has_failed = (is.failure.is_some() && was.failure.is_none())
            || is.rejected_revisions.len() > was.rejected_revisions.len();
        if has_failed && !is_lost {
            breaches.extend(self.s6(zone));
        }
        let has_completed = is.completion_time.is_some() && was.completion_time.is_none();
        if has_completed && self.seen.replicas > 0 {
            breaches.extend(self.s10(zone, is));
        }
        let stays = self.seen.pods.values().any(|pod| pod.revision == self.seen.wanted());
        let is_over =
            is.phase == sts_plus_api::Phase::RolledBack && is.target_revision.as_ref() == Some(&self.seen.wanted());
        if is_over && stays {
            breaches.push(format!("S8: rolled back with {}", self.seen.layout()));
        }
        breaches
    }

    /// S6: a cycle fails only if an answer refused, or a pod was ill for as long as all tries take.
    fn s6(&self, zone: &Zone) -> Option<String> {
        let check = &self.check;
        let all = i64::from(check.max_tries * check.period_seconds);
        let is_refused = zone.is_refused && zone.answers >= check.max_tries.min(ENOUGH);
        let is_ill = zone.ill_since.is_some_and(|since| self.act.now - since >= all);
        (!is_refused && !is_ill).then(|| {
            let Zone { answers, is_refused, ill_since, .. } = zone;
            format!(
                "S6: {} failed after {answers} answers, refused {is_refused}, ill since {ill_since:?}: {}",
                self.name,
                self.seen.layout()
            )
        })
    }

    /// S10: a rollout is complete when all pods are there at the revision, it is the current one, and the last checks have passed.
    fn s10(&self, zone: &Zone, is: &PhasedRolloutStatus) -> Option<String> {
        let set = self.seen;
        let all_there = set.ordinals().all(|at| set.pods.get(&at).is_some_and(|pod| pod.revision == set.wanted()));
        let is_whole = self.act.seen.native.is_whole(set);
        let has_flipped = set.status.current == Some(set.wanted()) && set.status.observed_generation == set.generation;
        let breach = |why: String| Some(format!("S10: {} is {:?}, {why}: {}", self.name, is.phase, set.layout()));
        if !(all_there && is_whole && has_flipped) {
            return breach("not all pods are there".to_owned());
        }
        let is_checked = self.act.seen.owner.spec.update_strategy.check.is_some();
        if !is_checked || !self.check.final_check || self.check.on_failure == OnFailure::Proceed || !zone.has_moved {
            return None;
        }
        fresh(zone, set, &self.check, i64::from(self.check.initial_delay_seconds), self.act.now).and_then(breach)
    }
}

/// What the passes lack.
fn fresh(zone: &Zone, set: &Set, check: &Check, delay: i64, now: i64) -> Option<String> {
    let period = i64::from(check.period_seconds);
    let needed = usize::try_from(check.success_threshold).unwrap_or(1).min(2);
    let whole = set.pods.values().map(|pod| pod.since).max().unwrap_or(0);
    let passes = zone.passes.iter().rev().take(needed).rev().copied().collect::<Vec<_>>();
    match passes.first() {
        None => Some("no pass".to_owned()),
        Some(_) if passes.len() < needed => Some(format!("{} of {needed} passes", passes.len())),
        Some(first) if *first < whole + delay => Some(format!("asked {} s too early", whole + delay - first)),
        _ if passes.windows(2).any(|two| two[1] - two[0] < period) => Some("two checks in one period".to_owned()),
        _ if passes.last().is_some_and(|last| now - last > period + STALE) => Some("a stale pass".to_owned()),
        _ => None,
    }
}

/// Nothing is promoted before every zone has it, with all its pods, each of them approved.
fn promoted(mind: &Mind, act: &Act) -> Option<String> {
    let (was, is) = (act.was.current_version?, act.is?.current_version?);
    if was == is || act.seen.native.sets.is_empty() {
        return None;
    }
    let seen = act.seen;
    let breach = |why: &str| Some(format!("S12: {is} is in charge after {was}, {why}: {}", seen.layout()));
    if !seen.is_complete(is) && seen.owner.replicas() > 0 {
        return breach("without its pods");
    }
    let is_known = mind.in_charge.contains(&is) || mind.is_lost;
    let is_approved = |set: &Set| {
        let zone = mind.zones.get(&set.name).cloned().unwrap_or_default();
        let is_new = set.uid == zone_uid(act, set) && !zone.by_hand;
        (0..set.replicas).all(|index| zone.approved.contains(&(set.template, index))) || !is_new
    };
    let is_listed = |set: &&Set| seen.marks.get(&set.name).is_some_and(|m| seen.wanted_in(m.zone.as_ref()).is_some());
    if !is_known && !seen.native.sets.values().filter(is_listed).all(is_approved) {
        return breach("and not each of its pods was approved");
    }
    None
}

/// One that was made anew since has its pods from birth.
fn zone_uid(act: &Act, set: &Set) -> String {
    act.before.native.sets.get(&set.name).map(|set| set.uid.clone()).unwrap_or_default()
}

/// A StatefulSet loses pods only by a wish: what is scaled down, and a zone that was dropped, pod by pod with all others there.
fn shrinks(mind: &Mind, act: &Act) -> Breaches {
    let mut breaches = Breaches::new();
    let mut zones = 0;
    for (name, set) in &act.before.native.sets {
        let Some(after) = act.after.native.sets.get(name).filter(|after| after.replicas < set.replicas) else {
            continue;
        };
        let goes = set.pods.iter().any(|(at, pod)| *at >= after.replicas && pod.is_available(0, act.now));
        let Some(marks) = act.before.marks.get(name).filter(|_| goes) else { continue };
        zones += 1;
        let breach = |why: &str| format!("S12: {name} loses pods, {why}: {}", act.seen.layout());
        match act.seen.wanted_in(marks.zone.as_ref()) {
            Some(wanted) if wanted <= after.replicas => {}
            Some(_) => breaches.push(breach("and nobody wants that")),
            None => {
                let others = act.seen.native.sets.values().filter(|other| other.name != *name);
                let listed = others.filter(|other| {
                    act.seen.marks.get(&other.name).is_some_and(|m| act.seen.wanted_in(m.zone.as_ref()).is_some())
                });
                let is_whole = listed.into_iter().all(|other| act.seen.native.is_whole(other));
                if act.lost(name, after.replicas) > 1 || !is_whole {
                    breaches.push(breach("of a zone that was dropped"));
                }
            }
        }
    }
    let _ = mind;
    if zones > 1 {
        breaches.push("S12: pods go in several zones at once".to_owned());
    }
    breaches
}

/// S3: at most one pod is unavailable because of us, over all zones.
pub fn s3(mind: &Mind) -> Option<String> {
    (mind.ours.len() > 1).then(|| format!("S3: {:?} are unavailable because of us", mind.ours))
}

/// S5: with the policies on, no pod carries a revision at an index that was not approved for it.
pub fn s5(mind: &Mind, before: &World, after: &World) -> Option<String> {
    let made: BTreeMap<String, String> = after
        .native
        .tale
        .deeds()
        .filter_map(|deed| match deed {
            Deed::Created(name, _, revision) => Some((name.clone(), revision.clone())),
            _ => None,
        })
        .collect();
    made.into_iter().find_map(|(pod, revision)| {
        let (name, index) = pod.rsplit_once('-')?;
        let index: i32 = index.parse().ok()?;
        let (old, set) = (before.native.sets.get(name)?, after.native.sets.get(name)?);
        if !after.native.policy || !is_held(set) {
            return None;
        }
        let good = before.native.ledger.good(name)?;
        let zone = mind.zones.get(name)?;
        let template = template_of(&revision);
        let given = [&old.status.current, &set.status.current].iter().any(|c| c.as_deref() == Some(revision.as_str()));
        let scaled = index >= set.threshold() && zone.approved.iter().any(|(approved, _)| *approved == template);
        let is_allowed = given || good == revision || scaled || zone.approved.contains(&(template, index));
        (!is_allowed).then(|| format!("S5: {pod} is made at {revision}, unapproved"))
    })
}
