//! What must survive a restart: small, comparable, and in the status. This is the only file that knows how it is written there.

use jiff::Timestamp;
use sts_plus_api::{Current, Failure, FailureReason, OnFailure, Passed, PhasedRolloutStatus, Step};

use crate::{
    checks::Cycle,
    observed::{PodView, SetView},
    slots::Slots,
    units::PodIndex,
};

const KEPT_REJECTIONS: usize = 10;
const KEPT_PASSES: usize = 8;

/// What the engine remembers of the rollout of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Name and UID of the set that all this is about.
    pub(crate) set: Option<(String, String)>,
    /// The revision that was wanted last.
    pub(crate) wanted: Option<String>,
    /// The last good revision.
    pub(crate) good: Option<String>,
    /// The revision whose final checks passed last.
    pub(crate) verified: Option<String>,
    pub(crate) stage: Stage,
    pub(crate) activity: Activity,
    pub(crate) failure: Option<Failure>,
    /// Revisions that were rolled back, newest last.
    pub(crate) rejected: Vec<String>,
    /// Pods that have passed a cycle where they are, by revision, newest last.
    pub(crate) passed: Vec<Passed>,
    /// No pod was ever healthy: broken ones are let through without the gate (§10).
    pub(crate) never_healthy: bool,
    /// Since when broken pods of a failed revision that is the current one were recreated on it.
    pub(crate) remade_since: Option<Timestamp>,
    /// The retry token that was honoured last.
    pub(crate) retry: Option<String>,
    /// The partition that was seen or written last.
    pub(crate) partition: Option<i32>,
    /// How many pods were wanted, and how many of them carried the wanted revision: what is new is told once.
    pub(crate) replicas: i32,
    pub(crate) updated: i32,
    /// A status was written before.
    pub(crate) is_known: bool,
    /// It was edited by hand and is not believed.
    pub(crate) is_edited: bool,
}

/// How far the rollout of the wanted revision is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing is pending: every pod carried it already, or a rollout came to its end then.
    #[default]
    Settled,
    Completed {
        start: Option<Timestamp>,
        end: Timestamp,
        progress: Option<Timestamp>,
    },
    Rolling {
        start: Timestamp,
        progress: Option<Timestamp>,
    },
}

/// What is going on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    #[default]
    Idle,
    /// Checks before the first pod, which is to be the one at this index.
    Preflight(PodIndex, Cycle),
    /// A pod was rolled and is awaited and checked.
    Pod(PodIndex, Cycle),
    /// As `Pod`, and no pod is left to be rolled.
    Final(PodIndex, Cycle),
    /// Pods of failed revisions are replaced without the gate; the lowest of them.
    Repair(PodIndex),
    /// Pods go back to the last good revision; the one that failed, and since when the full hold is seen.
    RollingBack(PodIndex, Option<Timestamp>),
}

impl Activity {
    pub(crate) fn cycle(&self) -> Option<&Cycle> {
        match self {
            Self::Preflight(_, cycle) | Self::Pod(_, cycle) | Self::Final(_, cycle) => Some(cycle),
            Self::Idle | Self::Repair(_) | Self::RollingBack(..) => None,
        }
    }

    pub(crate) fn cycle_mut(&mut self) -> Option<&mut Cycle> {
        match self {
            Self::Preflight(_, cycle) | Self::Pod(_, cycle) | Self::Final(_, cycle) => Some(cycle),
            Self::Idle | Self::Repair(_) | Self::RollingBack(..) => None,
        }
    }

    pub(crate) fn is_rolling_back(&self) -> bool {
        matches!(self, Self::RollingBack(..))
    }
}

impl Memory {
    /// Taken up from the status. What somebody else wrote is not believed: all that would let a pod move is forgotten, what keeps pods from
    /// moving stays.
    pub(crate) fn load(status: &PhasedRolloutStatus) -> Self {
        let kept = Self {
            set: status.target.clone().zip(status.target_uid.clone()),
            rejected: status.rejected_revisions.clone(),
            retry: status.retry.clone(),
            partition: status.partition,
            replicas: status.replicas,
            updated: status.updated_replicas,
            is_known: status.observed_generation.is_some(),
            is_edited: !status.is_sealed(),
            ..Self::default()
        };
        if kept.is_edited {
            let surplus = kept.rejected.len().saturating_sub(KEPT_REJECTIONS);
            return Self { rejected: kept.rejected.into_iter().skip(surplus).collect(), ..kept };
        }
        Self {
            wanted: status.target_revision.clone(),
            good: status.previous_revision.clone(),
            verified: status.verified_revision.clone(),
            stage: stage(status),
            activity: status.current.as_ref().map(activity).unwrap_or_default(),
            failure: failure(status),
            passed: status.passed.clone(),
            never_healthy: status.never_healthy,
            remade_since: status.remade_since,
            ..kept
        }
    }

