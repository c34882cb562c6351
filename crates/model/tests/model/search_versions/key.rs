//! What makes two states the same. Times count from now, and what is long ago is all the same; where the order of two times decides, the
//! order is part of the key.

use jiff::Timestamp;
use sts_plus_api::{Current, ExtendedStatefulSetStatus, PhasedRolloutStatus};
use sts_plus_model::versions::World;
use sts_plus_model::world::second;
use sts_plus_model::{Health, Set};

use super::{Node, worlds::WATCH};
use crate::explore::ages::{AGO, Ages, LONG_AGO};

pub struct Key {
    ages: Ages,
}

impl Key {
    /// Of a state in a search.
    pub fn of(node: &Node) -> u64 {
        let mut key = Self::new(node);
        key.ages.put(&node.left);
        key.ages.finish()
    }

    /// But for what may still happen.
    pub fn of_world(node: &Node) -> u64 {
        Self::new(node).ages.finish()
    }

    /// Of a world on its way to its end.
    pub fn of_end(world: &World) -> u64 {
        let mut key = Self { ages: Ages::at(world.native.now) };
        key.world(world, false);
        key.ages.finish()
    }

    fn new(node: &Node) -> Self {
        let mut key = Self { ages: Ages::at(node.world.native.now) };
        let has_faults = node.left.faults > 0;
        key.world(&node.world, has_faults);
        node.mind.put(&mut key.ages);
        if let Some(older) = node.mind.older.as_ref().filter(|_| has_faults) {
            older.put(&mut key.ages);
        }
        if let Some(kept) = &node.kept {
            if let Some(answer) = &kept.answer {
                key.ages.put(&(answer.request.index, &answer.request.revision));
                key.ages.put(&answer.records.first().map(|record| record.verdict as u8));
                key.ages.time(Some(answer.time), LONG_AGO);
            }
            key.world(&kept.world, false);
            kept.mind.put(&mut key.ages);
            key.is_same(&kept.world, &node.world);
        }
        key
    }

    fn world(&mut self, world: &World, with_older: bool) {
        self.owner(world);
        self.ages.put(&*world.kept);
        for (name, set) in &world.native.sets {
            self.ages.put(&world.marks.get(name));
            self.set(set, world.status.rollouts.get(name));
            if world.is_in_place() {
                let ledger = &world.native.ledger;
                self.ages.put(&ledger.good(name));
                set.ordinals().for_each(|ordinal| self.ages.put(&ledger.leaving(name, ordinal)));
            }
        }
        for service in [&world.active, &world.preview] {
            self.ages.put(&service.as_ref().map(|service| (&service.version, service.is_ours)));
        }
        self.ages.maybe_ago(world.wake, LONG_AGO);
        self.status(&world.status, world);
        if with_older {
            self.status(&world.older, world);
        }
    }

    fn owner(&mut self, world: &World) {
        let (owner, strategy) = (&world.owner, &world.owner.spec.update_strategy);
        self.ages.put(&(owner.template, owner.settings, owner.replicas(), owner.spec.paused, &owner.spec.az));
        self.ages.put(&(strategy.canaries, strategy.update_not_ready, &owner.annotations));
        self.ages.put(&(world.status.observed_generation == Some(owner.generation)));
    }

    fn set(&mut self, set: &Set, rollout: Option<&PhasedRolloutStatus>) {
        self.ages.put(&(&set.name, set.generation - set.status.observed_generation, set.generation > 1));
        self.ages.put(&(set.template, set.replicas, set.partition, set.parallel, &set.annotations));
        let status = &set.status;
        self.ages.put(&(&status.current, &status.update));
        self.ages.put(&(status.replicas, status.ready, status.current_replicas, status.updated_replicas));
        self.ages.put(&(&set.revisions, set.writer.is_some()));
        self.ages.put(&rollout.map(|rollout| rollout.target_uid.as_ref() == Some(&set.uid)));
        self.ages.ago(set.changed, 2);
        for refused in &set.refused {
            self.ages.put(&(&refused.name, second(refused.last) < set.changed));
            self.ages.time(Some(refused.since), i64::from(WATCH) + 2);
        }
        for (ordinal, pod) in &set.pods {
            self.ages.put(&(*ordinal, &pod.revision, pod.ready));
            self.ages.put(&match pod.health {
                Health::ReadyAfter(seconds) => (0_u8, seconds),
                Health::Crashing => (1, 0),
                Health::NeverReady => (2, 0),
            });
            let longest = if pod.ready { AGO } else { LONG_AGO };
            self.ages.ago(pod.since, longest);
            self.ages.ago(pod.created, longest);
            self.ages.maybe_ago(pod.gone_at, LONG_AGO);
            if let Some(rollout) = rollout {
                self.order(pod.created, rollout);
            }
        }
    }

