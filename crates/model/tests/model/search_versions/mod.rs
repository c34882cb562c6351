//! Every order of events in small worlds of an ExtendedStatefulSet, side by side and in place: what people do, the controllers, the operator,
//! crashes, lost replies, old views, and time. As `search`, on the same native loop: the laws must hold in each move, and each state is run
//! to its end. A search goes breadth first, so the story that it prints is the shortest one. Of S12, claims and jobs are not in it: they do not
//! exist yet.

mod ends;
mod key;
mod laws;
mod moves;
mod openings;
mod places;
mod remember;
mod sides;
mod stories;
mod worlds;

use sts_plus_api::VersionPhase;
use sts_plus_model::versions::World;

use crate::explore::{
    self, Daily, Game, long_search,
    moves::{Budget, LONG},
};
use ends::Ends;
use key::Key;
use laws::Mind;
use moves::{Deeds, Kept, Move};
use worlds::Setting;

/// An ExtendedStatefulSet and its StatefulSets.
#[derive(Clone, Debug, Default)]
pub struct Versions;

pub type Node = explore::Node<Versions>;

impl Game for Versions {
    type Setting = Setting;
    type Deed = Deeds;
    type World = World;
    type Mind = Mind;
    type Kept = Kept;
    type Ends = Ends;

    fn start(setting: &Setting, left: Budget) -> Node {
        setting.start(left)
    }

    fn people(setting: &Setting) -> Vec<Deeds> {
        moves::people(setting)
    }

    fn ends(setting: &Setting) -> Ends {
        Ends::new(setting)
    }

    fn wrong(ends: &mut Ends, node: &Node) -> Vec<(String, String)> {
        ends.of(node)
    }

    fn met(ends: &Ends) -> usize {
        ends.count()
    }

    fn key(node: &Node) -> u64 {
        Key::of(node)
    }

    fn key_of_world(node: &Node) -> u64 {
        Key::of_world(node)
    }

    fn after(node: &Node, step: Move) -> Option<(Node, Vec<String>)> {
        moves::after(node, step)
    }

    fn sets(world: &World) -> u8 {
        u8::try_from(world.native.sets.len()).unwrap()
    }

    fn is_flaky(world: &World) -> bool {
        moves::is_flaky(world)
    }

    fn phase(world: &World) -> Option<usize> {
        Some(world.status.phase as usize)
    }

    fn name_of_phase(phase: usize) -> String {
        VersionPhase::ALL.iter().find(|one| **one as usize == phase).map(|one| format!("{one:?}")).unwrap_or_default()
    }

    fn tell(world: &World) -> (i64, String, String) {
        (world.native.now, world.layout(), world.native.tale.long_story())
    }
}

/// Side by side: one act of people, faults, and both.
pub const SIDES: [Daily; 4] = [
    Daily { name: "side by side, one act of people", left: PEOPLE, most: 1_300, floor: 33_000 },
    Daily { name: "side by side, two faults, late once", left: FAULTS, most: 1_300, floor: 33_000 },
    Daily { name: "side by side, one act and one fault", left: BOTH, most: 1_300, floor: 33_000 },
    Daily { name: "side by side, where a fault was found once", left: AFTER, most: 1_300, floor: 3_000 },
];
/// The same in place.
pub const PLACES: [Daily; 4] = [
    Daily { name: "in place, one act of people", left: PEOPLE, most: 1_400, floor: 33_000 },
    Daily { name: "in place, two faults, late once", left: FAULTS, most: 1_400, floor: 33_000 },
    Daily { name: "in place, one act and one fault", left: BOTH, most: 1_400, floor: 33_000 },
    Daily { name: "in place, where a fault was found once", left: AFTER, most: 1_400, floor: 3_000 },
];

const PEOPLE: Budget = Budget { people: 1, faults: 0, delays: 0 };
const FAULTS: Budget = Budget { people: 0, faults: 2, delays: 1 };
const BOTH: Budget = Budget { people: 1, faults: 1, delays: 0 };
const AFTER: Budget = Budget { people: 1, faults: 0, delays: 1 };

// spec: es§3, L100
#[test]
fn versions_side_by_side_are_lawful_whatever_people_do_once() {
    SIDES[0].is_lawful::<Versions>(worlds::side_by_side());
}

// spec: es§3, L075, L100
#[test]
fn versions_side_by_side_are_lawful_through_faults_of_the_operator() {
    SIDES[1].is_lawful::<Versions>(worlds::side_by_side());
}

// spec: es§3, L075, L100
#[test]
fn versions_side_by_side_are_lawful_through_acts_and_faults() {
    SIDES[2].is_lawful::<Versions>(worlds::side_by_side());
}

// spec: es§7, L100
#[test]
fn versions_in_place_are_lawful_whatever_people_do_once() {
    PLACES[0].is_lawful::<Versions>(worlds::in_place_daily());
}

// spec: es§7, L075, L100
#[test]
fn versions_in_place_are_lawful_through_faults_of_the_operator() {
    PLACES[1].is_lawful::<Versions>(worlds::in_place_daily());
}

// spec: es§7, L075, L100
#[test]
fn versions_in_place_are_lawful_through_acts_and_faults() {
    PLACES[2].is_lawful::<Versions>(worlds::in_place_daily());
}

// spec: es§3, L100
#[test]
fn versions_side_by_side_are_lawful_where_a_fault_was_found_once() {
    SIDES[3].is_lawful::<Versions>(openings::side_by_side());
}

// spec: es§7, L100
#[test]
fn versions_in_place_are_lawful_where_a_fault_was_found_once() {
    PLACES[3].is_lawful::<Versions>(openings::in_place());
}

/// What takes a quarter of an hour.
#[test]
#[ignore = "takes a quarter of an hour; part of make soak"]
fn long_search_of_versions() {
    let all = [worlds::side_by_side(), worlds::in_place(), openings::side_by_side(), openings::in_place()];
    let settings: Vec<Setting> = all.into_iter().flatten().collect();
    let total = long_search::<Versions>(&LONG, &settings, 8_000);
    assert!(total.states >= 2_000_000, "{} states", total.states);
}
