//! The operator: it observes, asks the shipped `decide`, and applies the plan with the guards of the real one (UID and generation
//! of a set, UID of a pod). It can be stopped before any write, and it can look at an old picture.

use sts_plus_api::{PhasedRolloutStatus, Reason, names};
use sts_plus_decide::{
    Action, ConfigProblem, EventTarget, HoldState, NewPartition, Observed, Plan, PodView, Problem, Rival, RolloutView,
    SetView, Target, Try, decide,
};

use crate::{
    prometheus::outcome,
    tale::{Deed, Who},
    world::{Health, Pod, Rollout, Set, World, second, stamp},
};

/// How far a run of the operator gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It does all it planned.
    Never,
    /// It crashes before the write with this number, counted from 0.
    Before(usize),
}

impl World {
    /// What the operator of `rollout` sees; `None` if the object is gone.
    #[must_use]
    pub fn observe(&self, rollout: &str) -> Option<Observed> {
        let own = self.rollouts.get(rollout)?;
        let target = self.sets.get(&own.spec.target_ref);
        let claims =
            |set: &&Set| set.name != own.spec.target_ref && set.annotations.get(names::CLAIM) == Some(&own.name);
        let is_shared =
            |target: &String| *target == own.spec.target_ref || self.sets.get(target).is_some_and(|set| claims(&set));
        let rivals = self
            .rollouts
            .values()
            .filter(|other| other.name != own.name && is_shared(&other.spec.target_ref) && !other.deleting);
        let rival = |other: &Rollout| Rival {
            name: other.name.clone(),
            target: other.spec.target_ref.clone(),
            created: stamp(other.created),
        };
        let problem =
            ConfigProblem { reason: Reason::InvalidQuery, message: "spec.check.query.expr: parse error".into() };
        Some(Observed {
            rollout: self.rollout_view(own),
            rivals: rivals.map(rival).collect(),
            target: target.map_or(Target::Missing, |set| Target::Found(Box::new(set_view(set)))),
            former_targets: self.sets.values().filter(claims).map(set_view).collect(),
            pods: target.map(|set| self.pod_views(set)).unwrap_or_default(),
            config: own.misconfigured.then_some(problem).into_iter().collect(),
            hold: if self.refuses {
                HoldState::Refusing
            } else if self.policy {
                HoldState::Enforced
            } else {
                HoldState::NotEnforced(Reason::PolicyNotServed, "no policy".into())
            },
            tried: None,
        })
    }

    #[allow(clippy::unused_self, reason = "reads as its siblings")]
    fn rollout_view(&self, own: &Rollout) -> RolloutView {
        RolloutView {
            name: own.name.clone(),
            namespace: "ns".into(),
            uid: format!("uid-{}", own.name),
            generation: own.generation,
            created: stamp(own.created),
            deleting: own.deleting,
            has_finalizer: own.finalizer,
            annotations: own.annotations.clone(),
            spec: (*own.spec).clone(),
            status: (*own.status).clone(),
        }
    }

    /// What an operator sees of the pods of a set.
    #[must_use]
    pub fn pod_views(&self, set: &Set) -> Vec<PodView> {
        set.pods.iter().map(|(ordinal, pod)| self.pod_view(set, *ordinal, pod)).collect()
    }

    fn pod_view(&self, set: &Set, ordinal: i32, pod: &Pod) -> PodView {
        let problem = Problem { container: "app".into(), reason: "CrashLoopBackOff".into(), message: "exit 1".into() };
        PodView {
            name: set.pod_name(ordinal),
            uid: pod.uid.to_string(),
            ordinal,
            revision: Some(pod.revision.clone()),
            created: stamp(pod.created),
            deleting: pod.gone_at.is_some(),
            gone_by: pod.gone_at.map(stamp),
            finished: false,
            ready: pod.ready,
            ready_since: Some(stamp(pod.since)),
            problem: pod.is_stuck(self.now).then_some(problem),
            node: Some("node".into()),
            zone: None,
            version: None,
        }
    }

    /// One run for `rollout` on what is true now. Gives the number of writes that were made.
    pub fn operate(&mut self, rollout: &str, stop: Stop) -> usize {
        let Some(observed) = self.observe(rollout) else { return 0 };
        self.operate_on(rollout, observed, stop)
    }

