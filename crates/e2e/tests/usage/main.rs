//! What people do with a PhasedRollout: write a bad one, pause it, skip it, delete it, wait for it, look at it.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "helpers of tests")]

mod failing;
mod input;
mod leaving;
mod lifecycle;
mod looks;
mod zero;
