//! One folder for each kind of object that is looked after.

pub mod extended_stateful_set;
mod frame;
mod in_the_way;
pub mod phased_rollout;
mod roll;
mod trouble;
