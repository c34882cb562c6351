//! Every order of events in small worlds: what people do, the controller, the operator, a crash before any of its writes, and
//! time. The rules must hold in each state, and from each state the rollout must come to an end once people leave it alone.
//! A search ends when there is no state left: what costs something happens a few times, in every order and at every moment.

use std::collections::{BTreeSet, HashSet, VecDeque, hash_map::DefaultHasher};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::time::Instant;

use sts_plus_api::{OnFailure, Phase};
use sts_plus_model::world::{ROLLOUT, SET, template_of};
use sts_plus_model::{Deed, Ended, Loop, Pod, Release, Stop, World};

use crate::story::*;

/// More than any search here has; one that reaches it is not complete.
const MOST: usize = 3_000_000;

#[derive(Clone, Copy, Debug)]
enum Move {
    Time,
    Controller,
    Operator,
    /// Killed before this write.
    Kill(usize),
    /// Sees an old status.
    OldStatus,
    Template(u32),
    Scale(i32),
    Delete(i32),
    Break(i32),
    Lower,
    Pause(bool),
}

/// How often what costs something may still happen.
#[derive(Clone, Copy, Debug, Hash)]
struct Budget {
    people: u8,
    crashes: u8,
    /// Times that time passes although controller or operator have something to do.
    delays: u8,
}

#[derive(Clone)]
struct Node {
    world: World,
    left: Budget,
    path: Vec<Move>,
}

struct Search {
    name: String,
    people: Vec<Move>,
    /// One state in so many is run to its end.
    ends: usize,
}

#[derive(Debug, Default)]
struct Found {
    states: usize,
    ends: usize,
    phases: BTreeSet<String>,
}

impl Search {
    /// All states that can be reached; it fails if that is more than [`MOST`].
    fn run(&self, world: World, left: Budget) -> Found {
        let began = Instant::now();
        let start = Node { world, left, path: Vec::new() };
        let mut seen = HashSet::from([key(&start)]);
        let mut found = Found::default();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            found.states += 1;
            assert!(found.states < MOST, "{}: not complete", self.name);
            found.phases.insert(format!("{:?}", phase(&node.world)));
            self.must_hold(&node);
            if found.states.is_multiple_of(self.ends) {
                found.ends += 1;
                self.must_end(&node);
            }
            queue.extend(self.next(&node).into_iter().filter(|node| seen.insert(key(node))));
        }
        let Found { states, ends, phases } = &found;
        println!(
            "{}, {left:?}: {states} states, {ends} run to their end, {phases:?}, {:?}",
            self.name,
            began.elapsed()
        );
        found
    }

    fn next(&self, node: &Node) -> Vec<Node> {
        let here = key(node);
        let due = [Move::Controller, Move::Operator].into_iter().filter_map(|step| after(node, step));
        let mut next: Vec<Node> = due.filter(|next| key(next) != here).collect();
        let delay = u8::from(!next.is_empty());
        if delay <= node.left.delays {
            next.extend(after(node, Move::Time).map(|mut late| {
                late.left.delays -= delay;
                late
            }));
        }
        if node.left.crashes > 0 {
            next.extend((0..).map_while(|write| after(node, Move::Kill(write))));
            next.extend(after(node, Move::OldStatus));
        }
        if node.left.people > 0 {
            next.extend(self.people.iter().filter_map(|step| after(node, *step)));
        }
        next
    }

    fn must_hold(&self, node: &Node) {
        let breaches = &node.world.ledger.breaches;
        assert!(breaches.is_empty(), "{}: {breaches:#?}\nafter {:?}\n{}", self.name, node.path, replay(node));
    }

    fn must_end(&self, node: &Node) {
        let mut world = node.world.clone();
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
        let (wanted, template) = (world.sets[SET].wanted(), world.sets[SET].template);
        if world.release(template) != GOOD || status(&world).rejected_revisions.contains(&wanted) {
            // A bad release, and one that was rejected, ends with a fix, whatever has become of it.
            world.set_template(SET, template + 1);
        }
        let pods = world.sets[SET].pods.clone();
        let hurt = |pod: &Pod| !pod.ready && pod.health != world.release(template_of(&pod.revision)).health;
        for ordinal in pods.iter().filter(|(_, pod)| hurt(pod)).map(|(ordinal, _)| *ordinal).collect::<Vec<_>>() {
            world.heal_pod(SET, ordinal);
        }
        let ended = world.settle(LONG);
        let set = &world.sets[SET];
        let done = matches!(phase(&world), Phase::Completed | Phase::Idle)
            && set.pods.values().all(|pod| pod.revision == set.wanted())
            && set.partition == Some(set.replicas);
        assert!(
            ended == Ended::Quiet && world.ledger.breaches.is_empty() && done,
            "{}: {ended:?} {}\nafter {:?}\n{}{}",
            self.name,
            set.layout(),
            node.path,
            replay(node),
            world.tale.long_story()
        );
    }
}

