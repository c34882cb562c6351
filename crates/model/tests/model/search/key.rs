//! What makes two states the same. Times count from now, and what is long ago is all the same; where the order of two times decides, the
//! order is part of the key.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use sts_plus_api::PhasedRolloutStatus;
use sts_plus_model::world::{ROLLOUT, SET, second};
use sts_plus_model::{Rollout, Set, World};

use super::moves::Node;

/// A pod that is not Ready is broken after 60 s, and an answer is stale after a period and 60 s.
const LONG_AGO: i64 = 70;
/// Of all else a few periods are enough.
const AGO: i64 = 12;

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
        let mut key = Self { hasher: DefaultHasher::new(), now: world.now };
        key.world(world, false);
        key.hasher.finish()
    }

    fn new(node: &Node) -> Self {
        let mut key = Self { hasher: DefaultHasher::new(), now: node.world.now };
        let has_faults = node.left.faults > 0;
        key.world(&node.world, has_faults);
        key.ledger(&node.world);
        key.mind(&node.mind);
        if let Some(older) = node.mind.older.as_ref().filter(|_| has_faults) {
            key.mind(older);
        }
        if let Some(kept) = &node.kept {
            key.put(&kept.answer.as_ref().map(|answer| (answer.request.index, answer.request.revision.clone())));
            key.put(&kept.answer.as_ref().map(|answer| format!("{:?}", answer.records.first().map(|one| one.verdict))));
            if let Some(answer) = &kept.answer {
                key.time(Some(answer.time), LONG_AGO);
            }
            key.world(&kept.world, false);
            key.mind(&kept.mind);
            key.is_same(&kept.world, &node.world);
        }
        key
    }

    fn put(&mut self, value: &impl Hash) {
        value.hash(&mut self.hasher);
    }

    fn ago(&mut self, at: i64, longest: i64) {
        let ago = (at - self.now).clamp(-longest, longest);
        self.put(&ago);
    }

    fn time(&mut self, time: Option<Timestamp>, longest: i64) {
        self.put(&time.is_some());
        if let Some(time) = time {
            self.ago(second(time), longest);
        }
    }

    fn world(&mut self, world: &World, with_older: bool) {
        self.put(&world.quota);
        match world.sets.get(SET) {
            Some(set) => self.set(set, world.rollouts.get(ROLLOUT)),
            None => self.put(&"no set"),
        }
        match world.rollouts.get(ROLLOUT) {
            Some(own) => self.rollout(own, world, with_older),
            None => self.put(&"no rollout"),
        }
    }

    fn set(&mut self, set: &Set, own: Option<&Rollout>) {
        self.put(&(set.generation - set.status.observed_generation, set.template, set.replicas, set.partition));
        self.put(&set.annotations);
        let status = &set.status;
        self.put(&(&status.current, &status.update));
        self.put(&(status.replicas, status.ready, status.current_replicas, status.updated_replicas));
        self.put(&(&set.revisions, set.writer.is_some()));
        self.ago(set.changed, 2);
        for refused in &set.refused {
            self.put(&(&refused.name, &refused.message, second(refused.last) < set.changed));
            self.time(Some(refused.since), AGO);
        }
        for (ordinal, pod) in &set.pods {
            self.put(&(*ordinal, &pod.revision, pod.ready));
            self.put(&format_args_health(pod.health));
            let longest = if pod.ready { AGO } else { LONG_AGO };
            self.ago(pod.since, longest);
            self.ago(pod.created, longest);
            self.put(&pod.gone_at.is_some());
            self.ago(pod.gone_at.unwrap_or(self.now), LONG_AGO);
            if let Some(own) = own {
                self.order(pod.created, &own.status);
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

    fn rollout(&mut self, own: &Rollout, world: &World, with_older: bool) {
        let spec = &own.spec;
        self.put(&(own.deleting, own.finalizer, &own.annotations, own.misconfigured));
        self.put(&(&spec.target_ref, spec.skip_check, spec.paused, &spec.pause_before));
        self.put(&(spec.check.success_threshold, spec.check.on_failure, spec.deletion_policy.is_some()));
        self.put(&format_args_policy(spec.deletion_policy));
        self.put(&own.wake.is_some());
        self.ago(own.wake.unwrap_or(self.now), LONG_AGO);
        self.status(own, &own.status, world);
        if with_older {
            self.status(own, &own.older, world);
        }
    }

    fn status(&mut self, own: &Rollout, status: &PhasedRolloutStatus, world: &World) {
        let is_same_set = world.sets.get(SET).map(|set| Some(&set.uid) == status.target_uid.as_ref());
        self.put(&(is_same_set, &status.target, &status.target_revision, &status.previous_revision));
        self.put(&(&status.verified_revision, &status.rejected_revisions, status.partition, &status.retry));
        self.put(&(status.observed_generation.is_some(), status.phase as u8, status.never_healthy));
        self.put(&(status.replicas, status.updated_replicas, status.ready_replicas));
        self.put(&(status.completion_time.is_some(), &status.failure));
        self.time(status.start_time, 2);
        self.time(status.last_progress_time, AGO);
        self.time(status.remade_since, 2);
        for passed in &status.passed {
            self.put(&(&passed.revision, passed.index, passed.since.is_some()));
        }
        self.put(&status.checks.last().map(|check| check.verdict as u8));
        for condition in &status.conditions {
            if ["Ready", "RolledOut", "Reconciling"].contains(&condition.type_.as_str()) {
                self.put(&(&condition.status, &condition.reason));
            }
        }
        if let Some(current) = &status.current {
            // More passes, or more refusals, than any of these worlds needs are as good as just enough.
            let most = own.spec.check.max_tries.max(own.spec.check.success_threshold);
            let refusals = (current.tries - current.consecutive_passes).min(most);
            let passes = current.consecutive_passes.min(most);
            self.put(&(current.index, current.step as u8, refusals, passes, current.failed));
            self.put(&(&current.check, current.problem.is_some()));
            self.time(current.since, AGO);
            self.time(current.broken_since, AGO);
            self.time(current.last_check_time, LONG_AGO);
            self.time(current.next_check_time, AGO);
        }
    }

    fn ledger(&mut self, world: &World) {
        let ledger = &world.ledger;
        self.put(&(ledger.good(SET), ledger.streak(SET), ledger.approved(SET)));
        for ordinal in world.sets.get(SET).into_iter().flat_map(Set::ordinals) {
            self.put(&ledger.leaving(SET, ordinal));
        }
    }

    fn mind(&mut self, mind: &super::laws::Mind) {
        self.put(&(
            &mind.approved,
            mind.answers,
            mind.is_refused,
            mind.paused,
            &mind.gone_back,
            &mind.ours,
            mind.check,
        ));
        for pass in &mind.passes {
            self.ago(*pass, LONG_AGO);
        }
        self.put(&mind.ill_since.is_some());
        self.ago(mind.ill_since.unwrap_or(self.now), AGO);
    }

    /// Which pods and sets that were seen are still the same ones.
    fn is_same(&mut self, seen: &World, now: &World) {
        let (Some(old), Some(new)) = (seen.sets.get(SET), now.sets.get(SET)) else { return };
        self.put(&(old.uid == new.uid, old.generation == new.generation));
        let is_same = |ordinal: &i32, uid: u64| new.pods.get(ordinal).is_some_and(|pod| pod.uid == uid);
        for (ordinal, pod) in &old.pods {
            self.put(&is_same(ordinal, pod.uid));
        }
        let version = |world: &World| world.rollouts.get(ROLLOUT).map(|own| own.version);
        self.put(&(version(seen) == version(now)));
    }
}

fn format_args_health(health: sts_plus_model::Health) -> (u8, i64) {
    match health {
        sts_plus_model::Health::ReadyAfter(seconds) => (0, seconds),
        sts_plus_model::Health::Crashing => (1, 0),
        sts_plus_model::Health::NeverReady => (2, 0),
    }
}

fn format_args_policy(policy: Option<sts_plus_api::DeletionPolicy>) -> Option<u8> {
    policy.map(|policy| policy as u8)
}
