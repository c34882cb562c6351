//! What is known of all objects of a kind, kept current by a watch: of each only what is measured.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sts_plus_api::{Phase, PhasedRollout, names};
use sts_plus_e2e::partition_of;
use tokio::task::JoinSet;

/// How long anything may take that the benchmark waits for.
const PATIENCE: Duration = Duration::from_mins(30);
/// Between two looks at what is known. What is measured has its own times.
const PAUSE: Duration = Duration::from_millis(100);

/// Namespace and name.
pub type Key = (String, String);

/// The objects of a kind. It follows them until it is dropped.
pub struct Mirror<T> {
    known: Arc<Mutex<BTreeMap<Key, T>>>,
    _watch: JoinSet<()>,
}

/// What is seen of an object, with what was seen of it before.
pub trait Sight<K>: Default + Send + 'static {
    fn see(&mut self, object: &K);
}

impl<T> Mirror<T> {
    pub fn start<K>(api: Api<K>) -> Self
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
        T: Sight<K>,
    {
        let known = Arc::<Mutex<BTreeMap<Key, T>>>::default();
        let mut tasks = JoinSet::new();
        let to = Arc::clone(&known);
        tasks.spawn(async move {
            let mut events = pin!(watch(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        lock(&to).entry(key(&object)).or_default().see(&object);
                    }
                    Ok(Event::Delete(object)) => {
                        lock(&to).remove(&key(&object));
                    }
                    // What goes wrong with a watch is tried again.
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { known, _watch: tasks }
    }

    /// Looks at what is known.
    pub fn look<R>(&self, look: impl FnOnce(&BTreeMap<Key, T>) -> R) -> R {
        look(&lock(&self.known))
    }

    /// Waits until it looks as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&BTreeMap<Key, T>) -> bool) -> anyhow::Result<()> {
        until(what, || self.look(&wanted)).await
    }
}

/// Waits until it is so.
pub async fn until(what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        anyhow::ensure!(Instant::now() < end, "not within {} minutes: {what}", PATIENCE.as_secs() / 60);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

pub fn key(object: &impl Resource) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is seen of a StatefulSet.
#[derive(Debug, Default)]
pub struct SetSeen {
    /// Each change of the partition, and when it was seen.
    pub steps: Vec<(Timestamp, Option<i32>)>,
    /// It is claimed by a PhasedRollout.
    pub is_claimed: bool,
    /// The controller has seen the latest spec.
    pub is_observed: bool,
    replicas: i32,
}

impl SetSeen {
    pub fn partition(&self) -> Option<i32> {
        self.steps.last().and_then(|(_, partition)| *partition)
    }

    /// It is claimed, and nothing is pending.
    pub fn is_at_rest(&self) -> bool {
        self.is_claimed && self.partition() == Some(self.replicas)
    }

    /// When the partition was lowered so far that it opens this index, after a moment.
    pub fn opened(&self, index: i32, after: Timestamp) -> Option<Timestamp> {
        let opens = |partition: &Option<i32>| partition.unwrap_or_default() <= index;
        self.steps.iter().find(|(at, partition)| *at >= after && opens(partition)).map(|(at, _)| *at)
    }
}

impl Sight<StatefulSet> for SetSeen {
    fn see(&mut self, set: &StatefulSet) {
        let partition = partition_of(set);
        if self.steps.last().is_none_or(|(_, last)| *last != partition) {
            self.steps.push((Timestamp::now(), partition));
        }
        self.is_claimed = set.annotations().contains_key(names::CLAIM);
        let observed = set.status.as_ref().and_then(|status| status.observed_generation);
        self.is_observed = observed == set.metadata.generation;
        self.replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    }
}

/// What is seen of a PhasedRollout.
#[derive(Debug, Default)]
pub struct RolloutSeen {
    pub phase: Phase,
}

impl Sight<PhasedRollout> for RolloutSeen {
    fn see(&mut self, rollout: &PhasedRollout) {
        self.phase = rollout.status.as_ref().map(|status| status.phase).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sts_plus_e2e::objects;

    use super::*;

    fn see(seen: &mut SetSeen, partition: i32) -> Timestamp {
        let set = objects::with(objects::set(3), "/spec/updateStrategy/rollingUpdate/partition", partition);
        let set = objects::with(set, "/metadata/annotations", json!({ names::CLAIM: "gate" }));
        let before = Timestamp::now();
        seen.see(&serde_json::from_value(set).unwrap());
        before
    }

    #[test]
    fn an_index_is_opened_by_the_first_partition_after_a_moment_that_is_low_enough() {
        let mut seen = SetSeen::default();
        see(&mut seen, 3);
        assert!(seen.is_at_rest() && seen.steps.len() == 1);
        see(&mut seen, 3);
        assert_eq!(seen.steps.len(), 1, "no change");
        let released = see(&mut seen, names::HOLD);
        assert!(!seen.is_at_rest());
        assert_eq!(seen.opened(2, released), None);
        see(&mut seen, 2);
        let step = see(&mut seen, 1);
        assert!(seen.opened(2, released).unwrap() <= step);
        assert!(seen.opened(1, released).unwrap() >= step);
        assert_eq!(seen.opened(0, released), None);
    }
}
