//! One write of the operator, with the guards of the real one.

use sts_plus_api::names;
use sts_plus_decide::{Action, NewPartition, VersionAction, claim};

use super::{
    Marks, World,
    operator::Look,
    world::{OWNER, number},
};
use crate::tale::{Deed, Who};

/// The name of the StatefulSet that was written, if it was one that stays. `None` if the write was refused.
type Written = Option<Option<String>>;

impl World {
    pub(super) fn carry_out(&mut self, action: &VersionAction, look: &Look) -> Written {
        match action {
            // Server-side apply without a guard: one that is there is written anew.
            VersionAction::Create { name, zone, version, replicas } => {
                self.write(name, zone.clone(), *version, *replicas, names::HOLD)
            }
            VersionAction::Apply { name, zone, version, replicas, partition } => {
                // UID and resourceVersion as they were read, if it was there.
                let is_as_seen = look.sets.get(name).is_none_or(|seen| *seen == self.resource_version(name));
                if is_as_seen { self.write(name, zone.clone(), *version, *replicas, *partition) } else { None }
            }
            VersionAction::Scale { name, uid, generation, replicas } => {
                let (now, set) = (self.native.now, self.native.sets.get_mut(name)?);
                if set.uid != *uid || set.generation != *generation {
                    return None;
                }
                if set.replicas != *replicas {
                    set.generation += 1;
                    (set.replicas, set.changed) = (*replicas, now);
                }
                self.native.tell(Deed::Lifecycle(format!("scales {name} to {replicas}")));
                Some(Some(name.clone()))
            }
            VersionAction::Mark { name, uid, stale } => {
                if self.native.sets.get(name)?.uid != *uid {
                    return None;
                }
                self.marks.get_mut(name)?.stale.clone_from(stale);
                self.native.tell(Deed::Lifecycle(format!("marks {name}: {stale:?}")));
                Some(Some(name.clone()))
            }
            VersionAction::Delete { name, uid } => {
                match self.native.sets.get(name) {
                    Some(set) if set.uid != *uid => return None,
                    Some(_) => {
                        self.native.sets.remove(name);
                        self.native.ledger.forget(name);
                        self.marks.remove(name);
                        self.native.tell(Deed::Lifecycle(format!("deletes {name}")));
                    }
                    None => {}
                }
                Some(None)
            }
            VersionAction::Remember { version } => {
                let (template, settings) = (self.owner.template, self.owner.settings);
                self.kept.entry(*version).or_insert((template, settings));
                Some(None)
            }
            VersionAction::Forget { version } => {
                self.kept.remove(version);
                Some(None)
            }
            VersionAction::Roll(action) => self.roll(action),
            VersionAction::Select { service, before, version } => {
                self.select(service, before.as_ref(), Some(&version.to_string()), look)
            }
            VersionAction::Free { service } => {
                let before = self.service(service).and_then(|found| found.version.clone());
                self.select(service, before.as_ref(), None, look)
            }
            // The life of the ExtendedStatefulSet itself is not in this model.
            VersionAction::AddFinalizer
            | VersionAction::RemoveFinalizer
            | VersionAction::Adopt { .. }
            | VersionAction::Orphan => {
                self.breaches.push(format!("nobody asked for it: {action:?}"));
                Some(None)
            }
        }
    }

    /// Everything of ours, made from the template that is kept for the version, else from that of the spec.
    fn write(&mut self, name: &str, zone: Option<String>, version: i32, replicas: i32, partition: i32) -> Written {
        if self.foreign.iter().any(|foreign| foreign == name) {
            return None;
        }
        let kept = self.kept.get(&version).filter(|(template, _)| *template != self.owner.template);
        let (template, settings) = kept.copied().unwrap_or((self.owner.template, self.owner.settings));
        let stale = self.marks.get(name).and_then(|marks| marks.stale.clone());
        let marks = Marks { zone, version, template, settings, stale };
        let wanted = number(version, template);
        let before = self.native.sets.get(name).map(|set| (set.template, set.replicas, set.partition));
        if before.is_none() {
            self.native.add_set(name, replicas, wanted);
        }
        let (now, parallel) = (self.native.now, self.parallel);
        let set = self.native.sets.get_mut(name)?;
        set.annotations.insert(names::CLAIM.to_owned(), claim(OWNER));
        (set.template, set.replicas, set.partition) = (wanted, replicas, Some(partition));
        (set.parallel, set.writer) = (parallel, None);
        if before.is_some_and(|before| before != (wanted, replicas, Some(partition))) {
            set.generation += 1;
            set.changed = now;
        }
        self.marks.insert(name.to_owned(), marks);
        self.behave();
        let held = if partition == names::HOLD { "the hold".to_owned() } else { format!("partition {partition}") };
        self.native.tell(Deed::Lifecycle(format!("writes {name}: version {version}, {replicas} pods, {held}")));
        Some(Some(name.to_owned()))
    }

    /// A step of the rollout engine.
    fn roll(&mut self, action: &Action) -> Written {
        match action {
            Action::PatchSet { set: name, uid, generation, partition, annotations } => {
                let (now, set) = (self.native.now, self.native.sets.get_mut(name)?);
                if set.uid != *uid || set.generation != *generation {
                    return None;
                }
                for (key, value) in annotations {
                    match value {
                        Some(value) => drop(set.annotations.insert((*key).to_owned(), value.clone())),
                        None => drop(set.annotations.remove(*key)),
                    }
                }
                let from = set.partition;
                match partition {
                    NewPartition::Keep => {}
                    NewPartition::Set(value) => set.partition = Some(*value),
                    NewPartition::Remove => set.partition = None,
                }
                let to = set.partition;
                if to != from {
                    set.generation += 1;
                    (set.changed, set.writer) = (now, None);
                    self.native.tell(Deed::Partition { set: name.clone(), from, to, who: Who::Operator });
                }
                Some(Some(name.clone()))
            }
            Action::DeletePod { name, uid } => {
                let (set, ordinal) = name.rsplit_once('-')?;
                let ordinal = ordinal.parse().ok()?;
                let is_it = |pod: &crate::Pod| pod.uid.to_string() == *uid;
                if let Some(mut found) = self.native.sets.remove(set) {
                    if found.pods.get(&ordinal).is_some_and(is_it) {
                        self.native.evict(&mut found, ordinal, Who::Operator);
                    }
                    self.native.sets.insert(set.to_owned(), found);
                }
                Some(None)
            }
            Action::AddFinalizer | Action::RemoveFinalizer | Action::ConsumeAnnotation(_) => {
                self.breaches.push(format!("nothing to do with a StatefulSet: {action:?}"));
                Some(None)
            }
        }
    }

    fn service(&mut self, name: &str) -> Option<&mut sts_plus_decide::ServiceView> {
        let services = [self.active.as_mut(), self.preview.as_mut()].into_iter().flatten();
        services.into_iter().find(|service| service.name == name)
    }

    fn select(&mut self, name: &str, before: Option<&String>, version: Option<&str>, look: &Look) -> Written {
        if !look.observed.owner.status.services.iter().any(|noted| noted == name) {
            self.breaches.push(format!("Service {name} is written and was not noted"));
        }
        let service = self.service(name)?;
        if service.version.as_ref() != before {
            return None;
        }
        (service.is_ours, service.version) = (version.is_some(), version.map(str::to_owned));
        self.native.tell(Deed::Lifecycle(format!("Service {name} selects {version:?}")));
        Some(None)
    }
}
