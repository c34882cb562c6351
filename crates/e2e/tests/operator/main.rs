//! The real operator on a real control plane and a real Prometheus, by section of the specification: the rolling update of a StatefulSet
//! by a PhasedRollout, its checks, the versions of an ExtendedStatefulSet, the running process, adversity of every kind, and faults that
//! were found; and the model of the StatefulSet controller against the real one, on the same control plane.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]
#![allow(
    clippy::similar_names,
    clippy::large_futures,
    reason = "a scenario is read from top to bottom, and awaited whole"
)]

mod adversity;
mod autoscaling;
mod checks;
mod found;
mod native;
mod rollout;
mod running;
mod versions;
