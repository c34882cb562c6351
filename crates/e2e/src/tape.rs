//! A recording of a namespace: every version of its StatefulSets, pods, PhasedRollouts and ExtendedStatefulSets, as the API server's
//! watches bring them. Their resource versions come from one counter of the cluster, so sorting by them gives the order in which they were written.
//!
//! The tape also plays the application: while a pod runs whose image is an ill release (its tag ends in `-errors`), the exporter
//! shows a series `app_errors` for it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout};
use testcluster::Exporter;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::World;
use crate::world::image_of;

/// One version of one object.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its resource version.
    pub version: u64,
    /// When it arrived here: somewhat after it was written.
    pub arrived: Timestamp,
    /// True if this is its last version and it is gone.
    pub gone: bool,
    /// The object.
    pub seen: Seen,
}

/// An object of a tape.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A StatefulSet.
    Set(Arc<StatefulSet>),
    /// A pod.
    Pod(Arc<Pod>),
    /// A PhasedRollout.
    Rollout(Arc<PhasedRollout>),
    /// An ExtendedStatefulSet.
    Extended(Arc<ExtendedStatefulSet>),
}

impl Seen {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let json = match self {
            Self::Set(set) => serde_json::to_value(&**set),
            Self::Pod(pod) => serde_json::to_value(&**pod),
            Self::Rollout(rollout) => serde_json::to_value(&**rollout),
            Self::Extended(owner) => serde_json::to_value(&**owner),
        };
        json.expect("an object is JSON")
    }
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    world: Arc<World>,
    /// Why it did not go on.
    fault: Option<String>,
}

/// The recording; it goes on until it is dropped.
pub struct Tape {
    inner: Arc<Mutex<Inner>>,
    news: watch::Receiver<u64>,
    _watches: JoinSet<()>,
}

impl Tape {
    /// Starts to record `namespace`, which is empty.
    pub async fn start(client: &Client, namespace: &str, exporter: &'static Exporter) -> Self {
        let inner = Arc::<Mutex<Inner>>::default();
        let (tell, news) = watch::channel(0);
        let recorder = Recorder { inner: Arc::clone(&inner), tell, namespace: namespace.to_owned(), exporter };
        let mut watches = JoinSet::new();
        follow(&mut watches, client, &recorder, |set| Seen::Set(Arc::new(set))).await;
        follow(&mut watches, client, &recorder, |pod| Seen::Pod(Arc::new(pod))).await;
        follow(&mut watches, client, &recorder, |rollout| Seen::Rollout(Arc::new(rollout))).await;
        follow(&mut watches, client, &recorder, |extended| Seen::Extended(Arc::new(extended))).await;
        Self { inner, news, _watches: watches }
    }

