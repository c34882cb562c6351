//! One folder for each kind of object that is looked after.

pub mod extended_stateful_set;
mod frame;
pub mod phased_rollout;
mod roll;
