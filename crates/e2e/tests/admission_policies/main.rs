//! The admission policies on real API servers: what each of them lets through, keeps, and says.

#![allow(clippy::indexing_slicing, reason = "a test may panic; an index into JSON does not")]

mod birth;
mod hold;
mod pods;
mod records;
#[path = "../rig/mod.rs"]
mod rig;
mod scene;
mod strategy;
mod warning;
