//! The checks of every kind of object: one try of all queries, and the Secrets that they need.

pub(crate) mod attempt;
pub(crate) mod secrets;

pub(crate) use attempt::{Attempt, validate};
pub use attempt::{Prober, prober};
