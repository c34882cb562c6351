//! Who acts when: everything that has something to do acts, then time goes on to the next moment at which something is due.

use sts_plus_decide::Observed;

use crate::{operator::Stop, world::World};

/// Rounds in one moment after which it is clear that somebody never rests.
const RESTLESS: usize = 300;

/// How a run of the world ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nobody has anything to do any more.
    Quiet,
    /// The time was up.
    TimeUp,
    /// Somebody never stopped acting.
    Restless,
}

impl World {
    /// Runs until nothing is due any more, for at most `seconds`.
    pub fn settle(&mut self, seconds: i64) -> Ended {
        self.run(seconds, |_| false)
    }

    /// Runs until `done`, or until nothing is due any more, for at most `seconds`.
    pub fn run(&mut self, seconds: i64, done: impl Fn(&Self) -> bool) -> Ended {
        let end = self.now + seconds;
        loop {
            if !self.moment(&done) {
                return Ended::Restless;
            }
            if done(self) {
                return Ended::Quiet;
            }
            match self.next_due() {
                None => return Ended::Quiet,
                Some(next) if next > end => {
                    self.now = end;
                    return Ended::TimeUp;
                }
                Some(next) => self.now = next,
            }
        }
    }

    /// Everything that is due now. False if it never ends.
    fn moment(&mut self, done: &impl Fn(&Self) -> bool) -> bool {
        for _ in 0..RESTLESS {
            if !self.round() || done(self) {
                return true;
            }
        }
        false
    }

    /// Pods, controller and operators once. True if anything changed.
    pub fn round(&mut self) -> bool {
        let mut changed = self.live();
        let sets: Vec<String> = self.sets.keys().cloned().collect();
        for set in sets {
            changed |= self.sync(&set);
        }
        let rollouts: Vec<String> = self.rollouts.keys().cloned().collect();
        for rollout in rollouts {
            if let Some(observed) = self.due(&rollout) {
                changed |= self.operate_on(&rollout, observed, Stop::Never) > 0;
            }
        }
        changed
    }

    /// True if the operator of `rollout` has seen a change or its time has come.
    #[must_use]
    pub fn is_due(&self, rollout: &str) -> bool {
        self.due(rollout).is_some()
    }

    /// What the operator of `rollout` sees, if that has changed or its time has come.
    fn due(&self, rollout: &str) -> Option<Observed> {
        let own = self.rollouts.get(rollout)?;
        let mut observed = self.observe(rollout)?;
        // Its own status is no news.
        let status = std::mem::take(&mut observed.rollout.status);
        let is_news = own.seen.as_deref() != Some(&observed);
        observed.rollout.status = status;
        (is_news || own.wake.is_some_and(|wake| wake <= self.now)).then_some(observed)
    }

    /// The next moment at which anything is due.
    #[must_use]
    pub fn next_due(&self) -> Option<i64> {
        let wakes = self.rollouts.values().filter_map(|own| own.wake);
        wakes.chain(self.next_life()).filter(|at| *at > self.now).min()
    }

    /// The operator process starts again: it knows nothing but what is written.
    pub fn restart_operator(&mut self) {
        for own in self.rollouts.values_mut() {
            (own.wake, own.seen) = (None, None);
        }
    }

    /// Lets `seconds` pass, with everything that is due in them.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now + seconds;
        self.run(seconds, |_| false);
        self.now = end.max(self.now);
        self.run(0, |_| false);
    }
}
