//! S12, side by side: the version in charge loses no pod before a higher one is promoted, nothing is promoted without its checks, and one that
//! failed has failed. Claims and jobs, of which S12 speaks too, do not exist yet.

use std::collections::BTreeSet;

use sts_plus_api::{ExtendedStatefulSetStatus, UpgradeStep};
use sts_plus_model::Set;
use sts_plus_model::versions::World;

use super::{
    laws::{Act, Breaches, ENOUGH, Mind, STALE},
    worlds::{STAYS, WATCH},
};

/// The version on its way, as the laws see it.
#[derive(Clone, Debug, Default)]
pub struct Tries {
    pub version: i32,
    /// When the last passes in a row were asked for, with all canaries there ever since.
    pub passes: Vec<i64>,
    /// Answers that count since the try began, no more than [`ENOUGH`], and whether one of them refused.
    pub answers: i32,
    pub is_refused: bool,
    /// Enough passes in a row.
    pub has_passed: bool,
    /// Since when the step has its time.
    pub begun: Option<i64>,
    /// Versions that may get all their pods.
    pub rolled: BTreeSet<i32>,
}

impl Tries {
    pub fn counts_of(&mut self, old: &Self) {
        self.passes.clone_from(&old.passes);
        (self.answers, self.is_refused, self.has_passed) = (old.answers, old.is_refused, old.has_passed);
    }
}

/// All canaries are there and available, and which time they are so since.
fn whole_since(world: &World, version: i32) -> Option<i64> {
    let sets: Vec<&Set> = world.sets_of(version).filter(|set| set.replicas > 0).collect();
    let is_whole = !sets.is_empty() && sets.iter().all(|set| world.native.is_whole(set));
    let since = sets.iter().flat_map(|set| set.pods.values()).map(|pod| pod.since).max();
    since.filter(|_| is_whole)
}

/// An answer, and what it is worth.
pub fn hear(mind: &mut Mind, act: &Act) {
    let Some(upgrade) = &act.was.upgrade else { return };
    let tries = &mut mind.tries;
    if tries.version != upgrade.version {
        *tries =
            Tries { version: upgrade.version, begun: Some(act.now), rolled: tries.rolled.clone(), ..Tries::default() };
    }
    let Some(check) = &act.seen.owner.spec.update_strategy.check else { return };
    let Some(heard) = act.heard.as_ref().filter(|heard| heard.about == upgrade.hash) else { return };
    let period = i64::from(check.period_seconds);
    let Some(whole) = whole_since(act.seen, upgrade.version).filter(|whole| heard.time >= *whole) else { return };
    let is_stale = tries.passes.last().is_some_and(|last| heard.time - last > period + STALE);
    if is_stale || heard.outcome != "pass" {
        tries.passes.clear();
    }
    match heard.outcome {
        "pass" => tries.answers = (tries.answers + 1).min(ENOUGH),
        "fail" => (tries.answers, tries.is_refused) = ((tries.answers + 1).min(ENOUGH), true),
        _ => {}
    }
    let is_early = heard.time < whole + i64::from(check.initial_delay_seconds);
    let is_soon = tries.passes.last().is_some_and(|last| heard.time - last < period);
    if heard.outcome == "pass" && !is_early && !is_soon {
        tries.passes.push(heard.time);
        let needed = usize::try_from(check.success_threshold).unwrap_or(1);
        tries.has_passed |= tries.passes.len() >= needed;
        if tries.passes.len() > 2 {
            tries.passes.remove(0);
        }
    }
}

/// After a move by whomever. A hand that changed a number and put it back before the controller saw it has ended nothing.
pub fn follow(mind: &mut Mind, after: &World) {
    let mut sets = after.sets_of(mind.tries.version).filter(|set| !set.pods.is_empty()).peekable();
    let is_available = |set: &Set| set.pods.values().all(|pod| pod.is_available(set.min_ready, after.native.now));
    if sets.peek().is_none() || !sets.all(is_available) {
        mind.tries.passes.clear();
    }
}

/// After a move of the operator.
pub fn remember(mind: &mut Mind, act: &Act) {
    let step =
        |status: &ExtendedStatefulSetStatus| status.upgrade.as_ref().map(|up| (up.version, up.step, up.failures));
    let (was, is) = (step(act.was), act.is.map(step));
    let grows = act.after.sets_of(mind.tries.version).any(|set| set.replicas > size(act.before, &set.name));
    // What was seen long ago and is not written down has changed nothing.
    let is_paused = act.seen.owner.spec.paused && (act.is.is_some() || !act.eyes.is_older());
    if grows || is_paused || is.is_some_and(|is| is != was) {
        mind.tries.begun = Some(act.now);
    }
    if is_paused {
        mind.tries.passes.clear();
    }
    let Some(Some((version, step, failures))) = is else { return };
    if was.is_some_and(|was| was.0 == version && was.2 != failures) || step == UpgradeStep::Waiting {
        let (begun, mut rolled) = (mind.tries.begun, std::mem::take(&mut mind.tries.rolled));
        rolled.remove(&version);
        mind.tries = Tries { version, begun, rolled, ..Tries::default() };
    }
    if step == UpgradeStep::Rolling {
        mind.tries.rolled.insert(version);
    }
}

