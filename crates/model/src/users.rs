//! What people, `GitOps`, drains and accidents do. Writes to a StatefulSet go through the admission policies of sts-plus, if they are
//! installed (admission-hold.md, O15, O33–O37).

use std::collections::BTreeMap;

use sts_plus_api::{PhasedRolloutSpec, names};
use sts_plus_decide::Strategy;

use crate::{
    tale::{Deed, Who},
    world::{Health, Set, World},
};

impl World {
    /// A write to the set `name` by somebody who is not the operator.
    pub fn edit(&mut self, name: &str, what: &str, change: impl FnOnce(&mut Set)) {
        self.tell(Deed::User(what.to_owned()));
        let Some(before) = self.sets.get(name).cloned() else { return };
        let mut after = before.clone();
        change(&mut after);
        if self.refuses && is_refused(&before, &after) {
            self.tell(Deed::User(format!("{what} is refused")));
            return;
        }
        if self.policy {
            admit(&before, &mut after);
        }
        if after.partition != before.partition {
            let (from, to) = (before.partition, after.partition);
            self.tell(Deed::Partition { set: name.to_owned(), from, to, who: Who::User });
            after.writer = Some("kubectl".to_owned());
        }
        if spec(&after) != spec(&before) {
            after.generation += 1;
            after.changed = self.now;
        }
        if after.template != before.template {
            self.ledger.template_changed(name);
        }
        self.allow_break_glass(&before, &after);
        self.sets.insert(name.to_owned(), after);
    }

    /// §4.8: a person's approval of these indexes of this revision.
    fn allow_break_glass(&mut self, before: &Set, after: &Set) {
        let allowed = after.annotations.get(names::ALLOW_PARTITION).and_then(|value| value.parse::<i32>().ok());
        if after.partition != before.partition && allowed == after.partition && allowed.is_some() {
            self.ledger.allow(&after.name, &after.wanted(), after.threshold()..after.replicas);
        }
    }

    /// Another template.
    pub fn set_template(&mut self, name: &str, template: u32) {
        self.edit(name, &format!("template {template}"), |set| set.template = template);
    }

    /// Another replica count.
    pub fn scale(&mut self, name: &str, replicas: i32) {
        self.edit(name, &format!("replicas {replicas}"), |set| set.replicas = replicas);
    }

    /// Somebody writes the partition, or removes it.
    pub fn set_partition(&mut self, name: &str, partition: Option<i32>) {
        self.edit(name, &format!("partition {partition:?}"), |set| set.partition = partition);
    }

    /// The break-glass annotation, and the partition that it allows.
    pub fn break_glass(&mut self, name: &str, partition: i32) {
        self.edit(name, &format!("allows partition {partition}"), |set| {
            set.annotations.insert(names::ALLOW_PARTITION.to_owned(), partition.to_string());
            set.partition = Some(partition);
        });
    }

    /// A pod is deleted or evicted.
    pub fn delete_pod(&mut self, name: &str, ordinal: i32) {
        self.tell(Deed::User(format!("deletes {name}-{ordinal}")));
        if let Some(mut set) = self.sets.remove(name) {
            self.evict(&mut set, ordinal, Who::User);
            self.sets.insert(name.to_owned(), set);
        }
    }

    /// A pod breaks and does not recover.
    pub fn break_pod(&mut self, name: &str, ordinal: i32) {
        self.tell(Deed::User(format!("{name}-{ordinal} breaks")));
        let now = self.now;
        if let Some(pod) = self.sets.get_mut(name).and_then(|set| set.pods.get_mut(&ordinal)) {
            pod.break_down(now);
            self.ledger.disturbed(name);
        }
    }

    /// A broken pod recovers.
    pub fn heal_pod(&mut self, name: &str, ordinal: i32) {
        self.tell(Deed::User(format!("{name}-{ordinal} recovers")));
        let now = self.now;
        if let Some(pod) = self.sets.get_mut(name).and_then(|set| set.pods.get_mut(&ordinal)) {
            pod.health = Health::ReadyAfter(now - pod.since + 1);
        }
    }

    /// The set is deleted with orphan and made anew with another template (O38); the policy is there at its birth (O37).
    pub fn remake(&mut self, name: &str, template: u32) {
        self.tell(Deed::User(format!("deletes {name} with orphan and makes it anew with template {template}")));
        let Some(old) = self.sets.remove(name) else { return };
        self.orphans.insert(name.to_owned(), old.pods);
        self.add_set(name, old.replicas, template);
        if let Some(set) = self.sets.get_mut(name) {
            (set.parallel, set.start, set.min_ready) = (old.parallel, old.start, old.min_ready);
        }
    }

