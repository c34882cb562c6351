//! The operator in this world: it carries plans out, with the guards of the real one, and can crash before any write.

use std::collections::BTreeSet;

use sts_plus_api::{ExtendedStatefulSetStatus, names};
use sts_plus_decide::{Action, NewPartition, VersionAction, VersionsPlan, decide_versions};
use sts_plus_model::world::{second, stamp};

use super::world::{Marks, World};

impl World {
    /// What is decided now, after a try if one is due. The same input must give the same plan.
    pub fn plan(&mut self) -> VersionsPlan {
        let decided = |world: &Self, tried| {
            let observed = world.observe(tried);
            let plan = decide_versions(&observed, stamp(world.native.now));
            assert_eq!(plan, decide_versions(&observed, stamp(world.native.now)), "the same input gave another plan");
            plan
        };
        let plan = decided(self, None);
        let Some(request) = &plan.check else { return plan };
        assert!(plan.actions.is_empty() && plan.events.is_empty(), "a try comes alone: {plan:?}");
        assert_eq!(plan.status, self.status, "a try comes alone");
        let tried = self.answer(request);
        self.native.asked += 1;
        self.note_try(&request.key.revision, &tried);
        let answered = decided(self, Some(tried));
        assert_eq!(answered.check, None, "an answer is followed by a step, not by a question: {self:?}");
        answered
    }

    /// One round. True if it had nothing to do and nothing new to say.
    pub fn round(&mut self) -> bool {
        self.round_until(usize::MAX)
    }

    /// A round in which the operator crashes after so many writes; the write of the status is the last one.
    pub fn round_until(&mut self, writes: usize) -> bool {
        let plan = self.plan();
        self.judge_status(&plan);
        let is_quiet = plan.actions.is_empty() && plan.events.is_empty() && plan.status == self.status;
        let mut status = plan.status.clone();
        for action in plan.actions.iter().take(writes) {
            if !self.carry_out(action, &mut status) {
                self.wake = Some(self.native.now);
                return false;
            }
        }
        if plan.actions.len() < writes {
            self.events.extend(plan.events.iter().map(|event| (event.reason, event.note.clone())));
            self.status = status;
            self.wake = plan.wake.map(second);
            self.judge_rest();
        } else {
            self.wake = Some(self.native.now);
        }
        is_quiet
    }

    /// One write. False if it is refused.
    fn carry_out(&mut self, action: &VersionAction, status: &mut ExtendedStatefulSetStatus) -> bool {
        let written = match action {
            VersionAction::Create { name, zone, version, replicas } => {
                self.judge_size(name, *replicas);
                assert!(!self.native.sets.contains_key(name), "{name} is there: {self:?}");
                self.write(name, zone.clone(), *version, *replicas, names::HOLD);
                name.clone()
            }
            VersionAction::Apply { name, zone, version, replicas, partition } => {
                self.judge_size(name, *replicas);
                self.write(name, zone.clone(), *version, *replicas, *partition);
                name.clone()
            }
            VersionAction::Scale { name, replicas, .. } => {
                self.judge_size(name, *replicas);
                let set = self.native.sets.get_mut(name).unwrap();
                assert_ne!(set.replicas, *replicas, "{name} is scaled to what it has");
                set.replicas = *replicas;
                self.touched(name);
                name.clone()
            }
            VersionAction::Mark { name, stale, .. } => {
                let marks = self.marks.get_mut(name).unwrap();
                assert_ne!(marks.stale, *stale, "{name} is marked as it is");
                marks.stale.clone_from(stale);
                name.clone()
            }
            VersionAction::Delete { name, .. } => {
                let set = self.native.sets.remove(name).unwrap();
                assert!(set.pods.is_empty() && set.replicas == 0, "{name} has pods: {self:?}");
                self.marks.remove(name);
                return true;
            }
            VersionAction::Roll(action) => match self.roll(action) {
                Some(name) => name,
                None => return false,
            },
            VersionAction::Remember { version } => {
                self.kept.entry(*version).or_insert((self.owner.hash.clone(), self.owner.settings.clone()));
                return true;
            }
            VersionAction::Forget { version } => {
                self.kept.remove(version).unwrap();
                return true;
            }
            other => panic!("not in place: {other:?}"),
        };
        let generation = self.native.sets.get(&written).map(|set| set.generation);
        let sets = status.details.iter_mut().flat_map(|detail| &mut detail.sets);
        sets.filter(|set| set.name == written).for_each(|set| set.generation = generation.unwrap_or(set.generation));
        true
    }

