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
const KEPT_PASSES: usize = 8;

/// True if the target revision needs nothing more: complete, or never rolled by this operator.
pub(crate) fn is_settled(status: &PhasedRolloutStatus) -> bool {
    status.target_revision.is_some() && (status.completion_time.is_some() || status.start_time.is_none())
}

/// Forgets what a hand may have written: what would let a pod move. What keeps pods from moving (rejected revisions) stays.
pub(crate) fn distrust(status: &mut PhasedRolloutStatus) {
    (status.target_revision, status.previous_revision, status.verified_revision) = (None, None, None);
    (status.start_time, status.completion_time, status.current) = (None, None, None);
    status.passed.clear();
    status.never_healthy = false;
    status.remade_since = None;
    status.rejected_revisions.truncate(KEPT_REJECTIONS);
}

/// Forgets everything that belongs to another StatefulSet. One that was made anew under the same name (deleted with orphan) keeps
/// what is known of revisions: names of revisions are made from their content.
pub(crate) fn bind(status: &mut PhasedRolloutStatus, set: &SetView) {
    if status.target_uid.as_deref() == Some(&set.uid) {
        return;
    }
    let same_name = status.target.as_deref() == Some(&set.name);
    let mut known = std::mem::take(status);
    if !same_name {
        (known.previous_revision, known.verified_revision) = (None, None);
        known.rejected_revisions.clear();
    }
    *status = PhasedRolloutStatus {
        target: Some(set.name.clone()),
        target_uid: Some(set.uid.clone()),
        previous_revision: known.previous_revision,
        verified_revision: known.verified_revision,
        rejected_revisions: known.rejected_revisions,
        conditions: known.conditions,
        retry: known.retry,
        ..PhasedRolloutStatus::default()
    };
}

/// The last good revision as far as the pods tell: at a claim, at the end of skipCheck, and after 0 replicas. That the wanted
/// revision is the current one proves nothing (observed O38): while pods differ, it has to pass the gate.
pub(crate) fn last_good_from_pods<'a>(facts: &Facts<'a>) -> &'a str {
    let current = facts.set.current_revision.as_deref();
    let carried = current.filter(|current| *current != facts.wanted && facts.carries(current));
    let found = carried.or_else(|| facts.most_common_revision_off());
    // Without such pods: what the controller will make below the hold.
    let to_be = current.filter(|_| facts.off().next().is_none());
    found.or(to_be).unwrap_or(facts.wanted)
}

/// Starts over for the wanted revision: counters and verdicts of any other are void.
pub(crate) fn begin(status: &mut PhasedRolloutStatus, wanted: &str, now: Timestamp) {
    status.target_revision = Some(wanted.to_owned());
    status.start_time = Some(now);
    status.last_progress_time = Some(now);
    status.completion_time = None;
    status.current = None;
    status.never_healthy = false;
    status.remade_since = None;
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
    status.remade_since = None;
    status.checks.clear();
}

/// The wanted revision is complete and becomes the last good one.
pub(crate) fn complete(status: &mut PhasedRolloutStatus, wanted: &str, verified: bool, now: Timestamp) {
    status.previous_revision = Some(wanted.to_owned());
    if verified {
        status.verified_revision = Some(wanted.to_owned());
    }
    status.passed = vec![Passed { revision: wanted.to_owned(), index: 0 }];
    status.completion_time = Some(now);
    status.last_progress_time = Some(now);
    status.current = None;
    status.never_healthy = false;
    status.remade_since = None;
}

/// Notes that the pods of a revision from `index` up have passed a cycle.
pub(crate) fn pass(status: &mut PhasedRolloutStatus, revision: &str, index: i32) {
    status.passed.retain(|passed| passed.revision != revision);
    status.passed.push(Passed { revision: revision.to_owned(), index });
    let surplus = status.passed.len().saturating_sub(KEPT_PASSES);
    status.passed.drain(..surplus);
}

/// True if the pod at `index` has passed a cycle at `revision`.
pub(crate) fn has_passed(status: &PhasedRolloutStatus, revision: &str, index: i32) -> bool {
    status.passed.iter().any(|passed| passed.revision == revision && index >= passed.index)
}

/// True if the revision is on the list of rejected ones.
pub(crate) fn is_rejected(status: &PhasedRolloutStatus, revision: &str) -> bool {
    status.rejected_revisions.iter().any(|rejected| rejected == revision)
}

/// True if the revision that was wanted last is a rejected one.
pub(crate) fn rejects_target(status: &PhasedRolloutStatus) -> bool {
    status.target_revision.as_ref().is_some_and(|target| is_rejected(status, target))
}

/// Puts a revision on the list of rejected ones.
pub(crate) fn reject(status: &mut PhasedRolloutStatus, revision: &str) {
    if is_rejected(status, revision) {
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

/// The partition that another write of the set has to carry: as it is, or as the operator wrote it last if somebody else lowered it
/// without a person's permission.
pub(crate) fn kept_partition(set: &SetView) -> i32 {
    let Some(seen) = set.partition else { return names::HOLD };
    let is_allowed = set.annotations.get(names::ALLOW_PARTITION).is_some_and(|allowed| *allowed == seen.to_string());
    let last = written(set).filter(|_| !is_allowed).map_or(seen, |(_, partition)| partition.0);
    seen.max(last)
}

/// The partition that the operator wrote last, and for which revision.
pub(crate) fn written(set: &SetView) -> Option<(&str, Partition)> {
    let (revision, partition) = set.annotations.get(names::WRITTEN_PARTITION)?.rsplit_once('/')?;
    Some((revision, Partition(partition.parse().ok()?)))
}
