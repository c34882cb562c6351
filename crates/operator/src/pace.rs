//! Pauses: growing ones between failures, and jitter so that many objects do not come back at the same moment.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

/// A number that is different each time. Not for secrets.
#[must_use]
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Between `low` and `high`.
#[must_use]
pub fn between(low: Duration, high: Duration) -> Duration {
    let span = u64::try_from(high.saturating_sub(low).as_millis()).unwrap_or(u64::MAX);
    low + Duration::from_millis(random().checked_rem(span.saturating_add(1)).unwrap_or(0))
}

/// The pause after the `failures`-th failure in a row: doubled each time from `first` to `most`, with a quarter of jitter below.
#[must_use]
pub fn after_failures(failures: u32, first: Duration, most: Duration) -> Duration {
    let whole = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(most);
    between(whole.mul_f32(0.75), whole)
}

/// Growing pauses of a stream. A stream counts as well again when it had no failure for a while, not when it gave one good event:
/// a list that works before a watch that does not must not reset it.
#[derive(Debug)]
pub struct Pace {
    first: Duration,
    most: Duration,
    failures: u32,
    last: Option<Instant>,
}

impl Pace {
    /// Pauses from `first` to `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0, last: None }
    }

    /// The pause after a failure now.
    pub fn failed(&mut self) -> Duration {
        let now = Instant::now();
        let well_again = self.last.is_none_or(|last| now.duration_since(last) > self.most.saturating_mul(2));
        self.failures = if well_again { 1 } else { self.failures.saturating_add(1) };
        self.last = Some(now);
        after_failures(self.failures, self.first, self.most)
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let (first, most) = (Duration::from_millis(500), Duration::from_secs(30));
        for failures in 1..100 {
            let pause = after_failures(failures, first, most);
            assert!(pause <= most && pause >= first.mul_f32(0.75), "{failures}: {pause:?}");
        }
        assert!(after_failures(40, first, most) >= most.mul_f32(0.75));
    }

    #[test]
    fn failures_of_a_stream_add_up() {
        let mut pace = Pace::new(Duration::from_millis(1), Duration::from_secs(30));
        pace.failed();
        pace.failed();
        assert_eq!(pace.failures(), 2);
    }

    #[test]
    fn between_stays_between() {
        let (low, high) = (Duration::from_secs(1), Duration::from_secs(2));
        assert!((0..100).map(|_| between(low, high)).all(|pause| pause >= low && pause <= high));
        assert_eq!(between(low, low), low);
    }
}