    /// Server-side apply of everything.
    fn write(&mut self, name: &str, zone: Option<String>, version: i32, replicas: i32, partition: i32) {
        let kept = self.kept.get(&version).filter(|(hash, _)| *hash != self.owner.hash);
        let (hash, settings) = kept.cloned().unwrap_or((self.owner.hash.clone(), self.owner.settings.clone()));
        self.judge_number(version, &hash);
        let template = self.template_number(version, &hash);
        let marks =
            Marks { zone, version, hash, settings, stale: self.marks.get(name).and_then(|marks| marks.stale.clone()) };
        if !self.native.sets.contains_key(name) {
            self.native.add_set(name, replicas, template);
            let set = self.native.sets.get_mut(name).unwrap();
            (set.partition, set.parallel) = (Some(partition), self.parallel);
            self.marks.insert(name.to_owned(), marks);
            self.ledger.good.remove(name);
            return;
        }
        let before = self.native.sets[name].clone();
        let set = self.native.sets.get_mut(name).unwrap();
        (set.template, set.replicas, set.partition) = (template, replicas, Some(partition));
        let is_same = before.template == template && before.replicas == replicas && before.partition == Some(partition);
        // After a crash the operator may write what is there: that is no write.
        self.marks.insert(name.to_owned(), marks);
        if !is_same {
            self.touched(name);
        }
        self.judge_partition(&before, name);
    }

    fn touched(&mut self, name: &str) {
        let now = self.native.now;
        let set = self.native.sets.get_mut(name).unwrap();
        set.generation += 1;
        set.changed = now;
    }

    /// A step of the rollout engine; the name of the StatefulSet.
    fn roll(&mut self, action: &Action) -> Option<String> {
        match action {
            Action::PatchSet { set: name, uid, generation, partition, annotations } => {
                let set = self.native.sets.get_mut(name)?;
                if set.uid != *uid || set.generation != *generation {
                    return None;
                }
                let before = set.clone();
                for (key, value) in annotations {
                    match value {
                        Some(value) => drop(set.annotations.insert((*key).to_owned(), value.clone())),
                        None => drop(set.annotations.remove(*key)),
                    }
                }
                match partition {
                    NewPartition::Keep => {}
                    NewPartition::Set(value) => set.partition = Some(*value),
                    NewPartition::Remove => set.partition = None,
                }
                if set.partition != before.partition {
                    self.touched(name);
                }
                self.judge_partition(&before, name);
                Some(name.clone())
            }
            Action::DeletePod { name, uid } => {
                let (set, ordinal) = name.rsplit_once('-').unwrap();
                let (set, ordinal) = (set.to_owned(), ordinal.parse().unwrap());
                self.judge_deletion(&set, ordinal);
                let gone_at = self.native.now + self.native.grace;
                let pod = self.native.sets.get_mut(&set)?.pods.get_mut(&ordinal)?;
                if pod.uid.to_string() == *uid {
                    pod.gone_at = Some(gone_at);
                }
                Some(set)
            }
            other => panic!("nothing to do with a StatefulSet: {other:?}"),
        }
    }

    /// Pods, controllers and the operator once. True if anything changed.
    pub fn turn(&mut self) -> bool {
        let changed = self.tick();
        !self.round() || changed
    }

    /// Pods and the StatefulSet controller once.
    pub fn tick(&mut self) -> bool {
        let mut changed = self.native.live();
        let sets: BTreeSet<String> = self.native.sets.keys().cloned().collect();
        for name in sets {
            changed |= self.sync(&name);
        }
        changed
    }

    /// To the next moment at which anything is due. False if nothing ever is.
    pub fn pass(&mut self) -> bool {
        let due = self.native.next_life().into_iter().chain(self.wake);
        let Some(next) = due.filter(|at| *at > self.native.now).min() else { return false };
        self.native.now = next;
        true
    }

    /// Until something is so, or nothing is due any more, or the time is up. True if it is so.
    pub fn run(&mut self, seconds: i64, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.native.now + seconds;
        while self.native.now <= end {
            let mut turns = 0;
            loop {
                if is_so(self) {
                    return true;
                }
                if !self.turn() {
                    break;
                }
                turns += 1;
                assert!(turns < 200, "it does not come to rest: {self:?}");
            }
            if !self.pass() {
                break;
            }
        }
        is_so(self)
    }

    pub fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        assert!(self.run(7200, is_so), "never {what}: {self:?}");
    }

    pub fn settle(&mut self) {
        self.run(7200, |_| false);
    }
}
