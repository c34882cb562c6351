//! What must never happen, written down by an observer that knows nothing of how `decide` works: a pod that is on the last good
//! revision leaves it only for a revision that passed its checks in that state (or in the cases that phased-rollout §4.8, §4.9
//! and §10 name), one pod at a time, and a rollout is complete only when it is.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::{OnFailure, PhasedRolloutStatus, Verdict};
use sts_plus_decide::{Observed, Try};

use crate::world::{Pod, Set, World, second};

/// What the rules know, and what broke them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    books: BTreeMap<String, Book>,
    /// Broken rules, one sentence each.
    pub breaches: Vec<String>,
    /// True if nothing is promised about pods, because the admission policy is off.
    pub without_policy: bool,
    /// True if the operator works on old pictures, so that a pod may have fallen ill since.
    pub stale: bool,
}

#[derive(Clone, Debug, Default)]
struct Book {
    /// The last good revision.
    good: Option<String>,
    /// Passes in a row for `streak_of`, with all pods there, since anything was disturbed.
    streak: i32,
    streak_of: String,
    /// Passes in a row when the partition was lowered last or raised to rest.
    approved: BTreeSet<(String, i32)>,
    /// What a pod carried that is on its way out, by ordinal.
    leaving: BTreeMap<i32, String>,
}

impl Ledger {
    fn book(&mut self, set: &str) -> &mut Book {
        self.books.entry(set.to_owned()).or_default()
    }

    /// The last good revision of `set` as the rules see it.
    #[must_use]
    pub fn good(&self, set: &str) -> Option<&str> {
        self.books.get(set)?.good.as_deref()
    }

    /// What its status says the last good revision is.
    pub(crate) fn note_good(&mut self, set: &str, revision: Option<&String>) {
        self.book(set).good = revision.cloned();
    }

    /// The StatefulSet is gone.
    pub(crate) fn forget(&mut self, set: &str) {
        self.books.remove(set);
    }

    /// What the pod carried that is on its way out at this ordinal, or was before it is made anew.
    #[must_use]
    pub fn leaving(&self, set: &str, ordinal: i32) -> Option<&str> {
        self.books.get(set)?.leaving.get(&ordinal).map(String::as_str)
    }

    /// Sets the number of passes in a row.
    pub(crate) fn recount(&mut self, set: &str, streak: i32) {
        self.book(set).streak = streak;
    }

    /// Revision and index pairs that may move.
    #[must_use]
    pub fn approved(&self, set: &str) -> Vec<(String, i32)> {
        self.books.get(set).map(|book| book.approved.iter().cloned().collect()).unwrap_or_default()
    }

    /// Passes in a row, as the rules count them.
    #[must_use]
    pub fn streak(&self, set: &str) -> (String, i32) {
        self.books.get(set).map(|book| (book.streak_of.clone(), book.streak)).unwrap_or_default()
    }

    fn breach(&mut self, sentence: String) {
        if !self.without_policy {
            self.breaches.push(sentence);
        }
    }

    pub(crate) fn deleted(&mut self, set: &str, ordinal: i32, revision: &str) {
        let book = self.book(set);
        book.streak = 0;
        book.leaving.insert(ordinal, revision.to_owned());
    }

    /// A pod outside the range goes for good.
    pub(crate) fn condemned(&mut self, set: &str, ordinal: i32) {
        self.book(set).leaving.remove(&ordinal);
    }

    /// A pod fell ill.
    pub(crate) fn disturbed(&mut self, set: &str) {
        self.book(set).streak = 0;
    }

    /// A new template: what was approved for another one is void.
    pub(crate) fn template_changed(&mut self, set: &str) {
        // Passes stay: they are counted for their revision, and a template that comes and goes unseen disturbs no pod.
        self.book(set).approved.clear();
    }

    /// A person or the end of the gate allows these indexes.
    pub(crate) fn allow(&mut self, set: &str, revision: &str, indexes: impl Iterator<Item = i32>) {
        let book = self.book(set);
        book.approved.extend(indexes.map(|index| (revision.to_owned(), index)));
    }

    /// The heart: a pod that was on the last good revision comes back on another one.
    pub(crate) fn created(&mut self, set: &Set, ordinal: i32, revision: &str) {
        let index = ordinal - set.start;
        let given = set.status.current.as_deref() == Some(revision) || set.status.current.is_none();
        let book = self.book(&set.name);
        book.streak = 0;
        let before = book.leaving.remove(&ordinal);
        let approved = |index| book.approved.contains(&(revision.to_owned(), index));
        let good = book.good.clone();
        if given || good.is_none() || good.as_deref() == Some(revision) || approved(index) {
            return;
        }
        match before {
            Some(before) if good == Some(before.clone()) => {
                self.breach(format!("{} moved from {before} to {revision} unapproved", set.pod_name(ordinal)));
            }
            // Born by a scale-up: only onto a revision that is approved for some pod.
            None if !book.approved.iter().any(|(approved, _)| approved == revision) => {
                self.breach(format!("{} was born at {revision}, of which no pod is approved", set.pod_name(ordinal)));
            }
            _ => {}
        }
    }
}

