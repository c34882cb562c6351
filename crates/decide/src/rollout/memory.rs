//! What must survive a restart, kept in the status: for which set and revision, where the rollout began, what has passed. A
//! revision change voids counters and verdicts.

use jiff::Timestamp;
use sts_plus_api::{Passed, PhasedRolloutStatus, names};

use super::facts::Facts;
use crate::{
    SetView,
    units::{Partition, PodIndex},
};

const KEPT_REJECTIONS: usize = 10;

/// True if the target revision needs nothing more: complete, or never rolled by this operator.
pub(crate) fn is_settled(status: &PhasedRolloutStatus) -> bool {
    status.target_revision.is_some() && (status.completion_time.is_some() || status.start_time.is_none())
}

/// Forgets everything that belongs to another StatefulSet.
pub(crate) fn bind(status: &mut PhasedRolloutStatus, set: &SetView) {
    if status.target_uid.as_deref() == Some(&set.uid) {
        return;
    }
    *status = PhasedRolloutStatus {
        target: Some(set.name.clone()),
        target_uid: Some(set.uid.clone()),
        conditions: std::mem::take(&mut status.conditions),
        retry: status.retry.take(),
        ..PhasedRolloutStatus::default()
    };
}

/// The last good revision as far as the pods tell: at a claim, at the end of skipCheck, and after 0 replicas.
pub(crate) fn last_good_from_pods<'a>(facts: &Facts<'a>) -> &'a str {
    let current = facts.set.current_revision.as_deref().filter(|current| facts.carries(current));
    // Without pods: what the controller will make below the hold.
    let to_be = facts.set.current_revision.as_deref();
    current.or_else(|| facts.most_common_revision()).or(to_be).unwrap_or(facts.wanted)
}

/// Starts over for the wanted revision: counters and verdicts of any other are void.
pub(crate) fn begin(status: &mut PhasedRolloutStatus, wanted: &str, now: Timestamp) {
    status.target_revision = Some(wanted.to_owned());
    status.start_time = Some(now);
    status.last_progress_time = Some(now);
    status.completion_time = None;
    status.current = None;
    status.never_healthy = false;
    status.checks.clear();
}

/// The wanted revision is what all pods carry, without a rollout of ours.
pub(crate) fn settle_unchecked(status: &mut PhasedRolloutStatus, wanted: &str) {
    status.target_revision = Some(wanted.to_owned());
    status.previous_revision = Some(wanted.to_owned());
    status.start_time = None;
    status.completion_time = None;
    status.last_progress_time = None;
    status.current = None;
    status.never_healthy = false;
    status.checks.clear();
}

/// The wanted revision is complete and becomes the last good one.
pub(crate) fn complete(status: &mut PhasedRolloutStatus, wanted: &str, verified: bool, now: Timestamp) {
    status.previous_revision = Some(wanted.to_owned());
    if verified {
        status.verified_revision = Some(wanted.to_owned());
    }
    status.passed = Some(Passed { revision: wanted.to_owned(), index: 0 });
    status.completion_time = Some(now);
    status.last_progress_time = Some(now);
    status.current = None;
    status.never_healthy = false;
}

/// Puts a revision on the list of rejected ones.
pub(crate) fn reject(status: &mut PhasedRolloutStatus, revision: &str) {
    if status.rejected_revisions.iter().any(|rejected| rejected == revision) {
        return;
    }
    status.rejected_revisions.push(revision.to_owned());
    let surplus = status.rejected_revisions.len().saturating_sub(KEPT_REJECTIONS);
    status.rejected_revisions.drain(..surplus);
}

/// The index that was opened last for the wanted revision, if the partition still stands there.
pub(crate) fn opened(facts: &Facts) -> Option<PodIndex> {
    let (revision, partition) = written(facts.set)?;
    let is_index = (0..facts.replicas()).contains(&partition.0);
    (is_index && revision == facts.wanted && partition == facts.partition()).then_some(PodIndex(partition.0))
}

/// The partition that the operator wrote last, and for which revision.
pub(crate) fn written(set: &SetView) -> Option<(&str, Partition)> {
    let (revision, partition) = set.annotations.get(names::WRITTEN_PARTITION)?.rsplit_once('/')?;
    Some((revision, Partition(partition.parse().ok()?)))
}
