//! One check cycle, the same for preflight, pod, final and canaries: everything is available, a delay passes, then checks are made until
//! enough consecutive ones have passed. A cycle fails only because an answer refused: what breaks a streak and is no refusal (an error, a
//! stale pass, a pause, an edited spec, an interruption) gives the tries of the streak back.

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Check, CheckProblem, CheckRecord, Current, ProblemReason, Reason, Verdict, fingerprint};

use crate::{
    observed::{ConfigProblem, Try},
    time::{after, later, seconds_of},
};

/// An error, or a configuration that cannot be used, is looked at again after this long at most.
const RETRY: SignedDuration = SignedDuration::from_secs(30);
/// A pass older than a period and this much does not allow a step any more.
const STALE: SignedDuration = SignedDuration::from_secs(60);

/// What a cycle has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// Since when all pods of the cycle are available; `None` while that is awaited.
    pub(crate) whole_since: Option<Timestamp>,
    /// Checks that count: refusals, and the passes of the streak.
    pub(crate) tries: i32,
    /// Consecutive passes at the end of these.
    pub(crate) passes: i32,
    /// Since when a pod at the revision is broken or cannot be made; the next answer ends it.
    pub(crate) broken_since: Option<Timestamp>,
    pub(crate) last: Option<Timestamp>,
    pub(crate) next: Option<Timestamp>,
    /// Why the last check could not be made as configured.
    pub(crate) unusable: Option<CheckProblem>,
    /// Digest of the check that all this is about.
    pub(crate) check: Option<String>,
}

/// What a cycle rests on.
pub(crate) struct Sight<'a> {
    pub(crate) check: &'a Check,
    /// From the first available pod to the first check, in seconds.
    pub(crate) delay: i32,
    /// The last moment at which a pod became available.
    pub(crate) whole_since: Option<Timestamp>,
    /// What is wrong with the checks as configured.
    pub(crate) config: Option<&'a ConfigProblem>,
    /// The answer to the last question of this cycle.
    pub(crate) answer: Option<&'a Try>,
    pub(crate) now: Timestamp,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// For the next check.
    Waits,
    /// Enough consecutive passes.
    Passed,
    /// maxTries was used up, and an answer refused.
    Refused,
    /// The checks cannot be made until a person changes them. It is looked at again then.
    Unusable(ConfigProblem, Timestamp),
}

impl From<&Current> for Cycle {
    fn from(current: &Current) -> Self {
        Self {
            whole_since: current.since,
            tries: current.tries,
            passes: current.consecutive_passes,
            broken_since: current.broken_since,
            last: current.last_check_time,
            next: current.next_check_time,
            unusable: current.problem.clone(),
            check: current.check.clone(),
        }
    }
}

impl Cycle {
    /// As it is kept in a status.
    pub(crate) fn store(&self, current: &mut Current) {
        (current.since, current.tries, current.consecutive_passes) = (self.whole_since, self.tries, self.passes);
        (current.broken_since, current.last_check_time) = (self.broken_since, self.last);
        current.next_check_time = self.next;
        current.problem.clone_from(&self.unusable);
        current.check.clone_from(&self.check);
    }

    pub(crate) fn next(&mut self, sight: &Sight) -> Turn {
        self.start_clock(sight);
        self.take_up(sight.check);
        // Only an answer that was asked for when the pods were all there counts.
        let next = self.next;
        let is_due = |answer: &&Try| next.is_none_or(|next| answer.time >= next);
        let answer = sight.answer.filter(|answer| self.whole_since.is_some_and(|since| answer.time >= since));
        // Two operators may have asked, while one took over from the other. What the other was told is no pass in a row; if it is none at all,
        // it ends the row.
        let is_pass = |answer: &Try| is_counted(answer) && !has_refused(answer);
        if answer.is_some_and(|answer| !is_due(&answer) && !is_pass(answer)) {
            self.break_streak();
        }
        let answer = answer.filter(is_due);
        if let Some(turn) = self.unusable(sight, answer) {
            return turn;
        }
        let has_counted = answer.is_some_and(|answer| self.count(sight.check, answer));
        if self.passes >= sight.check.success_threshold {
            if !self.is_stale(sight.check, sight.now) {
                return Turn::Passed;
            }
            self.break_streak();
            self.next = Some(sight.now);
        }
        if has_counted && self.tries >= sight.check.max_tries && self.tries > self.passes {
            return Turn::Refused;
        }
        Turn::Waits
    }

    /// The next check. Never later than the spec allows, whatever an older spec or another clock has noted.
    pub(crate) fn schedule(&mut self, sight: &Sight) -> Timestamp {
        let latest = later(sight.now, seconds_of(sight.delay).max(period(sight.check)));
        let first = after(self.whole_since.unwrap_or(sight.now), sight.delay);
        let due = self.next.unwrap_or(first).min(latest);
        self.next = Some(due);
        due
    }

    /// The pods are not all available: the delay starts again, and so does the streak.
    pub(crate) fn interrupt(&mut self) {
        self.break_streak();
        (self.whole_since, self.next) = (None, None);
    }

    /// As [`Cycle::interrupt`], by a person: what was broken meanwhile is not held against the pods.
    pub(crate) fn pause(&mut self) {
        self.interrupt();
        self.broken_since = None;
    }

    /// A pod is broken. When it has been so for as long as all tries take.
    pub(crate) fn broken(&mut self, check: &Check, now: Timestamp) -> (Timestamp, Timestamp) {
        let since = *self.broken_since.get_or_insert(now);
        let all = i64::from(check.max_tries).saturating_mul(i64::from(check.period_seconds));
        (since, later(since, SignedDuration::from_secs(all)))
    }

