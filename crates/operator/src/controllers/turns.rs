//! Turns: so many objects are looked at and written at the API server at the same time. What holds a release never waits behind the others.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns of all kinds of objects together.
#[derive(Clone)]
pub struct Turns {
    all: Arc<Semaphore>,
    holds: Arc<Semaphore>,
}

/// Whose turn it is, until it is dropped.
pub struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// So many at the same time, and as many holds beside them.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(at_once)), holds: Arc::new(Semaphore::new(at_once)) }
    }

    /// Waits for a turn. They come in the order in which they were asked for.
    pub async fn take(&self, is_hold: bool) -> Turn {
        let places = if is_hold { &self.holds } else { &self.all };
        // It is never closed.
        Turn { _permit: Arc::clone(places).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn so_many_have_a_turn_at_once_and_a_hold_does_not_wait_for_them() {
        let turns = Turns::new(2);
        let (first, _second) = (turns.take(false).await, turns.take(false).await);
        assert!(turns.take(false).now_or_never().is_none());
        assert!(turns.take(true).now_or_never().is_some());
        drop(first);
        assert!(turns.take(false).now_or_never().is_some());
    }
}
