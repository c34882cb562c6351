//! InPlace in a small world: one ExtendedStatefulSet, the StatefulSet controller of the model with its partitions, users, and an operator
//! that crashes between any two writes. Stories tell what people expect; walks look for what nobody thought of.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: a surprise must be loud"
)]

mod laws;
mod operator;
mod refused;
mod stories;
mod users;
mod walks;
#[path = "../shared/wishes.rs"]
mod wishes;
mod world;
mod zero;
mod zones;
