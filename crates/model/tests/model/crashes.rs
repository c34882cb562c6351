//! The operator is killed before or after each single write: same pods, same deletions, same end.

use std::collections::BTreeSet;

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Deed, Metric, Release, Stop, Who, World};

use crate::story::*;

/// Runs the world with the operator killed before each of its writes number `kills` (in ascending order, counted over the whole
/// run) and started again a second later. Gives the number of writes made.
fn run_with_kills(world: &mut World, kills: &[usize]) -> usize {
    let (mut wrote, mut kills) = (0, kills.iter());
    let mut kill = kills.next();
    for _ in 0..20_000 {
        let mut changed = world.live() | world.sync(SET);
        let due: Vec<String> = world.rollouts.keys().filter(|name| world.is_due(name)).cloned().collect();
        for rollout in due {
            let stop = kill.map_or(Stop::Never, |kill| Stop::Before(kill - wrote));
            let before = world.tale.count(|deed| *deed == Deed::Crashed);
            let made = world.operate(&rollout, stop);
            wrote += made;
            changed |= made > 0;
            if world.tale.count(|deed| *deed == Deed::Crashed) > before {
                (kill, changed) = (kills.next(), false);
                world.restart_operator();
                // The world goes on while nobody watches.
                world.now += 1;
                world.live();
                world.sync(SET);
            }
        }
        if !changed {
            match world.next_due() {
                Some(next) => world.now = next,
                None if world.rollouts.keys().any(|name| world.is_due(name)) => {}
                None => return wrote,
            }
        }
    }
    panic!("never rests\n{}", world.tale.long_story());
}

/// Reasons of events that tell of one write, which leaves no other trace: told by whoever made it, unless it is killed right then.
const OF_ONE_WRITE: [&str; 4] = ["PartitionAllowed", "PodDeleted", "Released", "Repairing"];

/// What must not depend on when the operator was killed.
#[derive(Debug, PartialEq)]
struct End {
    layout: String,
    partition: Option<i32>,
    annotations: Vec<String>,
    phase: Option<Phase>,
    rejected: Vec<String>,
    verified: Option<String>,
    deletions: Vec<String>,
    own_annotations: usize,
    /// On which object, and why.
    told: BTreeSet<(&'static str, String)>,
}

fn end(world: &World) -> End {
    let status = world.rollouts.get(ROLLOUT).map(|own| &own.status);
    let deletions = world.tale.deeds().filter_map(|deed| match deed {
        Deed::Deleted(Who::Native | Who::Operator, pod) => Some(pod.clone()),
        _ => None,
    });
    let told = world.tale.deeds().filter_map(|deed| match deed {
        Deed::Event(on, reason, _) if !OF_ONE_WRITE.contains(&reason.as_str()) => Some((*on, reason.clone())),
        _ => None,
    });
    End {
        told: told.collect(),
        layout: set(world).layout(),
        partition: set(world).partition,
        annotations: set(world).annotations.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        phase: status.map(|status| status.phase),
        rejected: status.map(|status| status.rejected_revisions.clone()).unwrap_or_default(),
        verified: status.and_then(|status| status.verified_revision.clone()),
        deletions: deletions.collect(),
        own_annotations: world.rollouts.get(ROLLOUT).map_or(0, |own| own.annotations.len()),
    }
}

fn same_end_wherever_it_is_killed(name: &str, start: &World) -> usize {
    let mut calm = start.clone();
    let writes = run_with_kills(&mut calm, &[]);
    lawful(&calm);
    let expected = end(&calm);
    // Once, and twice within a few writes: what the first kill kept from being recorded must not be needed after the second.
    let once = (0..writes).map(|kill| vec![kill]);
    let twice = (0..writes).flat_map(|kill| (0..3).map(move |later| vec![kill, kill + later]));
    for kills in once.chain(twice) {
        let mut world = start.clone();
        run_with_kills(&mut world, &kills);
        lawful(&world);
        assert_eq!(end(&world), expected, "{name}: killed before writes {kills:?}\n{}", world.tale.long_story());
        still(&mut world);
    }
    writes
}

fn failing_at(index: i32) -> Release {
    Release { metric: Metric::FailAt(index), ..GOOD }
}

// spec: pr§4, L041, L100
#[test]
fn same_end_whatever_crash_point() {
    let mut stories: Vec<(&str, World)> = Vec::new();
    let mut rollout = world(GOOD);
    template(&mut rollout, 2);
    stories.push(("happy", rollout.clone()));
    rollout.rollouts.get_mut(ROLLOUT).unwrap().spec.check.final_check = false;
    stories.push(("no final check", rollout));

    let mut claim = World::empty();
    claim.add_set(SET, 3, 1);
    claim.settle(LONG);
    claim.add_rollout(ROLLOUT, SET);
    stories.push(("claim", claim.clone()));
    claim.set_partition(SET, Some(HOLD));
    claim.set_template(SET, 2);
    stories.push(("claim with a pending template", claim));

    for (name, is_parallel) in [("rollback of two", false), ("rollback of two, Parallel", true)] {
        let start = if is_parallel { parallel(failing_at(1)) } else { world(failing_at(1)) };
        let mut back = with(start, |spec| {
            (spec.check.on_failure, spec.check.preflight) = (OnFailure::Rollback, false);
        });
        template(&mut back, 2);
        stories.push((name, back.clone()));
        settle(&mut back);
        back.releases.insert(2, GOOD);
        back.annotate(ROLLOUT, names::RETRY, "1");
        stories.push(("retry", back));
    }
    let mut approved = with(world(GOOD), |spec| spec.pause_before = vec![2]);
    template(&mut approved, 2);
    approved.annotate(ROLLOUT, names::APPROVE, "web-r2/2");
    stories.push(("approved", approved));

    let mut glass = world(GOOD);
    template(&mut glass, 2);
    until_checked(&mut glass, 2);
    glass.break_glass(SET, 1);
    stories.push(("break-glass", glass));

    let mut deleted = world(GOOD);
    template(&mut deleted, 2);
    until_checked(&mut deleted, 2);
    deleted.delete_rollout(ROLLOUT);
    stories.push(("deleted", deleted));

    let mut skipped = world(GOOD);
    template(&mut skipped, 2);
    until_checked(&mut skipped, 2);
    skipped.configure(ROLLOUT, "skipCheck", |spec| spec.skip_check = true);
    stories.push(("skipCheck", skipped));

    let mut writes = 0;
    for (name, mut start) in stories {
        start.tale.clear();
        writes += same_end_wherever_it_is_killed(name, &start);
    }
    println!("{writes} crash points");
}

/// Repairs: fix and revert, crash and metric, both policies, every loop.
// spec: pr§4, L041, L100
#[test]
fn same_end_of_repairs_whatever_crash_point() {
    let mut writes = 0;
    for bad in [CRASHING, failing_at(2)] {
        for next in [3, 1] {
            for native in LOOPS {
                for is_parallel in [false, true] {
                    let mut start = with(world(bad), |spec| spec.check.preflight = false);
                    set_mut(&mut start).parallel = is_parallel;
                    start.native = native;
                    template(&mut start, 2);
                    until_phase(&mut start, Phase::Failed);
                    template(&mut start, next);
                    start.tale.clear();
                    let name = format!("{bad:?} then {next}, {native:?}, parallel {is_parallel}");
                    writes += same_end_wherever_it_is_killed(&name, &start);
                }
            }
        }
    }
    println!("{writes} crash points");
}
