//! A hash in which times count from now, and what is long ago is all the same.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::{FixedState, FoldHasher};
use jiff::Timestamp;
use sts_plus_api::Current;
use sts_plus_model::world::second;

/// A pod that is not Ready is broken after 60 s, and an answer is stale after a period and 60 s.
pub const LONG_AGO: i64 = 70;
/// Of all else a few periods are enough.
pub const AGO: i64 = 12;

pub struct Ages {
    hasher: FoldHasher<'static>,
    now: i64,
}

impl Ages {
    pub fn at(now: i64) -> Self {
        Self { hasher: FixedState::default().build_hasher(), now }
    }

    pub fn finish(&self) -> u64 {
        self.hasher.finish()
    }

    pub fn put(&mut self, value: &impl Hash) {
        value.hash(&mut self.hasher);
    }

    pub fn ago(&mut self, at: i64, longest: i64) {
        let ago = (at - self.now).clamp(-longest, longest);
        self.put(&ago);
    }

    pub fn maybe_ago(&mut self, at: Option<i64>, longest: i64) {
        self.put(&at.is_some());
        self.ago(at.unwrap_or(self.now), longest);
    }

    pub fn time(&mut self, time: Option<Timestamp>, longest: i64) {
        self.maybe_ago(time.map(second), longest);
    }

    /// A cycle of checks. More passes, or more refusals, than any of these worlds needs are as good as just enough.
    pub fn cycle(&mut self, current: &Current, most: i32) {
        let refusals = (current.tries - current.consecutive_passes).min(most);
        let passes = current.consecutive_passes.min(most);
        self.put(&(current.step as u8, refusals, passes, current.failed));
        self.put(&(&current.check, current.problem.is_some()));
        self.time(current.since, AGO);
        self.time(current.broken_since, AGO);
        self.time(current.last_check_time, LONG_AGO);
        self.time(current.next_check_time, AGO);
    }
}
