//! What we wrote last, so that no decision is made on a cache that has not seen it yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The resourceVersion of our last write of each object, by UID.
#[derive(Debug, Default)]
pub struct Written {
    last: Mutex<HashMap<String, u64>>,
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

    /// Forgets an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
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
