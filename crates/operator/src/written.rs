//! What we wrote last, so that no decision is made on a cache that has not seen it yet, and what was not granted, so that it is not written
//! over and over.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use crate::errors::Error;

/// A step that was not granted is not tried again for so long.
const NOT_GRANTED: Duration = Duration::from_secs(30);

/// A resourceVersion that can be compared with others.
pub(crate) fn number(resource_version: Option<&str>) -> Option<u64> {
    resource_version?.parse().ok()
}

/// Our last write of each object, by UID.
#[derive(Debug, Default)]
pub struct Written {
    /// Its resourceVersion, until a cache has seen it.
    last: Mutex<HashMap<String, u64>>,
    /// Until when no step is tried, and the partition that was kept.
    kept: Mutex<HashMap<String, (Instant, Option<i32>)>>,
}

impl Written {
    /// Remembers that the write of the object `uid` gave it `resource_version`.
    pub fn remember(&self, uid: &str, resource_version: Option<&str>) {
        // A version that is no number cannot be compared; then each decision about the object is made on a live read anyway.
        let version = number(resource_version).unwrap_or(u64::MAX);
        self.lock().insert(uid.to_owned(), version);
    }

    /// True if `resource_version` of a cache is as new as our last write of the object.
    pub fn is_seen(&self, uid: &str, resource_version: Option<&str>) -> bool {
        let mut last = self.lock();
        let Some(written) = last.get(uid).copied() else { return true };
        if number(resource_version).is_some_and(|seen| seen >= written) {
            last.remove(uid);
            return true;
        }
        false
    }

    /// True if each of these objects of a cache is as new as our last write of it.
    pub fn are_seen<'a>(&self, mut cached: impl Iterator<Item = &'a ObjectMeta>) -> bool {
        cached.all(|meta| meta.uid.as_deref().is_some_and(|uid| self.is_seen(uid, meta.resource_version.as_deref())))
    }

    /// True if `resource_version` is older than our last write of the object, or than `cached`, the version in a cache.
    pub fn is_outdated(&self, uid: &str, resource_version: Option<&str>, cached: Option<&str>) -> bool {
        let Some(read) = number(resource_version) else { return false };
        // A version of ours that is no number stands as the highest one, and nothing can be said.
        let written = self.lock().get(uid).copied().filter(|written| *written != u64::MAX);
        written.max(number(cached)).is_some_and(|known| read < known)
    }

    /// An answer that is older than what we know already, from a cache or from our own write, is no ground for a decision: it would be
    /// made about another template, and with nothing to wake us when it turns out to be wrong.
    ///
    /// # Errors
    ///
    /// If `read` is older than our last write of the object, or than `cached`.
    pub fn not_outdated(
        &self,
        uid: Option<&str>,
        read: Option<&str>,
        cached: Option<&str>,
        what: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        if uid.is_some_and(|uid| self.is_outdated(uid, read, cached)) {
            return Err(Error::Outdated { what: what() });
        }
        Ok(())
    }

    /// A partition written to the set `uid` was not granted; `kept` stands there.
    pub fn not_granted(&self, uid: &str, kept: Option<i32>) {
        self.kept().insert(uid.to_owned(), (Instant::now() + NOT_GRANTED, kept));
    }

    /// The partition that was kept when a step of the set `uid` was not granted a short time ago.
    #[must_use]
    pub fn lately_kept(&self, uid: &str) -> Option<Option<i32>> {
        let now = Instant::now();
        let mut all = self.kept();
        all.retain(|_, (until, _)| *until > now);
        all.get(uid).map(|(_, kept)| *kept)
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
        self.kept().remove(uid);
    }

    /// True if nothing is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty() && self.kept().is_empty()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, (Instant, Option<i32>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_cache_is_stale_until_it_has_caught_up() {
        let written = Written::default();
        assert!(written.is_seen("a", Some("7")));
        written.remember("a", Some("100"));
        assert!(!written.is_seen("a", Some("99")), "compared as numbers, not as text");
        assert!(written.is_seen("b", Some("1")), "another object");
        assert!(written.is_seen("a", Some("100")));
        assert!(written.is_seen("a", Some("99")), "once caught up, the memory is gone");
    }

    #[test]
    fn an_answer_is_outdated_if_a_write_or_a_cache_is_newer() {
        let written = Written::default();
        assert!(!written.is_outdated("a", Some("9"), None), "nothing is known");
        assert!(written.is_outdated("a", Some("9"), Some("10")), "compared as numbers, not as text");
        assert!(!written.is_outdated("a", Some("10"), Some("10")));
        written.remember("a", Some("12"));
        assert!(written.is_outdated("a", Some("11"), Some("10")));
        assert!(!written.is_outdated("a", Some("12"), Some("10")));
        written.remember("a", Some("x"));
        assert!(!written.is_outdated("a", Some("1"), Some("y")), "what cannot be compared is believed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_was_not_granted_is_remembered_for_a_while() {
        let written = Written::default();
        written.not_granted("s", Some(3));
        assert_eq!(written.lately_kept("s"), Some(Some(3)));
        assert_eq!(written.lately_kept("t"), None);
        tokio::time::advance(NOT_GRANTED).await;
        assert_eq!(written.lately_kept("s"), None);
        assert!(written.is_empty());
    }

    #[test]
    fn what_cannot_be_compared_is_stale() {
        let written = Written::default();
        written.remember("a", Some("100"));
        assert!(!written.is_seen("a", Some("x")));
        assert!(!written.is_seen("a", None));
        written.remember("a", Some("x"));
        assert!(!written.is_seen("a", Some("5")));
        written.forget("a");
        assert!(written.is_seen("a", Some("5")));
    }
}
