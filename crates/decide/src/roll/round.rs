//! One decision in the making: what is given, what is remembered, and what is asked for so far.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{Check, CheckRecord, Reason, Step, StuckPods, names};

use crate::{
    checks::{self, Cycle},
    hold::Wish,
    observed::{CheckKey, ConfigProblem, PodView, Try},
    plan::{Action, CheckRequest, Event, EventTarget, Severity},
    roll::memory::{Activity, Memory},
    slots::{Obstacle, Slots},
    units::{Partition, PodIndex},
    why::{Kind, Words},
};

/// What a person wants of a rollout.
#[allow(clippy::struct_excessive_bools, reason = "each is a word of its own in a spec or on a set")]
pub(crate) struct Policy<'a> {
    pub(crate) words: Words,
    pub(crate) namespace: &'a str,
    pub(crate) check: &'a Check,
    pub(crate) paused: bool,
    pub(crate) pause_before: &'a [i32],
    pub(crate) progress_deadline: Option<i32>,
    pub(crate) stuck_pods: StuckPods,
    /// Pods of the old revision that are broken are not waited for.
    pub(crate) passes_broken: bool,
    /// What keeps a pod from being rolled outside of the set.
    pub(crate) elsewhere: Option<&'a str>,
    /// The retry token as it is kept.
    pub(crate) retry: Option<String>,
    /// `<revision>/<index>` of the step that a person approves.
    pub(crate) approve: Option<&'a str>,
    /// What is wrong with the checks as configured.
    pub(crate) config: &'a [ConfigProblem],
    /// The API server refuses a template change under a partition that opens something.
    pub(crate) refuses_templates: bool,
    /// The operator itself writes the template, before there are pods.
    pub(crate) writes_template: bool,
    /// The set says that it is ours, and is not under skipCheck.
    pub(crate) is_ours: bool,
}

/// What moves besides the hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// A pod is deleted: name and UID.
    Delete(String, String),
    /// The approval of a step goes with it.
    ConsumeApproval,
}

impl From<Move> for Action {
    fn from(one: Move) -> Self {
        match one {
            Move::Delete(name, uid) => Self::DeletePod { name, uid },
            Move::ConsumeApproval => Self::ConsumeAnnotation(names::APPROVE),
        }
    }
}

pub(crate) struct Round<'a> {
    pub(crate) policy: &'a Policy<'a>,
    pub(crate) slots: Slots<'a>,
    pub(crate) now: Timestamp,
    pub(crate) memory: Memory,
    /// The memory as it was read.
    pub(crate) before: &'a Memory,
    pub(crate) answer: Option<&'a Try>,
    pub(crate) checks: Cow<'a, [CheckRecord]>,
    pub(crate) wish: Wish,
    pub(crate) moves: Vec<Move>,
    pub(crate) events: Vec<Event>,
    pub(crate) wake: Option<Timestamp>,
}

