//! What must hold at every step, whatever users do and wherever the operator crashes.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::{Phase, VersionPhase};
use sts_plus_decide::{Try, VersionsPlan};
use sts_plus_model::{Pod, Set};

use super::world::World;

/// What the laws have to remember.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The content of every number that was written.
    pub numbers: BTreeMap<i32, String>,
    /// The last good revision of each StatefulSet.
    pub good: BTreeMap<String, String>,
    /// Passes in a row of a revision since its StatefulSet was disturbed.
    passes: BTreeMap<String, i32>,
    /// A hand emptied the status: what the last good revision was, the pods alone tell.
    pub lost_status: bool,
    /// StatefulSets whose partition a person lowered.
    pub opened_by_hand: BTreeSet<String>,
}

fn index_of(set: &Set, ordinal: i32) -> i32 {
    ordinal - set.start
}

impl World {
    pub fn note_try(&mut self, revision: &str, tried: &Try) {
        let passes = self.ledger.passes.entry(revision.to_owned()).or_default();
        *passes = if tried.records.iter().all(|record| record.passed) { *passes + 1 } else { 0 };
    }

    pub fn judge_number(&mut self, version: i32, hash: &str) {
        let highest = self.ledger.numbers.keys().next_back().copied().unwrap_or(0);
        let is_known = self.ledger.numbers.contains_key(&version);
        // One that was promoted while there were no pods is in charge before anything carries it.
        let is_in_charge = self.status.current_version == Some(version);
        assert!(is_known || is_in_charge || version > highest, "{version} comes after {highest}: {self:?}");
        assert!(
            is_known || version <= self.status.last_version,
            "a number is in the status before anything carries it: {self:?}"
        );
        let known = self.ledger.numbers.entry(version).or_insert_with(|| hash.to_owned());
        assert_eq!(known, hash, "number {version} has another content");
    }

    /// As many pods as are wanted, or on the way there.
    pub fn judge_size(&self, name: &str, replicas: i32) {
        let wanted = self.wanted().into_iter().find(|(wanted, _, _)| wanted == name).map_or(0, |(_, _, count)| count);
        let there = self.native.sets.get(name).map_or(wanted, |set| set.replicas);
        let range = wanted.min(there)..=wanted.max(there);
        assert!(range.contains(&replicas), "{name} gets {replicas} replicas, {wanted} are wanted: {self:?}");
    }

    /// What the operator opens: pods that are on the last good revision move one at a time, after their checks, with all others there.
    pub fn judge_partition(&mut self, before: &Set, name: &str) {
        let after = self.native.sets[name].clone();
        let wanted = after.wanted();
        let opened = |(ordinal, pod): &(&i32, &Pod)| {
            let index = index_of(&after, **ordinal);
            // Pods that the scaling takes away do not move.
            let is_to_stay = index < after.replicas;
            let is_opened = (after.threshold()..before.threshold()).contains(&index);
            is_to_stay && is_opened && pod.is_healthy() && pod.revision != wanted
        };
        let opened: Vec<_> = after.pods.iter().filter(opened).collect();
        let allowed = after.annotations.get(sts_plus_api::names::ALLOW_PARTITION);
        if opened.is_empty() || allowed == Some(&after.threshold().to_string()) {
            return;
        }
        let good = self.ledger.good.get(name);
        let is_good = |pod: &Pod| good == Some(&pod.revision);
        let check = self.owner.spec["updateStrategy"].get("check");
        let proceeds = check.is_some_and(|check| check["onFailure"] == "Proceed");
        if let (Some(check), true) = (check, good != Some(&wanted) && !proceeds) {
            let needed = i32::try_from(check["successThreshold"].as_i64().unwrap()).unwrap();
            let skips_first = check["preflight"] == false && !after.pods.values().any(|pod| pod.revision == wanted);
            let passes = self.ledger.passes.get(&wanted).copied().unwrap_or(0);
            let is_gated = passes >= needed || skips_first;
            assert!(
                is_gated || !opened.iter().any(|(_, pod)| is_good(pod)),
                "{name} {opened:?} without checks: {self:?}"
            );
        }
        assert!(opened.iter().filter(|(_, pod)| is_good(pod)).count() <= 1, "{name} opens {opened:?}: {self:?}");
        let is_excused = proceeds || self.owner.spec["updateStrategy"]["updateNotReady"] == true;
        let obstacle = after.pods.values().find(|pod| !pod.is_healthy() && (is_good(pod) || pod.revision == wanted));
        let is_down = after.pods.values().filter(|pod| pod.is_healthy()).all(|pod| pod.revision == wanted);
        assert!(obstacle.is_none() || is_excused || is_down, "{name} moves {opened:?} beside {obstacle:?}: {self:?}");
        let listed: BTreeSet<String> = self.wanted().into_iter().map(|(name, _, _)| name).collect();
        for (other, set) in self.native.sets.iter().filter(|(other, _)| *other != name) {
            let is_away = |pod: &&Pod| !pod.is_healthy() && self.ledger.good.get(other) == Some(&pod.revision);
            let away = set.pods.values().find(is_away).filter(|_| listed.contains(other) && set.replicas > 0);
            let moves_good = opened.iter().any(|(_, pod)| is_good(pod));
            assert!(!moves_good || away.is_none() || is_excused || is_down, "{name} beside {other} {away:?}: {self:?}");
            let moves = set.pods.iter().any(|(ordinal, pod)| {
                index_of(set, *ordinal) >= set.threshold() && pod.is_healthy() && pod.revision != set.wanted()
            });
            let by_hand = self.ledger.opened_by_hand.contains(other);
            assert!(!moves || by_hand, "{name} and {other} move: {self:?}");
        }
    }

