//! One folder for each kind of object that is looked after.

pub mod phased_rollout;
