//! How many requests may be under way: in all, to one origin, and with an answer that is large. One slow or dead Prometheus must never take
//! the places of the others, and whoever waits for a place must never wait beyond the deadline of his query.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Requests under way, to all origins and to one. It takes eight dead origins to keep a healthy one waiting.
const ALL: usize = 128;
const OF_ORIGIN: usize = 16;
/// An answer up to this size needs no more than the place of its request; there are fewer places for larger ones, since each of them may
/// take [`MAX_BODY`](crate::decode::MAX_BODY).
pub(crate) const SMALL: usize = 64 << 10;
const LARGE: usize = 8;
const LARGE_OF_ORIGIN: usize = 2;

/// No place became free in time; a clause for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    #[error(
        "this operator has too many queries under way for it, and none of the {OF_ORIGIN} places became free in time \
         (timeoutSeconds: {}): have them asked less often (periodSeconds) or answered sooner", .0.as_secs()
    )]
    Origin(Duration),
    #[error(
        "this operator has too many queries under way for all that it asks, and none of the {ALL} places became free in time \
         (timeoutSeconds: {}): look for a Prometheus that does not answer", .0.as_secs()
    )]
    All(Duration),
    #[error(
        "this operator has too many queries with large answers under way, and this one is larger than {} KiB: aggregate in the \
         expression", SMALL >> 10
    )]
    Large,
}

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// Those who have or await a place, by origin. Whoever is not there has none.
    origins: Mutex<HashMap<String, Arc<Share>>>,
}

/// The part of one origin.
#[derive(Debug)]
struct Share {
    requests: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

/// The right to have a request under way; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// They go before the visit does.
    permits: Vec<OwnedSemaphorePermit>,
    visit: Visit<'a>,
    /// Until when the request has to be done.
    pub(crate) deadline: Instant,
    /// Until when to wait for more.
    latest: Instant,
    /// How long this place was waited for.
    pub(crate) waited: Duration,
    is_large: bool,
}

/// Somebody who has or awaits a place.
#[derive(Debug)]
struct Visit<'a> {
    places: &'a Places,
    origin: String,
    share: Arc<Share>,
}

impl Places {
    pub(crate) fn new() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { all: places(ALL), large: places(LARGE), origins: Mutex::default() }
    }

    /// A place for a request to `origin` that has to be done within `timeout`, of which `deadline` is the end. A tenth of it is left for
    /// the answer: a request that cannot be answered in time any more helps nobody.
    pub(crate) async fn take(&self, origin: String, timeout: Duration, deadline: Instant) -> Result<Place<'_>, Busy> {
        let start = Instant::now();
        let visit = self.enter(origin);
        // First of the origin: those who wait for a slow one hold none of the places of all.
        let latest = deadline - timeout / 10;
        let own = permit(&visit.share.requests, latest).await.ok_or(Busy::Origin(timeout))?;
        let of_all = permit(&self.all, latest).await.ok_or(Busy::All(timeout))?;
        Ok(Place { visit, deadline, latest, waited: start.elapsed(), is_large: false, permits: vec![own, of_all] })
    }

    fn enter(&self, origin: String) -> Visit<'_> {
        let places = |count| Arc::new(Semaphore::new(count));
        let mut origins = self.origins();
        let share = origins
            .entry(origin.clone())
            .or_insert_with(|| Arc::new(Share { requests: places(OF_ORIGIN), large: places(LARGE_OF_ORIGIN) }));
        let share = Arc::clone(share);
        Visit { places: self, origin, share }
    }

    fn origins(&self) -> MutexGuard<'_, HashMap<String, Arc<Share>>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until the answer may be larger than [`SMALL`].
    pub(crate) async fn enlarge(&mut self) -> Result<(), Busy> {
        if self.is_large {
            return Ok(());
        }
        for places in [&self.visit.share.large, &self.visit.places.large] {
            self.permits.push(permit(places, self.latest).await.ok_or(Busy::Large)?);
        }
        self.is_large = true;
        Ok(())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let mut origins = self.places.origins();
        // The map and this visit.
        if Arc::strong_count(&self.share) == 2 {
            origins.remove(&self.origin);
        }
    }
}

async fn permit(places: &Arc<Semaphore>, deadline: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(deadline, Arc::clone(places).acquire_owned()).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    async fn take<'a>(places: &'a Places, origin: &str) -> Result<Place<'a>, Busy> {
        places.take(origin.to_owned(), TIMEOUT, Instant::now() + TIMEOUT).await
    }

    async fn fill<'a>(places: &'a Places, origin: &str) -> Vec<Place<'a>> {
        let mut taken = Vec::new();
        for _ in 0..OF_ORIGIN {
            taken.push(take(places, origin).await.unwrap());
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_origin_keeps_nobody_else_waiting() {
        let places = Places::new();
        let mut taken = fill(&places, "dead").await;
        let start = Instant::now();
        assert_eq!(take(&places, "alive").await.unwrap().waited, Duration::ZERO);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(take(&places, "dead").await.unwrap_err(), Busy::Origin(TIMEOUT));
        assert_eq!(start.elapsed(), TIMEOUT * 9 / 10, "well before the deadline");
        taken.pop();
        assert!(take(&places, "dead").await.is_ok(), "a place that became free");
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_no_more_than_all_places() {
        let places = Places::new();
        let mut taken = Vec::new();
        for origin in 0..ALL / OF_ORIGIN {
            taken.extend(fill(&places, &origin.to_string()).await);
        }
        assert_eq!(take(&places, "one more").await.unwrap_err(), Busy::All(TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn few_answers_may_be_large() {
        let places = Places::new();
        let mut taken = Vec::new();
        for origin in ["a", "b", "c", "d"] {
            for _ in 0..LARGE_OF_ORIGIN {
                let mut place = take(&places, origin).await.unwrap();
                place.enlarge().await.unwrap();
                place.enlarge().await.unwrap();
                taken.push(place);
            }
        }
        let mut of_origin = take(&places, "a").await.unwrap();
        assert_eq!(of_origin.enlarge().await, Err(Busy::Large));
        let mut of_all = take(&places, "e").await.unwrap();
        assert_eq!(of_all.enlarge().await, Err(Busy::Large));
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_nobody_asks_is_forgotten() {
        let places = Places::new();
        let taken = fill(&places, "a").await;
        assert!(take(&places, "a").await.is_err());
        assert_eq!(places.origins().len(), 1);
        drop(taken);
        assert_eq!(places.origins().len(), 0);
        assert_eq!(places.all.available_permits(), ALL);
    }
}
