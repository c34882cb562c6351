//! What we wrote last, so that no decision is made on a cache that has not seen it yet; and when we last looked past the caches, so
//! that one whose stream has gone silent, or has lost an event, is not believed for ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::errors::Error;

/// The resourceVersion of our last write of each object, and the last look at the API server itself, by UID.
#[derive(Debug, Default)]
pub struct Written {
    last: Mutex<HashMap<String, u64>>,
    looks: Mutex<HashMap<String, Instant>>,
}

impl Written {
    /// Remembers that the write of the object `uid` gave it `resource_version`.
    pub fn remember(&self, uid: &str, resource_version: Option<&str>) {
        // A version that is no number cannot be compared; then each decision about the object is made on a live read anyway.
        let version = resource_version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX);
        self.lock().insert(uid.to_owned(), version);
    }

    /// True if `resource_version` of a cache is as new as our last write of the object.
    pub fn is_seen(&self, uid: &str, resource_version: Option<&str>) -> bool {
        let mut last = self.lock();
        let Some(written) = last.get(uid).copied() else { return true };
        let seen = resource_version.and_then(|version| version.parse::<u64>().ok());
        if seen.is_some_and(|seen| seen >= written) {
            last.remove(uid);
            return true;
        }
        false
    }

    /// True if `resource_version` is older than our last write of the object, or than `cached`, the version in a cache.
    pub fn is_outdated(&self, uid: &str, resource_version: Option<&str>, cached: Option<&str>) -> bool {
        let number = |version: Option<&str>| version.and_then(|version| version.parse::<u64>().ok());
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

    /// The API server itself was asked about the object `uid` just now.
    pub fn looked(&self, uid: &str) {
        self.looks().insert(uid.to_owned(), Instant::now());
    }

    /// How long ago that is. An object that is new to us came from a list just now.
    pub fn look_ago(&self, uid: &str) -> Duration {
        self.looks().entry(uid.to_owned()).or_insert_with(Instant::now).elapsed()
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
        self.looks().remove(uid);
    }

    fn looks(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
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
    async fn a_cache_is_believed_for_a_while_only() {
        let (written, longest) = (Written::default(), Duration::from_secs(10));
        assert!(written.look_ago("a") <= longest, "it came from a list");
        tokio::time::advance(longest + Duration::from_millis(1)).await;
        assert!(written.look_ago("a") > longest);
        written.looked("a");
        assert!(written.look_ago("a") <= longest);
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
