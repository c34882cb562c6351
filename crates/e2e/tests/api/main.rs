//! What the API server does with what is installed: the CRDs, the admission policies; and what the native StatefulSet controller does
//! under a partition. On Kubernetes 1.36 and 1.37, without the operator.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod extended_stateful_set;
mod native;
mod phased_rollout;
mod policies;
mod rig;
mod schema;
