//! The shipped decisions without a cluster: on input that no API server would give, and in small worlds for the two ways in which an
//! `ExtendedStatefulSet` brings in a version.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: a surprise must be loud"
)]

mod imports;
mod in_place;
mod owner;
mod rollout;
mod versions;
