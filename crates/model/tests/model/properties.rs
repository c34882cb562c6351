//! Properties over random histories. A failure prints its history and is kept by proptest with its seed.

use proptest::prelude::*;
use sts_plus_api::{OnFailure, Phase, StuckPods, names};
use sts_plus_model::random::cases;
use sts_plus_model::world::{ROLLOUT, SET, template_of};
use sts_plus_model::{Ended, Health, Loop, Metric, Release, Stop, World};

use crate::story::*;

/// What may happen in a random history.
#[derive(Clone, Copy, Debug)]
enum Chance {
    Template(u32),
    Scale(i32),
    Partition(i32),
    DeletePod(i32),
    BreakPod(i32),
    HealPod(i32),
    Pause(bool),
    Prometheus(bool),
    Retry(u8),
    /// A hand writes into the status what would open something if it were believed.
    EditStatus(u8),
    Restart,
    Kill(usize),
    Pass(i64),
    Controller,
    Operator,
    /// The operator looked, and before it acts pods and controller move on.
    Late,
    /// The operator sees the status as it was before the last write.
    OldStatus,
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        3 => (1..5_u32).prop_map(Chance::Template),
        2 => (0..5_i32).prop_map(Chance::Scale),
        1 => (0..4_i32).prop_map(Chance::Partition),
        2 => (0..4_i32).prop_map(Chance::DeletePod),
        1 => (0..4_i32).prop_map(Chance::BreakPod),
        2 => (0..4_i32).prop_map(Chance::HealPod),
        1 => any::<bool>().prop_map(Chance::Pause),
        1 => any::<bool>().prop_map(Chance::Prometheus),
        1 => any::<u8>().prop_map(Chance::Retry),
        1 => any::<u8>().prop_map(Chance::EditStatus),
        2 => Just(Chance::Restart),
        3 => (0..4_usize).prop_map(Chance::Kill),
        8 => (1..20_i64).prop_map(Chance::Pass),
        3 => Just(Chance::Controller),
        3 => Just(Chance::Operator),
        2 => Just(Chance::Late),
        2 => Just(Chance::OldStatus),
    ]
}

fn release() -> impl Strategy<Value = Release> {
    let health = prop_oneof![
        4 => (0..4_i64).prop_map(Health::ReadyAfter),
        1 => Just(Health::Crashing),
        1 => Just(Health::NeverReady),
    ];
    let metric = prop_oneof![
        4 => Just(Metric::Pass),
        1 => Just(Metric::Fail),
        1 => (0..3_i32).prop_map(Metric::FailAt),
        1 => Just(Metric::FailAfter),
        1 => Just(Metric::Error),
    ];
    (health, metric).prop_map(|(health, metric)| Release { health, metric })
}

#[derive(Clone, Debug)]
struct Setting {
    replicas: i32,
    is_parallel: bool,
    start: i32,
    min_ready: i32,
    native: Loop,
    releases: Vec<Release>,
    on_failure: OnFailure,
    preflight: bool,
    final_check: bool,
    delay: i32,
}

fn setting() -> impl Strategy<Value = Setting> {
    let loops = prop_oneof![Just(Loop::GateOff), Just(Loop::Gate135), Just(Loop::Gate137)];
    let policies = prop_oneof![
        4 => Just(OnFailure::Hold),
        1 => Just(OnFailure::Pause),
        2 => Just(OnFailure::Rollback),
        1 => Just(OnFailure::Proceed)
    ];
    let shape = (1..5_i32, any::<bool>(), prop_oneof![Just(0), Just(5)], prop_oneof![3 => Just(0), 1 => Just(3)]);
    let check = (policies, any::<bool>(), prop::bool::weighted(0.8), prop_oneof![Just(0), Just(3)]);
    (shape, loops, prop::collection::vec(release(), 3), check).prop_map(
        |((replicas, is_parallel, start, min_ready), native, releases, (on_failure, preflight, final_check, delay))| {
            Setting {
                replicas,
                is_parallel,
                start,
                min_ready,
                native,
                releases,
                on_failure,
                preflight,
                final_check,
                delay,
            }
        },
    )
}

