//! What was found out about an ExtendedStatefulSet and is not in a cache: its Services, its zones, and what the API server says about
//! its template. Kept until the next look at the API server itself.

use std::collections::BTreeSet;

use super::services::Services;
use super::templates::Kept;
use super::trial::Trial;
use crate::controllers::in_the_way::Strays;

/// What was found out about one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Its generation then.
    pub(super) generation: i64,
    /// The UIDs of its StatefulSets then: one that is made anew takes what the one before refused.
    pub(super) sets: BTreeSet<String>,
    pub(super) services: Services,
    pub(super) kept: Kept,
    /// Pods in the way.
    pub(super) strays: Strays,
    /// Pods that no StatefulSet controls.
    pub(super) abandoned: Vec<String>,
    pub(super) empty_zones: Vec<String>,
    /// False if nothing can fill in a missing number of replicas.
    pub(super) serves_policies: bool,
    /// What it says of the template.
    pub(super) trial: Trial,
}
