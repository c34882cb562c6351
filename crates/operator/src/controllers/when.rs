//! When an object is looked at again: the only place that makes a requeue. Whatever wakes it meanwhile comes first.

use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::controller::Action as Next;

use crate::errors::Class;
use crate::pace;

/// While something goes on an object is looked at once in this time, at the API server itself, whatever the streams say: a stream that has gone
/// silent is noticed by its own time-out after minutes only.
const IN_MOTION: Duration = Duration::from_secs(12);
/// So many objects at rest can be looked at in the period that was asked for. With more of them it is longer: what they cost the API server has
/// a limit, and so has the period.
const AT_REST: usize = 800;
const LONGEST_PERIOD: Duration = Duration::from_mins(90);
/// Each object is decided on anew within this time, on the caches, which costs the API server nothing.
const GLANCE: Period = Period(Duration::from_mins(5));
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause after an error that only a person can mend.
const PERSON_PAUSE: Duration = Duration::from_secs(30);
/// Whatever a plan says, an object does not spin.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// Within which time an object is looked at, at the API server itself: a lost event is healed. It comes to its end a little earlier each time, so
/// that many objects do not come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(Duration);

impl Period {
    /// Of an object where something goes on.
    pub(super) const IN_MOTION: Self = Self(IN_MOTION);

    /// Of one of so many objects at rest, each of which is to be looked at within `resync`.
    pub(super) fn at_rest(objects: usize, resync: Duration) -> Self {
        let times = u32::try_from(objects.div_ceil(AT_REST)).unwrap_or(u32::MAX).max(1);
        Self(resync.saturating_mul(times).min(LONGEST_PERIOD.max(resync)))
    }

    /// True if it is over after so long.
    pub(super) fn is_over(self, ago: Duration) -> bool {
        ago > self.shortest()
    }

    fn shortest(self) -> Duration {
        self.0.mul_f32(0.8)
    }

    fn once(self) -> Duration {
        pace::between(self.shortest(), self.0)
    }
}

/// The next look: when the plan wants it, or a period after the API server itself was looked at, which is so long ago, whichever comes first; and
/// a glance at the caches before that.
pub(super) fn next_look(period: Period, ago: Duration, wake: Option<Timestamp>, now: Timestamp) -> Next {
    let period = period.once().saturating_sub(ago).min(GLANCE.once());
    let wake = wake.map(|wake| {
        let left = wake.duration_since(now).as_millis().clamp(0, i128::from(u32::MAX));
        // One more: never a moment too early.
        Duration::from_millis(u64::try_from(left).unwrap_or(0) + 1)
    });
    match wake.filter(|wake| *wake < period) {
        Some(wake) => later(wake.max(SHORTEST_WAIT), "the plan"),
        None => later(period.max(SHORTEST_WAIT), "the period"),
    }
}

/// Another operator decides. All objects are looked at again when it is our turn.
pub(super) fn not_leading() -> Next {
    later(GLANCE.once(), "another operator leads")
}

/// It rests after failures; events do not cut that short.
pub(super) fn after_rest(left: Duration) -> Next {
    later(left, "it rests after a failure")
}

/// What was asked for is not what is wanted now.
pub(super) fn once_more() -> Next {
    later(FIRST_PAUSE, "the check is another one now")
}

/// After an error, the `failures`-th in a row.
pub(super) fn after_error(class: Class, failures: u32) -> Next {
    later(pause_after(class, failures), "the last run failed")
}

/// Nothing but a change.
pub(super) fn when_it_changes() -> Next {
    Next::await_change()
}

fn later(pause: Duration, why: &'static str) -> Next {
    tracing::trace!(pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX), "looks again for {why}");
    Next::requeue(pause)
}

fn pause_after(class: Class, failures: u32) -> Duration {
    match class {
        Class::Transient | Class::Conflict | Class::Bug => pace::after_failures(failures, FIRST_PAUSE, LONGEST_PAUSE),
        Class::Invalid | Class::Forbidden => pace::between(PERSON_PAUSE.mul_f32(0.75), PERSON_PAUSE),
    }
}

/// Now, in the precision that a status keeps.
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn the_pause_after_an_error_follows_its_class() {
        assert!(pause_after(Class::Transient, 1) <= FIRST_PAUSE);
        assert!(pause_after(Class::Transient, 50) <= LONGEST_PAUSE);
        assert!(pause_after(Class::Forbidden, 1) >= Duration::from_secs(20));
        assert!(pause_after(Class::Forbidden, 1) <= PERSON_PAUSE);
    }

    #[test]
    fn the_period_is_counted_from_the_last_look_at_the_api_server() {
        let (now, second) = (now(), Duration::from_secs(1));
        let period = Period(second * 300);
        let pause = |ago, wake| next_look(period, ago, wake, now);
        let wake = now + SignedDuration::from_secs(1);
        assert_eq!(pause(Duration::ZERO, Some(wake)), Next::requeue(Duration::from_millis(1001)));
        assert_eq!(pause(second * 400, None), Next::requeue(SHORTEST_WAIT));
        let once = (0..100).map(|_| period.once()).collect::<Vec<_>>();
        assert!(once.iter().all(|once| (second * 240..=second * 300).contains(once)));
        assert!(!period.is_over(second * 240) && period.is_over(second * 241));
        let (low, high) = (second * (240 - 239), second * (300 - 239));
        assert!((0..100).all(|_| is_between(&pause(second * 239, None), low, high)));
    }

    fn is_between(next: &Next, low: Duration, high: Duration) -> bool {
        let millis = low.as_millis()..=high.as_millis();
        millis.into_iter().any(|millis| *next == Next::requeue(Duration::from_millis(u64::try_from(millis).unwrap())))
    }

    #[test]
    fn whatever_the_period_is_each_object_is_glanced_at() {
        let next = next_look(Period(LONGEST_PERIOD), Duration::ZERO, None, now());
        assert!(is_between(&next, GLANCE.shortest(), GLANCE.0), "{next:?}");
    }

    #[test]
    fn many_objects_at_rest_are_looked_at_less_often() {
        let (resync, minute) = (Duration::from_mins(5), Duration::from_mins(1));
        for (objects, minutes) in [(0, 5), (AT_REST, 5), (AT_REST + 1, 10), (10_000, 65), (1_000_000, 90)] {
            assert_eq!(Period::at_rest(objects, resync), Period(minute * minutes), "{objects}");
        }
        assert_eq!(Period::at_rest(1_000_000, minute * 100), Period(minute * 100), "as an administrator wants it");
        // Three reads for each look.
        let reads = 10_000.0 * 3.0 / Period::at_rest(10_000, resync).shortest().as_secs_f32();
        assert!(reads < 10.0, "{reads} a second");
    }

    #[test]
    fn now_is_in_milliseconds() {
        assert_eq!(now().subsec_nanosecond() % 1_000_000, 0);
    }
}
