//! Numbers that must not be mixed up, and the one place where an ordinal becomes a pod index.

use sts_plus_api::names;

use crate::observed::SetView;

/// The number at the end of a pod's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub i32);

/// Position of a pod in its set, from 0: ordinal minus `ordinals.start`. A partition compares with this (observed O11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodIndex(pub i32);

/// `updateStrategy.rollingUpdate.partition`: indexes at or above it may be rolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub i32);

impl Ordinal {
    /// The index of this ordinal in a set whose ordinals begin at `start`.
    #[must_use]
    pub fn index(self, start: i32) -> PodIndex {
        PodIndex(self.0.saturating_sub(start))
    }
}

impl PodIndex {
    /// The ordinal of this index in a set whose ordinals begin at `start`.
    #[must_use]
    pub fn ordinal(self, start: i32) -> Ordinal {
        Ordinal(self.0.saturating_add(start))
    }
}

impl Partition {
    /// No index reaches it.
    pub const HOLD: Self = Self(names::HOLD);

    /// That of a StatefulSet. An absent one opens everything.
    #[must_use]
    pub fn of(set: &SetView) -> Self {
        Self(set.partition.unwrap_or(0))
    }

    /// The partition that lets `index` and all above it be rolled.
    #[must_use]
    pub fn opening(index: PodIndex) -> Self {
        Self(index.0)
    }

    /// True if a pod at `index` may be rolled.
    #[must_use]
    pub fn opens(self, index: PodIndex) -> bool {
        index.0 >= self.0
    }
}
