//! Versions of an ExtendedStatefulSet on the real control plane.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod checks;
mod children;
mod in_place;
mod in_place_adversity;
mod in_place_fixed;
mod in_place_scaled;
mod in_place_zero;
mod input;
mod labels;
mod leaving;
mod lost;
mod minds;
mod mutated;
mod rewritten;
mod scaling;
mod services;
mod story;
mod upgrade;
mod zones;
