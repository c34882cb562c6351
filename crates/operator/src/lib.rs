//! The running operator: it reads, asks `decide`, and writes. `run` is its life, `watch` what it sees, `controllers` what it does;
//! `manifests`, `admission` and `rbac` are what gets installed.

pub mod admission;
pub mod args;
mod checks;
pub mod client;
mod controllers;
pub mod errors;
pub mod events;
pub mod hold;
pub mod leader;
pub mod manifests;
pub mod metrics;
pub mod pace;
mod patch;
pub mod prometheus_args;
pub mod pulse;
pub mod rbac;
pub mod run;
pub mod telemetry;
pub mod uninstall;
pub mod views;
pub mod watch;
pub mod web;
pub mod wire;
pub mod written;

pub use controllers::extended_stateful_set::render;
