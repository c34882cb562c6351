//! What every search has in common, whatever it searches ([`Game`]): breadth first through all states that can be reached, several worlds at a
//! time. A state is kept as its key, the one that it came from and the move; whole worlds are kept only where the search stands.

pub mod ages;
pub mod ends;
pub mod moves;
pub mod openings;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use sts_plus_model::Loop;

use moves::{Budget, Move};

const THREADS: usize = 2;
/// Of so many broken laws a story is told, the shortest first.
const TOLD: usize = 12;

/// How pods are managed, and every loop that differs for it.
pub const LOOPS: [(bool, Loop); 5] = [
    (false, Loop::GateOff),
    (true, Loop::GateOff),
    (false, Loop::Gate135),
    (true, Loop::Gate135),
    (true, Loop::Gate137),
];

/// What is searched.
pub trait Game: Clone + Debug + Default {
    /// A small world, by what it differs in.
    type Setting: Copy + Debug + Send + Sync;
    /// What people may do.
    type Deed: Copy + Debug + PartialEq + Send;
    type World: Clone;
    /// What the laws remember.
    type Mind: Clone;
    /// What a second pair of eyes has seen, or the answer that is on its way.
    type Kept;
    /// What is known of the ends of a world.
    type Ends;

    fn start(setting: &Self::Setting, left: Budget) -> Node<Self>;
    fn people(setting: &Self::Setting) -> Vec<Self::Deed>;
    fn ends(setting: &Self::Setting) -> Self::Ends;
    /// What is wrong with the ends of a state, and what happened on the way.
    fn wrong(ends: &mut Self::Ends, node: &Node<Self>) -> Vec<(String, String)>;
    /// How many different states were met on the way to an end.
    fn met(ends: &Self::Ends) -> usize;

    /// What makes two states the same, with what may still happen, and without.
    fn key(node: &Node<Self>) -> u64;
    fn key_of_world(node: &Node<Self>) -> u64;
    /// What comes of one move, and the laws that it breaks. `None` if it cannot happen.
    fn after(node: &Node<Self>, step: Move<Self::Deed>) -> Option<(Node<Self>, Vec<String>)>;
    /// How many StatefulSets a controller may look at.
    fn sets(world: &Self::World) -> u8;
    fn is_flaky(world: &Self::World) -> bool;

    /// The number of the phase, if there is one, and its name.
    fn phase(world: &Self::World) -> Option<usize>;
    fn name_of_phase(phase: usize) -> String;
    /// The second, how the pods stand, and what has happened in the last move.
    fn tell(world: &Self::World) -> (i64, String, String);
}

/// A state.
pub struct Node<G: Game> {
    pub world: G::World,
    pub mind: G::Mind,
    pub left: Budget,
    pub kept: Option<Arc<G::Kept>>,
}

impl<G: Game> Clone for Node<G> {
    fn clone(&self) -> Self {
        Self { world: self.world.clone(), mind: self.mind.clone(), left: self.left, kept: self.kept.clone() }
    }
}

/// What a search found in one world, or in many.
#[derive(Debug, Default)]
pub struct Found<G: Game> {
    pub worlds: usize,
    pub states: usize,
    pub moves: usize,
    /// States that were run to their end, and how many of them were met for the first time there.
    pub ended: usize,
    pub ends: usize,
    /// Worlds that had more states than were asked for.
    pub cut: usize,
    pub phases: BTreeSet<usize>,
    /// The shortest story for each law that was broken.
    pub breaches: BTreeMap<String, Story<G>>,
}

/// How a law was broken.
#[derive(Clone, Debug)]
pub struct Story<G: Game> {
    pub breach: String,
    pub setting: G::Setting,
    pub left: Budget,
    pub path: Vec<Move<G::Deed>>,
    pub more: String,
}

pub struct Search<G: Game> {
    pub settings: Vec<G::Setting>,
    pub left: Budget,
    /// At most so many states in each world.
    pub most: usize,
}

/// A search that runs every day, and how many states it has at least.
pub struct Daily {
    pub name: &'static str,
    pub left: Budget,
    /// At most so many states in each world.
    pub most: usize,
    pub floor: usize,
}

impl Daily {
    pub fn is_lawful<G: Game>(&self, settings: Vec<G::Setting>) {
        let found = Search::<G> { settings, left: self.left, most: self.most }.run();
        found.tell(self.name);
        found.must_be_lawful();
        assert!(found.states >= self.floor, "{}: {} states", self.name, found.states);
        assert_eq!(found.ended, found.states);
    }
}

/// All that a machine has to do for long: every world with each of these budgets. What was broken is told at the end.
pub fn long_search<G: Game>(budgets: &[Budget], settings: &[G::Setting], most: usize) -> Found<G> {
    let mut total = Found::default();
    for left in budgets {
        let found = Search::<G> { settings: settings.to_vec(), left: *left, most }.run();
        found.tell(&format!("{left:?}"));
        total.add(found);
    }
    total.tell("all");
    total.must_be_lawful();
    total
}

/// A story that was found once: no law is broken on the way, and from the last state on the ends are good.
pub fn is_lawful<G: Game>(setting: G::Setting, path: &[Move<G::Deed>]) {
    let mut node = G::start(&setting, Budget { people: 9, faults: 9, delays: 9 });
    for step in path {
        let (next, breaches) = G::after(&node, *step).expect("the move is possible");
        assert!(breaches.is_empty(), "{step:?}: {breaches:?}\n{}", G::tell(&next.world).2);
        node = next;
    }
    let wrong = G::wrong(&mut G::ends(&setting), &node);
    assert!(wrong.is_empty(), "{}\n{}", wrong[0].0, wrong[0].1);
}