fn after(node: &Node, step: Move) -> Option<Node> {
    let mut node = node.clone();
    let world = &mut node.world;
    world.tale.clear();
    match step {
        Move::Time => {
            world.now = world.next_due()?;
            world.live();
        }
        Move::Controller => drop(world.sync(SET)),
        Move::Operator => drop(world.operate(ROLLOUT, Stop::Never)),
        Move::Kill(write) => {
            world.operate(ROLLOUT, Stop::Before(write));
            // It had no such write to make.
            if !world.tale.deeds().any(|deed| *deed == Deed::Crashed) {
                return None;
            }
        }
        Move::OldStatus => drop(world.operate_with_old_status(ROLLOUT)),
        Move::Template(to) => world.set_template(SET, to),
        Move::Scale(to) => world.scale(SET, to),
        Move::Delete(ordinal) => world.delete_pod(SET, ordinal),
        Move::Break(ordinal) => world.break_pod(SET, ordinal),
        Move::Lower => world.set_partition(SET, Some(0)),
        Move::Pause(paused) => world.configure(ROLLOUT, "pause", |spec| spec.paused = paused),
    }
    match step {
        Move::Kill(_) | Move::OldStatus => node.left.crashes -= 1,
        Move::Time | Move::Controller | Move::Operator => {}
        _ => node.left.people -= 1,
    }
    // What the operator process remembers is of no use here: it may run at any moment.
    for own in node.world.rollouts.values_mut() {
        own.seen = None;
    }
    node.path.push(step);
    Some(node)
}

/// Where a path has led.
fn replay(node: &Node) -> String {
    let status = status(&node.world);
    format!("{} {:?} {} {:?}\n", set(&node.world).layout(), status.phase, status.message, status.current)
}

