//! What is remembered of each object between two runs: the try of a check that is under way, failures, when the API server itself was looked at,
//! and what was found there that no cache holds. One slot for each object, which goes with it.
//!
//! Prometheus may take its time; an object must not: while it is asked, a new revision is seen and held as at any other time. So a try runs
//! beside the controller and wakes the object when it is done. Its outcome is there until it has been written: what a conflict or an edit of
//! something else would lose could be a refusal, and passes around it would look like a streak.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sts_plus_api::fingerprint;
use sts_plus_decide::{CheckRequest, Try};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::pace;

/// The outcome of a try is worth nothing after this time: what it says about the pods is no longer fresh.
const FRESH: Duration = Duration::from_secs(15);
/// A failed run can cause the very event that starts the next one, so events do not cut this rest short; it is short enough for a hold.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// What exactly was asked for. An outcome is only handed out for the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Digest of the check: the queries.
    pub check: String,
    /// UID of the StatefulSet.
    pub set_uid: String,
    /// The request of the plan: cycle and variables.
    pub request: CheckRequest,
}

impl Asked {
    /// `request` of the plan, with these queries.
    pub fn of(check: &impl Serialize, set_uid: &str, request: &CheckRequest) -> Self {
        Self { check: fingerprint(&json!(check)), set_uid: set_uid.to_owned(), request: request.clone() }
    }
}

/// Where the try of an object stands.
#[derive(Debug)]
pub enum Stand {
    /// None for this request: it is to be started.
    None,
    /// Under way.
    Running,
    /// Done, and true for who sees it first. It is there until [`Slots::stop`], or something else is asked.
    Done(Box<Try>, bool),
}

struct Attempt {
    asked: Asked,
    task: Option<AbortHandle>,
    outcome: Option<(Box<Try>, Instant)>,
    is_seen: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

struct Slot<F> {
    attempt: Option<Attempt>,
    /// Failures in a row, and the end of the rest after them.
    failures: Option<(u32, Instant)>,
    looked: Instant,
    /// The caches were waited for, and it was in vain.
    lags: bool,
    findings: F,
}

impl<F: Default> Default for Slot<F> {
    /// An object that is new to us came from a list just now.
    fn default() -> Self {
        Self { attempt: None, failures: None, looked: Instant::now(), lags: false, findings: F::default() }
    }
}

/// The slots of all objects of a kind, by UID. `F` is what is found out about one and is in no cache.
#[derive(Default)]
pub struct Slots<F> {
    slots: Mutex<HashMap<String, Slot<F>>>,
}

impl<F: Default + Send + 'static> Slots<F> {
    /// True if the outcome for `asked` is still awaited.
    pub fn is_running(&self, uid: &str, asked: &Asked) -> bool {
        let slots = self.lock();
        let attempt = slots.get(uid).and_then(|slot| slot.attempt.as_ref());
        attempt.is_some_and(|attempt| attempt.asked == *asked && attempt.outcome.is_none())
    }

    /// True if a try has an outcome that nobody has written down.
    pub fn is_done(&self, uid: &str) -> bool {
        let slots = self.lock();
        slots.get(uid).and_then(|slot| slot.attempt.as_ref()).is_some_and(|attempt| attempt.outcome.is_some())
    }

    /// Where the try for `asked` stands. One for something else is stopped.
    pub fn look(&self, uid: &str, asked: &Asked) -> Stand {
        self.with(uid, |slot| {
            let fits = |attempt: &mut Attempt| {
                let is_fresh = attempt.outcome.as_ref().is_none_or(|(_, at)| at.elapsed() <= FRESH);
                attempt.asked == *asked && is_fresh
            };
            if !slot.attempt.as_mut().is_some_and(fits) {
                slot.attempt = None;
            }
            let Some(attempt) = &mut slot.attempt else { return Stand::None };
            let Some((outcome, _)) = &attempt.outcome else { return Stand::Running };
            Stand::Done(outcome.clone(), !std::mem::replace(&mut attempt.is_seen, true))
        })
    }

    /// Starts a try; `wake` is called when it is done.
    pub fn start(
        self: &Arc<Self>,
        uid: &str,
        asked: Asked,
        attempt: impl Future<Output = Try> + Send + 'static,
        wake: impl FnOnce() + Send + 'static,
    ) {
        let (slots, key, same) = (Arc::clone(self), uid.to_owned(), asked.clone());
        // The lock is held until the attempt is there: the task cannot end before.
        self.with(uid, |slot| {
            let task = tokio::spawn(async move {
                let outcome = Box::new(attempt.await);
                if slots.ended(&key, &same, outcome) {
                    wake();
                }
            });
            slot.attempt = Some(Attempt { asked, task: Some(task.abort_handle()), outcome: None, is_seen: false });
        });
    }

    /// True if somebody still waits for it.
    fn ended(&self, uid: &str, asked: &Asked, outcome: Box<Try>) -> bool {
        let mut slots = self.lock();
        let attempt = slots.get_mut(uid).and_then(|slot| slot.attempt.as_mut());
        let Some(attempt) = attempt.filter(|attempt| attempt.asked == *asked) else { return false };
        (attempt.outcome, attempt.task) = (Some((outcome, Instant::now())), None);
        true
    }

    /// Stops and forgets the try of an object.
    pub fn stop(&self, uid: &str) {
        let attempt = self.lock().get_mut(uid).and_then(|slot| slot.attempt.take());
        drop(attempt);
    }

