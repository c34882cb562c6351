//! The small worlds in which a search begins: version 1 runs, and template 2 has just been written.

use sts_plus_api::{OnFailure, VersionStrategyType, names};
use sts_plus_decide::ServiceView;
use sts_plus_model::versions::{Owner, World};
use sts_plus_model::{Health, Loop, Metric, Release};

use super::{Node, laws::Mind, openings::Opening};
use crate::explore::{LOOPS, moves::Budget};

/// What template 2 is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Good,
    Crashing,
    /// Its checks refuse.
    Bad,
    /// Each answer may be any.
    Flaky,
    /// Its pods cannot be made.
    Unmakeable,
}

/// A world, by what it differs in. Its name is how it is printed.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Setting {
    pub kind: Kind,
    pub in_place: bool,
    pub zones: &'static [&'static str],
    pub native: Loop,
    pub parallel: bool,
    /// False: without `spec.updateStrategy.check`.
    pub checked: bool,
    pub passes: i32,
    pub delay: i32,
    /// Side by side: canaries, further tries, and the Services with the time that the old version stays.
    pub canaries: i32,
    pub retries: i32,
    pub services: bool,
    /// In place.
    pub on_failure: OnFailure,
    pub preflight: bool,
    pub policies: bool,
    /// Template 2 is the first one ever.
    pub fresh: bool,
    pub pods: i32,
    pub opening: Opening,
}

pub const SIDE: Setting = Setting {
    kind: Kind::Good,
    in_place: false,
    zones: &[],
    native: Loop::GateOff,
    parallel: false,
    checked: true,
    passes: 1,
    delay: 0,
    canaries: 1,
    retries: 0,
    services: false,
    on_failure: OnFailure::Hold,
    preflight: true,
    policies: true,
    fresh: false,
    pods: 2,
    opening: Opening::Written,
};
pub const PLACE: Setting = Setting { in_place: true, ..SIDE };

/// Of a step of an upgrade, in seconds.
pub const WATCH: i32 = 20;
/// How long the old version stays where there are Services.
pub const STAYS: i32 = 5;

impl Setting {
    /// The world at the moment at which template 2 is written.
    pub fn world(&self) -> World {
        let mut world = World::new(self.owner());
        (world.native.native, world.native.policy, world.parallel) = (self.native, self.policies, self.parallel);
        if self.services {
            let service = |name: &str| ServiceView { name: name.into(), exists: true, ..ServiceView::default() };
            (world.active, world.preview) = (Some(service("live")), Some(service("next")));
        }
        match self.kind {
            Kind::Unmakeable => drop(world.unmakeable.insert(2)),
            kind => drop(world.releases.insert(2, release(kind))),
        }
        if self.fresh {
            world.edit(2);
        } else {
            assert!(world.settle(600), "it never rests");
            assert!(world.is_complete(1), "{}", world.layout());
            world.edit(2);
        }
        world.native.tale.clear();
        (world.seen, world.wake) = (None, None);
        world
    }

    /// The state in which the search begins, with what may happen in it.
    pub fn start(&self, left: Budget) -> Node {
        let world = self.world();
        let mut node = self.opening.play(Node { mind: Mind::of(&world), world, left, kept: None });
        node.left = left;
        node
    }

    fn owner(&self) -> Owner {
        let kind = if self.in_place { VersionStrategyType::InPlace } else { VersionStrategyType::SideBySide };
        let mut owner = Owner::new(kind, self.pods);
        owner.spec.az = self.zones.iter().map(|zone| (*zone).to_owned()).collect();
        let strategy = &mut owner.spec.update_strategy;
        (strategy.canaries, strategy.retry_count, strategy.canary_watch_seconds) = (self.canaries, self.retries, WATCH);
        if self.checked {
            let mut check = Owner::check();
            (check.success_threshold, check.initial_delay_seconds) = (self.passes, self.delay);
            if self.in_place {
                (check.on_failure, check.preflight) = (Some(self.on_failure), Some(self.preflight));
            }
            strategy.check = Some(check);
        }
        if self.services {
            strategy.scale_down_delay_seconds = STAYS;
            (strategy.active_service, strategy.preview_service) = (Some("live".into()), Some("next".into()));
        }
        owner
    }
}

