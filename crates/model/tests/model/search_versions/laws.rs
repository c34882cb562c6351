//! What the laws remember of each move, and what they have in common side by side and in place: numbers, words, and that it is told only when
//! true. They know what happened, not how it was decided. The `Mind` belongs to a state as the world does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sts_plus_api::{ExtendedStatefulSetStatus, UpgradeStep, VersionPhase};
use sts_plus_model::versions::World;
use sts_plus_model::world::second;
use sts_plus_model::{Deed, Set};

use super::{
    Node,
    moves::{Deeds, Kept, Move},
    places::{self, Zone},
    remember,
    sides::{self, Tries},
    worlds::WATCH,
};
use crate::explore::ages::{AGO, Ages, LONG_AGO};

/// As many passes, and as many tries, as any world here needs.
pub const ENOUGH: i32 = 2;
/// A pass older than a period and this much allows nothing.
pub const STALE: i64 = 60;

pub type Breaches = Vec<String>;

/// What the laws remember.
#[derive(Clone, Debug, Default)]
pub struct Mind {
    /// Versions that were ever in charge.
    pub in_charge: BTreeSet<i32>,
    /// The template of every number that a StatefulSet ever had.
    pub numbers: BTreeMap<i32, u32>,
    /// A hand has emptied the status.
    pub is_lost: bool,
    /// Templates of versions that were stale, as long as nobody but an accident has done anything about it.
    pub stale: BTreeSet<u32>,
    /// When a version was promoted last.
    pub promoted: Option<i64>,
    /// Side by side: the version on its way.
    pub tries: Tries,
    /// In place: each StatefulSet by its name.
    pub zones: BTreeMap<String, Zone>,
    /// In place: pods that were available before they were rolled, and are not yet again.
    pub ours: BTreeSet<(String, i32)>,
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
    fn look(&self) -> Option<&'a Kept> {
        self.kept.filter(|kept| kept.answer.is_none())
    }

    pub fn world(&self) -> &'a World {
        self.look().map_or(&self.before.world, |kept| &kept.world)
    }

    /// The status that was seen.
    pub fn status(&self) -> &'a ExtendedStatefulSetStatus {
        if self.step == Move::OldStatus { &self.before.world.older } else { &self.world().status }
    }

    /// What was known then.
    pub fn mind(&self) -> &'a Mind {
        let mind = &self.before.mind;
        match self.look() {
            Some(kept) => &kept.mind,
            None if self.step == Move::OldStatus => mind.older.as_deref().unwrap_or(mind),
            None => mind,
        }
    }

    /// It acts on something that is no longer so.
    pub fn is_older(&self) -> bool {
        self.step == Move::OldStatus || self.look().is_some()
    }
}

/// One move of the operator, as the laws see it.
pub struct Act<'a> {
    pub eyes: &'a Eyes<'a>,
    /// What was seen, what was there, and what is there.
    pub seen: &'a World,
    pub before: &'a World,
    pub after: &'a World,
    /// The status that was seen; and that which was written, if one was.
    pub was: &'a ExtendedStatefulSetStatus,
    pub is: Option<&'a ExtendedStatefulSetStatus>,
    pub heard: Option<Heard>,
    pub now: i64,
}

impl Act<'_> {
    /// How many of the pods that were seen a StatefulSet loses by having so many replicas. One that came meanwhile was not seen.
    pub fn lost(&self, name: &str, replicas: i32) -> usize {
        self.seen.native.sets.get(name).map_or(0, |set| set.pods.range(replicas..).count())
    }
}

/// An answer: when it was asked for, what it says, and about which revision or digest.
#[derive(Clone, Debug)]
pub struct Heard {
    pub time: i64,
    pub outcome: &'static str,
    pub about: String,
}

impl Mind {
    pub fn of(world: &World) -> Self {
        let numbers = world.marks.values().map(|marks| (marks.version, marks.template));
        let mut mind = Self { numbers: numbers.collect(), ..Self::default() };
        mind.in_charge.extend(world.status.current_version);
        mind.follow(world, world);
        mind
    }

    /// Follows one move. Gives the laws that it breaks.
    pub fn watch(&mut self, eyes: &Eyes, after: &World) -> Breaches {
        let mut breaches = Vec::new();
        let before = &eyes.before.world;
        if matches!(eyes.step, Move::Operator(_) | Move::Kill(_) | Move::OldStatus | Move::Act) {
            self.watch_operator(eyes, after, &mut breaches);
        }
        if let Move::People(deed) = eyes.step {
            self.people(deed, before, after);
        }
        if after.is_in_place() && matches!(eyes.step, Move::Controller(_)) {
            breaches.extend(places::s5(self, before, after));
        }
        self.follow(before, after);
        if after.is_in_place() {
            breaches.extend(places::s3(self));
        }
        breaches
    }