    /// One run for `rollout` that sees everything as it is but the status as it was before the last write.
    pub fn operate_with_old_status(&mut self, rollout: &str) -> usize {
        let Some(mut observed) = self.observe(rollout) else { return 0 };
        if let Some(own) = self.rollouts.get(rollout) {
            observed.rollout.status = (*own.older).clone();
        }
        self.operate_on(rollout, observed, Stop::Never)
    }

    /// Asks what is due now; the answer is for a later run. `None` if nothing is.
    pub fn question(&mut self, rollout: &str) -> Option<Try> {
        let request = decide(&self.observe(rollout)?, stamp(self.now)).check?;
        self.asked += 1;
        Some(self.ask(&request, Vec::new()))
    }

    /// One run for `rollout` on `observed`, which may be an old picture.
    pub fn operate_on(&mut self, rollout: &str, mut observed: Observed, stop: Stop) -> usize {
        let mut plan = decide(&observed, stamp(self.now));
        if let Some(request) = plan.check.take() {
            let tried = self.ask(&request, Vec::new());
            self.asked += 1;
            let cycle = format!("{:?} {} at {}", request.key.step, request.key.index, request.key.revision);
            self.tell(Deed::Checked(cycle, outcome(&tried)));
            observed.tried = Some(tried);
            plan = decide(&observed, stamp(self.now));
        }
        let wrote = self.counted(rollout, &observed, &plan, stop);
        let now = self.now;
        if let Some(own) = self.rollouts.get_mut(rollout) {
            let done = wrote.is_some();
            own.wake = if done { plan.wake.map(|wake| second(wake).max(now)) } else { Some(now + 1) };
            if done {
                // The run saw the world before its own writes; those to other objects wake it again, its own status does not.
                observed.rollout.status = PhasedRolloutStatus::default();
                observed.tried = None;
                own.seen = Some(observed.into());
            }
        }
        wrote.unwrap_or_default()
    }

    /// Applies, and has the rules count the try that the plan stands on.
    fn counted(&mut self, rollout: &str, observed: &Observed, plan: &Plan, stop: Stop) -> Option<usize> {
        let Some(tried) = &observed.tried else { return self.apply(rollout, observed, plan, stop) };
        let set = observed.rollout.spec.target_ref.as_str();
        let (_, before) = self.ledger.streak(set);
        let passed = tried.records.iter().all(|record| record.passed);
        if passed {
            self.note_try(observed, tried);
        }
        let wrote = self.apply(rollout, observed, plan, stop);
        match wrote {
            None => {
                let (_, streak) = self.ledger.streak(set);
                self.ledger.recount(set, before.min(streak));
            }
            Some(_) if !passed => self.note_try(observed, tried),
            Some(_) => {}
        }
        wrote
    }

    /// Writes what was planned, in its order. `None` if it crashed or a write was refused.
    fn apply(&mut self, rollout: &str, observed: &Observed, plan: &Plan, stop: Stop) -> Option<usize> {
        let mut wrote = 0;
        for action in &plan.actions {
            self.may_write(wrote, stop)?;
            if !self.act(rollout, observed, action) {
                self.tell(Deed::Refused);
                return None;
            }
            wrote += 1;
        }
        for event in &plan.events {
            self.may_write(wrote, stop)?;
            let on = if event.on == EventTarget::Set { "STS" } else { "PR" };
            self.tell(Deed::Event(on, event.reason.to_string(), event.note.clone()));
            wrote += 1;
        }
        // The object is gone with its finalizer; its events were told all the same.
        if self.rollouts.contains_key(rollout) && observed.rollout.status != plan.status {
            self.may_write(wrote, stop)?;
            if !self.write_status(rollout, observed, plan) {
                self.tell(Deed::Refused);
                return None;
            }
            wrote += 1;
        }
        Some(wrote)
    }

    /// The status, refused if somebody else wrote it since it was read.
    fn write_status(&mut self, rollout: &str, observed: &Observed, plan: &Plan) -> bool {
        let Some(own) = self.rollouts.get_mut(rollout) else { return false };
        if *own.status != observed.rollout.status {
            return false;
        }
        own.older = std::mem::replace(&mut own.status, plan.status.clone().into());
        own.version += 1;
        self.judge_status(observed, &plan.status);
        let ready = plan.status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let reason = ready.map(|condition| condition.reason.clone()).unwrap_or_default();
        let phase = format!("{:?}", plan.status.phase);
        self.tell(Deed::Status(phase, reason, plan.status.message.clone()));
        true
    }

