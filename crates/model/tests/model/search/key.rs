//! What makes two states the same. Times count from now, and what is long ago is all the same; where the order of two times decides, the
//! order is part of the key.

use jiff::Timestamp;
use sts_plus_api::PhasedRolloutStatus;
use sts_plus_model::world::{ROLLOUT, SET, second};
use sts_plus_model::{Rollout, Set, World};

use super::Node;
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
        let mut key = Self { ages: Ages::at(world.now) };
        key.world(world, false);
        key.ages.finish()
    }

    fn new(node: &Node) -> Self {
        let mut key = Self { ages: Ages::at(node.world.now) };
        let has_faults = node.left.faults > 0;
        key.world(&node.world, has_faults);
        key.ledger(&node.world);
        key.mind(&node.mind);
        if let Some(older) = node.mind.older.as_ref().filter(|_| has_faults) {
            key.mind(older);
        }
        if let Some(kept) = &node.kept {
            key.ages.put(&kept.answer.as_ref().map(|answer| (answer.request.index, answer.request.revision.clone())));
            key.ages.put(
                &kept.answer.as_ref().map(|answer| format!("{:?}", answer.records.first().map(|one| one.verdict))),
            );
            if let Some(answer) = &kept.answer {
                key.ages.time(Some(answer.time), LONG_AGO);
            }
            key.world(&kept.world, false);
            key.mind(&kept.mind);
            key.is_same(&kept.world, &node.world);
        }
        key
    }

    fn world(&mut self, world: &World, with_older: bool) {
        self.ages.put(&world.quota);
        match world.sets.get(SET) {
            Some(set) => self.set(set, world.rollouts.get(ROLLOUT)),
            None => self.ages.put(&"no set"),
        }
        match world.rollouts.get(ROLLOUT) {
            Some(own) => self.rollout(own, world, with_older),
            None => self.ages.put(&"no rollout"),
        }
    }

    fn set(&mut self, set: &Set, own: Option<&Rollout>) {
        self.ages.put(&(set.generation - set.status.observed_generation, set.template, set.replicas, set.partition));
        self.ages.put(&set.annotations);
        let status = &set.status;
        self.ages.put(&(&status.current, &status.update));
        self.ages.put(&(status.replicas, status.ready, status.current_replicas, status.updated_replicas));
        self.ages.put(&(&set.revisions, set.writer.is_some()));
        self.ages.ago(set.changed, 2);
        for refused in &set.refused {
            self.ages.put(&(&refused.name, &refused.message, second(refused.last) < set.changed));
            self.ages.time(Some(refused.since), AGO);
        }
        for (ordinal, pod) in &set.pods {
            self.ages.put(&(*ordinal, &pod.revision, pod.ready));
            self.ages.put(&format_args_health(pod.health));
            let longest = if pod.ready { AGO } else { LONG_AGO };
            self.ages.ago(pod.since, longest);
            self.ages.ago(pod.created, longest);
            self.ages.maybe_ago(pod.gone_at, LONG_AGO);
            if let Some(own) = own {
                self.order(pod.created, &own.status);
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

    fn rollout(&mut self, own: &Rollout, world: &World, with_older: bool) {
        let spec = &own.spec;
        self.ages.put(&(own.deleting, own.finalizer, &own.annotations, own.misconfigured));
        self.ages.put(&(&spec.target_ref, spec.skip_check, spec.paused, &spec.pause_before));
        self.ages.put(&(spec.check.success_threshold, spec.check.on_failure, spec.deletion_policy.is_some()));
        self.ages.put(&format_args_policy(spec.deletion_policy));
        self.ages.maybe_ago(own.wake, LONG_AGO);
        self.status(own, &own.status, world);
        if with_older {
            self.status(own, &own.older, world);
        }
    }

    fn status(&mut self, own: &Rollout, status: &PhasedRolloutStatus, world: &World) {
        let is_same_set = world.sets.get(SET).map(|set| Some(&set.uid) == status.target_uid.as_ref());
        self.ages.put(&(is_same_set, &status.target, &status.target_revision, &status.previous_revision));
        self.ages.put(&(&status.verified_revision, &status.rejected_revisions, status.partition, &status.retry));
        self.ages.put(&(status.observed_generation.is_some(), status.phase as u8, status.never_healthy));
        self.ages.put(&(status.replicas, status.updated_replicas, status.ready_replicas));
        self.ages.put(&(status.completion_time.is_some(), &status.failure));
        self.ages.time(status.start_time, 2);
        let longest = if own.spec.progress_deadline_seconds.is_some() { LONG_AGO } else { AGO };
        self.ages.time(status.last_progress_time, longest);
        self.ages.time(status.remade_since, 2);
        for passed in &status.passed {
            self.ages.put(&(&passed.revision, passed.index, passed.since.is_some()));
        }
        self.ages.put(&status.checks.last().map(|check| check.verdict as u8));
        for condition in &status.conditions {
            if ["Ready", "RolledOut", "Reconciling"].contains(&condition.type_.as_str()) {
                self.ages.put(&(&condition.status, &condition.reason));
            }
        }
        if let Some(current) = &status.current {
            self.ages.put(&current.index);
            self.ages.cycle(current, own.spec.check.max_tries.max(own.spec.check.success_threshold));
        }
    }

    fn ledger(&mut self, world: &World) {
        let ledger = &world.ledger;
        self.ages.put(&(ledger.good(SET), ledger.streak(SET), ledger.approved(SET)));
        for ordinal in world.sets.get(SET).into_iter().flat_map(Set::ordinals) {
            self.ages.put(&ledger.leaving(SET, ordinal));
        }
    }

    fn mind(&mut self, mind: &super::laws::Mind) {
        self.ages.put(&(
            &mind.approved,
            mind.answers,
            mind.is_refused,
            mind.paused,
            &mind.gone_back,
            &mind.ours,
            mind.check,
        ));
        for pass in &mind.passes {
            self.ages.ago(*pass, LONG_AGO);
        }
        self.ages.maybe_ago(mind.ill_since, AGO);
        self.ages.put(&mind.by_hand);
        self.ages.maybe_ago(mind.moved, LONG_AGO);
    }

    /// Which pods and sets that were seen are still the same ones.
    fn is_same(&mut self, seen: &World, now: &World) {
        let (Some(old), Some(new)) = (seen.sets.get(SET), now.sets.get(SET)) else { return };
        self.ages.put(&(old.uid == new.uid, old.generation == new.generation));
        let is_same = |ordinal: &i32, uid: u64| new.pods.get(ordinal).is_some_and(|pod| pod.uid == uid);
        for (ordinal, pod) in &old.pods {
            self.ages.put(&is_same(ordinal, pod.uid));
        }
        let version = |world: &World| world.rollouts.get(ROLLOUT).map(|own| own.version);
        self.ages.put(&(version(seen) == version(now)));
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
