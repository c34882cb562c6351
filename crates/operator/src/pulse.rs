//! Is the operator still at work? Its loops leave a mark each time they come round; one that has not come round for long is dead or
//! stuck, whatever the rest of the process does. An API server that refuses or does not answer is no reason: the loops try again
//! and again, and a restart would not help. No IO.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A watch is started anew every two minutes, or after the longest time-out and pause.
const WATCH: Duration = Duration::from_mins(6);
/// Each object is looked at once in five minutes.
const RUN: Duration = Duration::from_mins(7);
/// Every call of a run has a deadline; together they stay below this.
const LONGEST_RUN: Duration = Duration::from_mins(10);
/// A server that ends each watch at once is not asked for the next one sooner.
const WATCHES_APART: Duration = Duration::from_millis(200);
/// The election comes round with each renewal, or when the lease of another runs out.
const ELECTION: Duration = Duration::from_mins(3);

/// The marks.
#[derive(Debug)]
pub struct Pulse {
    watches: Mutex<HashMap<String, Instant>>,
    /// When the last watch of a path was begun, or is to begin.
    begun: Mutex<HashMap<String, Instant>>,
    runs: Mutex<HashMap<u64, Instant>>,
    next: AtomicU64,
    last_run: Mutex<Instant>,
    /// Since when there is something to look at, as far as was told.
    objects: Mutex<Option<Instant>>,
    election: Mutex<Option<Instant>>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            watches: Mutex::default(),
            begun: Mutex::default(),
            runs: Mutex::default(),
            next: AtomicU64::new(0),
            last_run: Mutex::new(Instant::now()),
            objects: Mutex::default(),
            election: Mutex::default(),
        }
    }
}

/// A run that goes on until this is dropped.
#[derive(Debug)]
pub struct Run<'a> {
    pulse: &'a Pulse,
    id: u64,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        lock(&self.pulse.runs).remove(&self.id);
    }
}

impl Pulse {
    /// From now on the stream of `path` has to come round again and again.
    pub fn follows(&self, path: &str) {
        lock(&self.watches).insert(path.to_owned(), Instant::now());
    }

    /// A watch of `path` was begun, or has failed. What nobody follows is not awaited.
    pub fn came_round(&self, path: &str) {
        if let Some(last) = lock(&self.watches).get_mut(path) {
            *last = Instant::now();
        }
    }

    /// A watch of `path` is to begin: how long it waits, so that watches that end at once do not follow each other without a pause.
    pub fn next_watch(&self, path: &str) -> Duration {
        let (mut begun, now) = (lock(&self.begun), Instant::now());
        let at = begun.get(path).map_or(now, |last| now.max(*last + WATCHES_APART));
        begun.insert(path.to_owned(), at);
        at.duration_since(now)
    }

    /// The paths that are followed, and how long ago each has come round.
    pub fn watches(&self) -> Vec<(String, Duration)> {
        lock(&self.watches).iter().map(|(path, since)| (path.clone(), since.elapsed())).collect()
    }

    /// The election has come round.
    pub fn elected(&self) {
        *lock(&self.election) = Some(Instant::now());
    }

    /// A controller looks at an object.
    pub fn glanced(&self) {
        *lock(&self.last_run) = Instant::now();
    }

    /// It is its turn, and it waits for the API server from now on.
    #[must_use]
    pub fn run(&self) -> Run<'_> {
        let (id, now) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
        lock(&self.runs).insert(id, now);
        Run { pulse: self, id }
    }

    /// Since when there are objects. The first one after a long time without is looked at a moment after it is seen.
    fn seen(&self, objects: bool) -> Option<Instant> {
        let mut since = lock(&self.objects);
        *since = objects.then(|| since.unwrap_or_else(Instant::now));
        *since
    }

    /// What has not come round for too long. `objects`: whether there is anything to look at.
    ///
    /// # Errors
    ///
    /// One sentence for the first that is found.
    pub fn check(&self, objects: bool) -> Result<(), String> {
        let late = |since: Instant, most: Duration| since.elapsed() > most;
        if let Some((path, _)) = lock(&self.watches).iter().find(|(_, since)| late(**since, WATCH)) {
            return Err(format!("the watch of {path} was not started anew within {} s", WATCH.as_secs()));
        }
        if lock(&self.runs).values().any(|since| late(*since, LONGEST_RUN)) {
            return Err(format!("a run goes on for more than {} s", LONGEST_RUN.as_secs()));
        }
        if self.seen(objects).is_some_and(|since| late(since.max(*lock(&self.last_run)), RUN)) {
            return Err(format!("no PhasedRollout was looked at within {} s", RUN.as_secs()));
        }
        if lock(&self.election).is_some_and(|since| late(since, ELECTION)) {
            return Err(format!("the election did not come round within {} s", ELECTION.as_secs()));
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_started_anew_is_dead() {
        let pulse = Pulse::default();
        pulse.follows("/api/v1/pods");
        advance(WATCH).await;
        pulse.follows("/apis/apps/v1/statefulsets");
        assert_eq!(pulse.check(false), Ok(()));
        advance(Duration::from_secs(1)).await;
        assert!(pulse.check(false).unwrap_err().contains("/api/v1/pods"));
        pulse.came_round("/api/v1/pods");
        assert_eq!(pulse.check(false), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_keep_a_distance() {
        let pulse = Pulse::default();
        assert_eq!(pulse.next_watch("/api/v1/pods"), Duration::ZERO);
        assert_eq!(pulse.next_watch("/api/v1/nodes"), Duration::ZERO, "another one");
        assert_eq!(pulse.next_watch("/api/v1/pods"), WATCHES_APART);
        advance(WATCHES_APART * 3).await;
        assert_eq!(pulse.next_watch("/api/v1/pods"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_objects_nobody_runs_and_with_some_somebody_must() {
        let pulse = Pulse::default();
        advance(RUN + Duration::from_secs(1)).await;
        assert_eq!(pulse.check(false), Ok(()));
        assert_eq!(pulse.check(true), Ok(()), "the first one is only just there");
        advance(RUN).await;
        assert_eq!(pulse.check(true), Ok(()));
        advance(Duration::from_secs(1)).await;
        assert!(pulse.check(true).unwrap_err().contains("no PhasedRollout was looked at"));
        pulse.glanced();
        assert_eq!(pulse.check(true), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_does_not_end_is_stuck() {
        let pulse = Pulse::default();
        let run = pulse.run();
        advance(LONGEST_RUN + Duration::from_secs(1)).await;
        pulse.glanced();
        assert!(pulse.check(true).unwrap_err().contains("goes on"));
        drop(run);
        assert_eq!(pulse.check(true), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_that_was_begun_must_come_round() {
        let pulse = Pulse::default();
        advance(ELECTION * 2).await;
        assert_eq!(pulse.check(false), Ok(()), "there is none");
        pulse.elected();
        advance(ELECTION + Duration::from_secs(1)).await;
        assert!(pulse.check(false).is_err());
    }
}
