//! One request for many that ask the same at the same time. Twenty rollouts that watch the same alert ask Prometheus once in a
//! period, not twenty times. Same means all of it: URL, query, time-out, credentials, and everything of TLS. An answer must never
//! be given to somebody who may not have asked for it himself, and never be older than a try may accept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::OnceCell;

use crate::decode::{Decoded, Reply, decode};
use crate::request::QueryRequest;
use crate::tls::TlsSettings;
use crate::transport::{Transport, TransportError};

/// The oldest answer that anybody gets, however long his period is.
const OLDEST: Duration = Duration::from_mins(1);
/// An error is asked about again after this time or the period, whichever is shorter (phased-rollout.md §3).
const RETRY: Duration = Duration::from_secs(30);
/// A larger answer is only given to those who wait for it, and not kept.
const LARGEST_KEPT: usize = 64 << 10;
/// Beyond this many kept answers everybody asks for himself.
const MOST: usize = 4096;
/// Whoever waits for somebody else's request waits this much longer than it may take.
const GRACE: Duration = Duration::from_millis(200);

/// How old an answer may be.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// Nothing that was asked before this moment.
    not_before: Instant,
    answer: Duration,
    error: Duration,
}

impl Freshness {
    /// Nothing that was asked before now.
    #[must_use]
    pub fn now() -> Self {
        Self { not_before: Instant::now(), answer: Duration::ZERO, error: Duration::ZERO }
    }

    /// For a try of a check that is made every `period`, and that could have been made for `due` now: what was asked before that
    /// says nothing about the pods as they are. An answer is used for nine tenths of the period, so that no rollout gets the same
    /// one in two tries.
    #[must_use]
    pub fn of(due: Duration, period: Duration) -> Self {
        let now = Instant::now();
        let part = |period: Duration| period * 9 / 10;
        Self {
            not_before: now.checked_sub(due).unwrap_or(now),
            answer: part(period.min(OLDEST)),
            error: part(period.min(RETRY)),
        }
    }

    fn accepts(&self, entry: &Entry, now: Instant) -> bool {
        let age = now.saturating_duration_since(entry.asked);
        let limit = match entry.outcome.get() {
            // It comes at most as late as if it was asked for now.
            None => self.answer,
            Some(outcome) if outcome.is_answer => self.answer,
            Some(_) => self.error,
        };
        entry.asked >= self.not_before && age <= limit
    }
}

/// What came of a request.
#[derive(Debug)]
struct Outcome {
    result: Result<Reply, TransportError>,
    is_answer: bool,
}

impl Outcome {
    fn of(result: Result<Reply, TransportError>) -> Self {
        let is_answer = result
            .as_ref()
            .is_ok_and(|reply| matches!(decode(reply), Decoded::Series { warnings, .. } if warnings.is_empty()));
        Self { result, is_answer }
    }

    fn is_small(&self) -> bool {
        self.result.as_ref().map_or(true, |reply| reply.body.len() <= LARGEST_KEPT)
    }
}

/// A request and, as soon as it is there, its outcome. If whoever has sent it goes away, the next one who waits sends it again.
#[derive(Debug)]
struct Entry {
    asked: Instant,
    outcome: OnceCell<Outcome>,
}

/// Everything that makes two requests the same, as a keyed hash: no credential is kept.
type Fingerprint = [u8; 32];

