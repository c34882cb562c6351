//! Breadth first through all states that can be reached, several worlds at a time. A state is kept as its key, the one that it came from
//! and the move; whole worlds are kept only where the search stands.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sts_plus_api::VersionPhase;

use super::{
    ends::Ends,
    key::Key,
    moves::{self, Budget, Move, Node},
    worlds::Setting,
};

const THREADS: usize = 2;

/// What a search found in one world, or in many.
#[derive(Debug, Default)]
pub struct Found {
    pub worlds: usize,
    pub states: usize,
    pub moves: usize,
    /// States that were met for the first time on the way to an end.
    pub ends: usize,
    /// Worlds that had more states than were asked for.
    pub cut: usize,
    pub phases: BTreeSet<usize>,
    /// The shortest story for each law that was broken.
    pub breaches: BTreeMap<String, Story>,
}

/// How a law was broken.
#[derive(Clone, Debug)]
pub struct Story {
    pub breach: String,
    pub setting: Setting,
    pub left: Budget,
    pub path: Vec<Move>,
    pub more: String,
}

pub struct Search {
    pub settings: Vec<Setting>,
    pub left: Budget,
    /// At most so many states in each world.
    pub most: usize,
}

impl Search {
    /// Searches all worlds and tells what was broken.
    pub fn run(&self) -> Found {
        let (next, total) = (AtomicUsize::new(0), Mutex::new(Found::default()));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some(setting) = self.settings.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let found = self.one(setting);
                        total.lock().unwrap().add(found);
                    }
                });
            }
        });
        total.into_inner().unwrap()
    }

    fn one(&self, setting: &Setting) -> Found {
        let start = Node::new(setting, self.left);
        let people = moves::people(setting);
        let mut found = Found { worlds: 1, ..Found::default() };
        let mut ends = Ends::new(setting);
        let mut seen = HashSet::from([Key::of(&start)]);
        let mut trail: Vec<(u32, Move)> = vec![(0, Move::Time)];
        let mut queue = VecDeque::from([(0_u32, start)]);
        while let Some((id, node)) = queue.pop_front() {
            found.states += 1;
            found.phases.insert(node.world.status.phase as usize);
            for (breach, more) in ends.of(&node) {
                found.note(self, setting, &trail, id, None, (breach, more));
            }
            for (step, after, breaches) in moves::next(&node, &people) {
                found.moves += 1;
                let is_lawful = breaches.is_empty();
                for breach in breaches {
                    found.note(self, setting, &trail, id, Some(step), (breach, String::new()));
                }
                if seen.len() >= self.most {
                    found.cut = 1;
                } else if is_lawful && seen.insert(Key::of(&after)) {
                    trail.push((id, step));
                    queue.push_back((u32::try_from(trail.len() - 1).unwrap(), after));
                }
            }
        }
        found.ends = ends.count();
        found
    }
}

impl Found {
    fn note(
        &mut self,
        search: &Search,
        setting: &Setting,
        trail: &[(u32, Move)],
        id: u32,
        last: Option<Move>,
        (breach, more): (String, String),
    ) {
        // The same words but for names and numbers are the same breach.
        let law: String = breach.chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
        if self.breaches.contains_key(&law) {
            return;
        }
        let mut path: Vec<Move> = last.into_iter().collect();
        let mut at = id as usize;
        while at != 0 {
            path.push(trail[at].1);
            at = trail[at].0 as usize;
        }
        path.reverse();
        let story = Story { breach, setting: *setting, left: search.left, path, more };
        self.breaches.insert(law, story);
    }

    pub fn add(&mut self, other: Self) {
        self.worlds += other.worlds;
        self.states += other.states;
        self.moves += other.moves;
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
        let phases: Vec<_> =
            VersionPhase::ALL.iter().filter(|phase| self.phases.contains(&(**phase as usize))).collect();
        println!(
            "{what}: {} states in {} worlds ({} of them cut), {} moves, each run to its end over {} more, {phases:?}",
            self.states, self.worlds, self.cut, self.moves, self.ends
        );
    }

    /// Fails with the shortest story of each law that was broken.
    pub fn must_be_lawful(&self) {
        let mut broken: Vec<&Story> = self.breaches.values().collect();
        broken.sort_by_key(|story| story.path.len());
        let stories: Vec<String> = broken.into_iter().take(12).map(Story::tell).collect();
        assert!(stories.is_empty(), "{} laws\n{}", self.breaches.len(), stories.join("\n==========\n"));
    }
}

impl Story {
    /// The breach, how it came about, and how to see it again.
    pub fn tell(&self) -> String {
        let mut text = format!(
            "{}\nreplay with:\n  setting {:?}\n  budget {:?}\n  moves {:?}\n",
            self.breach, self.setting, self.left, self.path
        );
        let mut node = Node::new(&self.setting, self.left);
        let begin = node.world.native.now;
        for step in &self.path {
            let Some((after, breaches)) = moves::after(&node, *step) else {
                let _ = writeln!(text, "{step:?} cannot happen");
                break;
            };
            node = after;
            let at = node.world.native.now - begin;
            let _ = writeln!(text, "{at:>4} {step:?} -> {} {breaches:?}", node.world.layout());
            for line in node.world.native.tale.long_story().lines() {
                let _ = writeln!(text, "       {line}");
            }
        }
        text + &self.more
    }
}
