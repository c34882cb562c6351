//! The running operator: reads, decides, writes.

pub mod admission;
pub mod manifests;
pub mod rbac;