    /// Written into the status, all but its seal.
    pub(crate) fn store(&self, status: &mut PhasedRolloutStatus, pod_name: impl Fn(PodIndex) -> String) {
        (status.target, status.target_uid) = self.set.clone().unzip();
        status.target_revision.clone_from(&self.wanted);
        status.previous_revision.clone_from(&self.good);
        status.verified_revision.clone_from(&self.verified);
        (status.start_time, status.completion_time, status.last_progress_time) = match &self.stage {
            Stage::Settled => (None, None, None),
            Stage::Completed { start, end, progress } => (*start, Some(*end), *progress),
            Stage::Rolling { start, progress } => (Some(*start), None, *progress),
        };
        status.current = self.current(pod_name);
        status.failure.clone_from(&self.failure);
        status.rejected_revisions.clone_from(&self.rejected);
        status.passed.clone_from(&self.passed);
        status.never_healthy = self.never_healthy;
        status.remade_since = self.remade_since;
        status.retry.clone_from(&self.retry);
        status.partition = self.partition;
    }

    fn current(&self, pod_name: impl Fn(PodIndex) -> String) -> Option<Current> {
        let named = |step, index: PodIndex| Current::new(step, index.0, pod_name(index));
        let (mut current, cycle) = match &self.activity {
            Activity::Idle => return None,
            Activity::Repair(lowest) => return Some(named(Step::Repair, *lowest)),
            Activity::RollingBack(index, begun) => {
                return Some(Current { since: *begun, ..named(Step::Rollback, *index) });
            }
            Activity::Preflight(index, cycle) => (named(Step::Preflight, *index), cycle),
            Activity::Pod(index, cycle) => (named(Step::Pod, *index), cycle),
            Activity::Final(index, cycle) => (named(Step::Final, *index), cycle),
        };
        cycle.store(&mut current);
        current.failed = self.failure.is_some();
        Some(current)
    }

    /// Forgets everything that belongs to another set. One that was recreated under the same name (deleted with orphan) keeps what is known
    /// of revisions: names of revisions are made from their content.
    pub(crate) fn bind(&mut self, set: &SetView) {
        if self.set.as_ref().is_some_and(|(_, uid)| *uid == set.uid) {
            return;
        }
        let has_same_name = self.set.as_ref().is_some_and(|(name, _)| *name == set.name);
        let known = std::mem::take(self);
        self.set = Some((set.name.clone(), set.uid.clone()));
        (self.retry, self.is_known) = (known.retry, known.is_known);
        if has_same_name {
            (self.good, self.verified, self.rejected) = (known.good, known.verified, known.rejected);
        }
    }

    /// Nothing is pending for the wanted revision.
    pub(crate) fn is_settled(&self) -> bool {
        self.wanted.is_some() && !matches!(self.stage, Stage::Rolling { .. })
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(self.stage, Stage::Completed { .. })
    }

    /// Starts over for the wanted revision: counters and verdicts of any other are void.
    pub(crate) fn begin(&mut self, wanted: &str, now: Timestamp) {
        self.restart(wanted);
        self.stage = Stage::Rolling { start: now, progress: Some(now) };
    }

    /// The wanted revision is what all pods carry, without a rollout of ours.
    pub(crate) fn settle_unchecked(&mut self, wanted: &str) {
        self.restart(wanted);
        self.good = Some(wanted.to_owned());
        self.stage = Stage::Settled;
    }

    /// The wanted revision is complete and becomes the last good one.
    pub(crate) fn complete(&mut self, wanted: &str, is_verified: bool, now: Timestamp) {
        let start = self.start();
        self.restart(wanted);
        self.good = Some(wanted.to_owned());
        if is_verified {
            self.verified = Some(wanted.to_owned());
        }
        self.passed = vec![Passed { revision: wanted.to_owned(), index: 0, since: Some(now) }];
        self.stage = Stage::Completed { start, end: now, progress: Some(now) };
    }

    fn restart(&mut self, wanted: &str) {
        self.wanted = Some(wanted.to_owned());
        (self.activity, self.failure) = (Activity::Idle, None);
        (self.never_healthy, self.remade_since) = (false, None);
    }

