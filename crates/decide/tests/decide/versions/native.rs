//! The controllers of Kubernetes: the native loop of the model. What tests hold as views of StatefulSets and pods is put into its world, each
//! set is looked at once, and what came of it is taken out again.

use std::ops::{Deref, DerefMut};

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::names;
use sts_plus_decide::{ChildView, PodView};
use sts_plus_model::world::second;
use sts_plus_model::{Health, Pod, Set};

use super::world::World;

/// What a deleted pod has until it is killed, in seconds.
const GRACE: i64 = 30;

/// The world of the model.
#[derive(Clone)]
pub struct Native(sts_plus_model::World);

impl Default for Native {
    fn default() -> Self {
        let mut world = sts_plus_model::World::empty();
        (world.policy, world.ledger.without_policy) = (false, true);
        Self(world)
    }
}

impl Deref for Native {
    type Target = sts_plus_model::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Native {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl World {
    /// The StatefulSet controller looks at each child once, and pods live. True if anything changed.
    pub fn tick(&mut self) -> bool {
        let before = self.children.clone();
        self.native.now = second(self.now);
        let names: Vec<&str> = before.iter().map(|child| child.name.as_str()).collect();
        self.native.sets.retain(|name, _| names.contains(&name.as_str()));
        for child in &before {
            self.put(child);
        }
        self.native.live();
        for child in &mut self.children {
            self.native.sync(&child.name);
            take(child, &self.native.sets[&child.name], self.now);
        }
        self.native.tale.clear();
        self.children != before
    }

    /// One child as the model holds it.
    fn put(&mut self, child: &ChildView) {
        let template = child.hash.trim_start_matches('h').parse().expect("templates are numbered");
        if self.native.sets.get(&child.name).is_none_or(|set| set.uid != child.uid) {
            self.native.add_set(&child.name, child.replicas, template);
        }
        let is_of = |zones: &[String]| child.zone.as_ref().is_some_and(|zone| zones.contains(zone));
        let is_bad = self.bad.contains(&child.hash) || is_of(&self.empty_zones);
        let is_closed = is_of(&self.closed_zones);
        let now = self.native.now;
        let set = self.native.sets.get_mut(&child.name).expect("it was made");
        set.uid.clone_from(&child.uid);
        (set.generation, set.replicas, set.template) = (child.generation, child.replicas, template);
        (set.min_ready, set.partition) = (child.min_ready_seconds, Some(names::HOLD));
        let revision = set.revision_of(template);
        let pods = child.pods.iter().map(|view| {
            let since = second(view.ready_since.unwrap_or(view.created));
            let known = set.pods.get(&view.ordinal).filter(|pod| pod.uid.to_string() == view.uid);
            let mut pod = Pod {
                uid: view.uid.parse().expect("UIDs of pods are numbers"),
                revision: known.map_or(&revision, |pod| &pod.revision).clone(),
                created: second(view.created),
                health: Health::ReadyAfter(0),
                ready: view.ready,
                since,
                gone_at: view.deleting.then_some(now),
            };
            if is_bad || (is_closed && !pod.ready) {
                pod.health = Health::NeverReady;
            }
            if is_bad && pod.ready && !view.deleting {
                (pod.ready, pod.since) = (false, now);
            }
            (view.ordinal, pod)
        });
        set.pods = pods.collect();
    }
}

/// What came of it, as the operator sees it.
fn take(child: &mut ChildView, set: &Set, now: Timestamp) {
    let views = set.pods.iter().map(|(ordinal, Pod { uid, ready, gone_at, .. })| {
        let known = child.pods.iter().find(|view| view.uid == uid.to_string()).cloned();
        let view = known.unwrap_or_else(|| pod(&child.name, *ordinal, *uid, now));
        let ready_since = if view.ready == *ready { view.ready_since } else { Some(now) };
        let end = || now + SignedDuration::from_secs(GRACE);
        let gone_by = gone_at.map(|_| view.gone_by.unwrap_or_else(end));
        PodView { ready: *ready, ready_since, deleting: gone_at.is_some(), gone_by, ..view }
    });
    child.pods = views.collect();
}

pub fn pod(set: &str, ordinal: i32, uid: u64, created: Timestamp) -> PodView {
    PodView {
        name: format!("{set}-{ordinal}"),
        uid: uid.to_string(),
        ordinal,
        revision: None,
        created,
        deleting: false,
        gone_by: None,
        finished: false,
        ready: false,
        ready_since: None,
        problem: None,
        node: None,
        zone: None,
        version: None,
    }
}

pub fn is_available(child: &ChildView, pod: &PodView, now: Timestamp) -> bool {
    let wait = SignedDuration::from_secs(i64::from(child.min_ready_seconds));
    pod.ready && !pod.deleting && pod.ready_since.is_none_or(|since| since + wait <= now)
}