    fn may_write(&mut self, wrote: usize, stop: Stop) -> Option<()> {
        if stop == Stop::Before(wrote) {
            self.tell(Deed::Crashed);
            return None;
        }
        Some(())
    }

    /// One write. False if it was refused.
    fn act(&mut self, rollout: &str, observed: &Observed, action: &Action) -> bool {
        match action {
            Action::AddFinalizer => self.on_rollout(rollout, "adds the finalizer", |own| own.finalizer = true),
            Action::RemoveFinalizer => {
                self.tell(Deed::Lifecycle("removes the finalizer".into()));
                self.rollouts.remove(rollout).is_some()
            }
            Action::ConsumeAnnotation(name) => {
                self.on_rollout(rollout, &format!("removes {name}"), |own| drop(own.annotations.remove(*name)))
            }
            Action::PatchSet { set, uid, generation, partition, annotations } => {
                let Some(found) = self.sets.get_mut(set) else { return false };
                if found.uid != *uid || found.generation != *generation {
                    // O12: the test on the generation fails, HTTP 422.
                    return false;
                }
                let before = found.clone();
                for (name, value) in annotations {
                    match value {
                        Some(value) => drop(found.annotations.insert((*name).to_owned(), value.clone())),
                        None => drop(found.annotations.remove(*name)),
                    }
                }
                match partition {
                    NewPartition::Keep => {}
                    NewPartition::Set(value) => found.partition = Some(*value),
                    NewPartition::Remove => found.partition = None,
                }
                self.patched(observed, &before);
                true
            }
            Action::DeletePod { name, uid } => self.delete_by_uid(observed, name, uid),
        }
    }

    fn patched(&mut self, observed: &Observed, before: &Set) {
        let Some(after) = self.sets.get_mut(&before.name) else { return };
        if after.partition == before.partition {
            if after.annotations != before.annotations {
                self.tell(Deed::Annotated(before.name.clone()));
            }
            return;
        }
        after.generation += 1;
        after.changed = self.now;
        after.writer = None;
        let (set, from, to) = (after.name.clone(), before.partition, after.partition);
        self.tell(Deed::Partition { set, from, to, who: Who::Operator });
        self.judge_step(observed, before);
    }

    fn delete_by_uid(&mut self, observed: &Observed, name: &str, uid: &str) -> bool {
        let Target::Found(target) = &observed.target else { return false };
        let Some(mut set) = self.sets.remove(&target.name) else { return false };
        let ordinal = set.pods.iter().find(|(o, pod)| set.pod_name(**o) == name && pod.uid.to_string() == uid);
        let ordinal = ordinal.map(|(ordinal, _)| *ordinal);
        if let Some(ordinal) = ordinal {
            self.judge_delete(&set, ordinal);
            self.evict(&mut set, ordinal, Who::Operator);
        }
        self.sets.insert(set.name.clone(), set);
        // One that is gone is as good as deleted; one of the same name with another UID is not touched.
        true
    }

    fn on_rollout(&mut self, rollout: &str, what: &str, change: impl FnOnce(&mut Rollout)) -> bool {
        self.tell(Deed::Lifecycle(what.to_owned()));
        self.rollouts.get_mut(rollout).map(change).is_some()
    }
}

/// What an operator sees of a set.
#[must_use]
pub fn set_view(set: &Set) -> SetView {
    SetView {
        name: set.name.clone(),
        uid: set.uid.clone(),
        generation: set.generation,
        observed_generation: set.status.observed_generation,
        deleting: false,
        annotations: set.annotations.clone(),
        replicas: set.replicas,
        start: set.start,
        strategy: set.strategy.clone(),
        has_rolling_update: set.partition.is_some(),
        partition: set.partition,
        parallel: set.parallel,
        min_ready_seconds: set.min_ready,
        current_revision: set.status.current.clone(),
        update_revision: set.status.update.clone(),
        controller: None,
        partition_manager: set.writer.clone(),
        changed: Some(stamp(set.changed)),
        refused_pods: set.refused.clone(),
        in_the_way: None,
    }
}

impl Pod {
    /// Breaks: no longer Ready, and it will not be again by itself.
    pub fn break_down(&mut self, now: i64) {
        (self.health, self.ready, self.since) = (Health::Crashing, false, now);
    }
}
