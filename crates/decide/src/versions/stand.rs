//! Where an ExtendedStatefulSet stands.

use sts_plus_api::{Reason, VersionPhase};

use crate::{plan::CheckRequest, text::plain};

const MESSAGE_BYTES: usize = 1000;

/// Where an ExtendedStatefulSet stands.
#[derive(Clone, Debug)]
pub(super) struct Stand {
    pub(super) motion: Motion,
    pub(super) phase: VersionPhase,
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Stand {
    pub(super) fn new(motion: Motion, phase: VersionPhase, reason: Reason, message: impl Into<String>) -> Self {
        Self { motion, phase, reason, message: plain(&message.into(), MESSAGE_BYTES) }
    }

    /// It goes on by itself.
    pub(super) fn moving(phase: VersionPhase, reason: Reason, message: impl Into<String>) -> Self {
        Self::new(Motion::Moving, phase, reason, message)
    }
}

/// Which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    /// Nothing is pending.
    Rest,
    /// It goes on by itself.
    Moving,
    /// It waits for something that comes by itself, or for a person who holds it.
    Held,
    /// A person is needed.
    Stalled,
    /// It cannot be used as it is written.
    Refused,
}

/// Where it stands, or a try that is due.
pub(super) enum Step {
    Stand(Stand),
    Ask(CheckRequest),
    /// Nothing is known that is not said already.
    Unchanged,
}
