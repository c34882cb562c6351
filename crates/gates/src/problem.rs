//! What is wrong with a check as it is configured. A problem holds a rollout and never fails it (lesson L071). It must never
//! carry the content of a Secret.

use sts_plus_api::Reason;

/// Something in the configuration that cannot be used until a person changes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// `InvalidQuery`, `InvalidUrl` or `InvalidCredentials`.
    pub reason: Reason,
    /// A sentence that names the field and the cure.
    pub message: String,
}

impl Problem {
    pub(crate) fn query(message: String) -> Self {
        Self { reason: Reason::InvalidQuery, message }
    }

    pub(crate) fn url(message: String) -> Self {
        Self { reason: Reason::InvalidUrl, message }
    }

    pub(crate) fn credentials(message: String) -> Self {
        Self { reason: Reason::InvalidCredentials, message }
    }
}
