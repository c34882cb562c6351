//! From where a rollout stands to what a person reads: phase, message, counts, conditions. Nothing here decides what moves.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sts_plus_api::{CheckRecord, ConditionType, PhasedRolloutStatus, Reason, is_true};

use crate::{
    conditions::{New, dated},
    observed::{ConfigProblem, HoldState, Observed},
    roll::Memory,
    slots::Slots,
    text::cut,
    time::later,
    why::{Motion, Why},
};

const QUERY_BYTES: usize = 400;
const STATUS_BYTES: usize = 15 * 1024;
/// How long an awaited pod may come and go before that is reported: most are back sooner, and a step costs few writes then.
const QUIET: SignedDuration = SignedDuration::from_secs(10);

/// What a status is written from.
pub(crate) struct Facts<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) memory: &'a Memory,
    pub(crate) why: &'a Why,
    pub(crate) now: Timestamp,
    /// Nothing else is written with it.
    pub(crate) is_quiet: bool,
}

/// For a set that is not ours.
pub(crate) fn of(facts: &Facts) -> PhasedRolloutStatus {
    write(facts, None, None)
}

/// For a set that is ours; and when what is not reported now is reported at last.
pub(crate) fn of_set(
    facts: &Facts,
    slots: &Slots,
    checks: Option<Vec<CheckRecord>>,
) -> (PhasedRolloutStatus, Option<Timestamp>) {
    let (before, why) = (&facts.observed.rollout.status, facts.why);
    let mut status = write(facts, Some(slots), checks);
    let is_waiting = why.motion == Motion::Moving
        && why.phase == before.phase
        && is_same_but_counts(&status, before, why)
        && facts.is_quiet;
    if !is_waiting {
        return (status, None);
    }
    let (is_soon, wake) = is_soon(&status, before, slots, facts.now);
    if is_soon {
        keep_counts(&mut status, before);
    }
    (status, wake)
}

fn write(facts: &Facts, slots: Option<&Slots>, checks: Option<Vec<CheckRecord>>) -> PhasedRolloutStatus {
    let Facts { observed, memory, why, now, .. } = *facts;
    let before = &observed.rollout.status;
    let mut status = before.clone();
    memory.store(&mut status, |index| slots.map(|slots| slots.pod_name(index)).unwrap_or_default());
    if let Some(checks) = checks {
        status.checks = checks;
    }
    status.observed_generation = Some(observed.rollout.generation);
    status.phase = why.phase;
    status.message.clone_from(&why.message);
    match slots {
        Some(slots) => count(&mut status, slots, why.reason != Reason::AwaitingController),
        None if why.motion == Motion::Refused => forget_counts(&mut status),
        None => {}
    }
    let news = Conditions { status: &status, memory, observed, slots, why }.all();
    status.conditions = news
        .into_iter()
        .map(|(kind, new)| dated(&kind.to_string(), new, &before.conditions, observed.rollout.generation, now))
        .collect();
    if status != *before || memory.is_edited {
        fit(&mut status);
        status.put_seal();
    }
    status
}

/// Another number of replicas is taken up when the controller has seen it, and pods that are created then are reported.
fn count(status: &mut PhasedRolloutStatus, slots: &Slots, is_seen: bool) {
    if is_seen || status.replicas == 0 {
        status.replicas = slots.replicas();
    }
    slots.count(status);
}

fn forget_counts(status: &mut PhasedRolloutStatus) {
    (status.replicas, status.updated_replicas, status.ready_replicas) = (0, 0, 0);
    "0/0".clone_into(&mut status.updated);
    status.partition = None;
}

/// While a pod is being rolled its coming and going is no news by itself: the counts are written with the next step.
fn is_same_but_counts(status: &PhasedRolloutStatus, before: &PhasedRolloutStatus, why: &Why) -> bool {
    let is_awaited = status.current.as_ref().is_some_and(|current| current.since.is_none());
    let is_told =
        |condition: &Condition| condition.type_ == "Reconciling" && condition.reason == why.reason.to_string();
    is_awaited
        && status.current == before.current
        && status.target_revision == before.target_revision
        && status.replicas == before.replicas
        && status.last_progress_time == before.last_progress_time
        && before.conditions.iter().any(is_told)
}

/// True in the first seconds after a step, with the end of them; what is there when they are over is reported then. Also while a pod that came
/// in time is only to stay Ready for minReadySeconds.
fn is_soon(
    status: &PhasedRolloutStatus,
    before: &PhasedRolloutStatus,
    slots: &Slots,
    now: Timestamp,
) -> (bool, Option<Timestamp>) {
    if slots.count_ready() == slots.replicas() && before.ready_replicas == slots.replicas() {
        return (true, None);
    }
    let end = status.last_progress_time.map(|step| later(step, QUIET)).filter(|end| *end > now);
    (end.is_some(), end)
}

fn keep_counts(status: &mut PhasedRolloutStatus, before: &PhasedRolloutStatus) {
    status.updated_replicas = before.updated_replicas;
    status.ready_replicas = before.ready_replicas;
    status.updated.clone_from(&before.updated);
    status.message.clone_from(&before.message);
    for new in &mut status.conditions {
        let old = before.conditions.iter().find(|old| old.type_ == new.type_);
        if let Some(old) = old.filter(|old| old.status == new.status && old.reason == new.reason) {
            new.message.clone_from(&old.message);
        }
    }
}

