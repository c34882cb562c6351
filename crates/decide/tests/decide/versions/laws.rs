//! What must hold at every step, whatever users do and wherever the operator crashes.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::ZoneReplicas;
use sts_plus_decide::{ChildView, VersionAction, VersionsPlan};

use super::{native::is_available, world::World};

/// What the laws have to remember.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The digest of every number that a StatefulSet ever had.
    pub numbers: BTreeMap<i32, String>,
    /// The numbers of versions that are gone and that nobody wants.
    pub removed: BTreeSet<i32>,
    /// The versions that were ever in charge.
    pub in_charge: BTreeSet<i32>,
}

impl World {
    /// The zones, each with the pods that the user wants there.
    pub fn wanted(&self) -> Vec<(Option<String>, i32)> {
        let spec = self.owner.spec();
        let replicas = spec.written_replicas().unwrap();
        let zones = spec.all_zones();
        let count = i32::try_from(zones.len()).unwrap();
        let share = |index: i32| match spec.zone_replicas {
            ZoneReplicas::PerZone => replicas,
            ZoneReplicas::Spread => (0..replicas).filter(|pod| pod % count == index).count().try_into().unwrap(),
        };
        if zones.is_empty() {
            return vec![(None, replicas)];
        }
        (0..count).zip(zones).map(|(index, zone)| (Some(zone.clone()), share(index))).collect()
    }

    pub fn wanted_in(&self, zone: Option<&String>) -> Option<i32> {
        self.wanted().into_iter().find(|(name, _)| name.as_ref() == zone).map(|(_, count)| count)
    }

    pub fn of(&self, version: i32) -> impl Iterator<Item = &ChildView> {
        self.children.iter().filter(move |child| child.version == version)
    }

    pub fn versions(&self) -> BTreeSet<i32> {
        self.children.iter().map(|child| child.version).collect()
    }

    pub fn available(&self, child: &ChildView) -> usize {
        child.pods.iter().filter(|pod| is_available(child, pod, self.now)).count()
    }

    /// All its pods are there and available, in every zone, and no other.
    pub fn is_complete(&self, version: i32) -> bool {
        let empty = self.uncarried();
        let is_served = |zone: &Option<String>| zone.as_ref().is_none_or(|zone| !empty.contains(zone));
        self.wanted().iter().filter(|(zone, _)| is_served(zone)).all(|(zone, count)| {
            let child = self.of(version).find(|child| child.zone == *zone);
            child.map_or(*count == 0, |child| {
                let count = usize::try_from(*count).unwrap();
                child.pods.len() == count && self.available(child) == count
            })
        })
    }

    /// The plan, before it is carried out.
    pub fn judge(&mut self, plan: &VersionsPlan) {
        let actions = &plan.actions;
        assert!(plan.status.last_version >= self.status.last_version, "numbers grow: {actions:?}");
        if let (Some(before), Some(after)) = (self.status.current_version, plan.status.current_version)
            && before != after
            && self.of(before).count() > 0
        {
            assert!(
                self.is_complete(after),
                "{after} is in charge after {before} without its pods: {actions:?} {self:?}"
            );
        }
        let current = plan.status.current_version;
        let shrinks = |action: &&VersionAction| match action {
            VersionAction::Scale { name, replicas, .. } | VersionAction::Apply { name, replicas, .. } => {
                let child = self.child(name);
                Some(child.version) == current && *replicas < child.replicas
            }
            _ => false,
        };
        assert!(actions.iter().filter(shrinks).count() <= 1, "several zones at once: {actions:?} {self:?}");
        let mut left: BTreeSet<_> = self.children.iter().map(|child| child.name.clone()).collect();
        let had_any = !left.is_empty();
        for action in &plan.actions {
            match action {
                VersionAction::Create { name, version, .. } => {
                    self.judge_birth(*version, plan);
                    left.insert(name.clone());
                }
                VersionAction::Scale { name, replicas, .. } | VersionAction::Apply { name, replicas, .. } => {
                    self.judge_scale(self.child(name), *replicas, plan);
                }
                VersionAction::Delete { name, .. } => {
                    self.judge_death(self.child(name), plan);
                    left.remove(name);
                }
                VersionAction::Free { .. } | VersionAction::Orphan | VersionAction::Adopt { .. } => {
                    panic!("nothing goes: {actions:?}")
                }
                VersionAction::AddFinalizer | VersionAction::RemoveFinalizer => panic!("it stays: {actions:?}"),
                VersionAction::Mark { .. }
                | VersionAction::Select { .. }
                | VersionAction::Roll(_)
                | VersionAction::Remember { .. }
                | VersionAction::Forget { .. } => {}
            }
        }
        assert!(!had_any || !left.is_empty(), "all versions would be gone: {actions:?} {self:?}");
    }

