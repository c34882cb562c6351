//! Moments and durations, none of which can overflow.

use jiff::{SignedDuration, Timestamp};

/// `time` plus `wait`, never failing.
pub(crate) fn later(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// `time` plus `seconds`, never failing.
pub(crate) fn after(time: Timestamp, seconds: i32) -> Timestamp {
    later(time, seconds_of(seconds))
}

pub(crate) fn seconds_of(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds))
}

/// `2026-01-31T12:00:00Z`
pub(crate) fn clock(time: Timestamp) -> String {
    whole_seconds(time).to_string()
}

/// Kubernetes' `Time` has whole seconds; anything finer would differ from what is read back.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
