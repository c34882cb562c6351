//! One folder for each kind of object that is looked after, and what they have in common: `drive` runs them, `slots` remembers, `look` is what the
//! API server showed last, `turns` says how many at once, `when` makes every requeue, `partition` writes it, `roll` takes a step, `trouble` tells
//! what a person has to mend.

pub(crate) mod drive;
pub(crate) mod extended_stateful_set;
mod in_the_way;
mod look;
mod partition;
pub(crate) mod phased_rollout;
mod roll;
pub(crate) mod slots;
mod trouble;
pub(crate) mod turns;
mod when;

pub(crate) use drive::{Context, Kind, after_error, reconcile};
pub(crate) use when::now;