fn release(kind: Kind) -> Release {
    let (health, metric) = match kind {
        Kind::Good | Kind::Unmakeable => (Health::ReadyAfter(2), Metric::Pass),
        Kind::Crashing => (Health::Crashing, Metric::Pass),
        Kind::Bad => (Health::ReadyAfter(2), Metric::Fail),
        Kind::Flaky => (Health::ReadyAfter(2), Metric::Flaky),
    };
    Release { health, metric }
}

pub const KINDS: [Kind; 5] = [Kind::Good, Kind::Crashing, Kind::Bad, Kind::Flaky, Kind::Unmakeable];
const FAILURES: [OnFailure; 4] = [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed];
const ONE: &[&str] = &["a"];
pub const TWO: &[&str] = &["a", "b"];

/// Versions side by side: every kind of release, with and without canaries, checks, Services, further tries and zones.
pub fn side_by_side() -> Vec<Setting> {
    let all = KINDS.iter().enumerate().flat_map(|(row, kind)| {
        let of = Setting { kind: *kind, passes: if *kind == Kind::Flaky { 2 } else { 1 }, ..SIDE };
        let turn = i32::try_from(row % 2).unwrap_or(0);
        [
            Setting { delay: turn, ..of },
            Setting { canaries: 0, parallel: row % 2 == 0, ..of },
            Setting { checked: false, retries: turn, ..of },
            Setting { services: true, retries: 1 - turn, ..of },
            Setting { zones: TWO, parallel: row % 2 == 1, ..of },
            Setting { fresh: true, native: Loop::Gate137, ..of },
        ]
    });
    all.collect()
}

/// In place: every kind of release with every onFailure; loops, zones and what else there is take turns.
pub fn in_place() -> Vec<Setting> {
    let all = KINDS.iter().enumerate().flat_map(move |(row, kind)| {
        FAILURES.iter().enumerate().flat_map(move |(column, on_failure)| {
            let (parallel, native) = LOOPS[(row + column) % LOOPS.len()];
            let (parallel_too, native_too) = LOOPS[(row + column + 2) % LOOPS.len()];
            let of = Setting {
                kind: *kind,
                on_failure: *on_failure,
                passes: if *kind == Kind::Flaky { 2 } else { 1 },
                preflight: (row + column) % 2 == 0,
                policies: (row + column) % 3 != 0,
                ..PLACE
            };
            [
                Setting { native, parallel, ..of },
                Setting { zones: TWO, parallel: parallel_too, native: native_too, preflight: !of.preflight, ..of },
            ]
        })
    });
    let others = KINDS.iter().flat_map(|kind| {
        let of = Setting { kind: *kind, ..PLACE };
        [Setting { checked: false, ..of }, Setting { fresh: true, zones: ONE, ..of }]
    });
    all.chain(others).collect()
}

/// Every loop, kind of release and onFailure in half as many worlds.
pub fn in_place_daily() -> Vec<Setting> {
    let all = in_place().into_iter().enumerate();
    // Two in a row differ in zones only, and eight in onFailure too.
    all.filter(|(at, _)| at % 2 == (at / 2 + at / 8) % 2).map(|(_, setting)| setting).collect()
}

/// What a search of zones writes into the list.
pub const LISTS: [&[&str]; 4] = [&["a"], &["a", "b"], &["b"], &["b", "a"]];

/// The claim is what the admission policies go by.
pub fn is_held(set: &sts_plus_model::Set) -> bool {
    set.annotations.contains_key(names::CLAIM) && !set.annotations.contains_key(names::HOLD_SWITCH)
}
