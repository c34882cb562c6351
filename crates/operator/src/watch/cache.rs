//! The objects of one kind, as a stream has brought them: by name, by what else they are looked for, and whether all of them are here. What an
//! event costs does not grow with the number of objects. Without a client.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// What an object is looked for by, such as the UID of its owner. A hash of it: whoever finds something looks whether it is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// Of these words, such as `["claim", NAMESPACE, NAME]`.
    #[must_use]
    pub fn of(words: &[&str]) -> Self {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A kind of which objects are looked for by more than their name.
pub trait Keyed: Resource<DynamicType = ()> + Clone + 'static {
    /// All that it is looked for by.
    fn keys(&self) -> Vec<Key>;
}

/// What became of one object.
#[derive(Debug)]
pub struct Change<K> {
    /// As it was, if it was known.
    pub before: Option<Arc<K>>,
    /// As it is, if it is there.
    pub now: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The UID of an object that is there no more.
    #[must_use]
    pub fn gone(&self) -> Option<&str>
    where
        K: Resource,
    {
        let before = self.before.as_ref()?.meta().uid.as_deref();
        before.filter(|before| self.now.as_ref().is_none_or(|now| now.meta().uid.as_deref() != Some(before)))
    }

    /// The object as it was and as it is: what one of them concerns is concerned.
    pub fn objects(&self) -> impl Iterator<Item = &K> {
        self.before.iter().chain(&self.now).map(AsRef::as_ref)
    }
}

/// How far the first list of a kind is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    #[default]
    Awaited,
    /// We may not read it, or nobody serves it. It may still come.
    Refused,
    Whole,
}

type Found<K> = RwLock<HashMap<Key, Vec<Arc<K>>>>;

/// What was brought.
#[derive(Clone)]
pub struct Cache<K: Keyed> {
    store: Store<K>,
    found: Arc<Found<K>>,
    list: watch::Receiver<List>,
}

impl<K: Keyed> Deref for Cache<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K: Keyed> Cache<K> {
    /// True once the first whole list has come.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.list.borrow() == List::Whole
    }

    /// Waits until it has, or the API server refuses it, or nobody brings anything any more. A store of kube says it to whoever asked last
    /// only: its `wait_until_ready` keeps one waker.
    pub async fn ready(&self) {
        let _ = self.list.clone().wait_for(|list| *list != List::Awaited).await;
    }

    /// The objects that are looked for by this, and are it.
    #[must_use]
    pub fn find(&self, words: &[&str], is_it: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let found = read(&self.found);
        let found = found.get(&Key::of(words)).into_iter().flatten();
        found.filter(|object| is_it(object)).cloned().collect()
    }
}

/// Where a stream brings it.
pub struct Writer<K: Keyed> {
    store: store::Writer<K>,
    found: Arc<Found<K>>,
    list: watch::Sender<List>,
}

impl<K: Keyed> Default for Writer<K> {
    fn default() -> Self {
        Self { store: store::Writer::default(), found: Arc::default(), list: watch::Sender::default() }
    }
}

impl<K: Keyed> Writer<K> {
    /// For readers; there may be any number.
    #[must_use]
    pub fn cache(&self) -> Cache<K> {
        Cache { store: self.store.as_reader(), found: Arc::clone(&self.found), list: self.list.subscribe() }
    }

    /// Stores what an event says. What became of which objects by it: of a list that is read anew, all that is not as it was.
    pub fn apply(&mut self, event: &Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init | Event::InitApply(_) => {
                self.store.apply_watcher_event(event);
                Vec::new()
            }
            Event::InitDone => {
                let changes = self.replace();
                self.list.send_replace(List::Whole);
                changes
            }
            Event::Apply(object) | Event::Delete(object) => vec![self.change(event, object)],
        }
    }

    /// The first list will not come soon: nobody is to wait for it.
    pub fn refused(&self) {
        self.list.send_if_modified(|list| {
            let is_first = *list == List::Awaited;
            if is_first {
                *list = List::Refused;
            }
            is_first
        });
    }

    fn change(&mut self, event: &Event<K>, object: &K) -> Change<K> {
        let (reader, name) = (self.store.as_reader(), ObjectRef::from_obj(object));
        let before = reader.get(&name);
        let mut found = write(&self.found);
        self.store.apply_watcher_event(event);
        let now = reader.get(&name);
        if let Some(before) = &before {
            leave(&mut found, before);
        }
        if let Some(now) = &now {
            enter(&mut found, now);
        }
        let gone = || now.is_none().then(|| Arc::new(object.clone()));
        Change { before: before.or_else(gone), now }
    }

    fn replace(&mut self) -> Vec<Change<K>> {
        let by_name = |objects: Vec<Arc<K>>| -> HashMap<ObjectRef<K>, Arc<K>> {
            objects.into_iter().map(|object| (ObjectRef::from_obj(&*object), object)).collect()
        };
        let reader = self.store.as_reader();
        let mut before = by_name(reader.state());
        let mut found = write(&self.found);
        self.store.apply_watcher_event(&Event::InitDone);
        found.clear();
        let mut changes = Vec::new();
        for (name, now) in by_name(reader.state()) {
            enter(&mut found, &now);
            let before = before.remove(&name);
            if before.as_ref().is_none_or(|before| !is_same::<K>(before, &now)) {
                changes.push(Change { before, now: Some(now) });
            }
        }
        changes.extend(before.into_values().map(|gone| Change { before: Some(gone), now: None }));
        changes
    }
}