impl World {
    /// Counts a try as the rules see it. One whose outcome is not written down was not made: it is made again.
    pub(crate) fn note_try(&mut self, observed: &Observed, tried: &Try) {
        let target = observed.rollout.spec.target_ref.clone();
        let Some(set) = self.sets.get(&target) else { return };
        let (whole, wanted) = (self.is_whole(set), set.wanted());
        let passed = tried.config.is_empty() && tried.records.iter().all(|r| r.passed && r.verdict != Verdict::Error);
        let book = self.ledger.book(&target);
        if book.streak_of != wanted {
            (book.streak, book.streak_of) = (0, wanted.clone());
        }
        book.streak = if passed && whole && tried.request.revision == wanted { book.streak + 1 } else { 0 };
    }

    /// Every pod is there and available, and no other is.
    #[must_use]
    pub fn is_whole(&self, set: &Set) -> bool {
        let there = |o: i32| set.pods.get(&o).is_some_and(|pod| pod.is_available(set.min_ready, self.now));
        set.ordinals().all(there) && set.pods.len() == set.ordinals().count()
    }

    /// The operator changed the partition of a set that was `before`.
    pub(crate) fn judge_step(&mut self, observed: &Observed, before: &Set) {
        let Some(set) = self.sets.get(&before.name).cloned() else { return };
        let wanted = set.wanted();
        let opened: Vec<i32> = set
            .ordinals()
            .map(|o| o - set.start)
            .filter(|index| *index >= set.threshold() && *index < before.threshold())
            .filter(|index| set.pods.get(&(index + set.start)).is_none_or(|pod| pod.revision != wanted))
            .collect();
        if opened.is_empty() {
            return;
        }
        let spec = &observed.rollout.spec;
        let let_go = spec.skips_checks() || observed.rollout.deleting || spec.target_ref != before.name;
        if let_go || self.may_repair(&set, &opened) || Self::never_healthy(&set, &opened) {
            self.ledger.allow(&set.name, &wanted, opened.into_iter());
            return;
        }
        match self.why_not(observed, &set, &opened) {
            None => self.ledger.allow(&set.name, &wanted, opened.into_iter()),
            Some(why) => {
                let breach = format!("partition of {} lowered to {} at {wanted}: {why}", set.name, set.threshold());
                self.ledger.breach(breach);
            }
        }
        self.ledger.disturbed(&set.name);
    }

    /// What the gate lacks for opening these indexes.
    fn why_not(&self, observed: &Observed, set: &Set, opened: &[i32]) -> Option<String> {
        let check = &observed.rollout.spec.check;
        let first = !set.pods.values().any(|pod| pod.revision == set.wanted());
        let waived = (first && !check.preflight) || check.on_failure == OnFailure::Proceed;
        let (of, streak) = self.ledger.streak(&set.name);
        let off_below =
            |index: &i32| set.pods.get(&(index + set.start)).is_some_and(|pod| pod.revision != set.wanted());
        let higher = (opened.first().copied().unwrap_or(0) + 1..set.replicas).find(off_below);
        match () {
            () if opened.len() > 1 => Some(format!("{} pods at once", opened.len())),
            () if higher.is_some() => Some("not the highest index".to_owned()),
            () if waived => None,
            () if !self.ledger.stale && !self.is_whole(set) => Some(format!("pods are {}", set.layout())),
            () if of != set.wanted() || streak < check.success_threshold => {
                Some(format!("{streak} passes in a row for {of}, {} needed", check.success_threshold))
            }
            () => None,
        }
    }

    /// §4.9: none of them is on the last good revision, or that is where they go.
    #[must_use]
    pub fn may_repair(&self, set: &Set, opened: &[i32]) -> bool {
        let Some(good) = self.ledger.good(&set.name) else { return false };
        // A slot without a pod counts as what was there, or what would be made there under the hold.
        let unfilled = |index: i32| self.ledger.leaving(&set.name, index + set.start).or(set.status.current.as_deref());
        let carries = |index: i32| set.pods.get(&(index + set.start)).map(|pod| pod.revision.as_str());
        let left = |index: &i32| carries(*index).or_else(|| unfilled(*index)) != Some(good);
        good == set.wanted() || opened.iter().all(left)
    }