/// Gives up details of the oldest verdicts until the status is small enough.
fn fit(status: &mut PhasedRolloutStatus) {
    let is_too_large = |status: &PhasedRolloutStatus| {
        let mut bytes = Counted(0);
        serde_json::to_writer(&mut bytes, status).is_ok() && bytes.0 > STATUS_BYTES
    };
    for oldest in 0..status.checks.len() {
        if !is_too_large(status) {
            return;
        }
        if let Some(check) = status.checks.get_mut(oldest) {
            check.series.clear();
            check.query = cut(&check.query, QUERY_BYTES);
        }
    }
    while !status.checks.is_empty() && is_too_large(status) {
        status.checks.remove(0);
    }
}

/// What is written into it is counted and forgotten.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Conditions<'a> {
    status: &'a PhasedRolloutStatus,
    memory: &'a Memory,
    observed: &'a Observed,
    slots: Option<&'a Slots<'a>>,
    why: &'a Why,
}

impl Conditions<'_> {
    fn all(&self) -> Vec<(ConditionType, Option<New>)> {
        ConditionType::ALL.into_iter().map(|kind| (kind, self.one(kind))).collect()
    }

    /// `None` means Unknown.
    fn one(&self, kind: ConditionType) -> Option<New> {
        let Why { reason, message, motion, .. } = self.why;
        let said = |is: bool| Some((is, *reason, message.clone()));
        match kind {
            ConditionType::Ready => said(self.is_ready()),
            ConditionType::Reconciling => said(!self.is_ready() && !self.is_stalled()),
            ConditionType::Stalled => said(self.is_stalled()),
            ConditionType::Held => said(matches!(motion, Motion::Held | Motion::Stalled)),
            ConditionType::HoldEnforced => self.hold_enforced(),
            ConditionType::TargetAccepted => Some(self.target_accepted()),
            ConditionType::ChecksValid => Some(self.checks_valid()),
            ConditionType::RolledOut => Some(self.rolled_out()),
        }
    }

    fn is_stalled(&self) -> bool {
        matches!(self.why.motion, Motion::Stalled | Motion::Refused)
    }

    fn is_ready(&self) -> bool {
        self.why.motion == Motion::Rest && self.slots.is_none_or(|slots| slots.obstacle(&[]).is_none())
    }

    fn hold_enforced(&self) -> Option<New> {
        match &self.observed.hold {
            HoldState::Unknown => None,
            HoldState::Enforced => {
                Some((true, Reason::Enforced, "a dry run showed that the API server keeps the hold".into()))
            }
            HoldState::Refusing => Some((
                true,
                Reason::RefusedByPolicy,
                "a dry run showed that the API server refuses what would roll pods unchecked, a new template in mid-rollout \
                 too: its refusal says how to write it"
                    .into(),
            )),
            HoldState::NotEnforced(reason, message) => Some((false, *reason, message.clone())),
        }
    }

    fn target_accepted(&self) -> New {
        let Why { reason, message, motion, .. } = self.why;
        let target = &self.observed.rollout.spec.target_ref;
        if *motion == Motion::Refused {
            return (false, *reason, message.clone());
        }
        (true, Reason::Claimed, format!("StatefulSet {target} is claimed by this PhasedRollout"))
    }

    fn checks_valid(&self) -> New {
        let found = self.observed.config.first();
        let kept = self.status.current.as_ref().and_then(|current| current.problem.as_ref());
        let kept = kept.map(|kept| ConfigProblem { reason: kept.reason.into(), message: kept.message.clone() });
        match found.cloned().or(kept) {
            Some(problem) => (false, problem.reason, problem.message),
            None => (true, Reason::Valid, "queries, variables and credentials are usable".into()),
        }
    }

    fn rolled_out(&self) -> New {
        let Why { reason, message, motion, .. } = self.why;
        // While the controller has not seen the latest change, what is settled may be another template.
        let is_seen = self.slots.is_none_or(|slots| slots.set.is_seen());
        let is_known = *motion != Motion::Refused && *reason != Reason::RevisionRejected && is_seen;
        if !is_known || !self.memory.is_settled() {
            return (false, *reason, message.clone());
        }
        let revision = self.memory.wanted.as_deref().unwrap_or("none");
        if self.status.replicas == 0 {
            return (true, Reason::NoPods, "the set has no replicas; nothing was checked".into());
        }
        if self.memory.is_completed() {
            return (true, Reason::Completed, format!("every pod carries {revision}, which passed its checks"));
        }
        // A latch, but not on a set that has not come up yet.
        let before = &self.observed.rollout.status;
        let was_true = before.target_revision == self.memory.wanted
            && is_true(&before.conditions, &ConditionType::RolledOut.to_string());
        let obstacle = self.slots.filter(|_| !was_true);
        if let Some(what) = obstacle.and_then(|slots| slots.obstacle(&[]).map(|obstacle| obstacle.describe(slots))) {
            return (false, Reason::PodsNotAvailable, what);
        }
        let message = format!("every pod carries {revision}, which no rollout of this object has checked");
        (true, Reason::NotVerified, message)
    }
}
