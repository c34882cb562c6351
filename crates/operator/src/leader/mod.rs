//! Leader election: of several operators only the one that holds the Lease writes.
//!
//! `turn` is the pure part, `campaign` the loop over the Lease, `guard` what every write asks before it leaves this process. Time is
//! that of our own clock, which goes on while the process is stopped or the machine sleeps; the times inside the Lease are written
//! for people and never read. Two leaders at once must stay harmless nevertheless (each write is bound to what was read before it):
//! this keeps them from getting in each other's way.

mod campaign;
mod guard;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use campaign::Campaign;
pub use guard::Guard;
use kube::Client;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
pub use turn::Timing;

use crate::pulse::Pulse;

/// A moment on our own clock: the time since the machine was started, with the time that it slept.
pub type Moment = Duration;

/// An election that goes on, or none.
#[derive(Debug)]
pub struct Election {
    guard: Arc<Guard>,
    campaign: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Election {
    /// Without an election we lead always.
    #[must_use]
    pub fn none() -> Self {
        Self { guard: Arc::new(Guard::always()), campaign: None }
    }

    /// Over the Lease `namespace`/`name`. The client must not be guarded.
    #[must_use]
    pub fn start(client: Client, namespace: &str, name: &str, timing: Timing, pulse: &Arc<Pulse>) -> Self {
        let guard = Arc::new(Guard::waiting());
        let campaign = Campaign::new(client, namespace, name, timing, Arc::clone(&guard), Arc::clone(pulse));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(campaign.run(async move {
            let _ = stopped.await;
        }));
        Self { guard, campaign: Some((stop, task)) }
    }

    /// What every write asks.
    #[must_use]
    pub fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard)
    }

    /// Nothing is written from now on, and the next one may begin at once.
    pub async fn end(self) {
        if let Some((stop, task)) = self.campaign {
            drop(stop);
            let _ = task.await;
        }
        self.guard.close();
    }
}

/// Now.
#[must_use]
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
