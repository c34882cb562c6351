//! Whose turn it is. Pure: what was seen of the Lease and what time it is, by our own clock.

use std::time::Duration;

use super::Moment;

/// How long things take. The lease is longer than the deadline of a renewal, so that a leader has stopped to write before anybody
/// else may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others wait so long for a sign of life before they take over.
    pub lease: Duration,
    /// A leader that could not renew for so long writes no more.
    pub renew: Duration,
    /// The pause between two renewals, and between two looks after a failure.
    pub retry: Duration,
}

impl Timing {
    /// Checks that they fit together.
    ///
    /// # Errors
    ///
    /// A sentence about what does not.
    pub fn checked(self) -> Result<Self, String> {
        if self.renew >= self.lease {
            return Err("--leader-elect-renew must be shorter than --leader-elect-lease".to_owned());
        }
        if self.retry >= self.renew {
            return Err("--leader-elect-retry must be shorter than --leader-elect-renew".to_owned());
        }
        if self.retry.is_zero() {
            return Err("--leader-elect-retry must not be 0".to_owned());
        }
        Ok(self)
    }
}

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its resourceVersion: a new one is a sign of life.
    pub(super) version: String,
    /// Who holds it; missing after a release.
    pub(super) holder: Option<String>,
    /// How long it is good for, as its holder says.
    pub(super) lease: Duration,
}

/// What to do after a look at the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Try to take it, bound to the version that was seen.
    Take,
    /// Not before this moment, unless it changes.
    Wait(Moment),
}

/// One that waits for the Lease.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    /// The version that was seen last, and since when.
    seen: Option<(String, Moment)>,
}

impl Candidate {
    pub(super) fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), seen: None }
    }

    /// A look. A Lease that nobody holds, or we, can be taken at once; another's only when it has not changed for its whole time
    /// before our eyes.
    pub(super) fn look(&mut self, record: Option<&Record>, now: Moment) -> Turn {
        let Some(record) = record else { return Turn::Take };
        let since = match &self.seen {
            Some((version, since)) if *version == record.version => *since,
            _ => now,
        };
        self.seen = Some((record.version.clone(), since));
        let is_free = record.holder.as_ref().is_none_or(|holder| holder.is_empty() || *holder == self.identity);
        let expires = since.saturating_add(record.lease);
        if is_free || now >= expires { Turn::Take } else { Turn::Wait(expires) }
    }
}

/// Until when a leader may write after a renewal that was sent at `sent` and accepted. Others count from a later moment, when they
/// see it, and longer.
pub(super) fn good_until(sent: Moment, timing: Timing) -> Moment {
    sent.saturating_add(timing.renew)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn record(version: &str, holder: Option<&str>) -> Record {
        Record { version: version.to_owned(), holder: holder.map(str::to_owned), lease: LEASE }
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken_at_once() {
        for free in [None, Some(record("1", None)), Some(record("1", Some(""))), Some(record("1", Some("me")))] {
            assert_eq!(Candidate::new("me").look(free.as_ref(), at(1)), Turn::Take, "{free:?}");
        }
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_its_whole_time_before_our_eyes() {
        let mut me = Candidate::new("me");
        assert_eq!(me.look(Some(&record("1", Some("other"))), at(100)), Turn::Wait(at(115)));
        assert_eq!(me.look(Some(&record("1", Some("other"))), at(114)), Turn::Wait(at(115)));
        assert_eq!(me.look(Some(&record("2", Some("other"))), at(114)), Turn::Wait(at(129)), "a sign of life");
        assert_eq!(me.look(Some(&record("2", Some("other"))), at(128)), Turn::Wait(at(129)));
        assert_eq!(me.look(Some(&record("2", Some("other"))), at(129)), Turn::Take);
    }

    #[test]
    fn the_time_is_that_of_the_holder() {
        let short = Record { lease: at(3), ..record("1", Some("other")) };
        let mut me = Candidate::new("me");
        assert_eq!(me.look(Some(&short), at(1)), Turn::Wait(at(4)));
        assert_eq!(me.look(Some(&short), at(4)), Turn::Take);
    }

    // spec: L090
    #[test]
    fn a_leader_stops_before_anybody_begins() {
        let timing = Timing { lease: LEASE, renew: at(10), retry: at(2) };
        // The other sees the renewal not before it was sent.
        let (sent, mut other) = (at(50), Candidate::new("other"));
        let Turn::Wait(begins) = other.look(Some(&record("1", Some("me"))), sent) else { panic!("it is held") };
        assert!(good_until(sent, timing) < begins);
    }

    #[test]
    fn times_that_do_not_fit_are_refused() {
        let good = Timing { lease: LEASE, renew: at(10), retry: at(2) };
        assert_eq!(good.checked(), Ok(good));
        for bad in [Timing { renew: LEASE, ..good }, Timing { retry: at(10), ..good }, Timing { retry: at(0), ..good }]
        {
            assert!(bad.checked().is_err(), "{bad:?}");
        }
    }
}
