//! Every order of events in small worlds of an ExtendedStatefulSet, side by side and in place: what people do, the controllers, the operator,
//! crashes, lost replies, old views, and time. As `search`, on the same native loop: the laws must hold in each move, and each state is run
//! to its end. A search goes breadth first, so the story that it prints is the shortest one. Of S12, claims and jobs are not in it: they do not
//! exist yet.

mod ends;
mod explore;
mod key;
mod laws;
mod moves;
mod places;
mod remember;
mod sides;
mod stories;
mod worlds;

use explore::{Found, Search};
use moves::Budget;
use worlds::Setting;

/// A search that runs every day, and how many states it has at least.
pub struct Daily {
    pub name: &'static str,
    left: Budget,
    /// At most so many states in each world.
    most: usize,
    pub floor: usize,
}

/// Side by side: one act of people, faults, and both.
pub const SIDES: [Daily; 3] = [
    Daily { name: "side by side, one act of people", left: PEOPLE, most: 1_300, floor: 33_000 },
    Daily { name: "side by side, two faults, late once", left: FAULTS, most: 1_300, floor: 33_000 },
    Daily { name: "side by side, one act and one fault", left: BOTH, most: 1_300, floor: 33_000 },
];
/// The same in place.
pub const PLACES: [Daily; 3] = [
    Daily { name: "in place, one act of people", left: PEOPLE, most: 1_400, floor: 33_000 },
    Daily { name: "in place, two faults, late once", left: FAULTS, most: 1_400, floor: 33_000 },
    Daily { name: "in place, one act and one fault", left: BOTH, most: 1_400, floor: 33_000 },
];

const PEOPLE: Budget = Budget { people: 1, faults: 0, delays: 0 };
const FAULTS: Budget = Budget { people: 0, faults: 2, delays: 1 };
const BOTH: Budget = Budget { people: 1, faults: 1, delays: 0 };

// spec: es§3, L100
#[test]
fn versions_side_by_side_are_lawful_whatever_people_do_once() {
    daily(&SIDES[0], worlds::side_by_side());
}

// spec: es§3, L075, L100
#[test]
fn versions_side_by_side_are_lawful_through_faults_of_the_operator() {
    daily(&SIDES[1], worlds::side_by_side());
}

// spec: es§3, L075, L100
#[test]
fn versions_side_by_side_are_lawful_through_acts_and_faults() {
    daily(&SIDES[2], worlds::side_by_side());
}

// spec: es§7, L100
#[test]
fn versions_in_place_are_lawful_whatever_people_do_once() {
    daily(&PLACES[0], worlds::in_place_daily());
}

// spec: es§7, L075, L100
#[test]
fn versions_in_place_are_lawful_through_faults_of_the_operator() {
    daily(&PLACES[1], worlds::in_place_daily());
}

// spec: es§7, L075, L100
#[test]
fn versions_in_place_are_lawful_through_acts_and_faults() {
    daily(&PLACES[2], worlds::in_place_daily());
}

/// What takes a quarter of an hour.
#[test]
#[ignore = "takes a quarter of an hour; part of make soak"]
fn long_search_of_versions() {
    let budgets = [
        Budget { people: 2, faults: 0, delays: 0 },
        Budget { people: 1, faults: 1, delays: 1 },
        Budget { people: 1, faults: 2, delays: 0 },
        Budget { people: 0, faults: 3, delays: 2 },
    ];
    let mut total = Found::default();
    for left in budgets {
        let settings: Vec<Setting> = worlds::side_by_side().into_iter().chain(worlds::in_place()).collect();
        let found = Search { settings, left, most: 8_000 }.run();
        found.tell(&format!("{left:?}"));
        total.add(found);
    }
    total.tell("all");
    total.must_be_lawful();
    assert!(total.states >= 2_000_000, "{} states", total.states);
}

fn daily(search: &Daily, settings: Vec<Setting>) {
    let found = Search { settings, left: search.left, most: search.most }.run();
    found.tell(search.name);
    found.must_be_lawful();
    assert!(found.states >= search.floor, "{}: {} states", search.name, found.states);
}