impl<'a> Round<'a> {
    pub(crate) fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }

    pub(crate) fn wake_now(&mut self) {
        self.wake_at(self.now);
    }

    pub(crate) fn tell(&mut self, on: EventTarget, severity: Severity, reason: Reason, note: &str) {
        self.events.push(Event::new(on, severity, reason, note));
    }

    pub(crate) fn normal(&mut self, reason: Reason, note: &str) {
        self.tell(EventTarget::Rollout, Severity::Normal, reason, note);
    }

    pub(crate) fn warn(&mut self, reason: Reason, note: &str) {
        self.tell(EventTarget::Rollout, Severity::Warning, reason, note);
    }

    /// On the object and on its StatefulSet.
    pub(crate) fn normal_on_both(&mut self, reason: Reason, note: &str) {
        self.normal(reason, note);
        self.tell(EventTarget::Set, Severity::Normal, reason, note);
    }

    /// The hold of a set at rest. Only after the flip, or a dying pod would come back at the old revision.
    pub(crate) fn rest(&mut self) {
        if self.slots.has_flipped() && self.slots.partition() != Partition(self.slots.replicas()) {
            self.wish = Wish::Rest;
        }
    }

    pub(crate) fn delete(&mut self, pod: &PodView) {
        self.moves.push(Move::Delete(pod.name.clone(), pod.uid.clone()));
        self.memory.progress(self.now);
    }

    /// Nothing is to be written that a question would have to wait for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.wish == Wish::Keep && self.moves.is_empty()
    }

    pub(crate) fn last_good(&self) -> String {
        self.memory.last_good(&self.slots)
    }

    pub(crate) fn is_rejected(&self) -> bool {
        self.memory.is_rejected(self.slots.wanted)
    }

    /// The cycle that is going on, if it is of this kind: what pods come and go does not begin another one, only a step of ours does. Passes of
    /// another pod do not count for this one.
    pub(crate) fn take_cycle(&mut self, kind: Kind, index: PodIndex) -> Cycle {
        let (asked, mut cycle) = match std::mem::take(&mut self.memory.activity) {
            Activity::Preflight(asked, cycle) if kind == Kind::Preflight => (asked, cycle),
            Activity::Pod(asked, cycle) | Activity::Final(asked, cycle) if kind != Kind::Preflight => (asked, cycle),
            _ => return Cycle::default(),
        };
        if asked != index {
            cycle.interrupt();
        }
        cycle
    }

    pub(crate) fn put_cycle(&mut self, kind: Kind, index: PodIndex, cycle: Cycle) {
        self.memory.activity = match kind {
            Kind::Preflight => Activity::Preflight(index, cycle),
            Kind::Pod => Activity::Pod(index, cycle),
            Kind::Final => Activity::Final(index, cycle),
        };
    }

    /// What keeps the next pod from being rolled, also outside of the set. After the last one nothing is rolled, and a set of which no pod is
    /// Ready loses nothing by being repaired.
    pub(crate) fn obstacle(&self, kind: Kind, exempt: &[PodIndex]) -> Option<Obstacle<'a>> {
        let elsewhere = self.policy.elsewhere.filter(|_| kind != Kind::Final && !self.memory.never_healthy);
        self.slots.obstacle(exempt).or(elsewhere.map(Obstacle::Elsewhere))
    }

    /// The index of the pod that was rolled last; the lowest at the revision if this operator rolled none.
    pub(crate) fn last_rolled(&self) -> PodIndex {
        let is_there = |index: &PodIndex| self.slots.pod(*index).is_some_and(|pod| self.slots.is_wanted(pod));
        let rolled = match &self.memory.activity {
            Activity::Pod(index, _) | Activity::Final(index, _) => Some(*index),
            _ => None,
        };
        // The patch of a step says it before the status does, which a crash may have kept from being written.
        let opened = crate::hold::opened(&self.slots);
        opened
            .filter(is_there)
            .or_else(|| rolled.filter(is_there))
            .or_else(|| self.slots.lowest_wanted())
            .unwrap_or(PodIndex(0))
    }

    pub(crate) fn last_words(&self) -> String {
        checks::last_words(&self.checks, self.policy.check)
    }

    /// The question of a cycle.
    pub(crate) fn request(&self, kind: Kind, index: PodIndex) -> CheckRequest {
        CheckRequest { key: self.key(kind, index), variables: self.variables(index) }
    }

    pub(crate) fn key(&self, kind: Kind, index: PodIndex) -> CheckKey {
        let step = match kind {
            Kind::Preflight => Step::Preflight,
            Kind::Pod => Step::Pod,
            Kind::Final => Step::Final,
        };
        CheckKey { revision: self.slots.wanted.to_owned(), index: index.0, step }
    }

    /// Values for the variables of expressions. One that has no value now is missing.
    fn variables(&self, index: PodIndex) -> BTreeMap<&'static str, String> {
        let (slots, pod) = (&self.slots, self.slots.pod(index));
        let entries = [
            ("pod", Some(slots.pod_name(index))),
            ("ordinal", Some(index.ordinal(slots.set.start).0.to_string())),
            ("namespace", Some(self.policy.namespace.to_owned())),
            ("statefulset", Some(slots.set.name.clone())),
            ("revision", Some(slots.wanted.to_owned())),
            ("previousRevision", self.memory.good.clone()),
            ("zone", pod.and_then(|pod| pod.zone.clone())),
            ("node", pod.and_then(|pod| pod.node.clone())),
        ];
        entries.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect()
    }
}