    fn break_streak(&mut self) {
        self.tries = self.tries.saturating_sub(self.passes).max(0);
        self.passes = 0;
    }

    /// An edited check asks for something else, or at other times: passes of the one before do not count.
    fn take_up(&mut self, check: &Check) {
        let digest = fingerprint(&serde_json::json!(check));
        if self.check.as_ref() != Some(&digest) && self.last.is_some() {
            self.break_streak();
            self.next = self.last.map(|last| later(last, period(check)));
        }
        self.check = Some(digest);
    }

    /// An interruption that nobody saw shows in the pods' own times.
    fn start_clock(&mut self, sight: &Sight) {
        let is_interrupted = match (self.whole_since, sight.whole_since) {
            (Some(since), _) if since > sight.now => true,
            (Some(since), Some(available)) => available > since && available <= sight.now,
            (since, _) => since.is_none(),
        };
        if is_interrupted {
            self.interrupt();
            self.whole_since = Some(sight.now);
        }
    }

    fn unusable(&mut self, sight: &Sight, answer: Option<&Try>) -> Option<Turn> {
        let is_awaited = answer.is_none() && self.next.is_some_and(|next| next > sight.now);
        let kept = self.unusable.take().filter(|_| is_awaited);
        let kept = kept.map(|kept| ConfigProblem { reason: kept.reason.into(), message: kept.message });
        let found = answer.and_then(|answer| answer.config.first());
        let problem = found.or(sight.config).cloned().or(kept)?;
        self.break_streak();
        if let Some(answer) = answer.filter(|_| found.is_some()) {
            self.last = Some(answer.time);
            self.next = Some(retry_time(sight.check, answer.time));
            self.unusable = Some(noted(&problem));
        } else if sight.config.is_none() {
            self.unusable = Some(noted(&problem));
        }
        Some(Turn::Unusable(problem, retry_time(sight.check, sight.now)))
    }

    /// Counts an answer. False if it could not be counted: an error is never a pass, and uses up no try.
    fn count(&mut self, check: &Check, answer: &Try) -> bool {
        if self.is_stale(check, answer.time) {
            self.break_streak();
        }
        self.last = Some(answer.time);
        // The pods were there for long enough to be asked about, even if Prometheus did not answer.
        self.broken_since = None;
        if !is_counted(answer) {
            self.break_streak();
            self.next = Some(retry_time(check, answer.time));
            return false;
        }
        self.tries = self.tries.saturating_add(1);
        self.passes = if has_refused(answer) { 0 } else { self.passes.saturating_add(1) };
        self.next = Some(after(answer.time, check.period_seconds));
        true
    }

    fn is_stale(&self, check: &Check, now: Timestamp) -> bool {
        let limit = later(self.last.unwrap_or(Timestamp::MIN), period(check));
        later(limit, STALE) < now
    }
}

fn has_refused(answer: &Try) -> bool {
    answer.records.iter().any(|record| !record.passed && is_answer(record))
}

/// Some query refused, or all have passed. An error beside a pass says nothing.
pub(crate) fn is_counted(answer: &Try) -> bool {
    let has_passed = !answer.records.is_empty() && answer.records.iter().all(|record| record.passed);
    answer.config.is_empty() && (has_passed || has_refused(answer))
}

/// Prometheus has answered the question: with series, or with none.
fn is_answer(record: &CheckRecord) -> bool {
    matches!(record.verdict, Verdict::Data | Verdict::NoData)
}

fn noted(problem: &ConfigProblem) -> CheckProblem {
    let reason = match problem.reason {
        Reason::InvalidUrl => ProblemReason::InvalidUrl,
        Reason::InvalidCredentials => ProblemReason::InvalidCredentials,
        _ => ProblemReason::InvalidQuery,
    };
    CheckProblem { reason, message: problem.message.clone() }
}

/// When an error, or a configuration that cannot be used, is looked at again.
pub(crate) fn retry_time(check: &Check, time: Timestamp) -> Timestamp {
    later(time, period(check).min(RETRY))
}

fn period(check: &Check) -> SignedDuration {
    seconds_of(check.period_seconds)
}

/// Appends verdicts and keeps the last 5.
pub(crate) fn keep(checks: &mut Vec<CheckRecord>, new: &[CheckRecord]) {
    const KEPT: usize = 5;
    checks.extend_from_slice(new);
    let surplus = checks.len().saturating_sub(KEPT);
    checks.drain(..surplus);
}

/// The sentence of the last try that matters most.
pub(crate) fn last_words(checks: &[CheckRecord], check: &Check) -> String {
    let last = || checks.iter().rev().take(check.all_queries().count());
    let record = last().find(|record| !record.passed).or_else(|| last().next());
    record.map_or_else(|| "no check yet".to_owned(), |record| record.message.clone())
}

/// The record of the last try that could not be counted, while the next one is awaited.
pub(crate) fn unanswered<'a>(checks: &'a [CheckRecord], cycle: &Cycle, check: &Check) -> Option<&'a CheckRecord> {
    cycle.last?;
    if cycle.passes > 0 {
        return None;
    }
    let last = || checks.iter().rev().take(check.all_queries().count());
    let is_refused = last().any(|record| !record.passed && is_answer(record));
    last().find(|record| !record.passed && !is_answer(record)).filter(|_| !is_refused)
}