fn size(world: &World, name: &str) -> i32 {
    world.native.sets.get(name).map_or(0, |set| set.replicas)
}

/// The laws of one move of the operator.
pub fn all(mind: &Mind, act: &Act) -> Breaches {
    let mut breaches: Breaches = Vec::new();
    let mut shrinking = 0;
    for (name, set) in &act.before.native.sets {
        let (had, has) = (set.replicas, size(act.after, name));
        let Some(marks) = act.before.marks.get(name) else { continue };
        let goes = set.pods.iter().any(|(ordinal, pod)| *ordinal >= has && pod.is_available(set.min_ready, act.now));
        if !act.after.native.sets.contains_key(name) {
            breaches.extend(deleted(act, set, marks.version));
        }
        if has < had && goes && mind.in_charge.contains(&marks.version) {
            shrinking += i32::from(act.was.current_version == Some(marks.version));
            breaches.extend(loses(act, mind, set, has));
        }
    }
    if shrinking > 1 {
        breaches.push("S12: pods of the version in charge go in several zones at once".to_owned());
    }
    for set in act.after.native.sets.values() {
        breaches.extend(grows(act, mind, set));
    }
    breaches.extend(promoted(act, mind));
    breaches.extend(steps(act, mind));
    breaches.extend(failed(act, mind));
    breaches.extend(selects(act));
    breaches
}

/// A version that was ever in charge loses available pods only by a wish, or for one that has all of its own.
fn loses(act: &Act, mind: &Mind, set: &Set, has: i32) -> Option<String> {
    let seen = act.seen;
    let marks = act.before.marks.get(&set.name)?;
    let (version, current) = (marks.version, act.was.current_version);
    let breach = |why: &str| Some(format!("S12: {} loses pods, {why}: {}", set.name, seen.layout()));
    let Some(wanted) = seen.wanted_in(marks.zone.as_ref()) else {
        return dropped(act, set, has, version).and_then(|why| breach(&why));
    };
    // By a wish, and a template that is written anew, or a hand that is put back.
    let is_current = current.map_or(mind.is_lost, |current| current == version);
    if wanted == has && is_current {
        return None;
    }
    let Some(current) = current.filter(|current| *current != version) else {
        return if is_left(seen, version) { None } else { breach("and is in charge") };
    };
    // Given up for a lower one, which was complete then: it may be what does the harm.
    if version > current {
        return None;
    }
    if !seen.is_complete(current) {
        return breach("and the version in charge is not complete");
    }
    let follows = seen.active.as_ref().is_none_or(|service| service.version == Some(current.to_string()));
    if !follows {
        return breach("and its Service does not select the version in charge");
    }
    let lower = seen.marks.values().map(|marks| marks.version).filter(|lower| *lower < current);
    let with_pods = lower.filter(|lower| seen.sets_of(*lower).any(|set| !set.pods.is_empty() || set.replicas > 0));
    let is_previous = with_pods.max() == Some(version);
    let stays = if seen.active.is_some() { i64::from(STAYS) } else { 0 };
    let is_early = mind.promoted.is_some_and(|at| act.now < at + stays) && !act.eyes.is_older();
    if is_previous && is_early && !mind.is_lost {
        return breach("before its time");
    }
    None
}

/// People want a lower version back that still has all its pods: it is in charge again at once.
fn is_left(seen: &World, version: i32) -> bool {
    let lower = seen.marks.values().filter(|marks| marks.version < version && marks.template == seen.owner.template);
    lower.map(|marks| marks.version).any(|lower| seen.is_complete(lower))
}

/// A zone that was dropped goes pod by pod, with all pods of the others available before each.
fn dropped(act: &Act, set: &Set, has: i32, version: i32) -> Option<String> {
    if act.was.current_version != Some(version) {
        return None;
    }
    if act.lost(&set.name, has) > 1 {
        return Some(format!("of a zone that was dropped, down to {has} at once"));
    }
    (!act.seen.is_complete(version)).then(|| "of a zone that was dropped, and the others are not whole".to_owned())
}

fn deleted(act: &Act, set: &Set, version: i32) -> Option<String> {
    let seen = act.seen.native.sets.get(&set.name).unwrap_or(set);
    let breach = |why: &str| Some(format!("S12: {} is deleted, {why}: {}", set.name, act.seen.layout()));
    if !seen.pods.is_empty() || seen.replicas > 0 {
        return breach("and has pods");
    }
    let zone = act.before.marks.get(&set.name).and_then(|marks| marks.zone.as_ref());
    if act.was.current_version == Some(version) && act.seen.wanted_in(zone).is_some() {
        return breach("and is in charge");
    }
    None
}