impl<G: Game> Search<G> {
    /// Searches all worlds and tells what was broken.
    pub fn run(&self) -> Found<G> {
        let (next, total) = (AtomicUsize::new(0), Mutex::new(Found::default()));
        let settings = &self.settings;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(setting) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let found = one(setting, self.left, self.most);
                        total.lock().unwrap().add(found);
                    }
                });
            }
        });
        total.into_inner().unwrap()
    }
}

fn one<G: Game>(setting: &G::Setting, left: Budget, most: usize) -> Found<G> {
    let start = G::start(setting, left);
    let people = G::people(setting);
    let mut found = Found { worlds: 1, ..Found::default() };
    let mut ends = G::ends(setting);
    let mut seen = HashSet::from([G::key(&start)]);
    let mut trail = Trail::<G> { setting: *setting, left, moves: vec![(0, Move::Time)] };
    let mut queue = VecDeque::from([(0_u32, start)]);
    while let Some((id, node)) = queue.pop_front() {
        found.states += 1;
        found.phases.extend(G::phase(&node.world));
        found.ended += 1;
        for (breach, more) in G::wrong(&mut ends, &node) {
            found.note(|| trail.story(id, None, (breach.clone(), more)), &breach);
        }
        for (step, after, breaches) in moves::next::<G>(&node, &people) {
            found.moves += 1;
            let is_lawful = breaches.is_empty();
            for breach in breaches {
                found.note(|| trail.story(id, Some(step), (breach.clone(), String::new())), &breach);
            }
            if seen.len() >= most {
                found.cut = 1;
            } else if is_lawful && seen.insert(G::key(&after)) {
                trail.moves.push((id, step));
                queue.push_back((u32::try_from(trail.moves.len() - 1).unwrap(), after));
            }
        }
    }
    found.ends = G::met(&ends);
    found
}

/// Each state by the one that it came from, and the move.
struct Trail<G: Game> {
    setting: G::Setting,
    left: Budget,
    moves: Vec<(u32, Move<G::Deed>)>,
}

impl<G: Game> Trail<G> {
    fn story(&self, id: u32, last: Option<Move<G::Deed>>, (breach, more): (String, String)) -> Story<G> {
        let mut path: Vec<_> = last.into_iter().collect();
        let mut at = id as usize;
        while at != 0 {
            path.push(self.moves[at].1);
            at = self.moves[at].0 as usize;
        }
        path.reverse();
        Story { breach, setting: self.setting, left: self.left, path, more }
    }
}

impl<G: Game> Found<G> {
    fn note(&mut self, story: impl FnOnce() -> Story<G>, breach: &str) {
        // The same words but for names and numbers are the same breach.
        let law: String = breach.chars().filter(|c| !c.is_ascii_digit()).take(150).collect();
        self.breaches.entry(law).or_insert_with(story);
    }

    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.states += other.states;
        self.moves += other.moves;
        self.ended += other.ended;
        self.ends += other.ends;
        self.cut += other.cut;
        self.phases.extend(other.phases);
        for (law, story) in other.breaches {
            let is_shorter = self.breaches.get(&law).is_none_or(|known| story.path.len() < known.path.len());
            if is_shorter {
                self.breaches.insert(law, story);
            }
        }
    }

    /// Prints the numbers.
    pub fn tell(&self, what: &str) {
        let phases: Vec<_> = self.phases.iter().map(|phase| G::name_of_phase(*phase)).collect();
        println!(
            "{what}: {} states in {} worlds ({} of them cut), {} moves, {} run to their end over {} more, {}",
            self.states,
            self.worlds,
            self.cut,
            self.moves,
            self.ended,
            self.ends,
            phases.join(" ")
        );
    }

    /// Fails with the shortest story of each law that was broken.
    pub fn must_be_lawful(&self) {
        let mut broken: Vec<&Story<G>> = self.breaches.values().collect();
        broken.sort_by_key(|story| story.path.len());
        let more = broken.split_off(broken.len().min(TOLD));
        let stories: Vec<String> = broken.into_iter().map(Story::tell).collect();
        let more: Vec<String> = more.into_iter().map(Story::line).collect();
        assert!(
            stories.is_empty(),
            "{} laws\n{}\n{}",
            self.breaches.len(),
            stories.join("\n==========\n"),
            more.join("\n")
        );
    }
}

impl<G: Game> Story<G> {
    fn line(&self) -> String {
        format!("{} AFTER {:?} IN {:?}", self.breach, self.path, self.setting)
    }

    /// The breach, how it came about, and how to see it again.
    pub fn tell(&self) -> String {
        let mut text = format!(
            "{}\nreplay with:\n  setting {:?}\n  budget {:?}\n  moves {:?}\n",
            self.breach, self.setting, self.left, self.path
        );
        let mut node = G::start(&self.setting, self.left);
        let (begin, ..) = G::tell(&node.world);
        for step in &self.path {
            let Some((after, breaches)) = G::after(&node, *step) else {
                let _ = writeln!(text, "{step:?} cannot happen");
                break;
            };
            node = after;
            // The search pays for time that passes although somebody is busy; a replay needs not.
            let (now, layout, tale) = G::tell(&node.world);
            let _ = writeln!(text, "{:>4} {step:?} -> {layout} {breaches:?}", now - begin);
            for line in tale.lines() {
                let _ = writeln!(text, "       {line}");
            }
        }
        text + &self.more
    }
}
