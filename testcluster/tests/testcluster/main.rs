//! The rig: a cluster and its parts, the life of its pods, what is measured beside it, and that nothing of it outlives its owner.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod cluster;
mod common;
mod lifetime;
mod metrics;
mod stages;

use testcluster::{Cluster, SharedCluster};

/// For all tests that leave the others in peace. A test that stops a part of a cluster, or needs another one, starts its own.
static CLUSTER: SharedCluster = SharedCluster::new(|| Cluster::builder().user("ops", &["operators"]));