    fn watch_operator(&mut self, eyes: &Eyes, after: &World, breaches: &mut Breaches) {
        let (seen, before) = (eyes.world(), &eyes.before.world);
        let is = after.native.tale.has_status().then_some(&*after.status);
        let heard = heard(eyes, after);
        let act = Act { eyes, seen, before, after, was: eyes.status(), is, heard, now: after.native.now };
        let live = self.clone();
        if eyes.is_older() {
            self.counts_of(eyes.mind());
        }
        let old = self.clone();
        if after.is_in_place() {
            places::hear(self, &act);
            breaches.extend(places::all(self, &act));
        } else {
            sides::hear(self, &act);
            breaches.extend(sides::all(self, &act));
        }
        breaches.extend(self.numbers(&act));
        breaches.extend(words(&act));
        breaches.extend(self.tries_again(&act));
        if let Some(is) = act.is {
            if let Some(current) = is.current_version.filter(|current| !self.in_charge.contains(current)) {
                self.promoted = Some(act.now);
                self.in_charge.insert(current);
            } else if is.current_version != act.was.current_version {
                self.promoted = Some(act.now);
            }
            self.older = Some(Arc::new(Self { older: None, ..live }));
        } else if eyes.is_older() {
            self.counts_of(&live);
        } else {
            // What is not written down was not heard.
            self.counts_of(&old);
        }
        if after.is_in_place() {
            remember::status(self, &act);
        } else {
            sides::remember(self, &act);
        }
    }

    fn counts_of(&mut self, old: &Self) {
        self.tries.counts_of(&old.tries);
        for (name, zone) in &mut self.zones {
            zone.counts_of(&old.zones.get(name).cloned().unwrap_or_default());
        }
    }

    fn people(&mut self, deed: Deeds, before: &World, after: &World) {
        match deed {
            Deeds::StatusLost => self.is_lost = true,
            Deeds::Retry if is_stale(&before.status) => {
                let rolled = std::mem::take(&mut self.tries.rolled);
                let begun = Some(after.native.now);
                self.tries = Tries { version: self.tries.version, begun, rolled, ..Tries::default() };
            }
            _ => {}
        }
        if !matches!(deed, Deeds::StatusLost | Deeds::Pause(_) | Deeds::Delete(..) | Deeds::Break(..) | Deeds::Heal(..))
        {
            self.stale.clear();
        }
        remember::people(self, deed, before, after);
    }

    fn follow(&mut self, before: &World, after: &World) {
        if after.is_in_place() {
            remember::follow(self, before, after);
        } else {
            sides::follow(self, after);
        }
    }

    /// What is stale is not tried again without a person.
    fn tries_again(&mut self, act: &Act) -> Option<String> {
        let upgrade = act.is?.upgrade.as_ref()?;
        let template = act.after.template_of_version(upgrade.version)?;
        if upgrade.step == UpgradeStep::Stale {
            // A retry may have been set that is not heard yet, or was not seen by who marked it.
            if !is_stale(act.was) && !act.eyes.is_older() {
                self.stale.insert(template);
            }
            return None;
        }
        let is_again = self.stale.contains(&template) && upgrade.step != UpgradeStep::Waiting;
        is_again.then(|| format!("S12: template {template}, which is stale, is tried again: {:?}", upgrade.step))
    }

    /// Numbers grow by one, are in the status before anything carries them, and have one template for ever.
    fn numbers(&mut self, act: &Act) -> Breaches {
        let mut breaches = Vec::new();
        if act.is.is_some_and(|is| is.last_version < act.was.last_version) {
            breaches.push("numbers: the last one is lower than before".to_owned());
        }
        for (name, marks) in act.after.marks.iter() {
            let (version, template) = (marks.version, marks.template);
            if act.before.marks.get(name).is_some_and(|before| before.version == version) {
                continue;
            }
            let highest = self.numbers.keys().next_back().copied().unwrap_or(0);
            match self.numbers.get(&version) {
                Some(known) if *known != template && !self.is_lost => {
                    breaches.push(format!("numbers: {version} was template {known} and is {template}"));
                }
                // What was decided on an older look is made under the number that the status had then.
                None if version <= highest
                    && !self.is_lost
                    && act.was.current_version != Some(version)
                    && !act.eyes.is_older() =>
                {
                    breaches.push(format!("numbers: {version} comes after {highest}"));
                }
                None if version > act.was.last_version && !act.eyes.is_older() => {
                    breaches.push(format!("numbers: {name} carries {version} before the status does"));
                }
                _ => {}
            }
            self.numbers.insert(version, template);
        }
        breaches
    }