    /// A run failed; how many in a row that makes.
    pub fn failed(&self, uid: &str) -> u32 {
        self.with(uid, |slot| {
            let count = slot.failures.map_or(0, |(count, _)| count).saturating_add(1);
            slot.failures = Some((count, Instant::now() + pace::after_failures(count, FIRST_REST, LONGEST_REST)));
            count
        })
    }

    /// A run went well.
    pub fn went_well(&self, uid: &str) {
        if let Some(slot) = self.lock().get_mut(uid) {
            slot.failures = None;
        }
    }

    /// How long the object still rests after failures.
    #[must_use]
    pub fn rest(&self, uid: &str) -> Option<Duration> {
        let (_, until) = self.lock().get(uid)?.failures?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// The API server itself was asked about the object just now.
    pub fn looked(&self, uid: &str) {
        self.with(uid, |slot| slot.looked = Instant::now());
    }

    /// How long ago that is.
    pub fn look_ago(&self, uid: &str) -> Duration {
        self.with(uid, |slot| slot.looked.elapsed())
    }

    /// Notes whether the caches lag behind what was written; returns whether they did before.
    pub fn lags(&self, uid: &str, lags: bool) -> bool {
        self.with(uid, |slot| std::mem::replace(&mut slot.lags, lags))
    }

    /// Reads or changes what was found out.
    pub fn findings<T>(&self, uid: &str, act: impl FnOnce(&mut F) -> T) -> T {
        self.with(uid, |slot| act(&mut slot.findings))
    }

    /// The object is gone, and all that is remembered of it goes.
    pub fn forget(&self, uid: &str) {
        let slot = self.lock().remove(uid);
        drop(slot);
    }

    /// True if nothing is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn with<T>(&self, uid: &str, act: impl FnOnce(&mut Slot<F>) -> T) -> T {
        let mut slots = self.lock();
        if let Some(slot) = slots.get_mut(uid) {
            return act(slot);
        }
        act(slots.entry(uid.to_owned()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot<F>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use sts_plus_api::Step;
    use sts_plus_decide::CheckKey;

    use super::*;

    fn slots() -> Arc<Slots<()>> {
        Arc::default()
    }

    fn asked(revision: &str) -> Asked {
        let key = CheckKey { revision: revision.to_owned(), index: 2, step: Step::Pod };
        Asked::of(&"c", "s", &CheckRequest { key, variables: BTreeMap::new() })
    }

    fn outcome(asked: &Asked) -> Try {
        Try {
            request: asked.request.key.clone(),
            time: Timestamp::UNIX_EPOCH,
            records: Vec::new(),
            config: Vec::new(),
            warnings: Vec::new(),
        }
    }

    async fn done(slots: &Arc<Slots<()>>, what: &Asked) {
        let (wake, woken) = tokio::sync::oneshot::channel::<()>();
        let outcome = outcome(what);
        slots.start("u", what.clone(), async move { outcome }, move || drop(wake));
        let _ = woken.await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_there_until_it_is_written() {
        let slots = slots();
        done(&slots, &asked("a")).await;
        assert!(matches!(slots.look("u", &asked("a")), Stand::Done(_, true)));
        assert!(matches!(slots.look("u", &asked("a")), Stand::Done(_, false)), "the write met a conflict");
        slots.stop("u");
        assert!(matches!(slots.look("u", &asked("a")), Stand::None));
    }

    // spec: L067, L072
    #[tokio::test(start_paused = true)]
    async fn an_outcome_for_something_else_is_void() {
        let slots = slots();
        done(&slots, &asked("a")).await;
        assert!(matches!(slots.look("u", &asked("b")), Stand::None));
        assert!(matches!(slots.look("u", &asked("a")), Stand::None), "and gone");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_outcome_is_void() {
        let slots = slots();
        done(&slots, &asked("a")).await;
        tokio::time::advance(FRESH * 2).await;
        assert!(matches!(slots.look("u", &asked("a")), Stand::None));
    }

    // spec: L067
    #[tokio::test(start_paused = true)]
    async fn a_try_under_way_is_awaited_and_can_be_stopped() {
        let slots = slots();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let attempt = async move {
            let _sender = sender;
            std::future::pending().await
        };
        slots.start("u", asked("a"), attempt, || ());
        tokio::task::yield_now().await;
        assert!(slots.is_running("u", &asked("a")));
        assert!(matches!(slots.look("u", &asked("a")), Stand::Running));
        slots.forget("u");
        assert!(receiver.await.is_err(), "the task is gone");
        assert!(!slots.is_running("u", &asked("a")) && slots.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_rests_longer_after_each_failure_and_never_long() {
        let slots = slots();
        assert_eq!(slots.rest("u"), None);
        assert_eq!(slots.failed("u"), 1);
        assert!(slots.rest("u").unwrap() <= FIRST_REST);
        for _ in 0..50 {
            slots.failed("u");
        }
        assert!(slots.rest("u").unwrap() > Duration::from_secs(3));
        assert!(slots.rest("u").unwrap() <= LONGEST_REST);
        tokio::time::advance(LONGEST_REST).await;
        assert_eq!(slots.rest("u"), None);
        slots.went_well("u");
        assert_eq!(slots.failed("u"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_gets_old() {
        let (slots, longest) = (slots(), Duration::from_secs(10));
        assert!(slots.look_ago("a") <= longest, "it came from a list");
        tokio::time::advance(longest + Duration::from_millis(1)).await;
        assert!(slots.look_ago("a") > longest);
        slots.looked("a");
        assert!(slots.look_ago("a") <= longest);
    }
}