    pub(crate) fn start(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Rolling { start, .. } => Some(start),
            Stage::Completed { start, .. } => start,
            Stage::Settled => None,
        }
    }

    /// A pod was rolled, or a step ended well.
    pub(crate) fn progress(&mut self, now: Timestamp) {
        if let Stage::Rolling { progress, .. } | Stage::Completed { progress, .. } = &mut self.stage {
            *progress = Some(now);
        }
    }

    /// The pods of a revision from `index` up have passed a cycle; they are all there `since` then.
    pub(crate) fn pass(&mut self, revision: &str, index: i32, since: Timestamp) {
        self.passed.retain(|passed| passed.revision != revision);
        self.passed.push(Passed { revision: revision.to_owned(), index, since: Some(since) });
        let surplus = self.passed.len().saturating_sub(KEPT_PASSES);
        self.passed.drain(..surplus);
    }

    /// True if this pod has passed a cycle where it is. One that was created later at its index is another pod.
    pub(crate) fn has_passed(&self, index: PodIndex, pod: &PodView) -> bool {
        let is_it = |passed: &Passed| {
            Some(&passed.revision) == pod.revision.as_ref()
                && index.0 >= passed.index
                && passed.since.is_some_and(|since| pod.created <= since)
        };
        self.passed.iter().any(is_it)
    }

    /// A rollout of the revision came to its end: only that covers the pod at index 0.
    pub(crate) fn was_completed(&self, revision: &str) -> bool {
        self.passed.iter().any(|passed| passed.revision == revision && passed.index == 0)
    }

    pub(crate) fn is_rejected(&self, revision: &str) -> bool {
        self.rejected.iter().any(|rejected| rejected == revision)
    }

    pub(crate) fn reject(&mut self, revision: &str) {
        if self.is_rejected(revision) {
            return;
        }
        self.rejected.push(revision.to_owned());
        let surplus = self.rejected.len().saturating_sub(KEPT_REJECTIONS);
        self.rejected.drain(..surplus);
    }

    /// The last good revision; the wanted one if nothing is known.
    pub(crate) fn last_good(&self, slots: &Slots) -> String {
        self.good.clone().unwrap_or_else(|| good_from_pods(slots).to_owned())
    }
}

fn stage(status: &PhasedRolloutStatus) -> Stage {
    let progress = status.last_progress_time;
    match (status.completion_time, status.start_time) {
        (Some(end), start) => Stage::Completed { start, end, progress },
        (None, Some(start)) => Stage::Rolling { start, progress },
        (None, None) => Stage::Settled,
    }
}

fn activity(current: &Current) -> Activity {
    let index = PodIndex(current.index);
    let cycle = || Cycle::from(current);
    match current.step {
        Step::Preflight => Activity::Preflight(index, cycle()),
        Step::Pod => Activity::Pod(index, cycle()),
        Step::Final => Activity::Final(index, cycle()),
        Step::Repair => Activity::Repair(index),
        Step::Rollback => Activity::RollingBack(index, current.since),
    }
}

/// A build that had no record of its own for it marked the step as failed, or was rolling back: that it failed is taken up, and where it had
/// not begun to go back the policy is that of the spec.
fn failure(status: &PhasedRolloutStatus) -> Option<Failure> {
    let marked = || {
        let policy = match status.current.as_ref()? {
            current if current.step == Step::Rollback => OnFailure::Rollback,
            current if current.failed => OnFailure::Hold,
            _ => return None,
        };
        let revision = status.target_revision.clone()?;
        Some(Failure { revision, reason: FailureReason::ChecksFailed, policy })
    };
    status.failure.clone().or_else(marked)
}

/// The last good revision as far as the pods tell: at a claim, at the end of skipCheck, and after 0 replicas. That the wanted
/// revision is the current one proves nothing (observed O38): while pods differ, it has to pass the gate.
pub(crate) fn good_from_pods<'a>(slots: &Slots<'a>) -> &'a str {
    let current = slots.set.current_revision.as_deref();
    let carried = current.filter(|current| *current != slots.wanted && slots.carries(current));
    let found = carried.or_else(|| slots.most_common_revision_off());
    // Without such pods: what the controller makes below the hold.
    let to_be = current.filter(|_| slots.off().next().is_none());
    found.or(to_be).unwrap_or(slots.wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(created: Timestamp) -> PodView {
        PodView {
            name: "web-4".to_owned(),
            uid: "u".to_owned(),
            ordinal: 4,
            revision: Some("web-b".to_owned()),
            created,
            deleting: false,
            gone_by: None,
            finished: false,
            ready: true,
            ready_since: None,
            problem: None,
            zone: None,
            version: None,
            node: None,
        }
    }

    #[test]
    fn a_pod_that_was_made_after_the_checks_of_its_index_has_not_passed() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut memory = Memory::default();
        memory.pass("web-b", 3, at(100));
        assert!(memory.has_passed(PodIndex(4), &pod(at(90))));
        assert!(!memory.has_passed(PodIndex(4), &pod(at(101))), "it came back");
        assert!(!memory.has_passed(PodIndex(2), &pod(at(90))), "it is below");
        let other = PodView { revision: Some("web-a".to_owned()), ..pod(at(90)) };
        assert!(!memory.has_passed(PodIndex(4), &other));
    }
}
