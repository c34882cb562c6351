//! A plan in the making: actions and events around the engine, and how its step becomes a plan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{PhasedRolloutStatus, Reason};

use crate::{
    conditions::is_ready_for,
    hold,
    observed::{Observed, SetView},
    phased_rollout::status,
    plan::{Action, CheckRequest, Event, EventTarget, NewPartition, Plan, Severity},
    roll::{Memory, Move, Step},
    slots::Slots,
    why::{Motion, WaitsFor, Why},
};

/// A plan in the making.
pub(crate) struct Draft<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) now: Timestamp,
    pub(crate) memory: Memory,
    pub(crate) actions: Vec<Action>,
    pub(crate) events: Vec<Event>,
    pub(crate) wake: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(observed: &'a Observed, now: Timestamp) -> Self {
        let memory = Memory::load(&observed.rollout.status);
        Self { observed, now, memory, actions: Vec::new(), events: Vec::new(), wake: None }
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.observed.rollout.name
    }

    pub(crate) fn before(&self) -> &'a PhasedRolloutStatus {
        &self.observed.rollout.status
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn patch_set(
        &mut self,
        set: &SetView,
        partition: NewPartition,
        annotations: BTreeMap<&'static str, Option<String>>,
    ) {
        self.act(Action::PatchSet {
            set: set.name.clone(),
            uid: set.uid.clone(),
            generation: set.generation,
            partition,
            annotations,
        });
    }

    pub(crate) fn tell(&mut self, on: EventTarget, severity: Severity, reason: Reason, note: &str) {
        self.events.push(Event::new(on, severity, reason, note));
    }

    /// An event on the PhasedRollout.
    pub(crate) fn normal(&mut self, reason: Reason, note: &str) {
        self.tell(EventTarget::Rollout, Severity::Normal, reason, note);
    }

    pub(crate) fn wake_now(&mut self) {
        self.wake = Some(self.now);
    }

    /// Nothing is known that the status does not say already.
    pub(crate) fn unchanged(self) -> Plan {
        let status = self.before().clone();
        self.into_plan(status)
    }

    /// The target cannot be taken or is not there: it is reported, and nothing is written to it.
    pub(crate) fn refused(mut self, why: &Why) -> Plan {
        // It may be taken again, and then goes on where it was; but what was asked before does not count.
        if let Some(cycle) = self.memory.activity.cycle_mut() {
            cycle.pause();
        }
        self.tell_transition(why);
        let status = status::of(&self.facts(why));
        self.into_plan(status)
    }

    /// The engine says what comes next for a set that is ours.
    pub(crate) fn step(mut self, set: &'a SetView, step: Step) -> Plan {
        if let Some(partition) = step.partition {
            self.act(hold::patch(set, self.name(), &step.revision, partition));
        }
        self.carry_out(step.moves);
        self.events.extend(step.events);
        (self.memory, self.wake) = (step.memory, step.wake);
        self.finish(set, &step.revision, step.checks, &step.why)
    }

    pub(crate) fn finish(
        mut self,
        set: &'a SetView,
        revision: &str,
        checks: Option<Vec<sts_plus_api::CheckRecord>>,
        why: &Why,
    ) -> Plan {
        self.tell_transition(why);
        let slots = Slots::new(set, &self.observed.pods, revision, self.now);
        let (status, wake) = status::of_set(&self.facts(why), &slots, checks);
        self.wake = self.wake.into_iter().chain(wake).min();
        self.into_plan(status)
    }

    fn facts<'f>(&'f self, why: &'f Why) -> status::Facts<'f> {
        let is_quiet = self.actions.is_empty() && self.events.is_empty();
        status::Facts { observed: self.observed, memory: &self.memory, why, now: self.now, is_quiet }
    }

    pub(crate) fn carry_out(&mut self, moves: Vec<Move>) {
        self.actions.extend(moves.into_iter().map(Action::from));
    }

    /// A check is due; what it says decides.
    pub(crate) fn ask(self, request: CheckRequest) -> Plan {
        let status = self.before().clone();
        Plan { check: Some(request), actions: Vec::new(), status, events: Vec::new(), wake: None }
    }

    fn into_plan(self, status: PhasedRolloutStatus) -> Plan {
        Plan { check: None, actions: self.actions, status, events: self.events, wake: self.wake }
    }

    /// One event when the reason changes to something that a person should know.
    fn tell_transition(&mut self, why: &Why) {
        let is_dangerous = why.reason == Reason::NoPods && why.waits_for == WaitsFor::Person;
        if is_dangerous && self.before().message != why.message {
            self.tell(EventTarget::Rollout, Severity::Warning, why.reason, &why.message);
        }
        let is_old = is_ready_for(&self.before().conditions, why.reason);
        if is_old || self.events.iter().any(|event| event.reason == why.reason) {
            return;
        }
        match why.motion {
            Motion::Refused => self.tell(EventTarget::Rollout, Severity::Warning, why.reason, &why.message),
            Motion::Held if matches!(why.reason, Reason::Paused | Reason::AwaitingApproval) => {
                self.normal(why.reason, &why.message);
            }
            Motion::Held | Motion::Stalled => {
                self.tell(EventTarget::Rollout, Severity::Warning, why.reason, &why.message);
                self.tell(EventTarget::Set, Severity::Warning, why.reason, &why.message);
            }
            Motion::Rest | Motion::Moving => {}
        }
    }
}
