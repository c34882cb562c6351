//! Tries under way. Prometheus may take its time; an object must not: while it is asked, a new revision is seen and held as at any
//! other time. So a try runs beside the controller and wakes the object when it is done. Its outcome is there until it has been written: what
//! a conflict or an edit of something else would lose could be a refusal, and passes around it would look like a streak.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sts_plus_api::fingerprint;
use sts_plus_decide::{CheckRequest, Try};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The outcome of a try is worth nothing after this time: what it says about the pods is no longer fresh.
const FRESH: Duration = Duration::from_secs(15);

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
    /// Done, and true for who sees it first. It is there until [`Tries::forget`], or something else is asked.
    Done(Box<Try>, bool),
}

/// The tries of all objects, at most one each, by UID of the PhasedRollout.
#[derive(Default)]
pub struct Tries {
    slots: Mutex<HashMap<String, Slot>>,
}

struct Slot {
    asked: Asked,
    task: Option<AbortHandle>,
    outcome: Option<(Box<Try>, Instant)>,
    is_seen: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Tries {
    /// True if the outcome for `asked` is still awaited.
    pub fn is_running(&self, uid: &str, asked: &Asked) -> bool {
        self.lock().get(uid).is_some_and(|slot| slot.asked == *asked && slot.outcome.is_none())
    }

    /// Where the try for `asked` stands. One for something else is stopped.
    pub fn look(&self, uid: &str, asked: &Asked) -> Stand {
        let mut slots = self.lock();
        let fits =
            |slot: &Slot| slot.asked == *asked && slot.outcome.as_ref().is_none_or(|(_, at)| at.elapsed() <= FRESH);
        if !slots.get(uid).is_some_and(fits) {
            slots.remove(uid);
        }
        let Some(slot) = slots.get_mut(uid) else { return Stand::None };
        let Some((outcome, _)) = &slot.outcome else { return Stand::Running };
        Stand::Done(outcome.clone(), !std::mem::replace(&mut slot.is_seen, true))
    }

    /// Starts a try; `wake` is called when it is done.
    pub fn start(
        self: &Arc<Self>,
        uid: &str,
        asked: Asked,
        attempt: impl Future<Output = Try> + Send + 'static,
        wake: impl FnOnce() + Send + 'static,
    ) {
        let (tries, key, same) = (Arc::clone(self), uid.to_owned(), asked.clone());
        // The lock is held until the slot is there: the task cannot end before.
        let mut slots = self.lock();
        let task = tokio::spawn(async move {
            let outcome = Box::new(attempt.await);
            let mut slots = tries.lock();
            if let Some(slot) = slots.get_mut(&key).filter(|slot| slot.asked == same) {
                slot.outcome = Some((outcome, Instant::now()));
                slot.task = None;
                drop(slots);
                wake();
            }
        });
        slots.insert(uid.to_owned(), Slot { asked, task: Some(task.abort_handle()), outcome: None, is_seen: false });
    }

    /// Stops and forgets the try of an object.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
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

    async fn done(tries: &Arc<Tries>, what: &Asked) {
        let (wake, woken) = tokio::sync::oneshot::channel::<()>();
        let outcome = outcome(what);
        tries.start("u", what.clone(), async move { outcome }, move || drop(wake));
        let _ = woken.await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_is_there_until_it_is_written() {
        let tries = Arc::new(Tries::default());
        done(&tries, &asked("a")).await;
        assert!(matches!(tries.look("u", &asked("a")), Stand::Done(_, true)));
        assert!(matches!(tries.look("u", &asked("a")), Stand::Done(_, false)), "the write met a conflict");
        tries.forget("u");
        assert!(matches!(tries.look("u", &asked("a")), Stand::None));
    }

    // spec: L067, L072
    #[tokio::test(start_paused = true)]
    async fn an_outcome_for_something_else_is_void() {
        let tries = Arc::new(Tries::default());
        done(&tries, &asked("a")).await;
        assert!(matches!(tries.look("u", &asked("b")), Stand::None));
        assert!(matches!(tries.look("u", &asked("a")), Stand::None), "and gone");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_outcome_is_void() {
        let tries = Arc::new(Tries::default());
        done(&tries, &asked("a")).await;
        tokio::time::advance(FRESH * 2).await;
        assert!(matches!(tries.look("u", &asked("a")), Stand::None));
    }

    // spec: L067
    #[tokio::test(start_paused = true)]
    async fn a_try_under_way_is_awaited_and_can_be_stopped() {
        let tries = Arc::new(Tries::default());
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let attempt = async move {
            let _sender = sender;
            std::future::pending().await
        };
        tries.start("u", asked("a"), attempt, || ());
        tokio::task::yield_now().await;
        assert!(tries.is_running("u", &asked("a")));
        assert!(matches!(tries.look("u", &asked("a")), Stand::Running));
        tries.forget("u");
        assert!(receiver.await.is_err(), "the task is gone");
        assert!(!tries.is_running("u", &asked("a")));
    }
}
