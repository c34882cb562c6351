//! No pod moves unapproved, whatever is written by whom, and whether the operator is there or not; what is broken can be mended;
//! and an operator that is killed or at rest does nothing twice and nothing in vain.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod birth;
mod crash;
mod hold;
mod quiet;
mod repair;
