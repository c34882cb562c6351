//! One request for many that ask the same at the same time. Twenty rollouts that watch the same alert ask Prometheus once in a
//! period, not twenty times. Same means all of it: URL, query, time-out, credentials, and everything of TLS. An answer must never
//! be given to somebody who may not have asked for it himself, and never be older than a try may accept.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::OnceCell;
use tokio::time::timeout_at;

use crate::decode::DecodedReply;
use crate::endpoint::origin;
use crate::kept::{Fingerprint, Kept};
use crate::places::Places;
use crate::request::QueryRequest;
use crate::tls::TlsSettings;
use crate::transport::{Transport, TransportError};

/// The oldest answer that anybody gets, however long his period is.
const OLDEST: Duration = Duration::from_mins(1);
/// How often what is older than that is looked for.
const SWEEP: Duration = Duration::from_secs(15);
/// An error is asked about again after this time or the period, whichever is shorter (phased-rollout.md §3).
const RETRY: Duration = Duration::from_secs(30);
/// What all kept answers may take, in bytes, and one of them: a larger one is only given to those who wait for it.
const BUDGET: usize = 16 << 20;
const LARGEST_KEPT: usize = 64 << 10;
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
        // It waits for a place, and will be asked later than now.
        let Some(asked) = entry.asked.get() else { return true };
        let age = now.saturating_duration_since(*asked);
        let limit = match entry.outcome.get() {
            // It comes at most as late as if it was asked for now.
            None => self.answer,
            Some(outcome) if outcome.is_answer => self.answer,
            Some(_) => self.error,
        };
        *asked >= self.not_before && age <= limit
    }
}

/// What came of a request.
#[derive(Debug)]
struct Outcome {
    result: Result<Arc<DecodedReply>, TransportError>,
    is_answer: bool,
}

impl Outcome {
    fn of(result: Result<DecodedReply, TransportError>) -> Self {
        let is_answer = result.as_ref().is_ok_and(DecodedReply::is_answer);
        Self { result: result.map(Arc::new), is_answer }
    }

    fn size(&self) -> usize {
        self.result.as_ref().map_or_else(|e| e.to_string().len(), |reply| reply.size())
    }
}

/// A request and, as soon as it is there, its outcome. If whoever has sent it goes away, the next one who waits sends it again.
#[derive(Debug, Default)]
struct Entry {
    /// When it was sent first.
    asked: OnceLock<Instant>,
    outcome: OnceCell<Outcome>,
}

/// The requests of the last minute.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Made anew at each start, so that a fingerprint says nothing to anybody else. None if the system gives no random numbers:
    /// then nothing is shared.
    key: Option<hmac::Key>,
    entries: Mutex<Entries>,
    places: Places,
}