/// Pods of a version that was never in charge: its canaries first, then zone by zone.
fn grows(act: &Act, mind: &Mind, set: &Set) -> Option<String> {
    let version = act.after.marks.get(&set.name)?.version;
    let is_in_charge = mind.in_charge.contains(&version) || act.was.current_version == Some(version);
    if is_in_charge || set.replicas <= size(act.before, &set.name) {
        return None;
    }
    let total: i32 = act.after.sets_of(version).map(|set| set.replicas).sum();
    let breach = |why: &str| Some(format!("S12: {} gets pods, {why}: {}", set.name, act.after.layout()));
    let canaries = act.seen.owner.spec.update_strategy.canaries.min(act.seen.owner.replicas());
    if total <= canaries && canaries > 0 {
        return None;
    }
    let is_rolling =
        act.was.upgrade.as_ref().is_some_and(|up| up.version == version && up.step == UpgradeStep::Rolling);
    let may_roll = is_rolling || canaries == 0 || (mind.is_lost && is_largest(act, mind, version));
    if !may_roll {
        return breach("and its canaries have not passed");
    }
    let others = act.seen.sets_of(version).filter(|other| other.name != set.name && other.replicas > 0);
    let begun: Vec<&Set> = others.filter(|other| !act.seen.native.is_whole(other)).collect();
    if !begun.is_empty() {
        return breach("and another zone has begun");
    }
    None
}

/// The step from the canaries to all pods.
fn steps(act: &Act, mind: &Mind) -> Option<String> {
    let is = act.is?.upgrade.as_ref()?;
    let was = act.was.upgrade.as_ref().filter(|was| was.version == is.version);
    if is.step != UpgradeStep::Rolling || was.is_some_and(|was| was.step == UpgradeStep::Rolling) {
        return None;
    }
    let strategy = &act.seen.owner.spec.update_strategy;
    if strategy.canaries.min(act.seen.owner.replicas()) == 0 {
        return None;
    }
    let breach =
        |why: &str| Some(format!("S12: version {} gets all its pods, {why}: {}", is.version, act.seen.layout()));
    if whole_since(act.seen, is.version).is_none() {
        return breach("and its canaries are not well");
    }
    if strategy.check.is_some() && !(mind.tries.version == is.version && mind.tries.has_passed) {
        return breach("and its checks have not passed");
    }
    None
}

/// Nothing is promoted without its checks and all its pods.
fn promoted(act: &Act, mind: &Mind) -> Option<String> {
    let (was, is) = (act.was.current_version, act.is?.current_version?);
    if was == Some(is) {
        return None;
    }
    let seen = act.seen;
    let breach = |why: &str| Some(format!("S12: {is} is in charge after {was:?}, {why}: {}", seen.layout()));
    let Some(was) = was else {
        // The first one, or the status was lost.
        return if is_largest(act, mind, is) { None } else { breach("and another one was") };
    };
    seen.sets_of(was).next()?;
    if !seen.is_complete(is) {
        return breach("without its pods");
    }
    // Without pods there is nothing to be checked, and it is said so; nor are there checks without canaries.
    let has_no_canaries = seen.owner.replicas() == 0 || seen.owner.spec.update_strategy.canaries == 0;
    let is_allowed = has_no_canaries || mind.in_charge.contains(&is) || mind.tries.rolled.contains(&is);
    if !is_allowed {
        return breach("without its checks");
    }
    let is_wanted = seen.template_of_version(is) == Some(seen.owner.template);
    if is_wanted { None } else { breach("and nobody wants it") }
}

/// Of those that were ever in charge none is as large, or it was one of them. What is Ready says nothing.
fn is_largest(act: &Act, mind: &Mind, version: i32) -> bool {
    let size = |version: i32| -> i32 { act.seen.sets_of(version).map(|set| set.replicas).sum() };
    let largest = mind.in_charge.iter().map(|other| size(*other)).max().unwrap_or(0);
    mind.in_charge.contains(&version) || largest == 0 || size(version) > largest
}

/// A try fails only if its checks refused, or its step was not done in time.
fn failed(act: &Act, mind: &Mind) -> Option<String> {
    let is = act.is?.upgrade.as_ref()?;
    let was = act.was.upgrade.as_ref().filter(|was| was.version == is.version)?;
    let has_failed = is.failures > was.failures || (is.step == UpgradeStep::Stale && was.step != UpgradeStep::Stale);
    if !has_failed {
        return None;
    }
    let Mind { tries, .. } = mind;
    let is_over = tries.begun.is_some_and(|begun| act.now - begun >= i64::from(WATCH));
    let is_refused = tries.is_refused && tries.answers >= ENOUGH;
    (!is_over && !is_refused).then(|| {
        let since = tries.begun.map(|begun| act.now - begun);
        format!("S6: version {} failed after {} answers and {since:?} s: {}", is.version, tries.answers, is.reason)
    })
}

/// The Service of the version in charge never selects another one.
fn selects(act: &Act) -> Option<String> {
    let version = |world: &World| world.active.as_ref().and_then(|service| service.version.clone());
    let (was, is) = (version(act.before), version(act.after));
    let current = act.was.current_version.map(|current| current.to_string());
    (was != is && is != current).then(|| format!("S12: the Service selects {is:?} with {current:?} in charge"))
}
