//! The shipped `decide` against the model of the world: observed rows, golden traces, properties, exhaustive search.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: a surprise must be loud"
)]

/// Half of the time of a search is spent in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod crashes;
mod deletion;
mod doubt;
mod explore;
mod failing;
mod found;
mod going_back;
mod hands;
mod happy;
mod observed;
mod properties;
mod refusing;
mod repair;
mod scaling;
mod search;
mod search_versions;
mod story;
mod unasked;
