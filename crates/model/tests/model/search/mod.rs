//! Every order of events in small worlds: what people do, the controller, the operator, crashes, lost replies, old views, and time. The laws
//! must hold in each move, and each state is run to its end. A search goes breadth first, so the story that it prints is the shortest one.

mod ends;
mod key;
mod laws;
mod moves;
mod openings;
mod stories;
mod table;
mod watch;
mod worlds;

use sts_plus_api::Phase;
use sts_plus_model::World;
use sts_plus_model::world::{ROLLOUT, SET};

use crate::explore::{
    self, Daily, Game, long_search,
    moves::{Budget, LONG},
};
use ends::Ends;
use key::Key;
use laws::Mind;
use moves::{Deeds, Kept, Move};
use worlds::Setting;

/// A PhasedRollout and its StatefulSet.
#[derive(Clone, Debug, Default)]
pub struct Rollouts;

pub type Node = explore::Node<Rollouts>;

impl Game for Rollouts {
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
        moves::people(setting.pods)
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

    fn sets(_world: &World) -> u8 {
        1
    }

    fn is_flaky(world: &World) -> bool {
        moves::is_flaky(world)
    }

    fn phase(world: &World) -> Option<usize> {
        Some(world.rollouts.get(ROLLOUT)?.status.phase as usize)
    }

    fn name_of_phase(phase: usize) -> String {
        Phase::ALL.iter().find(|one| **one as usize == phase).map(|one| format!("{one:?}")).unwrap_or_default()
    }

    fn tell(world: &World) -> (i64, String, String) {
        let layout = world.sets.get(SET).map(|set| (set.layout(), set.partition));
        (world.now, format!("{layout:?}"), world.tale.long_story())
    }
}

pub const PEOPLE: Daily = Daily {
    name: "one act of people, at every moment",
    left: Budget { people: 1, faults: 0, delays: 0 },
    most: 6_000,
    floor: 95_000,
};
pub const FAULTS: Daily = Daily {
    name: "two faults of the operator, and everybody late once",
    left: Budget { people: 0, faults: 2, delays: 1 },
    most: 7_000,
    floor: 170_000,
};
pub const BOTH: Daily = Daily {
    name: "one act of people and one fault, in every order",
    left: Budget { people: 1, faults: 1, delays: 0 },
    most: 20_000,
    floor: 495_000,
};

pub const OPENINGS: Daily = Daily {
    name: "where a fault was found once, one act of people, everybody late once",
    left: Budget { people: 1, faults: 0, delays: 1 },
    most: 4_000,
    floor: 60_000,
};

// spec: pr§4, L041, L100
#[test]
fn laws_hold_whatever_people_do_once() {
    PEOPLE.is_lawful::<Rollouts>(worlds::daily());
}

// spec: L075, L100
#[test]
fn laws_hold_through_faults_of_the_operator() {
    FAULTS.is_lawful::<Rollouts>(worlds::daily());
}

// spec: pr§4, L075, L100
#[test]
fn laws_hold_through_acts_of_people_and_faults() {
    BOTH.is_lawful::<Rollouts>(worlds::daily());
}

// spec: pr§4, L075, L100
#[test]
fn laws_hold_where_a_fault_was_found_once() {
    OPENINGS.is_lawful::<Rollouts>(openings::openings());
}

/// What a machine has to do for forty minutes: all worlds, of two and of three pods.
#[test]
#[ignore = "takes forty minutes; part of make soak"]
fn long_search_of_small_worlds() {
    let pods = |pods| worlds::all().into_iter().map(move |setting| Setting { pods, ..setting });
    let settings: Vec<Setting> = pods(2).chain(pods(3)).chain(openings::openings()).collect();
    let total = long_search::<Rollouts>(&LONG, &settings, 50_000);
    assert!(total.states >= 30_000_000, "{} states", total.states);
}