    /// What of it makes two states different ones.
    pub fn put(&self, key: &mut Ages) {
        key.put(&(&self.in_charge, &self.numbers, self.is_lost, &self.ours, &self.stale));
        key.maybe_ago(self.promoted, AGO);
        let tries = &self.tries;
        key.put(&(tries.version, tries.answers, tries.is_refused, tries.has_passed, &tries.rolled));
        key.maybe_ago(tries.begun, i64::from(WATCH) + 2);
        tries.passes.iter().for_each(|pass| key.ago(*pass, LONG_AGO));
        for (name, zone) in &self.zones {
            key.put(&(name, &zone.approved, zone.answers, zone.is_refused, zone.paused, &zone.gone_back));
            key.put(&(zone.by_hand, zone.has_moved, zone.template));
            key.maybe_ago(zone.ill_since, AGO);
            zone.passes.iter().for_each(|pass| key.ago(*pass, LONG_AGO));
        }
    }
}

/// The answer that was heard in a move.
fn heard(eyes: &Eyes, after: &World) -> Option<Heard> {
    let asked = after.native.tale.deeds().find_map(|deed| match deed {
        Deed::Checked(cycle, outcome) => {
            Some(Heard { time: after.native.now, outcome, about: cycle.rsplit(' ').next()?.to_owned() })
        }
        _ => None,
    });
    let kept = eyes.kept.and_then(|kept| kept.answer.as_ref());
    asked.or_else(|| {
        let answer = kept?;
        let outcome = match answer.records.first()?.verdict {
            sts_plus_api::Verdict::NoData => "pass",
            sts_plus_api::Verdict::Data => "fail",
            _ => "error",
        };
        Some(Heard { time: second(answer.time), outcome, about: answer.request.revision.clone() })
    })
}

/// S10: what the status says is so.
fn words(act: &Act) -> Breaches {
    let Some(is) = act.is else { return Vec::new() };
    let seen = act.seen;
    let mut breaches = Vec::new();
    let truths = ["Ready", "Reconciling", "Stalled"].map(|kind| is_true(is, kind));
    if truths.iter().filter(|is| **is).count() != 1 {
        breaches.push(format!("kstatus: Ready, Reconciling, Stalled are {truths:?} in phase {:?}", is.phase));
    }
    let is_current = |version: i32| is.current_version == Some(version);
    if is.phase == VersionPhase::Ready {
        let current = is.current_version.unwrap_or(0);
        let all_there = seen.wanted().iter().all(|(zone, count)| has_all(seen, current, zone.as_deref(), *count));
        let is_alone = seen.marks.values().all(|marks| is_current(marks.version));
        let is_wanted = seen.template_of_version(current) == Some(seen.owner.template) || seen.owner.replicas() == 0;
        if !(all_there && is_alone && is_wanted) {
            breaches.push(format!("S10: Ready with {}", seen.layout()));
        }
    }
    for (version, is_ready) in &is.versions {
        let number: i32 = version.parse().unwrap_or(0);
        let of = seen.sets_of(number).flat_map(|set| set.pods.values());
        let carries = |revision: &str| sts_plus_model::versions::world::version_of(revision) == number;
        let is_one = of.filter(|pod| pod.is_healthy() && (carries(&pod.revision) || !seen.is_in_place())).count() > 0;
        if is_one != *is_ready {
            breaches.push(format!("S10: versions say {version}: {is_ready} with {}", seen.layout()));
        }
    }
    breaches
}

fn has_all(world: &World, version: i32, zone: Option<&str>, count: i32) -> bool {
    let is_whole = |set: &Set| set.replicas == count && world.native.is_whole(set);
    world
        .set_in(version, zone)
        .map_or(count == 0, |set| is_whole(set) && (!world.is_in_place() || world.is_at(set, version)))
}

fn is_stale(status: &ExtendedStatefulSetStatus) -> bool {
    status.upgrade.as_ref().is_some_and(|upgrade| upgrade.step == UpgradeStep::Stale)
}

pub fn is_true(status: &ExtendedStatefulSetStatus, kind: &str) -> bool {
    sts_plus_api::is_true(&status.conditions, kind)
}
