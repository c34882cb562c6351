//! Random walks: the laws hold at every step, and from everywhere a good template gets in charge.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use sts_plus_api::VersionPhase;
use sts_plus_model::random::cases;
use sts_plus_model::{Loop, Metric};

use super::world::World;
use crate::owner::check;

#[derive(Clone, Debug)]
enum Change {
    Turn,
    Crash(usize),
    Tick,
    Pass,
    Template(u8),
    Scale(i32),
    Pause(bool),
    Zones(usize),
    Retry(u8),
    Settings(u8),
    NotReady(bool),
    Bad(u8, bool),
    Metric(u8, Metric),
    Flake(usize, i32),
    DeletePod(usize, i32),
    DeleteSet(usize),
    ScaleSet(usize, i32),
    EditImage(usize),
    Partition(usize, i32),
    StatusLost,
}

impl Change {
    /// What only a hand at the StatefulSets or at the status does.
    fn is_at_a_set(&self) -> bool {
        matches!(
            self,
            Self::DeleteSet(_) | Self::ScaleSet(..) | Self::EditImage(_) | Self::Partition(..) | Self::StatusLost
        )
    }
}

const ZONES: [&[&str]; 5] = [&[], &["a"], &["a", "b"], &["b", "a"], &["c", "a"]];

/// Templates: h1 and h2 are good to begin with, h3 never gets Ready, checks of h4 fail.
fn template() -> impl Strategy<Value = u8> {
    1..=4_u8
}

fn change() -> impl Strategy<Value = Change> {
    let metric = select(vec![Metric::Pass, Metric::Fail, Metric::Error]);
    prop_oneof![
        30 => Just(Change::Turn),
        6 => (0..4_usize).prop_map(Change::Crash),
        12 => Just(Change::Tick),
        20 => Just(Change::Pass),
        8 => template().prop_map(Change::Template),
        3 => (0..5_i32).prop_map(Change::Scale),
        2 => prop::bool::weighted(0.3).prop_map(Change::Pause),
        2 => (0..ZONES.len()).prop_map(Change::Zones),
        2 => (0..3_u8).prop_map(Change::Retry),
        1 => (0..3_u8).prop_map(Change::Settings),
        1 => any::<bool>().prop_map(Change::NotReady),
        2 => (template(), any::<bool>()).prop_map(|(hash, is_bad)| Change::Bad(hash, is_bad)),
        2 => (template(), metric).prop_map(|(hash, metric)| Change::Metric(hash, metric)),
        2 => (0..3_usize, 0..4_i32).prop_map(|(set, pod)| Change::Flake(set, pod)),
        2 => (0..3_usize, 0..4_i32).prop_map(|(set, pod)| Change::DeletePod(set, pod)),
        1 => (0..3_usize).prop_map(Change::DeleteSet),
        1 => (0..3_usize, 0..5_i32).prop_map(|(set, count)| Change::ScaleSet(set, count)),
        1 => (0..3_usize).prop_map(Change::EditImage),
        1 => (0..3_usize, select(vec![0, 1, 2, 3, 5])).prop_map(|(set, at)| Change::Partition(set, at)),
        1 => Just(Change::StatusLost),
    ]
}

impl World {
    fn happen(&mut self, change: &Change) {
        let hash = |number: &u8| format!("h{number}");
        let nth = |world: &Self, nth: usize| world.native.sets.keys().nth(nth).cloned().unwrap_or_default();
        match change {
            Change::Turn => drop(self.turn()),
            Change::Crash(writes) => drop(self.round_until(*writes)),
            Change::Tick => drop(self.tick()),
            Change::Pass => drop(self.pass()),
            Change::Template(number) => self.owner.template(&hash(number)),
            Change::Scale(count) => self.owner.scale(*count),
            Change::Pause(is_paused) => self.owner.pause(*is_paused),
            Change::Zones(zones) => self.owner.zones(ZONES[*zones]),
            Change::Retry(value) => self.owner.retry(&value.to_string()),
            Change::Settings(value) => self.owner.settings = format!("s{value}"),
            Change::NotReady(is_fine) => self.owner.strategy("updateNotReady", &json!(is_fine)),
            Change::Bad(number, is_bad) => self.bad(&hash(number), *is_bad),
            Change::Metric(number, metric) => self.metric(&hash(number), *metric),
            Change::Flake(set, pod) => self.flake(&nth(self, *set), *pod),
            Change::DeletePod(set, pod) => self.delete_pod(&nth(self, *set), *pod),
            Change::DeleteSet(set) => self.delete_set(&nth(self, *set)),
            Change::ScaleSet(set, count) => self.edit(&nth(self, *set), |set| set.replicas = *count),
            Change::EditImage(set) => self.edit_image(&nth(self, *set)),
            Change::Partition(set, at) => self.edit(&nth(self, *set), |set| set.partition = Some(*at)),
            Change::StatusLost => self.lose_status(),
        }
    }

    /// A hand empties the status; numbers are known from the StatefulSets alone then.
    pub fn lose_status(&mut self) {
        self.status = sts_plus_api::ExtendedStatefulSetStatus::default();
        self.ledger.lost_status = true;
        self.ledger.good.clear();
        self.forget_numbers();
    }
}

fn world() -> impl Strategy<Value = World> {
    let failure = select(vec!["Hold", "Pause", "Rollback", "Proceed"]);
    let strategy = (any::<bool>(), any::<bool>(), any::<bool>(), failure);
    let native = select(vec![Loop::GateOff, Loop::Gate135, Loop::Gate137]);
    (strategy, 0..5_i32, 0..ZONES.len(), any::<bool>(), native).prop_map(
        |((not_ready, is_checked, has_preflight, failure), replicas, zones, parallel, native)| {
            let mut strategy = json!({ "updateNotReady": not_ready, "canaryWatchSeconds": 60 });
            if is_checked {
                strategy["check"] = check();
                strategy["check"]["preflight"] = json!(has_preflight);
                strategy["check"]["onFailure"] = json!(failure);
            }
            let mut world = World::new(&strategy);
            (world.parallel, world.native.native) = (parallel, native);
            world.owner.scale(replicas);
            world.owner.zones(ZONES[zones]);
            world.bad("h3", true);
            world.metric("h4", Metric::Fail);
            world
        },
    )
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn from_everywhere_a_good_template_gets_in_charge(world in world(), changes in vec(change(), 0..120)) {
        let changes: Vec<_> = changes.into_iter().filter(|change| !change.is_at_a_set()).collect();
        converges(world, &changes);
    }

    #[test]
    fn also_after_hands_at_the_stateful_sets(world in world(), changes in vec(change(), 0..120)) {
        converges(world, &changes);
    }
}

fn converges(mut world: World, changes: &[Change]) {
    for change in changes {
        world.happen(change);
    }
    world.owner.pause(false);
    // A pod that is broken on the last good revision beside a Ready one on a third is left to a person (phased-rollout §10 is for sets of
    // which no pod is Ready).
    (1..=4).for_each(|number| world.heal(&format!("h{number}")));
    world.owner.strategy("updateNotReady", &json!(true));
    world.owner.template("h5");
    world.until("in charge", |world| world.status.phase == VersionPhase::Ready && world.owner.hash == "h5");
    world.settle();
    assert!(world.is_complete() && world.status.phase == VersionPhase::Ready, "{world:?}");
    assert_eq!(world.native.sets.len(), world.wanted().len(), "{world:?}");
    assert!(world.marks.values().all(|marks| marks.stale.is_none()), "{world:?}");
    assert!(world.round() && !world.turn(), "it writes at rest: {world:?}");
}
