//! From where a rollout stands to what a person reads: phase, message, counts, conditions. Nothing here decides anything.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sts_plus_api::{CheckRecord, ConditionType, Current, Phase, PhasedRolloutStatus, Reason};

use super::facts::Facts;
use crate::{ConfigProblem, HoldState, Observed};

const MESSAGE_BYTES: usize = 512;
const CONDITION_BYTES: usize = 400;
const STATUS_BYTES: usize = 15 * 1024;
const KEPT_CHECKS: usize = 5;

/// Where a rollout stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) phase: Phase,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) motion: Motion,
}

/// Who has to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// Nobody: it is at rest.
    Rest,
    /// The operator, the controllers, or time.
    Moving,
    /// It is held by something unusual that may go away by itself or that a person wanted.
    Held,
    /// A person, or checks that begin to pass.
    Stalled,
    /// A person, and the StatefulSet is not under a hold of ours.
    Refused,
}

impl Stand {
    pub(crate) fn new(motion: Motion, phase: Phase, reason: Reason, message: impl Into<String>) -> Self {
        Self { phase, reason, message: plain(&message.into(), MESSAGE_BYTES), motion }
    }
}

/// `2026-01-31T12:00:00Z`
pub(crate) fn clock(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

/// At most `bytes` of `text`, cut at a character boundary, with an ellipsis if something was cut.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let ellipsis = "…";
    let mut kept =
        text.get(..text.floor_char_boundary(bytes.saturating_sub(ellipsis.len()))).unwrap_or_default().to_owned();
    kept.push_str(ellipsis);
    kept
}

/// At most `bytes` of `text` without control characters, each of which would take six bytes in JSON and none of which a person can read.
pub(crate) fn plain(text: &str, bytes: usize) -> String {
    cut(&text.replace(char::is_control, " "), bytes)
}

/// Writes the stand into the status, and the seal that tells it from one that was edited by hand.
pub(crate) fn write(
    status: &mut PhasedRolloutStatus,
    observed: &Observed,
    facts: Option<&Facts>,
    stand: &Stand,
    now: Timestamp,
) {
    status.observed_generation = Some(observed.rollout.generation);
    status.phase = stand.phase;
    status.message.clone_from(&stand.message);
    match facts {
        Some(facts) => count(status, facts, stand.reason != Reason::AwaitingController),
        None if matches!(stand.motion, Motion::Refused) => forget_counts(status),
        None => {}
    }
    let news = Conditions { status, observed, facts, stand, now }.all();
    let before = std::mem::take(&mut status.conditions);
    status.conditions = news
        .into_iter()
        .map(|(kind, new)| dated(&kind.to_string(), new, &before, observed.rollout.generation, now))
        .collect();
    fit(status);
    status.put_seal();
}

/// Another number of replicas is taken up when the controller has seen it, and pods that are born then are told.
fn count(status: &mut PhasedRolloutStatus, facts: &Facts, seen: bool) {
    if seen || status.replicas == 0 {
        status.replicas = facts.replicas();
    }
    status.updated_replicas = facts.count_wanted();
    status.ready_replicas = facts.count_ready();
    status.updated = format!("{}/{}", status.updated_replicas, status.replicas);
}

fn forget_counts(status: &mut PhasedRolloutStatus) {
    (status.replicas, status.updated_replicas, status.ready_replicas) = (0, 0, 0);
    "0/0".clone_into(&mut status.updated);
    status.partition = None;
}

/// Appends verdicts and keeps the last ones.
pub(crate) fn keep_checks(checks: &mut Vec<CheckRecord>, new: &[CheckRecord]) {
    checks.extend_from_slice(new);
    let surplus = checks.len().saturating_sub(KEPT_CHECKS);
    checks.drain(..surplus);
}

/// The sentence of the last try that matters most, of those of a check with so many queries.
pub(crate) fn last_words(checks: &[CheckRecord], queries: usize) -> String {
    let last = || checks.iter().rev().take(queries);
    let record = last().find(|record| !record.passed).or_else(|| last().next());
    record.map_or_else(|| "no check yet".to_owned(), |record| record.message.clone())
}

/// What is wrong with the checks as configured: found while reading, in the last try, or in an earlier one whose repetition is
/// still awaited.
pub(crate) fn config_problem(observed: &Observed, current: &Current, now: Timestamp) -> Option<ConfigProblem> {
    let tried = observed.tried.iter().flat_map(|tried| &tried.config);
    if let Some(problem) = observed.config.iter().chain(tried).next() {
        return Some(problem.clone());
    }
    let awaited = observed.tried.is_none() && current.next_check_time.is_some_and(|next| next > now);
    let before = observed.rollout.status.conditions.iter().find(|condition| condition.type_ == "ChecksValid")?;
    let kept = [Reason::InvalidQuery, Reason::InvalidCredentials]
        .into_iter()
        .find(|reason| before.reason == reason.to_string())?;
    awaited.then(|| ConfigProblem { reason: kept, message: before.message.clone() })
}

