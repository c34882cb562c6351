//! The rollout engine.

use jiff::Timestamp;

use crate::{Observed, Plan};

/// Decides what comes next.
#[must_use]
pub fn decide(observed: &Observed, now: Timestamp) -> Plan {
    let _ = now;
    Plan {
        check: None,
        actions: Vec::new(),
        status: observed.rollout.status.clone(),
        events: Vec::new(),
        wake: None,
    }
}
