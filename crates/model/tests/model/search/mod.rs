//! Every order of events in small worlds: what people do, the controller, the operator, crashes, lost replies, old views, and time. The laws
//! must hold in each move, and each state is run to its end. A search goes breadth first, so the story that it prints is the shortest one.

mod ends;
mod explore;
mod key;
mod laws;
mod moves;
mod stories;
mod table;
mod watch;
mod worlds;

use explore::Search;
use moves::Budget;
use worlds::Setting;

/// A search that runs every day, and how many states it has at least.
pub struct Daily {
    pub name: &'static str,
    pub left: Budget,
    /// At most so many states in each world.
    pub most: usize,
    pub floor: usize,
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
    most: 10_000,
    floor: 150_000,
};
pub const BOTH: Daily = Daily {
    name: "one act of people and one fault, in every order",
    left: Budget { people: 1, faults: 1, delays: 0 },
    most: 28_000,
    floor: 690_000,
};

// spec: pr§4, L041, L100
#[test]
fn laws_hold_whatever_people_do_once() {
    daily(&PEOPLE);
}

// spec: L075, L100
#[test]
fn laws_hold_through_faults_of_the_operator() {
    daily(&FAULTS);
}

// spec: pr§4, L075, L100
#[test]
fn laws_hold_through_acts_of_people_and_faults() {
    daily(&BOTH);
}

/// What a machine has to do for half an hour: all worlds, of two and of three pods.
#[test]
#[ignore = "takes half an hour; part of make soak"]
fn long_search_of_small_worlds() {
    let pods = |pods| worlds::all().into_iter().map(move |setting| Setting { pods, ..setting });
    let budgets = [
        Budget { people: 2, faults: 0, delays: 0 },
        Budget { people: 1, faults: 1, delays: 1 },
        Budget { people: 1, faults: 2, delays: 0 },
        Budget { people: 0, faults: 3, delays: 2 },
    ];
    let mut total = explore::Found::default();
    for left in budgets {
        let settings = pods(2).chain(pods(3)).collect();
        let found = Search { settings, left, most: 45_000 }.run();
        found.tell(&format!("{left:?}"));
        total.add(found);
    }
    total.tell("all");
    total.must_be_lawful();
    assert!(total.states >= 30_000_000, "{} states", total.states);
}

fn daily(search: &Daily) {
    let found = Search { settings: worlds::daily(), left: search.left, most: search.most }.run();
    found.tell(search.name);
    found.must_be_lawful();
    assert!(found.states >= search.floor, "{}: {} states", search.name, found.states);
    assert_eq!(found.ended, found.states);
}
