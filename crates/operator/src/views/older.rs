//! What an older build left in mid-rollout, as the API server gave it out (`older/*.json`, written by the tests `running::older` of the whole
//! operator with `STS_PLUS_E2E_NOTED`): it is taken up, and moves no pod.

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Failure, OnFailure, Phase, PhasedRollout, PhasedRolloutStatus};
use sts_plus_decide::{Action, HoldState, NewPartition, Observed, Plan, Target, decide};

use super::{PodObject, SetObject, rollout_view};

struct Moment {
    rollout: PhasedRollout,
    set: SetObject,
    pods: Vec<PodObject>,
}

impl Moment {
    fn read(text: &str) -> Self {
        let mut all: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut part = |name: &str| all[name].take();
        let set: SetObject = serde_json::from_value(part("set")).unwrap();
        Self {
            rollout: serde_json::from_value(part("rollout")).unwrap(),
            set: set.shrunk(),
            pods: serde_json::from_value(part("pods")).unwrap(),
        }
    }

    fn status(&self) -> &PhasedRolloutStatus {
        self.rollout.status.as_ref().unwrap()
    }

    /// The last thing that it knows of, and a moment later: the next check is not due yet.
    fn now(&self) -> Timestamp {
        let status = self.status();
        let current = status.current.as_ref();
        let noted = [current.and_then(|current| current.since), status.start_time, status.last_progress_time];
        let asked = status.checks.iter().map(|check| Some(check.time));
        noted.into_iter().chain(asked).flatten().max().unwrap() + SignedDuration::from_millis(1)
    }

    fn plan(&self) -> Plan {
        let observed = Observed {
            rollout: rollout_view(&self.rollout),
            rivals: Vec::new(),
            target: Target::Found(Box::new(self.set.view())),
            former_targets: Vec::new(),
            pods: self.pods.iter().filter_map(PodObject::view).collect(),
            config: Vec::new(),
            hold: HoldState::Enforced,
            tried: None,
        };
        decide(&observed, self.now())
    }
}

/// Phase and failure after the first look of this build.
#[track_caller]
fn is_taken_up(text: &str, phase: Phase, failure: Option<OnFailure>) {
    let moment = Moment::read(text);
    let before = moment.status();
    assert!(before.is_sealed(), "the seal of an older build is good");
    let plan = moment.plan();
    let moves = |action: &Action| match action {
        Action::PatchSet { partition: NewPartition::Set(to), .. } => *to < moment.set.partition().unwrap(),
        Action::PatchSet { partition: NewPartition::Remove, .. } | Action::DeletePod { .. } => true,
        _ => false,
    };
    assert!(!plan.actions.iter().any(moves), "{:?}", plan.actions);
    let status = if plan.check.is_some() { before } else { &plan.status };
    let rests_on = |status: &PhasedRolloutStatus| {
        let PhasedRolloutStatus { target_revision, previous_revision, rejected_revisions, passed, .. } = status.clone();
        (target_revision, previous_revision, rejected_revisions, passed)
    };
    assert_eq!((status.phase, rests_on(status)), (phase, rests_on(before)), "{}", status.message);
    let told = |failure: &Failure| (failure.policy, Some(failure.revision.clone()));
    assert_eq!(status.failure.as_ref().map(told), failure.map(|policy| (policy, before.target_revision.clone())));
}

// spec: pr§4
#[test]
fn a_preflight() {
    is_taken_up(include_str!("older/preflight.json"), Phase::Checking, None);
}

// spec: pr§4
#[test]
fn a_cycle_of_a_pod() {
    is_taken_up(include_str!("older/mid-cycle.json"), Phase::Checking, None);
}

// spec: pr§5
#[test]
fn a_failure_under_hold() {
    is_taken_up(include_str!("older/held.json"), Phase::Failed, Some(OnFailure::Hold));
}

/// The older record does not tell under which policy it failed; that of the spec is in force.
// spec: pr§5, L038
#[test]
fn a_stop() {
    is_taken_up(include_str!("older/stopped.json"), Phase::Failed, Some(OnFailure::Hold));
}

// spec: pr§5
#[test]
fn a_rollback() {
    is_taken_up(include_str!("older/rolling-back.json"), Phase::RollingBack, Some(OnFailure::Rollback));
}

/// A pass without a time is made again before it waits again.
// spec: pr§1
#[test]
fn what_waits_for_an_approval() {
    is_taken_up(include_str!("older/awaiting-approval.json"), Phase::Checking, None);
}

// spec: pr§9
#[test]
fn what_is_complete() {
    is_taken_up(include_str!("older/complete.json"), Phase::Completed, None);
}