    /// The operator deletes no pod that is well and on the last good revision.
    pub fn judge_deletion(&mut self, name: &str, ordinal: i32) {
        let set = &self.native.sets[name];
        let pod = &set.pods[&ordinal];
        if index_of(set, ordinal) >= set.replicas {
            return;
        }
        // What was opened is approved, also if the controller leaves it standing.
        let is_opened = index_of(set, ordinal) >= set.threshold();
        let is_good =
            !is_opened && self.ledger.good.get(name) == Some(&pod.revision) && self.ledger.good[name] != set.wanted();
        assert!(!is_good || !pod.is_healthy(), "{name}-{ordinal} was well: {self:?}");
        let obstacle = set.pods.iter().find(|(other, pod)| {
            **other != ordinal && !pod.is_healthy() && self.ledger.good.get(name) == Some(&pod.revision)
        });
        let is_gate = self.owner.spec["updateStrategy"]["updateNotReady"] != true;
        assert!(
            !pod.is_healthy() || obstacle.is_none() || !is_gate,
            "{name}-{ordinal} goes beside {obstacle:?}: {self:?}"
        );
    }

    /// One sync of the StatefulSet controller.
    pub fn sync(&mut self, name: &str) -> bool {
        let before = self.native.sets[name].pods.clone();
        let changed = self.native.sync(name);
        let after = &self.native.sets[name].pods;
        let is_disturbed = before.len() != after.len()
            || after
                .iter()
                .any(|(ordinal, pod)| before.get(ordinal).is_none_or(|b| b.uid != pod.uid || b.gone_at != pod.gone_at));
        if is_disturbed {
            self.ledger.passes.retain(|revision, _| !revision.starts_with(&format!("{name}-r")));
        }
        changed
    }

    pub fn judge_status(&mut self, plan: &VersionsPlan) {
        assert!(plan.status.last_version >= self.status.last_version, "numbers grow: {self:?}");
        for (version, is_ready) in &plan.status.versions {
            let is_at = |pod: &Pod| pod.is_healthy() && self.carried(&pod.revision).0.to_string() == *version;
            let carried = self.native.sets.values().any(|set| set.pods.values().any(is_at));
            assert_eq!(*is_ready, carried, "version {version}: {:?} {self:?}", plan.status.versions);
        }
        self.judge_words(plan);
        if plan.status.phase == VersionPhase::Ready && plan.actions.is_empty() {
            assert!(self.is_complete(), "it is not: {self:?}");
        }
    }

    /// People know the fields of an ExtendedStatefulSet, and no others.
    fn judge_words(&self, plan: &VersionsPlan) {
        let status = serde_json::to_string(&plan.status).unwrap();
        let notes = plan.events.iter().map(|event| event.note.as_str());
        for text in notes.chain([status.as_str()]) {
            for word in ["PhasedRollout", "spec.check", "progressDeadlineSeconds", "targetRef", "sts.plus/retry"] {
                assert!(!text.contains(word), "{word} in {text}");
            }
            let is_paused = self.owner.spec["paused"] == true;
            // What was told while it was paused stays until the operator has looked again.
            let was_there = serde_json::to_string(&self.status).unwrap().contains("spec.paused is true");
            assert!(is_paused || was_there || !text.contains("spec.paused is true"), "{text}");
        }
    }

    /// After a whole round.
    pub fn judge_rest(&mut self) {
        for (name, set) in &self.native.sets {
            let rollout = self.status.rollouts.get(name);
            let is_done = rollout.is_some_and(|rollout| {
                matches!(rollout.phase, Phase::Completed | Phase::Idle)
                    && rollout.target_revision.as_deref() == Some(&set.wanted())
            });
            if set.pods.is_empty() {
                self.ledger.good.remove(name);
            } else if is_done && set.pods.values().all(|pod| pod.revision == set.wanted()) {
                self.ledger.good.insert(name.clone(), set.wanted());
                self.ledger.opened_by_hand.remove(name);
            }
        }
    }
}