fn begin(setting: &Setting) -> World {
    let mut world = World::empty();
    world.native = setting.native;
    world.add_set(SET, setting.replicas, 1);
    let set = world.sets.get_mut(SET).unwrap();
    (set.parallel, set.start, set.min_ready) = (setting.is_parallel, setting.start, setting.min_ready);
    world.settle(LONG);
    world.add_rollout(ROLLOUT, SET);
    let spec = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec;
    spec.check.on_failure = setting.on_failure;
    (spec.check.preflight, spec.check.final_check) = (setting.preflight, setting.final_check);
    spec.check.initial_delay_seconds = setting.delay;
    for (template, release) in (2..).zip(&setting.releases) {
        world.releases.insert(template, *release);
    }
    world.settle(LONG);
    world
}

fn happen(world: &mut World, chance: Chance) {
    let ordinal = |index: i32| index + world.sets[SET].start;
    match chance {
        Chance::Template(to) if world.sets[SET].template != to => world.set_template(SET, to),
        Chance::Template(_) => {}
        Chance::Scale(to) => world.scale(SET, to),
        Chance::Partition(to) => world.set_partition(SET, Some(to)),
        Chance::DeletePod(index) => world.delete_pod(SET, ordinal(index)),
        Chance::BreakPod(index) => world.break_pod(SET, ordinal(index)),
        Chance::HealPod(index) => world.heal_pod(SET, ordinal(index)),
        Chance::Pause(paused) => world.configure(ROLLOUT, "paused", |spec| spec.paused = paused),
        Chance::Prometheus(down) => world.prometheus_down = down,
        Chance::Retry(token) => world.annotate(ROLLOUT, names::RETRY, &token.to_string()),
        Chance::EditStatus(kind) => edit_status(world, kind),
        Chance::Restart => world.restart_operator(),
        Chance::Kill(write) => {
            world.operate(ROLLOUT, Stop::Before(write));
            world.restart_operator();
        }
        Chance::Pass(seconds) => {
            world.pass(seconds);
            world.judge_hold(ROLLOUT);
        }
        Chance::Controller => drop(world.sync(SET)),
        Chance::Operator => drop(world.operate(ROLLOUT, Stop::Never)),
        Chance::OldStatus => drop(world.operate_with_old_status(ROLLOUT)),
        Chance::Late => {
            let picture = world.observe(ROLLOUT).unwrap();
            world.live();
            world.sync(SET);
            world.ledger.stale = true;
            world.operate_on(ROLLOUT, picture, Stop::Never);
            world.ledger.stale = false;
        }
    }
}

fn edit_status(world: &mut World, kind: u8) {
    let status = &mut *world.rollouts.get_mut(ROLLOUT).unwrap().status;
    match kind % 4 {
        0 => status.previous_revision.clone_from(&status.target_revision),
        1 => status.never_healthy = true,
        2 => (status.start_time, status.completion_time, status.current) = (None, None, None),
        _ => {
            if let Some(current) = &mut status.current {
                (current.consecutive_passes, current.failed) = (99, false);
            }
        }
    }
    world.restart_operator();
}

/// Everything gets well again; a person retries what was rejected. Then it must complete, and rest.
fn make_well(world: &mut World, token: &str) {
    world.prometheus_down = false;
    world.configure(ROLLOUT, "goes on", |spec| spec.paused = false);
    let template = world.sets[SET].template;
    world.releases.insert(template, GOOD);
    let now = world.now;
    // Pods on the last good revision and on the wanted one; those of failed releases in between stay as they are.
    let well = [world.sets[SET].wanted(), world.ledger.good(SET).unwrap_or_default().to_owned()];
    for revision in &well {
        world.releases.insert(template_of(revision), GOOD);
    }
    let set = world.sets.get_mut(SET).unwrap();
    for pod in set.pods.values_mut().filter(|pod| !pod.ready && well.contains(&pod.revision)) {
        pod.health = Health::ReadyAfter(now - pod.since + 1);
    }
    if world.sets[SET].replicas == 0 {
        world.scale(SET, 2);
    }
    world.annotate(ROLLOUT, names::RETRY, token);
}

fn is_final(world: &World) -> bool {
    let set = &world.sets[SET];
    let status = status(world);
    matches!(status.phase, Phase::Completed | Phase::Idle)
        && status.target_revision.as_deref() == Some(set.wanted().as_str())
        && set.status.observed_generation == set.generation
}

