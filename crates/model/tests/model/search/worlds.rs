//! The small worlds in which a search begins.

use std::collections::BTreeSet;

use sts_plus_api::OnFailure;
use sts_plus_model::world::ROLLOUT;
use sts_plus_model::{Health, Loop, Metric, Release, World};

use super::{Node, laws::Mind, openings::Opening};
use crate::explore::{LOOPS, moves::Budget};
use crate::story::{LONG, set_mut};

/// What the newest template is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Good,
    Crashing,
    /// Its checks refuse, whatever they are asked about, as long as one of its pods serves.
    Bad,
    /// Each answer may be any.
    Flaky,
    /// Its pods cannot be made.
    Refused,
}

/// How the admission policies stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policies {
    On,
    Off,
    /// Only the validating one: API servers before 1.36.
    Refusing,
}

/// A world, by what it differs in. Its name is how it is printed.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub pods: i32,
    pub kind: Kind,
    pub native: Loop,
    pub parallel: bool,
    pub on_failure: OnFailure,
    pub preflight: bool,
    pub passes: i32,
    pub delay: i32,
    pub pause_before: bool,
    pub policies: Policies,
    pub opening: Opening,
}

pub const USUAL: Setting = Setting {
    pods: 2,
    kind: Kind::Good,
    native: Loop::GateOff,
    parallel: false,
    on_failure: OnFailure::Hold,
    preflight: true,
    passes: 1,
    delay: 0,
    pause_before: false,
    policies: Policies::On,
    opening: Opening::Written,
};

/// Short checks.
pub fn shorten(world: &mut World) {
    let Some(own) = world.rollouts.get_mut(ROLLOUT) else { return };
    let check = &mut own.spec.check;
    (check.initial_delay_seconds, check.period_seconds) = (0, 1);
    (check.success_threshold, check.max_tries) = (1, 2);
}

impl Setting {
    /// The world before the opening.
    fn world(&self) -> World {
        let mut world = self.opening.begin(self.pods);
        world.native = self.native;
        world.policy = self.policies == Policies::On;
        world.refuses = self.policies == Policies::Refusing;
        // A scale-up before the operator has seen a template is let in there (ADR 0007).
        world.ledger.without_policy = self.policies != Policies::On;
        set_mut(&mut world).parallel = self.parallel;
        shorten(&mut world);
        let spec = &mut world.rollouts.get_mut(ROLLOUT).unwrap().spec;
        (spec.check.on_failure, spec.check.preflight) = (self.on_failure, self.preflight);
        (spec.check.success_threshold, spec.check.initial_delay_seconds) = (self.passes, self.delay);
        spec.pause_before = if self.pause_before { vec![0] } else { Vec::new() };
        if self.opening != Opening::Claimed {
            world.settle(LONG);
        }
        world.tale.clear();
        world
    }

    /// The state in which the search begins, with what may happen in it.
    pub fn start(&self, left: Budget) -> Node {
        let (world, mind) = (self.world(), Mind::default());
        let mut node = self.opening.play(Node { world, mind, left, kept: None });
        node.left = left;
        let newest = self.opening.newest();
        match self.kind {
            Kind::Refused => node.world.refused_templates = BTreeSet::from([newest]),
            // What has begun to fail already fails as it does.
            kind => drop(node.world.releases.entry(newest).or_insert(release(kind))),
        }
        node.world.tale.clear();
        node
    }
}

fn release(kind: Kind) -> Release {
    let (health, metric) = match kind {
        Kind::Good | Kind::Refused => (Health::ReadyAfter(2), Metric::Pass),
        Kind::Crashing => (Health::Crashing, Metric::Pass),
        Kind::Bad => (Health::ReadyAfter(2), Metric::WhereItRuns),
        Kind::Flaky => (Health::ReadyAfter(2), Metric::Flaky),
    };
    Release { health, metric }
}

pub const KINDS: [Kind; 5] = [Kind::Good, Kind::Crashing, Kind::Bad, Kind::Flaky, Kind::Refused];
const POLICIES: [OnFailure; 4] = [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed];

/// Every loop with every kind of release and every onFailure; what else there is takes turns.
pub fn all() -> Vec<Setting> {
    let rows = KINDS.iter().enumerate();
    rows.flat_map(|(row, kind)| {
        LOOPS.iter().enumerate().flat_map(move |(column, (parallel, native))| {
            let turns = POLICIES.iter().enumerate();
            turns.map(move |(turn, on_failure)| {
                let mix = row + column + turn;
                let policies = [Policies::On, Policies::On, Policies::Off, Policies::Refusing];
                Setting {
                    kind: *kind,
                    native: *native,
                    parallel: *parallel,
                    on_failure: *on_failure,
                    preflight: mix % 2 == 0,
                    passes: if *kind == Kind::Flaky { 2 } else { 1 + i32::from(mix % 3 == 0) },
                    delay: i32::from(mix % 3 == 1),
                    pause_before: mix % 5 == 0,
                    policies: policies[(mix + row) % 4],
                    ..USUAL
                }
            })
        })
    })
    .collect()
}

/// Every loop with every kind of release; onFailure takes turns too.
pub fn daily() -> Vec<Setting> {
    let all = all().into_iter().enumerate();
    // Four in a row differ in onFailure only.
    all.filter(|(at, _)| at % 4 == (at / 4 + at / 20) % 4).map(|(_, setting)| setting).collect()
}