/// Gives up details of the oldest verdicts until the status is small enough.
fn fit(status: &mut PhasedRolloutStatus) {
    let too_large =
        |status: &PhasedRolloutStatus| serde_json::to_vec(status).is_ok_and(|json| json.len() > STATUS_BYTES);
    for oldest in 0..status.checks.len() {
        if !too_large(status) {
            return;
        }
        if let Some(check) = status.checks.get_mut(oldest) {
            check.series.clear();
            check.query = cut(&check.query, CONDITION_BYTES);
        }
    }
    while !status.checks.is_empty() && too_large(status) {
        status.checks.remove(0);
    }
}

pub(crate) type New = (bool, Reason, String);

struct Conditions<'a> {
    status: &'a PhasedRolloutStatus,
    observed: &'a Observed,
    facts: Option<&'a Facts<'a>>,
    stand: &'a Stand,
    now: Timestamp,
}

impl Conditions<'_> {
    fn all(&self) -> Vec<(ConditionType, Option<New>)> {
        ConditionType::ALL.into_iter().map(|kind| (kind, self.one(kind))).collect()
    }

    /// `None` means Unknown.
    fn one(&self, kind: ConditionType) -> Option<New> {
        let Stand { reason, message, motion, .. } = self.stand;
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
        matches!(self.stand.motion, Motion::Stalled | Motion::Refused)
    }

    fn is_ready(&self) -> bool {
        self.stand.motion == Motion::Rest && self.facts.is_none_or(|facts| facts.obstacle(&[]).is_none())
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
        let Stand { reason, message, motion, .. } = self.stand;
        let target = &self.observed.rollout.spec.target_ref;
        if *motion == Motion::Refused {
            return (false, *reason, message.clone());
        }
        (true, Reason::Claimed, format!("StatefulSet {target} is claimed by this {}", self.observed.rollout.keeper))
    }

    fn checks_valid(&self) -> New {
        let current = self.status.current.as_ref();
        let problem = match current {
            Some(current) => config_problem(self.observed, current, self.now),
            None => self.observed.config.first().cloned(),
        };
        match problem {
            Some(problem) => (false, problem.reason, problem.message),
            None => (true, Reason::Valid, "queries, variables and credentials are usable".into()),
        }
    }

    fn rolled_out(&self) -> New {
        let Stand { reason, message, motion, .. } = self.stand;
        let known =
            *motion != Motion::Refused && !matches!(reason, Reason::AwaitingController | Reason::RevisionRejected);
        let latched = super::memory::is_settled(self.status) && known;
        if !latched {
            return (false, *reason, message.clone());
        }
        let revision = self.status.target_revision.as_deref().unwrap_or("none");
        if self.status.replicas == 0 {
            return (true, Reason::NoPods, "the set has no replicas; nothing was checked".into());
        }
        if self.status.completion_time.is_some() {
            return (true, Reason::Completed, format!("every pod carries {revision}, which passed its checks"));
        }
        // A latch, but not on a set that has not come up yet.
        let before = &self.observed.rollout.status;
        let was_true = before.target_revision == self.status.target_revision
            && before.conditions.iter().any(|old| old.type_ == "RolledOut" && old.status == "True");
        if let Some(obstacle) =
            self.facts.and_then(|facts| facts.obstacle(&[]).filter(|_| !was_true).map(|it| it.describe(facts)))
        {
            return (false, Reason::PodsNotAvailable, obstacle);
        }
        (
            true,
            Reason::NotVerified,
            format!("every pod carries {revision}, which no rollout of this object has checked"),
        )
    }
}

/// A condition as it is written; it keeps its time while its status stays. `None` means Unknown.
pub(crate) fn dated(kind: &str, new: Option<New>, before: &[Condition], generation: i64, now: Timestamp) -> Condition {
    let (status, reason, message) = match new {
        Some((true, reason, message)) => ("True", reason, message),
        Some((false, reason, message)) => ("False", reason, message),
        None => ("Unknown", Reason::Unknown, "not found out yet".to_owned()),
    };
    let same = before.iter().find(|old| old.type_ == kind && old.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_string(),
        message: plain(&message, CONDITION_BYTES),
        last_transition_time: same.map_or(Time(whole_seconds(now)), |old| old.last_transition_time.clone()),
        observed_generation: Some(generation),
    }
}

/// Kubernetes' `Time` has whole seconds; anything finer would differ from what is read back.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
