//! An ExtendedStatefulSet `db` in a scenario: what is asked of it, and what became of it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSet, ExtendedStatefulSetStatus, VersionPhase, names};
use sts_plus_e2e::{Entry, PATIENCE, Scene, Seen, World, is_ready, objects};
use tokio::time::Instant;

/// `db` with three pods on `app:1`.
pub fn db() -> Value {
    objects::extended("db")
}

/// What was seen at one moment.
pub struct View {
    pub world: World,
    pub status: ExtendedStatefulSetStatus,
    pub generation: i64,
}

impl View {
    /// The condition as `status/reason`.
    pub fn condition(&self, kind: &str) -> String {
        let found = self.status.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|condition| format!("{}/{}", condition.status, condition.reason)).unwrap_or_default()
    }

    pub fn message(&self, kind: &str) -> &str {
        let found = self.status.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|condition| condition.message.as_str()).unwrap_or_default()
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

/// A scenario with `db`.
pub struct Story {
    pub scene: Scene,
}

impl Story {
    /// Nothing is there yet, and the operator runs.
    pub async fn new(name: &str) -> Self {
        let mut scene = Scene::new(name).await;
        scene.start_operator();
        Self { scene }
    }

    /// `db` as given, with its first version alone and all its pods.
    pub async fn at_rest(name: &str, db: &Value) -> Self {
        let story = Self::new(name).await;
        story.scene.create(db).await;
        story.until("version 1 is there", |view| view.is_only(1)).await;
        story
    }

    pub async fn view(&self) -> View {
        let object = self.scene.api("extendedstatefulset").get("db").await.expect("it is there");
        let owner: ExtendedStatefulSet =
            serde_json::from_value(serde_json::to_value(object).expect("JSON")).expect("it can be read");
        View {
            world: self.scene.world(),
            status: owner.status.unwrap_or_default(),
            generation: owner.metadata.generation.unwrap_or_default(),
        }
    }

    /// Waits until it looks as wanted; how it looks then. The recording is as new as the status by then: pods that the status counts
    /// are in it.
    pub async fn until(&self, what: &str, wanted: impl Fn(&View) -> bool) -> View {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut view = self.view().await;
            if wanted(&view) {
                self.scene.catch_up().await;
                view.world = self.scene.world();
                if wanted(&view) {
                    return view;
                }
            }
            assert!(
                Instant::now() < end,
                "not so: {what}\n{:#?}\n{}\n{}",
                view.status,
                self.trace().join("\n"),
                self.scene.log()
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// A merge patch of `db`.
    pub async fn change(&self, body: &Value) {
        self.scene.patch("extendedstatefulset/db", body).await;
    }

    /// Another image.
    pub async fn release(&self, image: &str) {
        let containers = json!([{ "name": "app", "image": image }]);
        self.change(
            &json!({ "spec": { "template": { "spec": { "template": { "spec": { "containers": containers } } } } } }),
        )
        .await;
    }

    /// What became of the StatefulSets: how many pods each was to have, which was marked, which is gone.
    pub fn trace(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, (Option<i32>, bool)> = BTreeMap::new();
        let mut lines = Vec::new();
        for entry in self.scene.tape.entries() {
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
        for entry in &self.scene.tape.entries() {
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

    pub async fn end(self) {
        self.scene.end().await;
    }
}

fn is_stale(set: &StatefulSet) -> bool {
    let annotations = set.metadata.annotations.clone().unwrap_or_default();
    annotations.get(names::STALE).is_some_and(|stale| stale == "true")
}

fn pod_of(entry: &Entry) -> Option<(String, String, bool)> {
    let Seen::Pod(pod) = &entry.seen else { return None };
    let version = pod.metadata.labels.as_ref()?.get(names::VERSION)?.clone();
    let is_there = !entry.gone && pod.metadata.deletion_timestamp.is_none();
    Some((pod.metadata.uid.clone()?, version, is_there && is_ready(pod)))
}