/// The requests of the last minute.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Made anew at each start, so that a fingerprint says nothing to anybody else. None if the system gives no random numbers:
    /// then nothing is shared.
    key: Option<hmac::Key>,
    entries: Mutex<HashMap<Fingerprint, Arc<Entry>>>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        Self { key, entries: Mutex::default() }
    }

    /// The outcome of `request`, asked for now or by somebody else as lately as `fresh` wants it.
    pub(crate) async fn exchange(
        &self,
        transport: &Transport,
        request: &QueryRequest,
        tls: TlsSettings,
        fresh: Freshness,
    ) -> Result<Reply, TransportError> {
        let Some(fingerprint) = self.fingerprint(request, &tls) else {
            return transport.exchange(request, tls).await;
        };
        let entry = self.entry(fingerprint, fresh);
        let ask = || async { Outcome::of(transport.exchange(request, tls).await) };
        let outcome = tokio::time::timeout(request.timeout() + GRACE, entry.outcome.get_or_init(ask)).await;
        let Ok(outcome) = outcome else { return Err(TransportError::TimedOut(request.timeout())) };
        if !outcome.is_small() {
            self.forget(fingerprint, &entry);
        }
        outcome.result.clone()
    }

    fn fingerprint(&self, request: &QueryRequest, tls: &TlsSettings) -> Option<Fingerprint> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        for part in request.parts().into_iter().chain(tls.parts()) {
            // With its length, so that no two lists of parts are one text.
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            context.update(&length.to_be_bytes());
            context.update(part.unwrap_or_default());
        }
        context.sign().as_ref().try_into().ok()
    }

    /// The entry that is fresh enough, or a new one.
    fn entry(&self, fingerprint: Fingerprint, fresh: Freshness) -> Arc<Entry> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&fingerprint).filter(|entry| fresh.accepts(entry, now)) {
            return Arc::clone(entry);
        }
        entries.retain(|_, entry| now.saturating_duration_since(entry.asked) <= OLDEST);
        let entry = Arc::new(Entry { asked: now, outcome: OnceCell::new() });
        if entries.len() < MOST {
            entries.insert(fingerprint, Arc::clone(&entry));
        }
        entry
    }

    fn forget(&self, fingerprint: Fingerprint, entry: &Arc<Entry>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(&fingerprint).is_some_and(|kept| Arc::ptr_eq(kept, entry)) {
            entries.remove(&fingerprint);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rstest::rstest;

    use super::*;

    fn reply(body: &str) -> Reply {
        let content_type = Some("application/json".to_owned());
        Reply { status: 200, content_type, body: Bytes::copy_from_slice(body.as_bytes()), ..Reply::default() }
    }

    const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    const PARTIAL: &str = r#"{"status":"success","warnings":["w"],"data":{"resultType":"vector","result":[]}}"#;
    const REFUSED: &str = r#"{"status":"error","errorType":"internal","error":"x"}"#;

    /// Ages in seconds at which an outcome is still used and no longer, by period. An error, or anything that may become one, is
    /// asked about again as soon as a retry is due.
    #[rstest]
    #[case::answer(Ok(reply(EMPTY)), 10, 9, 10)]
    #[case::answer_of_a_minute(Ok(reply(EMPTY)), 60, 54, 55)]
    #[case::answer_of_an_hour(Ok(reply(EMPTY)), 3600, 54, 55)]
    #[case::partial(Ok(reply(PARTIAL)), 60, 27, 28)]
    #[case::refused(Ok(reply(REFUSED)), 60, 27, 28)]
    #[case::short_error(Err(TransportError::TooManyRedirects), 10, 9, 10)]
    #[case::error(Err(TransportError::TooManyRedirects), 60, 27, 28)]
    fn ages(
        #[case] result: Result<Reply, TransportError>,
        #[case] period: u64,
        #[case] used: u64,
        #[case] too_old: u64,
    ) {
        let asked = Instant::now();
        let entry = Entry { asked, outcome: OnceCell::new_with(Some(Outcome::of(result))) };
        let fresh =
            Freshness { not_before: asked, ..Freshness::of(Duration::from_hours(1), Duration::from_secs(period)) };
        assert!(fresh.accepts(&entry, asked + Duration::from_secs(used)));
        assert!(!fresh.accepts(&entry, asked + Duration::from_secs(too_old)));
        let later = Freshness { not_before: asked + Duration::from_millis(1), ..fresh };
        assert!(!later.accepts(&entry, asked + Duration::from_secs(1)), "from before the pods were there");
    }

    /// No two lists of parts look the same, and a part that is missing is none that is empty.
    #[test]
    fn what_is_not_the_same_has_another_fingerprint() {
        let shared = Shared::new();
        let request = |url: &str, expr: &str| {
            let url = url::Url::parse(url).unwrap();
            QueryRequest::new(url, expr, Duration::from_secs(5), http::HeaderValue::from_static("x"), None)
        };
        let print = |request: &QueryRequest| shared.fingerprint(request, &TlsSettings::system()).unwrap();
        assert_eq!(print(&request("http://a/", "up")), print(&request("http://a/", "up")));
        assert_ne!(print(&request("http://a/", "up")), print(&request("http://a/", "u")));
        assert_ne!(print(&request("http://a/", "up")), print(&request("http://a/q", "up")));
        let other = Shared::new();
        assert_ne!(
            other.fingerprint(&request("http://a/", "up"), &TlsSettings::system()),
            Some(print(&request("http://a/", "up")))
        );
    }
}