fn is_same<K: Resource>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.uid == other.uid && one.resource_version.is_some() && one.resource_version == other.resource_version
}

fn enter<K: Keyed>(found: &mut HashMap<Key, Vec<Arc<K>>>, object: &Arc<K>) {
    for key in object.keys() {
        found.entry(key).or_default().push(Arc::clone(object));
    }
}

fn leave<K: Keyed>(found: &mut HashMap<Key, Vec<Arc<K>>>, object: &Arc<K>) {
    for key in object.keys() {
        let Some(objects) = found.get_mut(&key) else { continue };
        objects.retain(|other| !Arc::ptr_eq(other, object));
        if objects.is_empty() {
            found.remove(&key);
        }
    }
}

fn read<K>(found: &Found<K>) -> RwLockReadGuard<'_, HashMap<Key, Vec<Arc<K>>>> {
    found.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<K>(found: &Found<K>) -> RwLockWriteGuard<'_, HashMap<Key, Vec<Arc<K>>>> {
    found.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use serde_json::json;
    use sts_plus_api::names;

    use super::*;
    use crate::views::SetObject;

    fn set(name: &str, version: &str, claim: &str) -> SetObject {
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns", "uid": name,
            "resourceVersion": version, "annotations": { names::CLAIM: claim } } }))
        .unwrap()
    }

    fn claimed(cache: &Cache<SetObject>, by: &str) -> Vec<String> {
        let sets = cache.find(&["claim", "ns", by], |set| set.claimed_by() == Some(by));
        sets.iter().map(|set| set.name().to_owned()).collect()
    }

    fn relist(writer: &mut Writer<SetObject>, sets: impl IntoIterator<Item = SetObject>) -> Vec<String> {
        assert!(writer.apply(&Event::Init).is_empty());
        for set in sets {
            assert!(writer.apply(&Event::InitApply(set)).is_empty(), "who looked now would see the list before");
        }
        let mut told: Vec<_> = writer.apply(&Event::InitDone).iter().map(tell).collect();
        told.sort();
        told
    }

    fn tell(change: &Change<SetObject>) -> String {
        let version = |set: &Option<Arc<SetObject>>| {
            set.as_ref().and_then(|set| set.metadata.resource_version.clone()).unwrap_or("-".to_owned())
        };
        let name = change.objects().next().unwrap().name();
        format!("{name} {} {}", version(&change.before), version(&change.now))
    }

    #[test]
    fn a_list_that_is_read_anew_tells_what_came_changed_and_went() {
        let mut writer = Writer::default();
        let cache = writer.cache();
        let first = [set("a", "1", "x"), set("b", "2", "x"), set("c", "3", "x")];
        assert_eq!(relist(&mut writer, first), ["a - 1", "b - 2", "c - 3"]);
        let second = [set("a", "1", "x"), set("b", "5", "y"), set("d", "6", "x")];
        assert_eq!(relist(&mut writer, second), ["b 2 5", "c 3 -", "d - 6"]);
        assert_eq!(claimed(&cache, "y"), ["b"]);
        let mut others = claimed(&cache, "x");
        others.sort();
        assert_eq!(others, ["a", "d"]);
    }

    #[test]
    fn an_object_is_found_by_what_it_is_now() {
        let mut writer = Writer::default();
        let cache = writer.cache();
        relist(&mut writer, [set("a", "1", "x")]);
        assert_eq!(tell(&writer.apply(&Event::Apply(set("a", "2", "y")))[0]), "a 1 2");
        assert_eq!((claimed(&cache, "x").len(), claimed(&cache, "y")), (0, vec!["a".to_owned()]));
        assert_eq!(tell(&writer.apply(&Event::Delete(set("a", "3", "y")))[0]), "a 2 -");
        assert!(claimed(&cache, "y").is_empty() && read(&cache.found).is_empty());
        assert_eq!(tell(&writer.apply(&Event::Delete(set("b", "4", "y")))[0]), "b 4 -", "one that was never seen");
    }

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

    #[tokio::test]
    async fn nobody_waits_for_a_list_that_is_refused_and_it_may_still_come() {
        let mut writer = Writer::<SetObject>::default();
        let cache = writer.cache();
        writer.refused();
        cache.ready().await;
        assert!(!cache.is_ready());
        relist(&mut writer, []);
        writer.refused();
        assert!(cache.is_ready(), "what was brought stays");
    }
}
