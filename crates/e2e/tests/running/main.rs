//! Running the operator: which of several works, with which rights, and what it says of itself.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod leader;
mod rbac;
mod web;