fn converges(world: &mut World) -> Result<(), TestCaseError> {
    // What was given before a failure does not count after it, and a revision may turn out to be the last good one only now.
    for token in ["well", "really", "at last"] {
        make_well(world, token);
        world.run(1000, is_final);
        if is_final(world) {
            break;
        }
    }
    let ended = world.settle(1000);
    prop_assert_eq!(ended, Ended::Quiet, "\n{}", world.tale.long_story());
    prop_assert!(world.ledger.breaches.is_empty(), "{:#?}\n{}", world.ledger.breaches, world.tale.long_story());
    let phase = phase(world);
    prop_assert!(matches!(phase, Phase::Completed | Phase::Idle), "{phase:?}\n{}", world.tale.long_story());
    let set = &world.sets[SET];
    let done = set.pods.values().all(|pod| pod.revision == set.wanted() && pod.is_healthy());
    prop_assert!(done, "{}\n{}", set.layout(), world.tale.long_story());
    prop_assert_eq!(set.partition, Some(set.replicas), "\n{}", world.tale.long_story());
    let before = world.tale.lines().count();
    world.restart_operator();
    world.settle(LONG);
    prop_assert_eq!(world.tale.lines().count(), before, "a write at rest\n{}", world.tale.long_story());
    Ok(())
}

proptest! {
    #![proptest_config(cases(400))]

    /// Safety in every history, with the policy on; and once all is well, completion and silence.
    // spec: pr§4, L075
    #[test]
    fn safe_and_live(setting in setting(), history in prop::collection::vec(chance(), 0..25)) {
        let mut world = begin(&setting);
        for event in history {
            happen(&mut world, event);
            prop_assert!(
                world.ledger.breaches.is_empty(), "{:#?}\n{}", world.ledger.breaches, world.tale.long_story()
            );
        }
        converges(&mut world)?;
    }

    /// Without the policy nothing can be promised about pods that slip, but it still ends well.
    // spec: pr§4
    #[test]
    fn live_without_the_policy(setting in setting(), history in prop::collection::vec(chance(), 0..20)) {
        let mut world = begin(&setting);
        world.policy = false;
        world.ledger.without_policy = true;
        for event in history {
            happen(&mut world, event);
        }
        converges(&mut world)?;
    }

    /// Where the API server refuses instead: it ends well, and whenever nothing moves, a template is let in.
    // spec: hold
    #[test]
    fn live_where_changes_are_refused(setting in setting(), history in prop::collection::vec(chance(), 0..20)) {
        let mut world = begin(&setting);
        (world.policy, world.refuses) = (false, true);
        // A scale-up just after a template change comes before the operator's hold.
        world.ledger.without_policy = true;
        for event in history {
            happen(&mut world, event);
        }
        if world.settle(LONG) == Ended::Quiet && matches!(phase(&world), Phase::Held | Phase::Paused | Phase::Failed) {
            let set = &world.sets[SET];
            let is_back = |index: i32| set.pods.get(&(index + set.start)).is_some_and(|pod| pod.revision == set.wanted());
            let opens = set.threshold() < set.replicas && (set.threshold()..set.replicas).all(is_back);
            prop_assert!(!opens, "{} {:?}\n{}", set.layout(), set.partition, world.tale.long_story());
        }
        converges(&mut world)?;
    }

    /// With stuckPods Wait the operator deletes no pod by itself, unless it rolls back.
    // spec: pr§6, L047
    #[test]
    fn wait_deletes_nothing(setting in setting(), history in prop::collection::vec(chance(), 0..20)) {
        let mut world = begin(&setting);
        let spec = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec;
        (spec.stuck_pods, spec.check.on_failure) = (StuckPods::Wait, OnFailure::Hold);
        for event in history {
            happen(&mut world, event);
        }
        let deleted = count(&world, |d| matches!(d, sts_plus_model::Deed::Deleted(sts_plus_model::Who::Operator, _)));
        prop_assert_eq!(deleted, 0, "{}", world.tale.long_story());
        prop_assert!(world.ledger.breaches.is_empty(), "{:#?}\n{}", world.ledger.breaches, world.tale.long_story());
    }
}
