//! `decide` on inputs that no API server would give: it is total, gives the same plan for the same input, and stays bounded.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: a surprise must be loud"
)]

mod bounded;
mod input;
mod total;