    /// Everything so far, in the order in which it was written.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = self.whole().entries.clone();
        entries.sort_by_key(|entry| entry.version);
        entries
    }

    /// How it looks now.
    pub fn world(&self) -> Arc<World> {
        Arc::clone(&self.whole().world)
    }

    /// Waits until it looks as wanted, for `patience` at most; how it looks then, or how it looked last.
    ///
    /// # Errors
    /// When it does not within that time, with how it looks then.
    pub async fn until(
        &self,
        patience: Duration,
        wanted: impl Fn(&Arc<World>) -> bool,
    ) -> Result<Arc<World>, Arc<World>> {
        let mut news = self.news.clone();
        let seen = tokio::time::timeout(patience, async {
            loop {
                news.borrow_and_update();
                let world = self.world();
                if wanted(&world) {
                    return world;
                }
                if news.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        });
        seen.await.map_err(|_| self.world())
    }

    /// What was recorded, and nothing is missing. A test that fails already is told what there is.
    fn whole(&self) -> MutexGuard<'_, Inner> {
        let inner = lock(&self.inner);
        let fault = inner.fault.as_ref().filter(|_| !std::thread::panicking());
        assert!(fault.is_none(), "the recording has a gap: {fault:?}");
        inner
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Recorder {
    inner: Arc<Mutex<Inner>>,
    tell: watch::Sender<u64>,
    namespace: String,
    exporter: &'static Exporter,
}

impl Recorder {
    fn record(&self, version: u64, gone: bool, seen: Seen) {
        if let Seen::Pod(pod) = &seen {
            self.play(pod, gone);
        }
        {
            let mut inner = lock(&self.inner);
            Arc::make_mut(&mut inner.world).take(&seen, version, gone);
            inner.entries.push(Entry { version, arrived: Timestamp::now(), gone, seen });
        }
        self.tell.send_modify(|count| *count += 1);
    }

    /// It does not go on: whoever looks at it fails with this.
    fn fail(&self, fault: String) {
        lock(&self.inner).fault.get_or_insert(fault);
        self.tell.send_modify(|count| *count += 1);
    }

    /// The metrics of the application.
    fn play(&self, pod: &Pod, gone: bool) {
        let (image, name, uid) = (image_of(pod).to_owned(), pod.name_any(), pod.uid().unwrap_or_default());
        if !image.ends_with("-errors") {
            return;
        }
        let labels = [("namespace", self.namespace.as_str()), ("pod", name.as_str()), ("uid", uid.as_str())];
        if gone {
            self.exporter.remove("app_errors", &labels);
        } else {
            self.exporter.set("app_errors", &labels, 1.0);
        }
    }
}

impl World {
    fn take(&mut self, seen: &Seen, version: u64, gone: bool) {
        let [sets, pods, rollouts, extended] = &mut self.latest;
        let latest = match seen {
            Seen::Set(set) => {
                keep(&mut self.sets, set, gone);
                sets
            }
            Seen::Pod(pod) => {
                keep(&mut self.pods, pod, gone);
                pods
            }
            Seen::Rollout(rollout) => {
                keep(&mut self.rollouts, rollout, gone);
                rollouts
            }
            Seen::Extended(owner) => {
                keep(&mut self.extended, owner, gone);
                extended
            }
        };
        *latest = version.max(*latest);
    }
}

fn keep<K: Resource + Clone>(all: &mut std::collections::BTreeMap<String, K>, object: &K, gone: bool) {
    if gone {
        all.remove(&object.name_any());
    } else {
        all.insert(object.name_any(), object.clone());
    }
}

/// Lists once (nothing is there yet) and then records every event, over as many watches as it takes.
async fn follow<K>(watches: &mut JoinSet<()>, client: &Client, recorder: &Recorder, seen: fn(K) -> Seen)
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = Api::namespaced(client.clone(), &recorder.namespace);
    let list = api.list(&ListParams::default()).await.expect("an empty namespace can be listed");
    assert!(list.items.is_empty(), "the recording begins before anything is there");
    let version = list.metadata.resource_version.expect("a list has a version");
    let recorder = recorder.clone();
    watches.spawn(async move {
        // Nobody waits for this task, so its panic must be heard by whoever looks at the recording.
        let ended = AssertUnwindSafe(record(&api, version, &recorder, seen)).catch_unwind().await;
        recorder.fail(format!("{} {}", K::plural(&()), ended.unwrap_or_else(|panic| words(panic.as_ref()))));
    });
}

/// Goes on for ever, or until there is an event that cannot be recorded: why.
async fn record<K>(api: &Api<K>, mut version: String, recorder: &Recorder, seen: fn(K) -> Seen) -> String
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
            // The API server is being restarted, or busy.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        futures::pin_mut!(events);
        while let Ok(Some(event)) = events.try_next().await {
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                // Where nothing happens for minutes, a watch could not be begun again at the version of the last object.
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => return error.to_string(),
            };
            version = object.resource_version().expect("an object has a version");
            recorder.record(version.parse().expect("a version is a number"), gone, seen(object));
        }
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_recording_that_ended_fails_everybody_who_looks_at_it() {
        let exporter: &Exporter = Box::leak(Box::new(Exporter::start().await.expect("the exporter starts")));
        let (inner, (tell, news)) = (Arc::<Mutex<Inner>>::default(), watch::channel(0));
        let recorder = Recorder { inner: Arc::clone(&inner), tell, namespace: String::new(), exporter };
        let tape = Tape { inner, news, _watches: JoinSet::new() };
        assert!(tape.entries().is_empty() && tape.world().pods.is_empty());
        let waiting = AssertUnwindSafe(tape.until(Duration::from_mins(5), |_| false)).catch_unwind();
        let failing = async { recorder.fail("pods too old resource version".to_owned()) };
        let (waited, ()) = tokio::join!(waiting, failing);
        let looks = [
            waited.map(drop),
            std::panic::catch_unwind(AssertUnwindSafe(|| drop(tape.entries()))),
            std::panic::catch_unwind(AssertUnwindSafe(|| drop(tape.world()))),
        ];
        for look in looks {
            let fault = words(look.expect_err("it fails").as_ref());
            assert!(fault.contains("has a gap") && fault.contains("pods too old resource version"), "{fault}");
        }
    }
}