/// What makes two states the same: times count from now, and what is long ago is all the same.
fn key(node: &Node) -> u64 {
    let world = &node.world;
    // A pod that is not Ready is broken after 60 s; of all else a few periods are enough, and delay and minReadySeconds are 0.
    let ago = |at: i64, longest: i64| (at - world.now).clamp(-longest, longest);
    let set = &world.sets[SET];
    let mut key = String::new();
    let seen = set.generation - set.status.observed_generation;
    let counts = (set.status.replicas, set.status.ready, set.status.current_replicas, set.status.updated_replicas);
    let _ = write!(key, "{seen} {} {} {:?} {counts:?}", set.template, set.replicas, set.partition);
    let _ = write!(key, "{:?} {:?} {:?}", set.status.current, set.status.update, set.annotations);
    for (ordinal, pod) in &set.pods {
        let ago = |at: i64| ago(at, if pod.ready { 10 } else { 70 });
        let times = (ago(pod.created), ago(pod.since), pod.gone_at.map(ago));
        let _ = write!(key, "|{ordinal} {} {:?} {} {times:?}", pod.revision, pod.health, pod.ready);
    }
    let own = &world.rollouts[ROLLOUT];
    let _ = write!(key, "|{} {:?} ", own.spec.paused, own.wake.map(|wake| ago(wake, 10)));
    for status in [&own.status, &own.older] {
        let moment = |time: jiff::Timestamp| ago(sts_plus_model::world::second(time), 10);
        let _ = write!(key, "{:?} {:?} {:?}", status.phase, status.target_revision, status.previous_revision);
        let flags = (status.start_time.is_some(), status.completion_time.is_some(), status.never_healthy);
        let _ = write!(key, "{flags:?} {:?} {:?} {:?}", status.passed, status.partition, status.rejected_revisions);
        let _ = write!(key, "{} {}", status.replicas, status.verified_revision.is_some());
        if let Some(c) = &status.current {
            let times = [c.since, c.broken_since, c.last_check_time, c.next_check_time].map(|time| time.map(moment));
            let counts = (c.tries.min(own.spec.check.max_tries), c.consecutive_passes, c.failed);
            let _ = write!(key, "{} {:?} {counts:?} {times:?}", c.index, c.step);
        }
    }
    let ledger = &world.ledger;
    let _ = write!(key, "|{:?} {:?} {:?}", ledger.good(SET), ledger.streak(SET), ledger.approved(SET));
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// A small claimed set with the shortest checks.
fn small(replicas: i32, is_parallel: bool, native: Loop, second: Release) -> World {
    let mut world = World::new(replicas);
    world.native = native;
    set_mut(&mut world).parallel = is_parallel;
    world.releases.insert(2, second);
    let check = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec.check;
    (check.initial_delay_seconds, check.period_seconds) = (0, 1);
    (check.success_threshold, check.max_tries) = (1, 2);
    world.settle(LONG);
    world.tale.clear();
    world
}

const LOOPS_AND_POLICIES: [(bool, Loop); 3] = [(false, Loop::GateOff), (true, Loop::GateOff), (true, Loop::Gate137)];

/// Small worlds in which template 2 is on its way: every kind of release and of loop, with preflight and without.
fn worlds(pods: i32) -> Vec<(String, World)> {
    let mut worlds = Vec::new();
    for second in [GOOD, CRASHING, BAD_METRIC] {
        for (is_parallel, native) in LOOPS_AND_POLICIES {
            for preflight in [true, false] {
                let mut world = small(pods, is_parallel, native, second);
                world.rollouts.get_mut(ROLLOUT).unwrap().spec.check.preflight = preflight;
                world.set_template(SET, 2);
                worlds.push((format!("{second:?} parallel {is_parallel} {native:?} preflight {preflight}"), world));
            }
        }
    }
    worlds
}

fn acts(pods: i32) -> Vec<Move> {
    let templates = [Move::Template(1), Move::Template(2), Move::Template(3)];
    let others = [
        Move::Scale(pods - 1),
        Move::Scale(pods + 1),
        Move::Delete(pods - 1),
        Move::Break(0),
        Move::Lower,
        Move::Pause(true),
        Move::Pause(false),
    ];
    templates.into_iter().chain(others).collect()
}

/// Searches all [`worlds`]; each has at least so many states.
fn explore(pods: i32, left: Budget, ends: usize, at_least: usize) {
    let mut total = 0;
    for (name, world) in worlds(pods) {
        let fails = world.release(2) != GOOD;
        let search = Search { name, people: acts(pods), ends };
        let found = search.run(world, left);
        assert!(found.states >= at_least && found.ends > 0, "{}: {found:?}", search.name);
        assert!(found.phases.contains(if fails { "Failed" } else { "Completed" }), "{}: {found:?}", search.name);
        total += found.states;
    }
    println!("{total} states");
}

// spec: pr§4, L041, L100
#[test]
fn one_act_of_people_and_one_crash_at_every_moment() {
    explore(2, Budget { people: 1, crashes: 1, delays: 0 }, 40, 1_000);
}

// spec: L075, L100
#[test]
fn two_crashes_with_everybody_late_twice() {
    explore(2, Budget { people: 0, crashes: 2, delays: 2 }, 40, 250);
}

/// Two million states.
#[test]
#[ignore = "takes minutes; part of make soak"]
fn long_search_of_small_worlds() {
    explore(2, Budget { people: 1, crashes: 1, delays: 1 }, 60, 5_000);
    explore(3, Budget { people: 1, crashes: 1, delays: 0 }, 60, 1_000);
    explore(2, Budget { people: 2, crashes: 1, delays: 0 }, 60, 30_000);
    explore(2, Budget { people: 0, crashes: 3, delays: 4 }, 60, 500);
    rollbacks(Budget { people: 1, crashes: 1, delays: 1 }, 5_000);
    rollbacks(Budget { people: 2, crashes: 1, delays: 0 }, 25_000);
}

/// A rollback with the operator killed, and pods deleted by others, at every point.
#[test]
fn rollbacks_of_small_worlds() {
    rollbacks(Budget { people: 1, crashes: 1, delays: 0 }, 1_000);
}

fn rollbacks(left: Budget, at_least: usize) {
    for (is_parallel, native) in LOOPS_AND_POLICIES {
        let mut world = small(2, is_parallel, native, BAD_METRIC);
        let check = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec.check;
        (check.on_failure, check.preflight) = (OnFailure::Rollback, false);
        world.set_template(SET, 2);
        let people = vec![Move::Delete(0), Move::Delete(1), Move::Scale(3), Move::Template(3), Move::Break(1)];
        let search = Search { name: format!("rollback parallel {is_parallel} {native:?}"), people, ends: 40 };
        let found = search.run(world, left);
        assert!(found.states >= at_least && found.ends > 0, "{}: {found:?}", search.name);
        assert!(["RollingBack", "RolledBack"].iter().all(|phase| found.phases.contains(*phase)), "{found:?}");
    }
}