    /// What decisions compare the time of a pod with.
    fn order(&mut self, created: i64, status: &PhasedRolloutStatus) {
        let mut is_younger = |time: Option<Timestamp>| {
            let is = time.is_some_and(|time| created > second(time));
            self.ages.put(&is);
        };
        is_younger(status.start_time);
        is_younger(status.remade_since);
        is_younger(status.current.as_ref().and_then(|current| current.since));
        for passed in &status.passed {
            is_younger(passed.since);
        }
    }

    fn status(&mut self, status: &ExtendedStatefulSetStatus, world: &World) {
        self.ages.put(&(status.phase as u8, status.current_version, status.update_version, status.last_version));
        self.ages.put(&(&status.versions, &status.retry, &status.services));
        self.ages.put(&(status.replicas, status.ready_replicas, &status.ready));
        self.ages.time(status.promotion_time, AGO);
        for detail in &status.details {
            self.ages.put(&(detail.version, &detail.hash, detail.stale, detail.replicas, detail.ready));
            for set in &detail.sets {
                let generation = world.native.sets.get(&set.name).map(|there| there.generation);
                self.ages.put(&(&set.name, set.generation == 0, Some(set.generation) == generation));
            }
        }
        for condition in &status.conditions {
            self.ages.put(&(&condition.type_, &condition.status, &condition.reason));
        }
        self.ages.put(&status.checks.last().map(|check| check.verdict as u8));
        if let Some(upgrade) = &status.upgrade {
            self.ages.put(&(upgrade.version, &upgrade.hash, upgrade.step as u8, upgrade.failures.min(3)));
            self.ages.put(&upgrade.reason.is_empty());
            self.ages.time(upgrade.since, i64::from(WATCH) + 2);
            self.ages.put(&upgrade.cycle.is_some());
            if let Some(cycle) = &upgrade.cycle {
                self.cycle(cycle, world);
            }
        }
        for (name, rollout) in &status.rollouts {
            self.ages.put(name);
            self.rollout(rollout, world);
        }
    }

    fn rollout(&mut self, status: &PhasedRolloutStatus, world: &World) {
        self.ages.put(&(&status.target, &status.target_revision, &status.previous_revision));
        self.ages.put(&(&status.verified_revision, &status.rejected_revisions, status.partition, &status.retry));
        self.ages.put(&(status.observed_generation == Some(world.owner.generation), status.phase as u8));
        self.ages.put(&(status.never_healthy, status.is_sealed()));
        self.ages.put(&(status.replicas, status.updated_replicas, status.ready_replicas));
        self.ages.put(&(status.completion_time.is_some(), &status.failure));
        self.ages.time(status.start_time, 2);
        self.ages.time(status.last_progress_time, i64::from(WATCH) + 2);
        self.ages.time(status.remade_since, 2);
        for passed in &status.passed {
            self.ages.put(&(&passed.revision, passed.index, passed.since.is_some()));
        }
        self.ages.put(&status.checks.last().map(|check| check.verdict as u8));
        self.ages.put(&status.current.is_some());
        if let Some(current) = &status.current {
            self.cycle(current, world);
        }
    }

    fn cycle(&mut self, current: &Current, world: &World) {
        let check = world.owner.spec.update_strategy.check.as_ref();
        self.ages.put(&current.index.min(3));
        self.ages.cycle(current, check.map_or(1, |check| check.max_tries.max(check.success_threshold)));
    }

    /// Which pods and sets that were seen are still the same ones.
    fn is_same(&mut self, seen: &World, now: &World) {
        for (name, old) in &seen.native.sets {
            let Some(new) = now.native.sets.get(name) else {
                self.ages.put(&"gone");
                continue;
            };
            self.ages.put(&(old.uid == new.uid, old.generation == new.generation));
            for (ordinal, pod) in &old.pods {
                self.ages.put(&new.pods.get(ordinal).is_some_and(|now| now.uid == pod.uid));
            }
        }
        self.ages.put(&(seen.status_version == now.status_version));
    }
}
