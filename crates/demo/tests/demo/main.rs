//! The demo, and the documents that show it and what it shows.

#![allow(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

mod documents;
mod run;
