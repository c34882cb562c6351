//! What makes two states the same. Times count from now, and what is long ago is all the same; where the order of two times decides, the
//! order is part of the key.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use sts_plus_api::{Current, ExtendedStatefulSetStatus, PhasedRolloutStatus};
use sts_plus_model::versions::World;
use sts_plus_model::world::second;
use sts_plus_model::{Health, Set};

use super::{moves::Node, worlds::WATCH};

/// A pod that is not Ready is broken after 60 s, and an answer is stale after a period and 60 s.
pub const LONG_AGO: i64 = 70;
/// Of all else a few periods are enough.
pub const AGO: i64 = 12;

pub struct Key {
    hasher: DefaultHasher,
    now: i64,
}

impl Key {
    /// Of a state in a search.
    pub fn of(node: &Node) -> u64 {
        let mut key = Self::new(node);
        node.left.hash(&mut key.hasher);
        key.hasher.finish()
    }

    /// But for what may still happen.
    pub fn of_world(node: &Node) -> u64 {
        Self::new(node).hasher.finish()
    }

    /// Of a world on its way to its end.
    pub fn of_end(world: &World) -> u64 {
        let mut key = Self { hasher: DefaultHasher::new(), now: world.native.now };
        key.world(world, false);
        key.hasher.finish()
    }

    fn new(node: &Node) -> Self {
        let mut key = Self { hasher: DefaultHasher::new(), now: node.world.native.now };
        let has_faults = node.left.faults > 0;
        key.world(&node.world, has_faults);
        node.mind.put(&mut key);
        if let Some(older) = node.mind.older.as_ref().filter(|_| has_faults) {
            older.put(&mut key);
        }
        if let Some(kept) = &node.kept {
            if let Some(answer) = &kept.answer {
                key.put(&(answer.request.index, &answer.request.revision));
                key.put(&answer.records.first().map(|record| record.verdict as u8));
                key.time(Some(answer.time), LONG_AGO);
            }
            key.world(&kept.world, false);
            kept.mind.put(&mut key);
            key.is_same(&kept.world, &node.world);
        }
        key
    }

    pub fn put(&mut self, value: &impl Hash) {
        value.hash(&mut self.hasher);
    }

    pub fn ago(&mut self, at: i64, longest: i64) {
        let ago = (at - self.now).clamp(-longest, longest);
        self.put(&ago);
    }

    pub fn maybe_ago(&mut self, at: Option<i64>, longest: i64) {
        self.put(&at.is_some());
        self.ago(at.unwrap_or(self.now), longest);
    }

    fn time(&mut self, time: Option<Timestamp>, longest: i64) {
        self.maybe_ago(time.map(second), longest);
    }

    fn world(&mut self, world: &World, with_older: bool) {
        self.owner(world);
        self.put(&world.kept);
        for (name, set) in &world.native.sets {
            self.put(&world.marks.get(name));
            self.set(set, world.status.rollouts.get(name));
            if world.is_in_place() {
                let ledger = &world.native.ledger;
                self.put(&ledger.good(name));
                set.ordinals().for_each(|ordinal| self.put(&ledger.leaving(name, ordinal)));
            }
        }
        for service in [&world.active, &world.preview] {
            self.put(&service.as_ref().map(|service| (&service.version, service.is_ours)));
        }
        self.maybe_ago(world.wake, LONG_AGO);
        self.status(&world.status, world);
        if with_older {
            self.status(&world.older, world);
        }
    }

    fn owner(&mut self, world: &World) {
        let (owner, strategy) = (&world.owner, &world.owner.spec.update_strategy);
        self.put(&(owner.template, owner.settings, owner.replicas(), owner.spec.paused, &owner.spec.az));
        self.put(&(strategy.canaries, strategy.update_not_ready, &owner.annotations));
        self.put(&(world.status.observed_generation == Some(owner.generation)));
    }

    fn set(&mut self, set: &Set, rollout: Option<&PhasedRolloutStatus>) {
        self.put(&(&set.name, set.generation - set.status.observed_generation, set.generation > 1));
        self.put(&(set.template, set.replicas, set.partition, set.parallel, &set.annotations));
        let status = &set.status;
        self.put(&(&status.current, &status.update));
        self.put(&(status.replicas, status.ready, status.current_replicas, status.updated_replicas));
        self.put(&(&set.revisions, set.writer.is_some()));
        self.put(&rollout.map(|rollout| rollout.target_uid.as_ref() == Some(&set.uid)));
        self.ago(set.changed, 2);
        for refused in &set.refused {
            self.put(&(&refused.name, second(refused.last) < set.changed));
            self.time(Some(refused.since), i64::from(WATCH) + 2);
        }
        for (ordinal, pod) in &set.pods {
            self.put(&(*ordinal, &pod.revision, pod.ready));
            self.put(&match pod.health {
                Health::ReadyAfter(seconds) => (0_u8, seconds),
                Health::Crashing => (1, 0),
                Health::NeverReady => (2, 0),
            });
            let longest = if pod.ready { AGO } else { LONG_AGO };
            self.ago(pod.since, longest);
            self.ago(pod.created, longest);
            self.maybe_ago(pod.gone_at, LONG_AGO);
            if let Some(rollout) = rollout {
                self.order(pod.created, rollout);
            }
        }
    }

