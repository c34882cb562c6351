//! Every order of events in small worlds: what people do, the controller, the operator, a crash before any of its writes, and
//! time. The rules must hold in each state, and from each state the rollout must come to an end once people leave it alone.

use std::collections::{HashSet, VecDeque, hash_map::DefaultHasher};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use sts_plus_api::{OnFailure, Phase};
use sts_plus_model::world::{ROLLOUT, SET, template_of};
use sts_plus_model::{Ended, Loop, Pod, Release, Stop, World};

use crate::story::*;

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

/// How much of what costs something is left.
#[derive(Clone, Copy, Debug, Hash)]
struct Budget {
    people: u8,
    crashes: u8,
}

#[derive(Clone)]
struct Node {
    world: World,
    left: Budget,
    path: Vec<Move>,
}

struct Search {
    name: &'static str,
    people: Vec<Move>,
    /// One state in so many is run to its end.
    ends: usize,
    limit: usize,
}

#[derive(Debug, Default)]
struct Found {
    states: usize,
    ends: usize,
    complete: bool,
}

impl Search {
    fn run(&self, world: World, left: Budget) -> Found {
        let start = Node { world, left, path: Vec::new() };
        let mut seen = HashSet::from([hash(&start)]);
        let mut found = Found::default();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            found.states += 1;
            if found.states >= self.limit {
                return found;
            }
            self.must_hold(&node);
            if found.states.is_multiple_of(self.ends) {
                found.ends += 1;
                self.must_end(&node);
            }
            queue.extend(self.next(&node).into_iter().filter(|node| seen.insert(hash(node))));
        }
        found.complete = true;
        found
    }

    fn next(&self, node: &Node) -> Vec<Node> {
        let mut moves = vec![Move::Time, Move::Controller, Move::Operator];
        if node.left.crashes > 0 {
            moves.extend([Move::Kill(0), Move::Kill(1), Move::Kill(2), Move::OldStatus]);
        }
        if node.left.people > 0 {
            moves.extend(&self.people);
        }
        moves.into_iter().filter_map(|step| after(node, step)).collect()
    }

    fn must_hold(&self, node: &Node) {
        let breaches = &node.world.ledger.breaches;
        assert!(breaches.is_empty(), "{}: {breaches:#?}\nafter {:?}\n{}", self.name, node.path, replay(node));
    }

    fn must_end(&self, node: &Node) {
        let mut world = node.world.clone();
        world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
        if world.sets[SET].template == 2 && world.release(2) != GOOD {
            // A bad release ends with a fix, whatever has become of it.
            world.set_template(SET, 3);
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
        Move::Kill(write) => drop(world.operate(ROLLOUT, Stop::Before(write))),
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
fn hash(node: &Node) -> u64 {
    let world = &node.world;
    let ago = |at: i64| (at - world.now).clamp(-70, 70);
    let set = &world.sets[SET];
    let mut key = String::new();
    let seen = set.generation - set.status.observed_generation;
    let counts = (set.status.replicas, set.status.ready, set.status.current_replicas, set.status.updated_replicas);
    let _ = write!(key, "{seen} {} {} {:?} {counts:?}", set.template, set.replicas, set.partition);
    let _ = write!(key, "{:?} {:?} {:?}", set.status.current, set.status.update, set.annotations);
    for (ordinal, pod) in &set.pods {
        let times = (ago(pod.created), ago(pod.since), pod.gone_at.map(ago));
        let _ = write!(key, "|{ordinal} {} {:?} {} {times:?}", pod.revision, pod.health, pod.ready);
    }
    let own = &world.rollouts[ROLLOUT];
    let _ = write!(key, "|{} {:?} ", own.spec.paused, own.wake.map(ago));
    for status in [&own.status, &own.older] {
        let moment = |time: jiff::Timestamp| ago(sts_plus_model::world::second(time));
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
    node.left.hash(&mut hasher);
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

fn explore(limit: usize, ends: usize, pods: i32, people: u8) -> usize {
    let mut states = 0;
    for second in [GOOD, CRASHING, BAD_METRIC] {
        for (is_parallel, native) in [(false, Loop::GateOff), (true, Loop::GateOff), (true, Loop::Gate137)] {
            for preflight in [true, false] {
                let mut world = small(pods, is_parallel, native, second);
                world.rollouts.get_mut(ROLLOUT).unwrap().spec.check.preflight = preflight;
                let people_moves = vec![
                    Move::Template(1),
                    Move::Template(2),
                    Move::Template(3),
                    Move::Scale(pods - 1),
                    Move::Scale(pods + 1),
                    Move::Delete(pods - 1),
                    Move::Break(0),
                    Move::Lower,
                    Move::Pause(true),
                    Move::Pause(false),
                ];
                world.set_template(SET, 2);
                let search = Search { name: "small world", people: people_moves, ends, limit };
                let found = search.run(world, Budget { people, crashes: 1 });
                println!("{second:?} parallel {is_parallel} {native:?} preflight {preflight}: {found:?}");
                states += found.states;
            }
        }
    }
    states
}

#[test]
fn small_worlds() {
    let states = explore(4_000, 40, 2, 1);
    println!("{states} states");
    assert!(states > 10_000);
}

/// The long one: `cargo test -p sts-plus-model --test model -- --ignored --nocapture long`.
#[test]
#[ignore = "takes minutes; part of make soak"]
fn long_search_of_small_worlds() {
    let states = explore(150_000, 60, 2, 2) + explore(80_000, 60, 3, 1);
    println!("{states} states");
}

/// A rollback with the operator killed, and pods deleted by others, at every point.
#[test]
fn rollbacks_of_small_worlds() {
    for is_parallel in [false, true] {
        let mut world = small(2, is_parallel, Loop::GateOff, BAD_METRIC);
        let spec = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec;
        (spec.check.on_failure, spec.check.preflight) = (OnFailure::Rollback, false);
        world.set_template(SET, 2);
        let people = vec![Move::Delete(0), Move::Delete(1), Move::Scale(3), Move::Template(3), Move::Break(1)];
        let search = Search { name: "rollback", people, ends: 40, limit: 8_000 };
        println!("{:?}", search.run(world, Budget { people: 1, crashes: 1 }));
    }
}
