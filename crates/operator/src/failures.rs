//! Failures in a row of each object, and how long it rests after them. A failed run can cause the very event that starts the next
//! one, so events do not cut this rest short; it is short enough for a hold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::pace;

const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5);
/// A step that was not granted is not tried again for so long.
const NOT_GRANTED: Duration = Duration::from_secs(30);

/// What went wrong lately.
#[derive(Debug, Default)]
pub struct Failures {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By UID of the PhasedRollout: failures in a row, and the end of the rest.
    rows: HashMap<String, (u32, Instant)>,
    /// By UID of the StatefulSet: until when no step is tried, and the partition that was kept.
    kept: HashMap<String, (Instant, Option<i32>)>,
}

impl Failures {
    /// A run of `uid` failed; how many in a row that makes.
    pub fn failed(&self, uid: &str) -> u32 {
        let now = Instant::now();
        let mut inner = self.lock();
        let (count, until) = inner.rows.entry(uid.to_owned()).or_insert((0, now));
        *count = count.saturating_add(1);
        *until = now + pace::after_failures(*count, FIRST_REST, LONGEST_REST);
        *count
    }

    /// A run of `uid` went well, or the object is gone.
    pub fn clear(&self, uid: &str) {
        self.lock().rows.remove(uid);
    }

    /// How long `uid` still rests.
    #[must_use]
    pub fn rest(&self, uid: &str) -> Option<Duration> {
        let until = self.lock().rows.get(uid)?.1;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// A partition written to the set `uid` was not granted; `kept` stands there.
    pub fn not_granted(&self, uid: &str, kept: Option<i32>) {
        self.lock().kept.insert(uid.to_owned(), (Instant::now() + NOT_GRANTED, kept));
    }

    /// The partition that was kept when a step of the set `uid` was not granted a short time ago.
    #[must_use]
    pub fn lately_kept(&self, uid: &str) -> Option<Option<i32>> {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.kept.retain(|_, (until, _)| *until > now);
        inner.kept.get(uid).map(|(_, kept)| *kept)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_rests_longer_after_each_failure_and_never_long() {
        let failures = Failures::default();
        assert_eq!(failures.rest("u"), None);
        assert_eq!(failures.failed("u"), 1);
        assert!(failures.rest("u").unwrap() <= FIRST_REST);
        for _ in 0..50 {
            failures.failed("u");
        }
        assert!(failures.rest("u").unwrap() > Duration::from_secs(3));
        assert!(failures.rest("u").unwrap() <= LONGEST_REST);
        tokio::time::advance(LONGEST_REST).await;
        assert_eq!(failures.rest("u"), None);
        failures.clear("u");
        assert_eq!(failures.failed("u"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_was_not_granted_is_remembered_for_a_while() {
        let failures = Failures::default();
        failures.not_granted("s", Some(3));
        assert_eq!(failures.lately_kept("s"), Some(Some(3)));
        assert_eq!(failures.lately_kept("t"), None);
        tokio::time::advance(NOT_GRANTED).await;
        assert_eq!(failures.lately_kept("s"), None);
    }
}
