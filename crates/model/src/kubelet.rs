//! Pods come up, break and go, as time says.

use crate::{
    tale::Deed,
    world::{Health, Pod, World},
};

impl World {
    /// Lets every pod do what is due now. True if anything changed.
    pub fn live(&mut self) -> bool {
        let now = self.now;
        let mut ready = Vec::new();
        let mut changed = false;
        for set in self.sets.values_mut() {
            let range: Vec<i32> = set.ordinals().collect();
            let gone = set.pods.iter().filter(|(_, pod)| pod.gone_at.is_some_and(|at| at <= now));
            for ordinal in gone.map(|(ordinal, _)| *ordinal).collect::<Vec<_>>() {
                set.pods.remove(&ordinal);
                changed = true;
                if !range.contains(&ordinal) {
                    self.ledger.condemned(&set.name, ordinal);
                }
            }
            for (ordinal, pod) in &mut set.pods {
                if becomes_ready(pod) == Some(true) && pod.due() <= now {
                    (pod.ready, pod.since) = (true, now);
                    ready.push(format!("{}-{ordinal}", set.name));
                }
            }
        }
        changed |= !ready.is_empty();
        for pod in ready {
            self.tell(Deed::Ready(pod));
        }
        changed
    }

    /// When the next pod does something by itself.
    #[must_use]
    pub fn next_life(&self) -> Option<i64> {
        let next = |pod: &Pod| match pod.gone_at {
            Some(at) => Some(at),
            None if pod.ready || pod.health == Health::NeverReady => None,
            None => Some(pod.due()),
        };
        let pods = self.sets.values().flat_map(|set| set.pods.values());
        // A pod that becomes stuck or available is news as well.
        let available = self
            .sets
            .values()
            .flat_map(|set| set.pods.values().filter(|pod| pod.ready).map(|pod| pod.since + i64::from(set.min_ready)));
        pods.filter_map(next).chain(available).filter(|at| *at > self.now).min()
    }
}

impl Pod {
    /// When it does what its health says.
    fn due(&self) -> i64 {
        match self.health {
            Health::ReadyAfter(seconds) => self.since + seconds,
            Health::Crashing => self.created + 1,
            Health::NeverReady => i64::MAX,
        }
    }
}

fn becomes_ready(pod: &Pod) -> Option<bool> {
    match pod.health {
        Health::ReadyAfter(_) if !pod.ready && pod.gone_at.is_none() => Some(true),
        _ => None,
    }
}
