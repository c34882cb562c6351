//! The operator: it observes, asks the shipped `decide_versions`, and carries out the plan with the guards of the real one. It can be stopped
//! before any write, and it can act on an old look.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sts_plus_decide::{CheckRequest, ChildView, PodView, Try, VersionsObserved, VersionsPlan, decide_versions};

use super::{
    Owner, World,
    world::{number, version_of},
};
use crate::{
    operator::{Stop, set_view},
    prometheus::outcome,
    tale::Deed,
    world::{Set, second, stamp, template_of},
};

/// What was seen, and what the guards of writes compare with.
#[derive(Clone, Debug)]
pub struct Look {
    /// What is decided on.
    pub observed: VersionsObserved,
    /// `metadata.resourceVersion` of each StatefulSet.
    pub(super) sets: BTreeMap<String, u64>,
    /// That of the ExtendedStatefulSet, as far as its status is concerned.
    pub(super) status_version: u64,
}

impl World {
    /// What the operator sees.
    #[must_use]
    pub fn observe(&self) -> VersionsObserved {
        let template = self.owner.template;
        let problem = self.refused.contains(&template).then(|| format!("no such field in template {template}"));
        VersionsObserved {
            owner: self.owner.view(&self.status),
            template: self.owner.template_view(problem),
            children: self.native.sets.values().filter_map(|set| self.child(set)).collect(),
            kept: self.kept.iter().map(|(version, (kept, _))| (*version, Owner::hash(*kept))).collect(),
            orphans: Vec::new(),
            abandoned: Vec::new(),
            foreign: self.foreign.clone(),
            active: self.active.clone(),
            preview: self.preview.clone(),
            former: Vec::new(),
            keeps_children: false,
            serves_policies: true,
            config: Vec::new(),
            empty_zones: self.closed_zones.clone(),
            tried: None,
        }
    }

    fn child(&self, set: &Set) -> Option<ChildView> {
        let marks = self.marks.get(&set.name)?;
        let version = |pod: &PodView| pod.revision.as_deref().map(version_of);
        let pods = self.native.pod_views(set).into_iter().map(|pod| PodView { version: version(&pod), ..pod });
        let mut refused: Vec<_> = set.refused.iter().collect();
        refused.sort_by(|a, b| a.name.cmp(&b.name));
        Some(ChildView {
            name: set.name.clone(),
            uid: set.uid.clone(),
            zone: marks.zone.clone(),
            version: marks.version,
            hash: Owner::hash(marks.template),
            settings: format!("s{}", marks.settings),
            generation: set.generation,
            deleting: false,
            replicas: set.replicas,
            min_ready_seconds: set.min_ready,
            selector: "app=web".into(),
            stale: marks.stale.clone(),
            pods: pods.collect(),
            refused: refused.first().map(|refused| (*refused).clone()),
            changed: Some(stamp(set.changed)),
            in_the_way: None,
            mislabelled: None,
            set: self.is_in_place().then(|| Box::new(set_view(set))),
        })
    }

    /// A look at everything.
    #[must_use]
    pub fn look(&self) -> Look {
        let sets = self.native.sets.keys().map(|name| (name.clone(), self.resource_version(name))).collect();
        Look { observed: self.observe(), sets, status_version: self.status_version }
    }