#[derive(Debug)]
struct Entries {
    kept: Kept<Entry>,
    swept: Instant,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        let entries = Entries { kept: Kept::new(BUDGET), swept: Instant::now() };
        Self { key, entries: Mutex::new(entries), places: Places::new() }
    }

    /// The outcome of `request`, asked for now or by somebody else as lately as `fresh` wants it.
    pub(crate) async fn exchange(
        &self,
        transport: &Transport,
        request: &QueryRequest,
        tls: TlsSettings,
        fresh: Freshness,
    ) -> Result<Arc<DecodedReply>, TransportError> {
        let deadline = tokio::time::Instant::now() + request.timeout();
        let fingerprint = self.fingerprint(request, &tls);
        let entry = fingerprint.map_or_else(Arc::default, |fingerprint| self.entry(fingerprint, fresh));
        let ask = || self.ask(transport, request, tls, deadline, &entry);
        let outcome = timeout_at(deadline + GRACE, entry.outcome.get_or_try_init(ask)).await;
        let outcome = outcome.map_err(|_| TransportError::timed_out(request.timeout()))??;
        if let Some(fingerprint) = fingerprint {
            self.weigh(&fingerprint, &entry, outcome.size());
        }
        outcome.result.clone()
    }

    /// Asks as soon as there is a place. That there is none is nobody else's outcome: the next one who waits tries by himself.
    async fn ask(
        &self,
        transport: &Transport,
        request: &QueryRequest,
        tls: TlsSettings,
        deadline: tokio::time::Instant,
        entry: &Entry,
    ) -> Result<Outcome, TransportError> {
        let mut place = self.places.take(origin(&request.url), request.timeout(), deadline).await?;
        entry.asked.get_or_init(Instant::now);
        match transport.exchange(request, tls, &mut place).await {
            Err(busy @ TransportError::Busy(_)) => Err(busy),
            result => Ok(Outcome::of(result)),
        }
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
        let mut entries = self.entries();
        entries.sweep(now);
        if let Some(entry) = entries.kept.get(&fingerprint).filter(|entry| fresh.accepts(entry, now)) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(Entry::default());
        entries.kept.put(fingerprint, Arc::clone(&entry));
        entry
    }

    fn weigh(&self, fingerprint: &Fingerprint, entry: &Arc<Entry>, size: usize) {
        let kept = &mut self.entries().kept;
        if size > LARGEST_KEPT {
            kept.forget(fingerprint, entry);
        } else {
            kept.weigh(fingerprint, entry, size);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Forgets what is too old for anybody, and what was never asked and nobody waits for.
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.kept.forget_all(|entry| match entry.asked.get() {
            Some(asked) => now.saturating_duration_since(*asked) > OLDEST,
            None => Arc::strong_count(entry) == 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rstest::rstest;

    use super::*;
    use crate::decode::Reply;

    fn reply(body: &str) -> DecodedReply {
        let content_type = Some("application/json".to_owned());
        let body = Bytes::copy_from_slice(body.as_bytes());
        DecodedReply::of(&Reply { status: 200, content_type, body, ..Reply::default() })
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
        #[case] result: Result<DecodedReply, TransportError>,
        #[case] period: u64,
        #[case] used: u64,
        #[case] too_old: u64,
    ) {
        let asked = Instant::now();
        let entry = Entry { asked: asked.into(), outcome: OnceCell::new_with(Some(Outcome::of(result))) };
        let fresh =
            Freshness { not_before: asked, ..Freshness::of(Duration::from_hours(1), Duration::from_secs(period)) };
        assert!(fresh.accepts(&entry, asked + Duration::from_secs(used)));
        assert!(!fresh.accepts(&entry, asked + Duration::from_secs(too_old)));
        let later = Freshness { not_before: asked + Duration::from_millis(1), ..fresh };
        assert!(!later.accepts(&entry, asked + Duration::from_secs(1)), "from before the pods were there");
    }

    /// It will be asked later than now, whatever is wanted.
    #[test]
    fn what_waits_for_a_place_is_new_enough_for_everybody() {
        assert!(Freshness::now().accepts(&Entry::default(), Instant::now()));
    }

    #[test]
    fn what_is_too_old_for_anybody_is_forgotten() {
        let (now, mut kept) = (Instant::now(), Kept::new(BUDGET));
        let awaited = Arc::new(Entry::default());
        for (n, entry) in
            [Arc::default(), Arc::clone(&awaited), Arc::new(Entry { asked: now.into(), ..Entry::default() })]
                .into_iter()
                .enumerate()
        {
            kept.put([u8::try_from(n).unwrap(); 32], entry);
        }
        let mut entries = Entries { kept, swept: now };
        let mut there = |now| {
            entries.sweep(now);
            [0, 1, 2].map(|n| entries.kept.get(&[n; 32]).is_some())
        };
        assert_eq!(there(now), [true, true, true]);
        assert_eq!(there(now + SWEEP), [false, true, true], "nobody waits for the first");
        assert_eq!(there(now + OLDEST + SWEEP), [false, true, false]);
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
