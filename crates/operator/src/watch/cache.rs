//! The objects of one kind, as a stream has brought them, and whether its first whole list has come. A store of kube says that to whoever
//! asked last and to nobody who asked before (its `wait_until_ready` keeps one waker), so it is said here.

use std::ops::Deref;

use kube::Resource;
use kube::runtime::reflector::{Store, store};
use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// What was brought.
#[derive(Clone)]
pub struct Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store: Store<K>,
    listed: watch::Receiver<bool>,
}

impl<K> Deref for Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// True once the first whole list has come.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits until it has, or will not any more.
    pub async fn ready(&self) {
        let _ = self.listed.clone().wait_for(|listed| *listed).await;
    }
}

/// Where a stream brings it.
pub struct Writer<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store: store::Writer<K>,
    listed: watch::Sender<bool>,
}

impl<K> Default for Writer<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    fn default() -> Self {
        Self { store: store::Writer::default(), listed: watch::Sender::default() }
    }
}

impl<K> Writer<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    /// For readers; there may be any number.
    #[must_use]
    pub fn cache(&self) -> Cache<K> {
        Cache { store: self.store.as_reader(), listed: self.listed.subscribe() }
    }

    /// Stores what an event says.
    pub fn apply(&mut self, event: &Event<K>) {
        self.store.apply_watcher_event(event);
        if matches!(event, Event::InitDone) {
            self.listed.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;
    use crate::views::SetObject;

    /// Two controllers wait for the same list, and a probe asks whether it is there.
    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_a_list_hear_of_it() {
        let mut writer = Writer::<SetObject>::default();
        let caches = [writer.cache(), writer.cache(), writer.cache()];
        let [first, second, _] = caches.clone().map(|cache| tokio::spawn(async move { cache.ready().await }));
        tokio::task::yield_now().await;
        assert!(caches.iter().all(|cache| !cache.is_ready() && cache.ready().now_or_never().is_none()));
        writer.apply(&Event::Init);
        assert!(!caches[0].is_ready());
        writer.apply(&Event::InitDone);
        let both = tokio::time::timeout(Duration::from_secs(1), futures::future::join(first, second)).await;
        assert!(both.is_ok() && caches.iter().all(Cache::is_ready));
    }
}