    /// §10: no pod is Ready, and those that move are broken. Slots that the controller has not filled have nothing to lose.
    #[must_use]
    pub fn never_healthy(set: &Set, opened: &[i32]) -> bool {
        let ill = |index: &i32| set.pods.get(&(index + set.start)).is_none_or(|pod| !pod.ready);
        !set.pods.values().any(|pod| pod.is_healthy() && pod.revision != set.wanted()) && opened.iter().all(ill)
    }

    /// The operator deletes a pod: never a healthy one that is on the last good revision.
    pub(crate) fn judge_delete(&mut self, set: &Set, ordinal: i32) {
        let good = self.ledger.good(&set.name).map(str::to_owned);
        let Some(pod) = set.pods.get(&ordinal) else { return };
        if pod.is_healthy() && Some(&pod.revision) == good.as_ref() && !self.ledger.stale {
            self.ledger.breach(format!("{} is healthy on {} and was deleted", set.pod_name(ordinal), pod.revision));
        }
    }

    /// When all have acted: as long as no pod carries the pending revision through a step of ours, the hold is the full one, so that
    /// a scale-up cannot start pods on it (§4.1, §4.7).
    pub fn judge_hold(&mut self, rollout: &str) {
        let Some(own) = self.rollouts.get(rollout) else { return };
        let Some(set) = self.sets.get(&own.spec.target_ref) else { return };
        let gated = !own.spec.skips_checks() && !own.deleting && own.finalizer;
        let wanted = set.wanted();
        let approved = self.ledger.approved(&set.name);
        let stands = approved.iter().any(|(revision, index)| *revision == wanted && *index < set.replicas);
        let pending =
            set.status.current.as_ref() != Some(&wanted) && !set.pods.values().any(|pod| pod.revision == wanted);
        if gated && pending && !stands && set.replicas > 0 && set.partition != Some(i32::MAX) {
            let breach = format!("{wanted} is not approved and the partition is {:?}: {}", set.partition, set.layout());
            self.ledger.breach(breach);
        }
    }

    /// The operator writes a status: complete only when it is, and the hold first.
    pub(crate) fn judge_status(&mut self, observed: &Observed, status: &PhasedRolloutStatus) {
        let target = observed.rollout.spec.target_ref.clone();
        let Some(set) = self.sets.get(&target) else { return };
        let completes = status.completion_time.is_some() && observed.rollout.status.completion_time.is_none();
        let check = &observed.rollout.spec.check;
        let (of, streak) = self.ledger.streak(&target);
        let mut breaches = kstatus_breaches(status);
        if completes {
            let wanted = set.wanted();
            let all = set.pods.values().all(|pod| pod.revision == wanted);
            // A revert before any pod moved: what passed once has not changed since.
            let before = &observed.rollout.status;
            let start = before.start_time.map_or(i64::MIN, second);
            let has_stayed = |pod: &Pod| pod.gone_at.is_none() && pod.created <= start;
            let was_complete = before.passed.iter().any(|passed| passed.revision == wanted && passed.index == 0);
            let is_as_it_was = was_complete && set.pods.values().all(has_stayed);
            let proven = !check.final_check
                || is_as_it_was
                || check.on_failure == OnFailure::Proceed
                || (of == wanted && streak >= check.success_threshold);
            let facts = [
                (all && self.is_whole(set) || self.ledger.stale, "pods are not all there"),
                (proven, "the final checks have not passed"),
                (set.threshold() >= set.replicas, "the hold is not in place"),
                (set.status.current.as_ref() == Some(&wanted), "the current revision is another one"),
            ];
            let layout = set.layout();
            breaches.extend(
                facts.iter().filter(|(holds, _)| !holds).map(|(_, why)| format!("completed with {layout}: {why}")),
            );
        }
        self.ledger.breaches.extend(breaches);
        self.ledger.book(&target).good.clone_from(&status.previous_revision);
    }
}

/// Ready, Reconciling and Stalled: exactly one is true.
fn kstatus_breaches(status: &PhasedRolloutStatus) -> Vec<String> {
    let is = |kind: &str| status.conditions.iter().any(|c| c.type_ == kind && c.status == "True");
    let truths = ["Ready", "Reconciling", "Stalled"].map(is);
    let count = truths.iter().filter(|is| **is).count();
    if count == 1 || status.conditions.is_empty() {
        return Vec::new();
    }
    vec![format!("kstatus: Ready, Reconciling, Stalled are {truths:?} in phase {:?}", status.phase)]
}