    /// What is another one after every write of the StatefulSet, by whomever.
    pub(super) fn resource_version(&self, name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(set) = self.native.sets.get(name) {
            let status = &set.status;
            (&set.uid, set.generation, &set.annotations, self.marks.get(name)).hash(&mut hasher);
            (status.observed_generation, &status.current, &status.update).hash(&mut hasher);
            (status.replicas, status.ready, status.current_replicas, status.updated_replicas).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// One run on what is true now. Gives the number of writes that were made.
    pub fn operate(&mut self, stop: Stop) -> usize {
        let look = self.look();
        self.operate_on(look, stop)
    }

    /// One run that sees everything as it is but the status as it was before the last write.
    pub fn operate_with_old_status(&mut self) -> usize {
        let mut look = self.look();
        look.observed.owner.status = (*self.older).clone();
        look.status_version = self.status_version.wrapping_sub(1);
        self.operate_on(look, Stop::Never)
    }

    /// Asks what is due now; the answer is for a later run. `None` if nothing is.
    pub fn question(&mut self) -> Option<Try> {
        let request = decide_versions(&self.observe(), stamp(self.native.now)).check?;
        Some(self.answer(&request))
    }

    fn answer(&mut self, request: &CheckRequest) -> Try {
        let revision = &request.key.revision;
        // Side by side it is the digest of the version on its way that is asked about.
        let asked = match self.status.upgrade.as_ref().filter(|_| !self.is_in_place()) {
            Some(upgrade) => number(upgrade.version, Owner::template_of_hash(revision)),
            None => template_of(revision),
        };
        let tried = self.native.ask_about(request, asked, Vec::new());
        self.native.asked += 1;
        let cycle = format!("{:?} {} at {revision}", request.key.step, request.key.index);
        self.native.tell(Deed::Checked(cycle, outcome(&tried)));
        tried
    }

    /// One run on `look`, which may be an old one.
    pub fn operate_on(&mut self, mut look: Look, stop: Stop) -> usize {
        let now = stamp(self.native.now);
        let mut plan = decide_versions(&look.observed, now);
        if let Some(request) = plan.check.take() {
            if !plan.actions.is_empty() || !plan.events.is_empty() || plan.status != look.observed.owner.status {
                self.breaches.push(format!("a try comes alone: {:?}", plan.actions));
            }
            look.observed.tried = Some(self.answer(&request));
            plan = decide_versions(&look.observed, now);
            if plan.check.is_some() {
                self.breaches.push("an answer is followed by a question".to_owned());
            }
        }
        let wrote = self.apply(&look, &plan, stop);
        self.wake = match wrote {
            Some(_) => plan.wake.map(|wake| second(wake).max(self.native.now)),
            None => Some(self.native.now + 1),
        };
        if wrote.is_some() {
            // The run saw the world before its own writes; those to other objects wake it again, its own status does not.
            look.observed.tried = None;
            self.seen = Some(look.observed.into());
        }
        wrote.unwrap_or_default()
    }

    /// Writes what was planned, in its order. `None` if it crashed or a write was refused.
    fn apply(&mut self, look: &Look, plan: &VersionsPlan, stop: Stop) -> Option<usize> {
        let mut wrote = 0;
        let mut status = plan.status.clone();
        for action in &plan.actions {
            self.may_write(wrote, stop)?;
            let Some(written) = self.carry_out(action, look) else {
                self.native.tell(Deed::Refused);
                return None;
            };
            // What was written is known to be ours by its generation.
            let generation = written.as_ref().and_then(|name| self.native.sets.get(name)).map(|set| set.generation);
            let sets = status.details.iter_mut().flat_map(|detail| &mut detail.sets);
            sets.filter(|set| Some(&set.name) == written.as_ref())
                .for_each(|set| set.generation = generation.unwrap_or(set.generation));
            wrote += 1;
        }
        for event in &plan.events {
            self.may_write(wrote, stop)?;
            self.native.tell(Deed::Event("ES", event.reason.to_string(), event.note.clone()));
            wrote += 1;
        }
        if status != look.observed.owner.status {
            self.may_write(wrote, stop)?;
            if look.status_version != self.status_version {
                self.native.tell(Deed::Refused);
                return None;
            }
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            let reason = ready.map(|condition| condition.reason.clone()).unwrap_or_default();
            self.native.tell(Deed::Status(format!("{:?}", status.phase), reason, status.message.clone()));
            self.older = std::mem::replace(&mut self.status, status.into());
            self.status_version += 1;
            for (name, rollout) in &self.status.rollouts {
                self.native.ledger.note_good(name, rollout.previous_revision.as_ref());
            }
            wrote += 1;
        }
        Some(wrote)
    }

    fn may_write(&mut self, wrote: usize, stop: Stop) -> Option<()> {
        if stop == Stop::Before(wrote) {
            self.native.tell(Deed::Crashed);
            return None;
        }
        Some(())
    }
}