    /// Another spec of the PhasedRollout.
    pub fn configure(&mut self, rollout: &str, what: &str, change: impl FnOnce(&mut PhasedRolloutSpec)) {
        self.tell(Deed::User(what.to_owned()));
        if let Some(own) = self.rollouts.get_mut(rollout) {
            change(&mut own.spec);
            own.generation += 1;
        }
    }

    /// An annotation of the PhasedRollout.
    pub fn annotate(&mut self, rollout: &str, name: &str, value: &str) {
        self.tell(Deed::User(format!("{name}: {value}")));
        if let Some(own) = self.rollouts.get_mut(rollout) {
            own.annotations.insert(name.to_owned(), value.to_owned());
        }
    }

    /// The PhasedRollout is deleted; it goes when its finalizer does.
    pub fn delete_rollout(&mut self, rollout: &str) {
        self.tell(Deed::User(format!("deletes PhasedRollout {rollout}")));
        let finalized = self.rollouts.get(rollout).is_some_and(|own| own.finalizer);
        if !finalized {
            self.rollouts.remove(rollout);
        } else if let Some(own) = self.rollouts.get_mut(rollout) {
            own.deleting = true;
        }
    }

    /// The policy on CREATE: a set that a PhasedRollout targets is claimed and held from birth.
    pub(crate) fn admit_birth(&self, mut set: Set) -> Set {
        let owner = self.rollouts.values().find(|rollout| rollout.spec.target_ref == set.name);
        if let Some(owner) = owner.filter(|_| self.policy) {
            set.annotations.insert(names::CLAIM.to_owned(), owner.name.clone());
            set.partition = Some(names::HOLD);
        }
        set
    }
}

/// The policy on UPDATE.
fn admit(before: &Set, after: &mut Set) {
    let claim = before.annotations.get(names::CLAIM).or_else(|| after.annotations.get(names::CLAIM)).cloned();
    let Some(claim) = claim else { return };
    if after.annotations.get(names::HOLD_SWITCH).is_some_and(|switch| switch == "off") {
        return;
    }
    if !after.annotations.contains_key(names::CLAIM) {
        if after.annotations.get(names::RELEASE).is_some_and(|release| release == "true") {
            return;
        }
        after.annotations.insert(names::CLAIM.to_owned(), claim);
    }
    let becomes_rolling = before.strategy != Strategy::RollingUpdate && after.strategy == Strategy::RollingUpdate;
    if after.template != before.template || becomes_rolling {
        after.partition = Some(names::HOLD);
        after.annotations.remove(names::ALLOW_PARTITION);
        return;
    }
    let asked = after.threshold();
    let allowed = after.annotations.get(names::ALLOW_PARTITION).is_some_and(|value| *value == asked.to_string());
    let lowered = before.partition.is_some() && (after.partition.is_none() || asked < before.threshold());
    if lowered && !allowed && after.strategy == Strategy::RollingUpdate {
        after.annotations.insert(names::REFUSED_PARTITION.to_owned(), asked.to_string());
        after.partition = before.partition;
    }
}

/// The validating policy on UPDATE.
fn is_refused(before: &Set, after: &Set) -> bool {
    let is = |set: &Set, name: &str, value: &str| set.annotations.get(name).is_some_and(|given| given == value);
    let claims = |set: &Set| set.annotations.contains_key(names::CLAIM);
    let is_released = claims(before) && !claims(after) && is(after, names::RELEASE, "true");
    let is_exempt = is_released || is(before, names::HOLD_SWITCH, "off");
    if is_exempt || !(claims(before) || claims(after)) {
        return false;
    }
    let rolls = |set: &Set| set.strategy == Strategy::RollingUpdate;
    let (had, asked) = (before.threshold(), after.threshold());
    let is_fresh = after.template != before.template || !rolls(before);
    let is_allowed = is(after, names::ALLOW_PARTITION, &asked.to_string());
    let tampered = |name: &&str| before.annotations.get(*name) != after.annotations.get(*name);
    let is_tampered =
        claims(before) && [names::CLAIM, names::HOLD_SWITCH, names::WRITTEN_PARTITION].iter().any(tampered);
    is_tampered || (rolls(after) && ((is_fresh && asked < after.replicas) || (asked < had && !is_allowed)))
}

/// What bumps the generation: the spec, not the annotations.
fn spec(set: &Set) -> (u32, i32, i32, Option<i32>, i32, bool) {
    let rolling = set.strategy == Strategy::RollingUpdate;
    (set.template, set.replicas, set.start, set.partition, set.min_ready, rolling)
}

/// Annotations without those of sts-plus, for comparisons at the end.
#[must_use]
pub fn foreign_annotations(set: &Set) -> BTreeMap<String, String> {
    set.annotations
        .iter()
        .filter(|(name, _)| !name.starts_with("sts.plus/"))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}
