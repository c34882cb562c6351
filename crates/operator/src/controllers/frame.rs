//! What the runs of every kind have in common: when one may not begin, what a panic in it is, and when the object is looked at again.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::runtime::controller::Action as Next;

use crate::errors::{Class, Error};
use crate::failures::Failures;
use crate::leader::Guard;
use crate::pace;
use crate::telemetry::panic_text;
use crate::tries::Tries;

/// Each object is looked at once in this time, at the API server itself, whatever the streams say: a lost event is healed.
pub(super) const PERIOD: (Duration, Duration) = (Duration::from_mins(4), Duration::from_mins(5));
/// The same while something goes on: a stream that has gone silent is noticed by its own time-out after minutes only.
pub(super) const PERIOD_IN_MOTION: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(12));
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The pause after an error that only a person can mend.
const PERSON_PAUSE: Duration = Duration::from_secs(30);
/// A conflict is looked at again at once this often in one run.
pub(super) const FRESH_ROUNDS: u32 = 3;
/// Whatever a plan says, an object does not spin.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// When to come back, if the object `uid` may not be looked at now.
pub(super) fn not_now(uid: &str, guard: &Guard, tries: &Tries, failures: &Failures) -> Option<Next> {
    if !guard.is_open() {
        // Another operator decides. All objects are looked at again when it is our turn.
        tries.forget(uid);
        return Some(Next::requeue(pace::between(PERIOD.0, PERIOD.1)));
    }
    failures.rest(uid).map(Next::requeue)
}

/// A run. A panic stays in it.
pub(super) fn caught(
    run: impl Future<Output = Result<Next, Error>> + Send,
) -> impl Future<Output = Result<Next, Error>> + Send {
    let run = AssertUnwindSafe(run).catch_unwind();
    run.map(|outcome| outcome.unwrap_or_else(|panic| Err(Error::Panic(panic_text(&*panic)))))
}

/// A panic in the decision about one object is an error of this object.
pub(super) fn safely<T>(decide: impl FnOnce() -> T) -> Result<T, Error> {
    std::panic::catch_unwind(AssertUnwindSafe(decide)).map_err(|panic| Error::Panic(panic_text(&*panic)))
}

/// Acts, and looks again at once after a conflict, some times.
pub(super) async fn fresh_rounds<F>(mut act: impl FnMut() -> F) -> Result<Next, Error>
where
    F: Future<Output = Result<Next, Error>>,
{
    let mut round = 1;
    loop {
        match act().await {
            Err(error) if error.class() == Class::Conflict && round < FRESH_ROUNDS => {
                tracing::debug!(round, "looking again at once: {error}");
                round += 1;
            }
            outcome => return outcome,
        }
    }
}

/// When the object `uid` is looked at again after an error.
pub(super) fn after_error(uid: &str, error: &Error, failures: &Failures) -> Next {
    Next::requeue(pause_after(error.class(), failures.failed(uid)))
}

fn pause_after(class: Class, failures: u32) -> Duration {
    match class {
        Class::Transient | Class::Conflict | Class::Bug => pace::after_failures(failures, FIRST_PAUSE, LONGEST_PAUSE),
        Class::Invalid | Class::Forbidden => pace::between(PERSON_PAUSE.mul_f32(0.75), PERSON_PAUSE),
    }
}

/// Now, in the precision that a status keeps.
pub(super) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// The next look: at `wake`, after `other`, or a period after the API server itself was looked at, which is so long ago, whichever comes first.
pub(super) fn next_look(
    (low, high): (Duration, Duration),
    ago: Duration,
    wake: Option<Timestamp>,
    other: Option<Duration>,
    now: Timestamp,
) -> Next {
    let period = pace::between(low, high).saturating_sub(ago);
    let wake = wake.map(|wake| {
        let left = wake.duration_since(now).as_millis().clamp(0, i128::from(u32::MAX));
        // One more: never a moment too early.
        Duration::from_millis(u64::try_from(left).unwrap_or(0) + 1)
    });
    Next::requeue([wake, other].into_iter().flatten().fold(period, Duration::min).max(SHORTEST_WAIT))
}

#[cfg(test)]
mod tests {
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
        let period = (second * 300, second * 300);
        assert_eq!(next_look(period, second * 239, None, None, now), Next::requeue(second * 61));
        assert_eq!(next_look(period, Duration::ZERO, None, Some(second), now), Next::requeue(second));
        assert_eq!(next_look(period, second * 400, None, None, now), Next::requeue(SHORTEST_WAIT));
    }

    #[test]
    fn now_is_in_milliseconds() {
        assert_eq!(now().subsec_nanosecond() % 1_000_000, 0);
    }
}
