//! Short words for the tests.

use sts_plus_api::{Phase, PhasedRolloutSpec, PhasedRolloutStatus, Step};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Ended, Health, Loop, Metric, Release, Set, Who, World};

pub const HOLD: i32 = i32::MAX;
/// Longer than anything in these tests takes.
pub const LONG: i64 = 3600;

pub const GOOD: Release = Release { health: Health::ReadyAfter(2), metric: Metric::Pass };
pub const BAD_METRIC: Release = Release { health: Health::ReadyAfter(2), metric: Metric::Fail };
pub const CRASHING: Release = Release { health: Health::Crashing, metric: Metric::Pass };
pub const SILENT: Release = Release { health: Health::NeverReady, metric: Metric::Pass };

/// Three healthy pods on template 1, with the given behaviour of template 2.
pub fn world(second: Release) -> World {
    let mut world = World::new(3);
    world.releases.insert(2, second);
    world
}

/// The same for a Parallel set.
pub fn parallel(second: Release) -> World {
    let mut world = world(second);
    set_mut(&mut world).parallel = true;
    world
}

pub fn set(world: &World) -> &Set {
    &world.sets[SET]
}

pub fn set_mut(world: &mut World) -> &mut Set {
    world.sets.get_mut(SET).unwrap()
}

pub fn status(world: &World) -> &PhasedRolloutStatus {
    &world.rollouts[ROLLOUT].status
}

pub fn phase(world: &World) -> Phase {
    status(world).phase
}

/// Changes the spec before anything happens; the operator sees it as part of the given world.
pub fn with(mut world: World, change: impl FnOnce(&mut PhasedRolloutSpec)) -> World {
    change(&mut world.rollouts.get_mut(ROLLOUT).unwrap().spec);
    world.settle(LONG);
    world.tale.clear();
    world
}

pub fn template(world: &mut World, template: u32) {
    world.set_template(SET, template);
}

/// Runs until nothing is due, with no rule broken.
pub fn settle(world: &mut World) {
    let ended = world.settle(LONG);
    assert_eq!(ended, Ended::Quiet, "\n{}", world.tale.long_story());
    lawful(world);
}

/// Runs until `phase` is reached.
pub fn until_phase(world: &mut World, wanted: Phase) {
    until(world, |world| phase(world) == wanted);
}

/// Runs until `done` is true.
pub fn until(world: &mut World, done: impl Fn(&World) -> bool) {
    world.run(LONG, &done);
    assert!(done(world), "never came\n{}", world.tale.long_story());
    lawful(world);
}

/// Runs until the cycle of `index` in the ordinary steps has made a check.
pub fn until_checked(world: &mut World, index: i32) {
    until(world, |world| {
        let current = status(world).current.as_ref().filter(|current| current.step == Step::Pod);
        current.is_some_and(|current| current.index == index && current.tries > 0)
    });
}

/// No rule was broken.
pub fn lawful(world: &World) {
    assert!(world.ledger.breaches.is_empty(), "{:#?}\n{}", world.ledger.breaches, world.tale.long_story());
}

/// Complete on `template`, at rest, and nothing left to write.
pub fn completed(world: &mut World, template: u32) {
    settle(world);
    assert_eq!(phase(world), Phase::Completed, "\n{}", world.tale.long_story());
    at_rest_on(world, template);
}

/// All pods on `template`, the resting hold in place, Ready, and a restart of the operator changes nothing.
pub fn at_rest_on(world: &mut World, template: u32) {
    let wanted = set(world).revision_of(template);
    let layout = set(world).layout();
    assert!(set(world).pods.values().all(|pod| pod.revision == wanted && pod.is_healthy()), "{layout}");
    assert_eq!(set(world).partition, Some(set(world).replicas), "\n{}", world.tale.long_story());
    assert!(condition(world, "Ready"), "\n{}", world.tale.long_story());
    assert!(condition(world, "RolledOut"));
    still(world);
}

/// A restart of the operator, and time, write nothing.
pub fn still(world: &mut World) {
    let before = world.tale.lines().count();
    world.restart_operator();
    assert_eq!(world.settle(LONG), Ended::Quiet);
    let new: Vec<_> = world.tale.lines().skip(before).collect();
    assert!(new.is_empty(), "after the end: {new:?}\n{}", world.tale.long_story());
}

pub fn condition(world: &World, kind: &str) -> bool {
    sts_plus_api::is_true(&status(world).conditions, kind)
}

/// Values of the partition that the operator wrote, in order.
pub fn steps(world: &World) -> Vec<i32> {
    let step = |deed: &Deed| match deed {
        Deed::Partition { to, who: Who::Operator, .. } => Some(to.unwrap_or(-1)),
        _ => None,
    };
    world.tale.deeds().filter_map(step).collect()
}

pub fn count(world: &World, is: impl Fn(&Deed) -> bool) -> usize {
    world.tale.count(is)
}

pub fn events(world: &World, reason: &str) -> usize {
    count(world, |deed| matches!(deed, Deed::Event("PR", r, _) if r == reason))
}

/// Reason of the Ready condition.
pub fn reason(world: &World) -> String {
    let ready = status(world).conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.reason.clone()).unwrap_or_default()
}

/// UIDs by ordinal.
pub fn uids(world: &World) -> Vec<u64> {
    set(world).pods.values().map(|pod| pod.uid).collect()
}

pub const LOOPS: [Loop; 3] = [Loop::GateOff, Loop::Gate135, Loop::Gate137];

/// OrderedReady and Parallel, on every version of the loop.
pub fn everywhere(second: Release, mut test: impl FnMut(World)) {
    for native in LOOPS {
        for is_parallel in [false, true] {
            let mut world = if is_parallel { parallel(second) } else { world(second) };
            world.native = native;
            println!("--- {native:?} parallel {is_parallel}");
            test(world);
        }
    }
}
