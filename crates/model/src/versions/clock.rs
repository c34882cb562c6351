//! Who acts when, as in the clock of one StatefulSet.

use sts_plus_decide::VersionsObserved;

use super::{World, operator::Look};
use crate::operator::Stop;

impl World {
    /// Pods, controllers and the operator once. True if anything changed.
    pub fn round(&mut self) -> bool {
        let mut changed = self.native.live();
        let sets: Vec<String> = self.native.sets.keys().cloned().collect();
        for set in sets {
            changed |= self.native.sync(&set);
        }
        let look = self.look();
        if self.is_due(&look) {
            changed |= self.operate_on(look, Stop::Never) > 0;
        }
        changed
    }

    /// True if the operator has seen a change or its time has come.
    #[must_use]
    pub fn is_due(&self, look: &Look) -> bool {
        if self.wake.is_some_and(|wake| wake <= self.native.now) {
            return true;
        }
        let Some(last) = self.seen.as_deref() else { return true };
        let VersionsObserved { owner, template, children, kept, foreign, active, preview, empty_zones, .. } =
            &look.observed;
        // Its own status is no news.
        let is_same = (&owner.spec, &owner.annotations) == (&last.owner.spec, &last.owner.annotations)
            && (owner.generation, template) == (last.owner.generation, &last.template)
            && (children, kept, foreign) == (&last.children, &last.kept, &last.foreign)
            && (active, preview, empty_zones) == (&last.active, &last.preview, &last.empty_zones);
        !is_same
    }

    /// The next moment at which anything is due.
    #[must_use]
    pub fn next_due(&self) -> Option<i64> {
        self.wake.into_iter().chain(self.native.next_life()).filter(|at| *at > self.native.now).min()
    }

    /// Runs until nothing is due any more, for at most `seconds`. False if somebody never rests.
    pub fn settle(&mut self, seconds: i64) -> bool {
        self.run(seconds, |_| false)
    }

    /// The same until something is so.
    pub fn run(&mut self, seconds: i64, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.native.now + seconds;
        loop {
            let mut rounds = 0;
            while !is_so(self) && self.round() {
                rounds += 1;
                if rounds > 300 {
                    return false;
                }
            }
            match self.next_due().filter(|next| *next <= end && !is_so(self)) {
                Some(next) => self.native.now = next,
                None => return true,
            }
        }
    }
}
