//! A scenario with an ExtendedStatefulSet `db`: what is asked of it, and what became of its versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSetStatus, VersionPhase, names};
use tokio::time::Instant;

use crate::world::{message, status_and_reason};
use crate::{Entry, PATIENCE, Scene, Seen, World, is_ready};

/// What was seen of `db` at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Everything in its namespace.
    pub world: Arc<World>,
    /// Its status.
    pub status: ExtendedStatefulSetStatus,
    /// The generation of its spec.
    pub generation: i64,
}

impl View {
    fn of(world: &Arc<World>) -> Option<Self> {
        let db = world.extended.get("db")?;
        Some(Self {
            world: Arc::clone(world),
            status: db.status.clone().unwrap_or_default(),
            generation: db.metadata.generation.unwrap_or_default(),
        })
    }

    /// The condition as `status/reason`.
    pub fn condition(&self, kind: &str) -> String {
        status_and_reason(&self.status.conditions, kind)
    }

    /// The message of a condition.
    pub fn message(&self, kind: &str) -> &str {
        message(&self.status.conditions, kind)
    }

    /// True if the status is about the spec as it is now.
    pub fn is_told(&self) -> bool {
        self.status.observed_generation == Some(self.generation)
    }

    /// One version alone is there, with all its pods, and nothing else is wanted.
    pub fn is_only(&self, version: i32) -> bool {
        let versions = BTreeMap::from([(version.to_string(), true)]);
        self.is_told() && self.status.phase == VersionPhase::Ready && self.status.versions == versions
    }

    /// True if the status is about the spec as it is now, and of this phase.
    pub fn is(&self, phase: VersionPhase) -> bool {
        self.is_told() && self.status.phase == phase
    }

    /// The UID of a StatefulSet.
    pub fn set_uid(&self, name: &str) -> Option<String> {
        self.world.sets.get(name)?.metadata.uid.clone()
    }

    /// UIDs of the pods whose names begin so.
    pub fn uids(&self, start: &str) -> BTreeMap<String, String> {
        self.world.uids().into_iter().filter(|(name, _)| name.starts_with(start)).collect()
    }
}

impl Scene {
    /// An empty namespace, and the operator runs.
    pub async fn with_operator(name: &str) -> Self {
        let mut scene = Self::new(name).await;
        scene.start_operator();
        scene
    }

    /// `db` as given, with its first version alone and all its pods.
    pub async fn with_versions(name: &str, db: &Value) -> Self {
        let scene = Self::with_operator(name).await;
        scene.create(db).await;
        scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
        scene
    }

    /// How it looks now.
    pub fn view(&self) -> View {
        View::of(&self.world()).expect("db is there")
    }

    /// Waits until `db` is there and looks as wanted; how it looks then. The recording is as new as the status by then: pods that the
    /// status counts are in it.
    pub async fn until_versions(&self, what: &str, wanted: impl Fn(&View) -> bool) -> View {
        let end = Instant::now() + PATIENCE;
        let is_wanted = |world: &Arc<World>| View::of(world).is_some_and(|view| wanted(&view));
        loop {
            if let Err(world) = self.tape.until(end.saturating_duration_since(Instant::now()), is_wanted).await {
                let status = world.extended.get("db").and_then(|db| db.status.as_ref());
                panic!("not within {} s: {what}\n{status:#?}\n{}", PATIENCE.as_secs(), self.trace().join("\n"));
            }
            self.catch_up().await;
            let view = self.view();
            if wanted(&view) {
                return view;
            }
        }
    }

    /// A merge patch of `db`.
    pub async fn change(&self, body: &Value) {
        self.patch("extendedstatefulset/db", body).await;
    }

    /// Another image in the template of `db`.
    pub async fn release_version(&self, image: &str) {
        self.until_errors_are_current().await;
        let pod = json!({ "containers": [{ "name": "app", "image": image }] });
        self.change(&json!({ "spec": { "template": { "spec": { "template": { "spec": pod } } } } })).await;
    }

    /// What became of the StatefulSets: how many pods each was to have, which was marked, which is gone.
    pub fn trace(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, (Option<i32>, bool)> = BTreeMap::new();
        let mut lines = Vec::new();
        for entry in self.tape.entries() {
            let Seen::Set(set) = &entry.seen else { continue };
            let name = set.metadata.name.clone().unwrap_or_default();
            if entry.gone {
                seen.remove(&name);
                lines.push(format!("{name} gone"));
                continue;
            }
            let now = (set.spec.as_ref().and_then(|spec| spec.replicas), is_stale(set));
            let before = seen.insert(name.clone(), now).unwrap_or((None, false));
            if now.0 != before.0 {
                lines.push(format!("{name} {}", now.0.unwrap_or(1)));
            }
            if now.1 != before.1 {
                lines.push(format!("{name} {}", if now.1 { "stale" } else { "not stale" }));
            }
        }
        lines
    }

    /// The Ready pods of each version after every pod event, and the version of the recording then.
    fn ready(&self) -> Vec<(u64, BTreeMap<String, usize>)> {
        let mut pods: BTreeMap<String, (String, bool)> = BTreeMap::new();
        let mut counts = Vec::new();
        for entry in &self.tape.entries() {
            let Some((uid, version, ready)) = pod_of(entry) else { continue };
            pods.insert(uid, (version, ready));
            let mut ready: BTreeMap<String, usize> = BTreeMap::new();
            for (version, _) in pods.values().filter(|(_, ready)| *ready) {
                *ready.entry(version.clone()).or_default() += 1;
            }
            counts.push((entry.version, ready));
        }
        counts
    }

    /// At every pod event since version 1 was whole some version had `count` Ready pods.
    pub fn assert_never_fewer_than(&self, count: usize) {
        let mut was_whole = false;
        for (version, ready) in self.ready() {
            let most = ready.values().copied().max().unwrap_or(0);
            was_whole |= most >= count;
            assert!(!was_whole || most >= count, "{ready:?} at version {version}\n{}", self.trace().join("\n"));
        }
        assert!(was_whole, "never {count} pods");
    }

    /// The fewest Ready pods of all versions together since there were three of them.
    pub fn fewest_ready(&self) -> usize {
        let counts = self.ready().into_iter().map(|(_, ready)| ready.values().sum());
        counts.skip_while(|count: &usize| *count < 3).min().expect("there were three")
    }
}

fn is_stale(set: &StatefulSet) -> bool {
    let annotations = set.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(names::STALE)).is_some_and(|stale| stale == "true")
}

fn pod_of(entry: &Entry) -> Option<(String, String, bool)> {
    let Seen::Pod(pod) = &entry.seen else { return None };
    let version = pod.metadata.labels.as_ref()?.get(names::VERSION)?.clone();
    let is_there = !entry.gone && pod.metadata.deletion_timestamp.is_none();
    Some((pod.metadata.uid.clone()?, version, is_there && is_ready(pod)))
}
