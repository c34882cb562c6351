//! May we write now? Asked for each write at the moment it leaves; the answer comes from our own clock alone, so that a process
//! that was stopped for a while knows on its first step that its time is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::{Moment, now};

/// Whether we lead.
#[derive(Debug)]
pub struct Guard {
    /// Nanoseconds on our own clock; 0: we do not lead.
    until: AtomicU64,
    /// How often we have begun to lead.
    term: AtomicU64,
    leads: watch::Sender<bool>,
}

impl Guard {
    /// For an operator that works without an election.
    #[must_use]
    pub fn always() -> Self {
        Self { until: AtomicU64::new(u64::MAX), term: AtomicU64::new(1), leads: watch::Sender::new(true) }
    }

    /// For one that has yet to be elected.
    #[must_use]
    pub fn waiting() -> Self {
        Self { until: AtomicU64::new(0), term: AtomicU64::new(0), leads: watch::Sender::new(false) }
    }

    /// Whether a write may leave now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == u64::MAX || nanos(now()) < until
    }

    /// Waits until we lead no more, however often that is put off: no write of ours lasts longer.
    pub async fn closed(&self) {
        let mut changes = self.leads.subscribe();
        loop {
            let until = self.until.load(Ordering::Acquire);
            let Some(left) = until.checked_sub(nanos(now())).filter(|left| *left > 0) else { return };
            // A loss is told; what the election puts off is seen when the time is over.
            if tokio::time::timeout(Duration::from_nanos(left), changes.wait_for(|leads| !leads)).await.is_ok() {
                return;
            }
        }
    }

    /// Becomes true with each election and false with each loss.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Another number each time that we begin to lead: somebody else may have written since what was seen in another term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// We lead until then.
    pub(super) fn open_until(&self, moment: Moment) {
        if !*self.leads.borrow() {
            self.term.fetch_add(1, Ordering::AcqRel);
        }
        self.until.store(nanos(moment), Ordering::Release);
        self.leads.send_if_modified(|leads| !std::mem::replace(leads, true));
    }

    /// We lead no more.
    pub fn close(&self) {
        self.until.store(0, Ordering::Release);
        self.leads.send_if_modified(|leads| std::mem::replace(leads, false));
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.as_nanos()).map_or(u64::MAX - 1, |nanos| nanos.min(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_known_when_it_closes() {
        let second = Duration::from_secs(1);
        let closes = async |guard: &Guard, within| tokio::time::timeout(within, guard.closed()).await.is_ok();
        assert!(closes(&Guard::waiting(), second).await);
        assert!(!closes(&Guard::always(), second / 20).await);
        let guard = Guard::waiting();
        guard.open_until(now() + second / 20);
        assert!(closes(&guard, second).await, "by itself");
        guard.open_until(now() + second / 20);
        let put_off = async {
            guard.open_until(now() + second * 60);
            tokio::time::sleep(second / 10).await;
            guard.close();
        };
        let begun = now();
        let (is_closed, ()) = tokio::join!(closes(&guard, second * 10), put_off);
        assert!(is_closed && now() >= begun + second / 10, "it was put off, and then lost");
    }

    #[test]
    fn without_an_election_it_is_open() {
        assert!(Guard::always().is_open());
    }

    #[test]
    fn it_closes_by_itself_and_by_a_loss() {
        let guard = Guard::waiting();
        let changes = guard.changes();
        assert!(!guard.is_open());
        guard.open_until(now() + Duration::from_mins(1));
        assert!(guard.is_open() && *changes.borrow());
        guard.open_until(now());
        assert!(!guard.is_open(), "nobody had to tell it");
        guard.open_until(now() + Duration::from_mins(1));
        guard.close();
        assert!(!guard.is_open() && !*changes.borrow());
    }
}
