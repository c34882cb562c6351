//! A world is run to its end: nobody does anything any more but controllers, operator, pods and Prometheus.

use std::collections::HashSet;

/// Longer than anything in these worlds takes.
pub const LONG: i64 = 1800;
/// The template that mends everything.
pub const FIX: u32 = 4;
/// How often a person answers before it is clear that this never ends.
pub const ANSWERS: usize = 6;
/// Rounds in one moment after which somebody never rests.
const RESTLESS: usize = 100;

/// A breach, and what happened on the way.
pub type Wrong = Option<(String, String)>;

/// Why it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Halt {
    /// From here on the end is known to be good.
    Known,
    Quiet,
    /// It goes on for ever in the same way.
    Again,
    Restless,
}

/// A world that goes on by itself.
pub trait Runs {
    fn key(&self) -> u64;
    fn now(&mut self) -> &mut i64;
    /// Everybody once. True if anything changed.
    fn round(&mut self) -> bool;
    fn next_due(&self) -> Option<i64>;
}

/// `known` are states whose end is good, `met` those that were met on the way.
pub fn run(world: &mut impl Runs, known: &HashSet<u64>, met: &mut Vec<u64>) -> Halt {
    let end = *world.now() + LONG;
    let mut mine = HashSet::new();
    loop {
        let key = world.key();
        if known.contains(&key) {
            return Halt::Known;
        }
        if !mine.insert(key) {
            return Halt::Again;
        }
        met.push(key);
        if (0..RESTLESS).all(|_| world.round()) {
            return Halt::Restless;
        }
        match world.next_due() {
            None => return Halt::Quiet,
            Some(next) if next > end => return Halt::Again,
            Some(next) => *world.now() = next,
        }
    }
}

pub fn good(known: &mut HashSet<u64>, met: Vec<u64>) -> Wrong {
    known.extend(met);
    None
}