    /// What decisions compare the time of a pod with.
    fn order(&mut self, created: i64, status: &PhasedRolloutStatus) {
        let mut is_younger = |time: Option<Timestamp>| {
            let is = time.is_some_and(|time| created > second(time));
            self.put(&is);
        };
        is_younger(status.start_time);
        is_younger(status.remade_since);
        is_younger(status.current.as_ref().and_then(|current| current.since));
        for passed in &status.passed {
            is_younger(passed.since);
        }
    }

    fn status(&mut self, status: &ExtendedStatefulSetStatus, world: &World) {
        self.put(&(status.phase as u8, status.current_version, status.update_version, status.last_version));
        self.put(&(&status.versions, &status.retry, &status.services));
        self.put(&(status.replicas, status.ready_replicas, &status.ready));
        self.time(status.promotion_time, AGO);
        for detail in &status.details {
            self.put(&(detail.version, &detail.hash, detail.stale, detail.replicas, detail.ready));
            for set in &detail.sets {
                let generation = world.native.sets.get(&set.name).map(|there| there.generation);
                self.put(&(&set.name, set.generation == 0, Some(set.generation) == generation));
            }
        }
        for condition in &status.conditions {
            self.put(&(&condition.type_, &condition.status, &condition.reason));
        }
        self.put(&status.checks.last().map(|check| check.verdict as u8));
        if let Some(upgrade) = &status.upgrade {
            self.put(&(upgrade.version, &upgrade.hash, upgrade.step as u8, upgrade.failures.min(3)));
            self.put(&upgrade.reason.is_empty());
            self.time(upgrade.since, i64::from(WATCH) + 2);
            self.put(&upgrade.cycle.is_some());
            if let Some(cycle) = &upgrade.cycle {
                self.cycle(cycle, world);
            }
        }
        for (name, rollout) in &status.rollouts {
            self.put(name);
            self.rollout(rollout, world);
        }
    }

    fn rollout(&mut self, status: &PhasedRolloutStatus, world: &World) {
        self.put(&(&status.target, &status.target_revision, &status.previous_revision));
        self.put(&(&status.verified_revision, &status.rejected_revisions, status.partition, &status.retry));
        self.put(&(status.observed_generation == Some(world.owner.generation), status.phase as u8));
        self.put(&(status.never_healthy, status.is_sealed()));
        self.put(&(status.replicas, status.updated_replicas, status.ready_replicas));
        self.put(&(status.completion_time.is_some(), &status.failure));
        self.time(status.start_time, 2);
        self.time(status.last_progress_time, i64::from(WATCH) + 2);
        self.time(status.remade_since, 2);
        for passed in &status.passed {
            self.put(&(&passed.revision, passed.index, passed.since.is_some()));
        }
        self.put(&status.checks.last().map(|check| check.verdict as u8));
        self.put(&status.current.is_some());
        if let Some(current) = &status.current {
            self.cycle(current, world);
        }
    }

    fn cycle(&mut self, current: &Current, world: &World) {
        let check = world.owner.spec.update_strategy.check.as_ref();
        // More passes, or more refusals, than any of these worlds needs are as good as just enough.
        let most = check.map_or(1, |check| check.max_tries.max(check.success_threshold));
        let refusals = (current.tries - current.consecutive_passes).min(most);
        let passes = current.consecutive_passes.min(most);
        self.put(&(current.index.min(3), current.step as u8, refusals, passes, current.failed));
        self.put(&(&current.check, current.problem.is_some()));
        self.time(current.since, AGO);
        self.time(current.broken_since, AGO);
        self.time(current.last_check_time, LONG_AGO);
        self.time(current.next_check_time, AGO);
    }

    /// Which pods and sets that were seen are still the same ones.
    fn is_same(&mut self, seen: &World, now: &World) {
        for (name, old) in &seen.native.sets {
            let Some(new) = now.native.sets.get(name) else {
                self.put(&"gone");
                continue;
            };
            self.put(&(old.uid == new.uid, old.generation == new.generation));
            for (ordinal, pod) in &old.pods {
                self.put(&new.pods.get(ordinal).is_some_and(|now| now.uid == pod.uid));
            }
        }
        self.put(&(seen.status_version == now.status_version));
    }
}
