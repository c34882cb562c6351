//! A plan in the making: collects actions, events and the next wake-up, and becomes a plan exactly once.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sts_plus_api::{ExtendedStatefulSetStatus, Reason, VersionPhase};

use super::{VersionAction, VersionsObserved, VersionsPlan, report, scaling, world::World};
use crate::{CheckRequest, Event, EventTarget, Severity};
use crate::{conditions::is_ready_for, text::plain};

const MESSAGE_BYTES: usize = 1000;

/// Where an ExtendedStatefulSet stands.
#[derive(Clone, Debug)]
pub(super) struct Stand {
    pub(super) motion: Motion,
    pub(super) phase: VersionPhase,
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Stand {
    pub(super) fn new(motion: Motion, phase: VersionPhase, reason: Reason, message: impl Into<String>) -> Self {
        Self { motion, phase, reason, message: plain(&message.into(), MESSAGE_BYTES) }
    }
}

/// Which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    /// Nothing is pending.
    Rest,
    /// It goes on by itself.
    Moving,
    /// It waits for something that comes by itself, or for a person who holds it.
    Held,
    /// A person is needed.
    Stalled,
    /// It cannot be used as it is written.
    Refused,
}

pub(super) struct Draft<'a> {
    pub(super) observed: &'a VersionsObserved,
    pub(super) now: Timestamp,
    pub(super) status: ExtendedStatefulSetStatus,
    pub(super) actions: Vec<VersionAction>,
    /// StatefulSets that somebody else has written to, which is told when it is put back.
    pub(super) untold: BTreeSet<String>,
    events: Vec<Event>,
    wake: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(observed: &'a VersionsObserved, now: Timestamp) -> Self {
        let status = observed.owner.status.clone();
        Self { observed, now, status, actions: Vec::new(), untold: BTreeSet::new(), events: Vec::new(), wake: None }
    }

    /// The pods of each zone.
    pub(super) fn replicas(&self) -> Vec<(Option<String>, i32)> {
        let spec = &self.observed.owner.spec;
        scaling::wanted(spec).map(|wanted| scaling::spread(spec, wanted.replicas)).unwrap_or_default()
    }

    pub(super) fn act(&mut self, action: VersionAction) {
        self.actions.push(action);
    }

    pub(super) fn normal(&mut self, reason: Reason, note: &str) {
        self.tell(Severity::Normal, reason, note);
    }

    pub(super) fn warn(&mut self, reason: Reason, note: &str) {
        self.tell(Severity::Warning, reason, note);
    }

    pub(super) fn tell(&mut self, severity: Severity, reason: Reason, note: &str) {
        self.events.push(Event::new(EventTarget::Rollout, severity, reason, note));
    }

    pub(super) fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }

    pub(super) fn wake_now(&mut self) {
        self.wake_at(self.now);
    }

    pub(super) fn unchanged(mut self) -> VersionsPlan {
        self.status = self.observed.owner.status.clone();
        self.into_plan(None)
    }

    pub(super) fn ask(mut self, request: CheckRequest) -> VersionsPlan {
        self.actions.clear();
        self.events.clear();
        self.status = self.observed.owner.status.clone();
        self.into_plan(Some(request))
    }

    pub(super) fn finish(mut self, world: &World, stand: &Stand) -> VersionsPlan {
        let was_told = is_ready_for(&self.observed.owner.status.conditions, stand.reason)
            || self.events.iter().any(|event| event.reason == stand.reason);
        if matches!(stand.motion, Motion::Held | Motion::Stalled | Motion::Refused) && !was_told {
            self.warn(stand.reason, &stand.message);
        }
        report::write(&mut self, world, Some(stand));
        self.into_plan(None)
    }

    /// Where it stands is as it was.
    pub(super) fn finish_as_before(mut self, world: &World) -> VersionsPlan {
        report::write(&mut self, world, None);
        self.into_plan(None)
    }

    fn into_plan(self, check: Option<CheckRequest>) -> VersionsPlan {
        VersionsPlan { check, actions: self.actions, status: self.status, events: self.events, wake: self.wake }
    }
}
