//! A plan in the making: collects actions, events and the next wake-up, and becomes a plan exactly once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sts_plus_api::{Phase, PhasedRolloutStatus, Reason, Step, names};

use super::{
    facts::{Facts, later},
    failure, memory,
    report::{self, Motion, Stand},
};
use crate::{
    Action, CheckRequest, Event, EventTarget, NewPartition, Observed, Plan, SetView, Severity, units::Partition,
};

const NOTE_BYTES: usize = 1000;
/// How long an awaited pod may come and go before that is told: most are back sooner, and a step costs few writes then.
const QUIET: SignedDuration = SignedDuration::from_secs(10);

/// A plan in the making.
pub(crate) struct Draft<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) now: Timestamp,
    pub(crate) status: PhasedRolloutStatus,
    /// True if somebody else wrote what decisions rest on: nothing of it is believed.
    pub(crate) is_edited: bool,
    actions: Vec<Action>,
    events: Vec<Event>,
    wake: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(observed: &'a Observed, now: Timestamp) -> Self {
        let mut status = observed.rollout.status.clone();
        let is_edited = !status.is_sealed();
        if is_edited {
            memory::distrust(&mut status);
        }
        Self { observed, now, status, is_edited, actions: Vec::new(), events: Vec::new(), wake: None }
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.observed.rollout.name
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// One patch of the set: the partition for `revision`, and the record of it in the same write.
    pub(crate) fn set_partition(&mut self, set: &SetView, revision: &str, partition: Partition) {
        self.patch_set(
            set,
            NewPartition::Set(partition.0),
            BTreeMap::from([
                (names::CLAIM, Some(self.name().to_owned())),
                (names::WRITTEN_PARTITION, Some(format!("{revision}/{}", partition.0))),
                (names::HOLD_SWITCH, None),
                (names::REFUSED_PARTITION, None),
                (names::ALLOW_PARTITION, None),
            ]),
        );
        self.status.partition = Some(partition.0);
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
        self.events.push(Event { on, severity, reason, note: report::plain(note, NOTE_BYTES) });
    }

    /// An event on the PhasedRollout.
    pub(crate) fn normal(&mut self, reason: Reason, note: &str) {
        self.tell(EventTarget::Rollout, Severity::Normal, reason, note);
    }

    /// A Warning event on the PhasedRollout.
    pub(crate) fn warn(&mut self, reason: Reason, note: &str) {
        self.tell(EventTarget::Rollout, Severity::Warning, reason, note);
    }

    pub(crate) fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }

    pub(crate) fn wake_now(&mut self) {
        self.wake_at(self.now);
    }

    /// Nothing is known that the status does not say already.
    pub(crate) fn unchanged(mut self) -> Plan {
        self.status = self.observed.rollout.status.clone();
        self.into_plan(None)
    }

    /// The target cannot be taken or is not there: it is told, and nothing is written to it.
    pub(crate) fn refused(mut self, stand: &Stand) -> Plan {
        self.status.current = None;
        self.tell_transition(stand);
        report::write(&mut self.status, self.observed, None, stand, self.now);
        self.into_plan(None)
    }

    /// The outcome for a set that is ours.
    pub(crate) fn finish(mut self, facts: &Facts, stand: &Stand) -> Plan {
        if self.observed.rollout.status.phase == Phase::Paused && stand.phase != Phase::Paused {
            // Paused time is no time without progress.
            self.status.last_progress_time = self.status.last_progress_time.map(|_| self.now);
        }
        let overdue = failure::overdue(&mut self, stand);
        let stand = overdue.as_ref().unwrap_or(stand);
        failure::hold_while_stalled(&mut self, facts, stand);
        failure::let_fixes_in(&mut self, facts, stand);
        self.tell_transition(stand);
        self.tell_interrupted_step(facts);
        self.status.partition = self.planned_partition(facts.set);
        if let Some(change) = facts.next_change() {
            self.wake_at(change);
        }
        let before = &self.observed.rollout.status;
        let waits_as_before = stand.motion == Motion::Moving
            && stand.phase == before.phase
            && self.same_but_counts(before, stand)
            && !self.has_actions()
            && self.events.is_empty()
            && self.is_soon(facts);
        report::write(&mut self.status, self.observed, Some(facts), stand, self.now);
        if waits_as_before {
            keep_counts(&mut self.status, before);
        }
        self.into_plan(None)
    }

    /// A try is due; what it says decides.
    pub(crate) fn ask(self, request: CheckRequest) -> Plan {
        self.into_plan(Some(request))
    }

    /// The partition as it will be once the actions are done.
    fn planned_partition(&self, set: &SetView) -> Option<i32> {
        let planned = self.actions.iter().rev().find_map(|action| match action {
            Action::PatchSet { partition: NewPartition::Set(partition), .. } => Some(Some(*partition)),
            Action::PatchSet { partition: NewPartition::Remove, .. } => Some(None),
            _ => None,
        });
        planned.unwrap_or(set.partition)
    }

    /// While a pod is being rolled its coming and going is no news by itself: the counts are written with the next step.
    fn same_but_counts(&self, before: &PhasedRolloutStatus, stand: &Stand) -> bool {
        let waiting = self.status.current.as_ref().is_some_and(|current| current.since.is_none());
        waiting
            && self.status.current == before.current
            && self.status.target_revision == before.target_revision
            && self.status.replicas == before.replicas
            && before.conditions.iter().any(|c| c.type_ == "Reconciling" && c.reason == stand.reason.to_string())
    }

    /// True in the first seconds after a step; what is there when they are over is told then. Also while a pod that came in time is only
    /// to stay Ready for minReadySeconds.
    fn is_soon(&mut self, facts: &Facts) -> bool {
        let told = self.observed.rollout.status.ready_replicas;
        if facts.count_ready() == facts.replicas() && told == facts.replicas() {
            return true;
        }
        let Some(end) = self.status.last_progress_time.map(|step| later(step, QUIET)) else { return false };
        let is_soon = end > self.now;
        if is_soon {
            self.wake_at(end);
        }
        is_soon
    }

    /// One event when the reason changes to something that a person should know.
    fn tell_transition(&mut self, stand: &Stand) {
        let before = &self.observed.rollout.status;
        if was_ready_for(&before.conditions, stand.reason)
            || self.events.iter().any(|event| event.reason == stand.reason)
        {
            return;
        }
        match stand.motion {
            Motion::Refused => self.warn(stand.reason, &stand.message),
            Motion::Held if stand.reason == Reason::Paused || stand.reason == Reason::AwaitingApproval => {
                self.normal(stand.reason, &stand.message);
            }
            Motion::Held | Motion::Stalled => {
                self.warn(stand.reason, &stand.message);
                self.tell(EventTarget::Set, Severity::Warning, stand.reason, &stand.message);
            }
            Motion::Rest | Motion::Moving => {}
        }
    }

    /// The partition is open for a pod and the status does not know it: the operator was stopped in between, or did not hear the
    /// answer to its write.
    fn tell_interrupted_step(&mut self, facts: &Facts) {
        let before = &self.observed.rollout.status;
        let (Some(opened), Some(partition)) = (memory::opened(facts), before.partition) else { return };
        if partition <= opened.0 || self.is_edited || before.target_revision.as_deref() != Some(facts.wanted) {
            return;
        }
        let is_repair = self.status.current.as_ref().is_some_and(|current| current.step == Step::Repair)
            || self.status.previous_revision.as_deref() == Some(facts.wanted);
        let (reason, how) =
            if is_repair { (Reason::Repairing, " without checks") } else { (Reason::PartitionLowered, "") };
        let pod = facts.pod_name(opened);
        self.normal(
            reason,
            &format!("partition {partition} -> {}: {pod} is rolled to {}{how}", opened.0, facts.wanted),
        );
    }

    fn into_plan(self, check: Option<CheckRequest>) -> Plan {
        match check {
            Some(request) => Plan {
                check: Some(request),
                actions: Vec::new(),
                status: self.observed.rollout.status.clone(),
                events: Vec::new(),
                wake: None,
            },
            None => {
                Plan { check: None, actions: self.actions, status: self.status, events: self.events, wake: self.wake }
            }
        }
    }

    /// The last good revision; the wanted one if nothing is known.
    pub(crate) fn last_good(&self, facts: &Facts<'a>) -> String {
        self.status.previous_revision.clone().unwrap_or_else(|| memory::last_good_from_pods(facts).to_owned())
    }
}

/// True if the status says that this is why the set is Ready, or why it is not.
pub(crate) fn was_ready_for(before: &[Condition], reason: Reason) -> bool {
    before.iter().any(|condition| condition.type_ == "Ready" && condition.reason == reason.to_string())
}

fn keep_counts(status: &mut PhasedRolloutStatus, before: &PhasedRolloutStatus) {
    status.updated_replicas = before.updated_replicas;
    status.ready_replicas = before.ready_replicas;
    status.updated.clone_from(&before.updated);
    status.message.clone_from(&before.message);
    status.conditions = status
        .conditions
        .drain(..)
        .map(|new| match before.conditions.iter().find(|old| old.type_ == new.type_) {
            Some(old) if old.status == new.status && old.reason == new.reason => {
                Condition { message: old.message.clone(), ..new }
            }
            _ => new,
        })
        .collect();
}
