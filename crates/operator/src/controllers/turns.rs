//! Turns: so many objects are looked at and written at the API server at the same time, and only a part of these in one namespace, whose webhooks
//! may hang. What holds a release never waits behind the others, nor does what a check has answered, which would get old.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a turn is for. Each has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Something is to be held.
    Hold,
    /// A check has an answer.
    Answer,
    /// All else.
    Look,
}

const LANES: [Lane; 3] = [Lane::Hold, Lane::Answer, Lane::Look];

type Shares = Mutex<HashMap<(Lane, String), Arc<Semaphore>>>;

/// Turns of all kinds of objects together.
#[derive(Clone)]
pub struct Turns {
    all: Arc<HashMap<Lane, Arc<Semaphore>>>,
    of_namespace: usize,
    /// Of namespaces where somebody has or awaits a turn.
    shares: Arc<Shares>,
}

/// Somebody who has or awaits a turn in a namespace.
struct Visit {
    name: (Lane, String),
    share: Option<Arc<Semaphore>>,
    shares: Arc<Shares>,
}

/// Whose turn it is, until it is dropped.
pub struct Turn {
    _permits: [Option<OwnedSemaphorePermit>; 2],
    _visit: Visit,
}

impl Turns {
    /// So many at the same time in each lane, and a quarter of them in one namespace.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        let all = LANES.map(|lane| (lane, Arc::new(Semaphore::new(at_once))));
        Self { all: Arc::new(all.into()), of_namespace: at_once.div_ceil(4), shares: Arc::default() }
    }

    /// Waits for a turn. They come in the order in which they were asked for. First of the namespace: who waits there takes no place of all.
    pub async fn take(&self, lane: Lane, namespace: &str) -> Turn {
        let visit = self.enter((lane, namespace.to_owned()));
        let own = permit(visit.share.as_ref()).await;
        Turn { _permits: [own, permit(self.all.get(&lane)).await], _visit: visit }
    }

    fn enter(&self, name: (Lane, String)) -> Visit {
        let mut shares = lock(&self.shares);
        let share = shares.entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.of_namespace)));
        Visit { name, share: Some(Arc::clone(share)), shares: Arc::clone(&self.shares) }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut shares = lock(&self.shares);
        self.share = None;
        // Nobody else is there. Permits that have not gone yet keep theirs alive.
        if shares.get(&self.name).is_some_and(|share| Arc::strong_count(share) == 1) {
            shares.remove(&self.name);
        }
    }
}

/// No semaphore here is ever closed.
async fn permit(places: Option<&Arc<Semaphore>>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(places?).acquire_owned().await.ok()
}

fn lock(shares: &Shares) -> MutexGuard<'_, HashMap<(Lane, String), Arc<Semaphore>>> {
    shares.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn so_many_have_a_turn_at_once_and_a_hold_does_not_wait_for_them() {
        let turns = Turns::new(2);
        let (first, _second) = (turns.take(Lane::Look, "a").await, turns.take(Lane::Look, "b").await);
        assert!(turns.take(Lane::Look, "c").now_or_never().is_none());
        for lane in [Lane::Hold, Lane::Answer] {
            assert!(turns.take(lane, "c").now_or_never().is_some());
        }
        drop(first);
        assert!(turns.take(Lane::Look, "c").now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_namespace_that_hangs_leaves_turns_for_the_others() {
        let turns = Turns::new(8);
        let hang = [turns.take(Lane::Hold, "bad").await, turns.take(Lane::Hold, "bad").await];
        let mut waits = Box::pin(turns.take(Lane::Hold, "bad"));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(turns.take(Lane::Hold, "good").now_or_never().is_some());
        drop(hang);
        assert!(waits.as_mut().now_or_never().is_some());
        drop(waits);
        assert!(lock(&turns.shares).is_empty(), "nothing is remembered of whom nobody visits");
    }
}
