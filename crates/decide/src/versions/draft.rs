//! A plan in the making: collects actions, events and the next wake-up, and becomes a plan exactly once.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sts_plus_api::{ExtendedStatefulSetStatus, Reason};

use crate::{
    plan::{CheckRequest, Event, EventTarget, Severity},
    versions::{
        observed::VersionsObserved,
        plan::{VersionAction, VersionsPlan},
    },
};

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

    /// True if an event tells this.
    pub(super) fn has_told(&self, reason: Reason) -> bool {
        self.events.iter().any(|event| event.reason == reason)
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

    pub(super) fn into_plan(self, check: Option<CheckRequest>) -> VersionsPlan {
        VersionsPlan { check, actions: self.actions, status: self.status, events: self.events, wake: self.wake }
    }
}
