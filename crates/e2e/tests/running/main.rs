//! Running the operator: which of several works, with which rights, and how it is installed.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod leader;
mod rbac;
