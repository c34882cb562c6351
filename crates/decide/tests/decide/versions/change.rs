//! What happens next: something a user does, or a turn of the operator, of the controllers, or of the clock.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use sts_plus_decide::ServiceView;

use super::world::World;
use crate::owner::check;

#[derive(Clone, Debug)]
pub enum Change {
    Round,
    Crash(usize),
    Tick,
    Second,
    Wake,
    Template(u8),
    Scale(i32),
    Pause(bool),
    /// The API server refuses the template from now on, or does not.
    Refused(bool),
    Zones(usize),
    Retry(u8),
    DeleteChild(usize),
    ScaleChild(usize, i32),
    Canaries(i32),
    NotReady(bool),
    /// Pods of a template are Ready from now on, or are not.
    Bad(u8, bool),
    /// Checks of a template pass from now on, or do not.
    Failing(u8, bool),
    /// A pod is not Ready for a moment.
    Flake(usize, usize),
    /// A foreign StatefulSet has the name of the next version, or is gone.
    Foreign(bool),
}

/// Templates: h1 and h2 are good to begin with, h3 never gets Ready, checks of h4 fail.
fn template() -> impl Strategy<Value = u8> {
    1..=4_u8
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        24 => Just(Change::Round),
        4 => (0..4_usize).prop_map(Change::Crash),
        24 => Just(Change::Tick),
        6 => Just(Change::Second),
        6 => Just(Change::Wake),
        6 => template().prop_map(Change::Template),
        3 => (0..5_i32).prop_map(Change::Scale),
        2 => prop::bool::weighted(0.3).prop_map(Change::Pause),
        2 => prop::bool::weighted(0.3).prop_map(Change::Refused),
        2 => (0..ZONES.len()).prop_map(Change::Zones),
        2 => (0..3_u8).prop_map(Change::Retry),
        1 => (0..8_usize).prop_map(Change::DeleteChild),
        1 => (0..8_usize, 0..6_i32).prop_map(|(child, count)| Change::ScaleChild(child, count)),
        1 => (0..4_i32).prop_map(Change::Canaries),
        1 => any::<bool>().prop_map(Change::NotReady),
        1 => (template(), any::<bool>()).prop_map(|(hash, is_bad)| Change::Bad(hash, is_bad)),
        1 => (template(), any::<bool>()).prop_map(|(hash, fails)| Change::Failing(hash, fails)),
        2 => (0..6_usize, 0..4_usize).prop_map(|(child, pod)| Change::Flake(child, pod)),
        1 => any::<bool>().prop_map(Change::Foreign),
    ]
}

const ZONES: [&[&str]; 6] = [&[], &["a"], &["a", "b"], &["b", "a"], &["a", "b", "c"], &["c"]];

impl World {
    pub fn happen(&mut self, change: &Change) {
        let nth = |world: &Self, nth: usize| world.children.get(nth).map(|child| child.name.clone());
        let hash = |number: &u8| format!("h{number}");
        match change {
            Change::Round => drop(self.round()),
            Change::Crash(writes) => drop(self.round_until(*writes)),
            Change::Tick => drop(self.tick()),
            Change::Second => self.pass(1),
            Change::Wake => self.pass_to_wake(),
            Change::Template(number) => self.owner.template(&hash(number)),
            Change::Scale(count) => self.owner.scale(*count),
            Change::Pause(is_paused) => self.owner.pause(*is_paused),
            Change::Refused(is_refused) => self.owner.problem = is_refused.then(|| "no such field".to_owned()),
            Change::Zones(zones) => self.owner.zones(ZONES[*zones]),
            Change::Retry(value) => self.owner.retry(&value.to_string()),
            Change::DeleteChild(child) => nth(self, *child).iter().for_each(|name| self.delete_child(name)),
            Change::ScaleChild(child, count) => {
                if let Some(name) = nth(self, *child) {
                    self.scale_child(&name, *count);
                }
            }
            Change::Canaries(count) => self.owner.strategy("canaries", &json!(count)),
            Change::NotReady(is_fine) => self.owner.strategy("updateNotReady", &json!(is_fine)),
            Change::Bad(number, true) => drop(self.bad.insert(hash(number))),
            Change::Bad(number, false) => drop(self.bad.remove(&hash(number))),
            Change::Failing(number, true) => drop(self.failing.insert(hash(number))),
            Change::Failing(number, false) => drop(self.failing.remove(&hash(number))),
            Change::Flake(child, pod) => {
                if let Some(pod) = self.children.get_mut(*child).and_then(|child| child.pods.get_mut(*pod)) {
                    (pod.ready, pod.ready_since) = (false, Some(self.now));
                }
            }
            Change::Foreign(true) => self.foreign = self.foreign_names(),
            Change::Foreign(false) => self.foreign.clear(),
        }
    }

    /// Names of the next version.
    fn foreign_names(&self) -> Vec<String> {
        let next = self.status.last_version + 1;
        let of_zone = |(zone, _): (Option<String>, i32)| {
            zone.map_or_else(|| format!("web-v{next}"), |zone| format!("web-{zone}-v{next}"))
        };
        let names = self.wanted().into_iter().map(of_zone);
        names.filter(|name| !self.has(name)).collect()
    }
}

/// A world before anything happened.
pub fn world() -> impl Strategy<Value = World> {
    let strategy = (0..3_i32, 0..3_i32, any::<bool>(), any::<bool>(), select(vec![0, 40]));
    (strategy, 0..5_i32, 0..ZONES.len(), any::<bool>(), select(vec![0, 5]), any::<bool>()).prop_map(
        |((canaries, retries, not_ready, is_checked, delay), replicas, zones, is_spread, min_ready, has_services)| {
            let mut strategy = json!({
                "canaries": canaries, "retryCount": retries, "updateNotReady": not_ready, "canaryWatchSeconds": 30,
                "scaleDownDelaySeconds": delay,
            });
            if is_checked {
                strategy["check"] = check();
            }
            let mut world = World::new(&strategy);
            world.owner.spec["zoneReplicas"] = json!(if is_spread { "Spread" } else { "PerZone" });
            world.min_ready_seconds = min_ready;
            world.owner.scale(replicas);
            world.owner.zones(ZONES[zones]);
            world.bad.insert("h3".into());
            world.failing.insert("h4".into());
            if has_services {
                world.services();
            }
            world
        },
    )
}

impl World {
    pub fn services(&mut self) {
        let service = |name: &str| ServiceView { name: name.into(), exists: true, ..ServiceView::default() };
        self.owner.strategy("activeService", &json!("live"));
        self.owner.strategy("previewService", &json!("next"));
        (self.active, self.preview) = (Some(service("live")), Some(service("next")));
    }
}

pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec(change(), 0..90)
}