    fn judge_birth(&mut self, version: i32, plan: &VersionsPlan) {
        let actions = &plan.actions;
        assert!(!self.ledger.removed.contains(&version), "number {version} is used again: {actions:?} {self:?}");
        let highest = self.ledger.numbers.keys().next_back().copied().unwrap_or(0);
        let is_known = self.ledger.numbers.contains_key(&version);
        // The one in charge may have its number for long, and no StatefulSet, since somebody else's had the name.
        let is_in_charge = self.status.current_version == Some(version);
        assert!(
            is_known || is_in_charge || version > highest,
            "a new number {version} after {highest}: {actions:?} {self:?}"
        );
        // It is made from the template that was kept for it, else from that of the spec.
        let is_from = self.kept.get(&version).unwrap_or(&self.owner.hash).clone();
        let hash = self.ledger.numbers.entry(version).or_insert_with(|| is_from.clone());
        assert_eq!(*hash, is_from, "number {version} has another template: {actions:?}");
        assert!(version <= self.status.last_version, "a number is in the status before anything carries it");
    }

    /// A version that was in charge loses no available pod while no other one has all of its own, but by a user's wish.
    fn judge_scale(&self, child: &ChildView, replicas: i32, plan: &VersionsPlan) {
        let actions = &plan.actions;
        let goes = child.pods.iter().any(|pod| pod.ordinal >= replicas && is_available(child, pod, self.now));
        if !goes || replicas >= child.replicas || !self.ledger.in_charge.contains(&child.version) {
            return;
        }
        // A version that was given up for a lower one, which was complete then, goes without delay: it may be what does the harm.
        let is_given_up = plan.status.current_version.is_some_and(|current| child.version > current);
        let is_wish = self.wanted_in(child.zone.as_ref()).is_none_or(|count| count == replicas);
        let others = self.versions().into_iter().filter(|version| *version != child.version);
        let is_replaced = others.into_iter().any(|version| self.is_complete(version));
        assert!(is_wish || is_replaced || is_given_up, "{} loses pods for nothing: {actions:?} {self:?}", child.name);
    }

    fn judge_death(&self, child: &ChildView, plan: &VersionsPlan) {
        let actions = &plan.actions;
        assert!(child.pods.is_empty() && child.replicas == 0, "{} has pods: {actions:?} {self:?}", child.name);
        let current = plan.status.current_version.unwrap();
        let target = plan.status.upgrade.as_ref().map(|upgrade| upgrade.version);
        assert_ne!(Some(child.version), target, "the version that is wanted is deleted: {actions:?} {self:?}");
        if child.version == current {
            assert_eq!(self.wanted_in(child.zone.as_ref()), None, "{actions:?} {self:?}");
        } else if child.version < current {
            assert!(self.is_complete(current), "{} goes before its time: {actions:?} {self:?}", child.name);
        }
    }

    /// After a whole round: the version in charge has as many pods as are wanted.
    pub fn judge_rest(&mut self, plan: &VersionsPlan) {
        let actions = &plan.actions;
        self.ledger.in_charge.extend(self.status.current_version);
        let there = self.versions();
        let wanted = [self.status.current_version, self.status.upgrade.as_ref().map(|upgrade| upgrade.version)];
        let is_gone = |number: &&i32| !there.contains(number) && !wanted.contains(&Some(**number));
        self.ledger.removed.extend(self.ledger.numbers.keys().filter(is_gone));
        let Some(current) = self.status.current_version.filter(|version| self.of(*version).count() > 0) else { return };
        if plan.status.current_version != self.status.current_version || self.is_just_chosen(plan) {
            return;
        }
        let has_surplus = |child: &&ChildView| child.pods.len() > usize::try_from(child.replicas).unwrap();
        let written = |child: &&ChildView| {
            actions.iter().any(|action| matches!(action, VersionAction::Scale { name, .. } | VersionAction::Apply { name, .. } if *name == child.name))
        };
        let shrinking = self.of(current).filter(|child| has_surplus(child) || written(child));
        let shrinking: Vec<_> = shrinking.map(|child| child.name.clone()).collect();
        for (zone, count) in self.wanted() {
            if let Some(child) = self.of(current).find(|child| child.zone == zone) {
                // Pods leave in one zone at a time.
                // So they do if a zone cannot be made.
                let may_wait = child.replicas > count
                    && (shrinking.iter().any(|name| *name != child.name) || self.owner.problem.is_some());
                assert!(child.replicas == count || may_wait, "{}: {actions:?} {self:?}", child.name);
            }
        }
    }

    /// A number was given in this round, or a version promoted: the round after it looks at replicas.
    fn is_just_chosen(&self, plan: &VersionsPlan) -> bool {
        plan.wake.is_some_and(|wake| wake <= self.now)
    }
}
