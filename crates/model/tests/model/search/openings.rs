//! Where a search begins that would be too long from the beginning: each is a situation in which a fault was found once.

use sts_plus_api::{DeletionPolicy, OnFailure, Phase, PhasedRolloutSpec};
use sts_plus_model::world::{ROLLOUT, SET};
use sts_plus_model::{Health, Metric, Release, World};

use super::{
    Node,
    moves::Deeds,
    worlds::{Kind, Setting, USUAL},
};
use crate::explore::{
    LOOPS,
    openings::{act, until},
};
use crate::story::{CRASHING, GOOD, LONG, template};

/// Who waits for the set. It does nothing before it is its turn.
pub const HEIR: &str = "heir";
/// Of pods that take their time, in seconds.
const SLOW: Release = Release { health: Health::ReadyAfter(12), ..GOOD };
/// No pod takes as long, and two of them do.
const DEADLINE: i32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Template 2 has just been written.
    Written,
    /// The same, and another PhasedRollout waits for the set, which is to be released when this one lets it go.
    Heir,
    /// The highest pod carries template 2 by a partition that somebody set, a quota keeps the others away, and now the set is claimed.
    Claimed,
    /// Template 2 has passed on all pods but the lowest, which waits for an approval.
    Awaits,
    /// The same, and a quota keeps the lowest pod away.
    Missing,
    /// Template 2 has passed on the highest pod. The template went back to 1 until that pod had, and to 2 again, which fails on it now.
    Returned,
    /// Template 2 has passed on all pods but the lowest, template 3 has failed on the highest one, and a rollback has begun.
    Third,
    /// The highest pod crashes on template 2, and the lowest one on template 1. With two pods none is left that is Ready.
    Hidden,
    /// Template 2 has failed on the second pod, and with slow pods a rollback has begun.
    GoingBack,
}

impl Opening {
    /// The template that is like the kind of the world says.
    pub fn newest(self) -> u32 {
        if self == Self::Third { 3 } else { 2 }
    }

    /// A set at rest on template 1, claimed but for one opening.
    pub fn begin(self, pods: i32) -> World {
        if self != Self::Claimed {
            return World::new(pods);
        }
        let mut world = World::empty();
        world.add_set(SET, pods, 1);
        world.settle(LONG);
        world.set_partition(SET, Some(pods - 1));
        template(&mut world, 2);
        world.settle(LONG);
        world.quota = Some(1);
        for ordinal in 0..pods - 1 {
            world.delete_pod(SET, ordinal);
        }
        world.pass(5);
        world.add_rollout(ROLLOUT, SET);
        world
    }

    /// All templates are good here but for what an opening itself makes bad; the newest one gets its kind afterwards.
    pub fn play(self, mut node: Node) -> Node {
        let set = &node.world.sets[SET];
        let highest = set.replicas - 1;
        let carries = move |of: u32| {
            move |world: &World| {
                let set = &world.sets[SET];
                set.pods.get(&highest).is_some_and(|pod| pod.revision == set.revision_of(of) && pod.is_healthy())
            }
        };
        match self {
            Self::Claimed => node,
            Self::Written => act(&node, Deeds::Template(2)),
            Self::Heir => {
                node.world.now += 1;
                node.world.add_rollout(HEIR, SET);
                spec(&mut node).deletion_policy = Some(DeletionPolicy::Release);
                act(&node, Deeds::Template(2))
            }
            Self::Awaits => {
                until(act(&node, Deeds::Template(2)), |world| carries(2)(world) && is(world, Phase::Paused))
            }
            Self::Third => {
                let mut node = until(act(&Self::Awaits.play(node), Deeds::Template(3)), carries(3));
                node.world.releases.insert(3, Release { metric: Metric::WhereItRuns, ..GOOD });
                until(node, |world| is(world, Phase::RollingBack))
            }
            Self::Hidden => {
                node.world.releases.insert(2, CRASHING);
                let is_new = |world: &World| {
                    let set = &world.sets[SET];
                    set.pods.get(&highest).is_some_and(|pod| pod.revision == set.wanted())
                };
                let mut node = until(act(&node, Deeds::Template(2)), is_new);
                node.world.releases.insert(1, CRASHING);
                act(&node, Deeds::Break(0))
            }
            Self::Missing => {
                let node = act(&Self::Awaits.play(node), Deeds::Quota(usize::try_from(highest).ok()));
                until(act(&node, Deeds::Delete(0)), |world| !world.sets[SET].pods.contains_key(&0))
            }
            Self::Returned => [1, 2]
                .into_iter()
                .fold(Self::Awaits.play(node), |node, next| until(act(&node, Deeds::Template(next)), carries(next))),
            Self::GoingBack => {
                node.world.releases.extend([(1, SLOW), (2, SLOW)]);
                spec(&mut node).progress_deadline_seconds = Some(DEADLINE);
                let is_second = |world: &World| world.sets[SET].threshold() < highest;
                let mut node = until(act(&node, Deeds::Template(2)), is_second);
                node.world.releases.insert(2, Release { metric: Metric::Fail, ..SLOW });
                until(node, |world| is(world, Phase::RollingBack))
            }
        }
    }
}

fn spec(node: &mut Node) -> &mut PhasedRolloutSpec {
    &mut node.world.rollouts.get_mut(ROLLOUT).unwrap().spec
}

fn is(world: &World, phase: Phase) -> bool {
    world.rollouts[ROLLOUT].status.phase == phase
}

/// Every opening in two worlds.
pub fn openings() -> Vec<Setting> {
    let waits = Setting { pause_before: true, ..USUAL };
    let of = [
        Setting { opening: Opening::Hidden, kind: Kind::Crashing, pods: 3, on_failure: OnFailure::Pause, ..USUAL },
        Setting { opening: Opening::Heir, ..USUAL },
        Setting { opening: Opening::Claimed, ..USUAL },
        Setting { opening: Opening::Missing, ..waits },
        Setting { opening: Opening::Awaits, passes: 2, on_failure: OnFailure::Rollback, ..waits },
        Setting { opening: Opening::Awaits, kind: Kind::Bad, ..waits },
        Setting { opening: Opening::Returned, kind: Kind::Bad, ..waits },
        Setting { opening: Opening::Third, kind: Kind::Bad, pods: 3, on_failure: OnFailure::Rollback, ..waits },
        Setting { opening: Opening::GoingBack, kind: Kind::Bad, pods: 3, on_failure: OnFailure::Rollback, ..USUAL },
    ];
    let in_two = |(at, setting): (usize, Setting)| {
        [at, at + 2].map(|at| {
            let (parallel, native) = LOOPS[at % LOOPS.len()];
            Setting { native, parallel, ..setting }
        })
    };
    of.into_iter().enumerate().flat_map(in_two).collect()
}
