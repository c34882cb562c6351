//! Where a search begins that would be too long from the beginning: each is a situation in which a fault was found once.

use sts_plus_api::{OnFailure, UpgradeStep, VersionPhase};
use sts_plus_model::versions::World;

use super::{
    Node,
    moves::Deeds,
    worlds::{Kind, PLACE, SIDE, Setting, TWO},
};
use crate::explore::{
    LOOPS,
    openings::{act, until},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Template 2 has just been written.
    Written,
    /// Version 2 is stale.
    Stale,
    /// The canaries of version 2 have passed once, and are to pass twice.
    Watched,
    /// The same, and the upgrade was paused.
    Paused,
    /// In place: zone b was dropped in mid-upgrade and keeps version 1, and zone a has version 2, which is in charge.
    Dropped,
}

impl Opening {
    pub fn play(self, node: Node) -> Node {
        let step = |world: &World| world.status.upgrade.as_ref().map(|upgrade| upgrade.step);
        let passes =
            |world: &World| world.status.upgrade.as_ref()?.cycle.as_ref().map(|cycle| cycle.consecutive_passes);
        match self {
            Self::Written => node,
            Self::Stale => until(node, |world| step(world) == Some(UpgradeStep::Stale)),
            Self::Watched => until(node, |world| passes(world) == Some(1)),
            Self::Paused => {
                let node = act(&Self::Watched.play(node), Deeds::Pause(true));
                until(node, |world| world.status.phase == VersionPhase::Paused)
            }
            Self::Dropped => {
                let node = until(node, |world| world.sets_of(2).next().is_some());
                until(act(&node, Deeds::Zones(0)), |world| world.status.current_version == Some(2))
            }
        }
    }
}

pub fn side_by_side() -> Vec<Setting> {
    let of = [
        Setting { opening: Opening::Stale, kind: Kind::Bad, ..SIDE },
        Setting { opening: Opening::Watched, passes: 2, ..SIDE },
        Setting { opening: Opening::Paused, passes: 2, ..SIDE },
    ];
    in_two_loops(&of)
}

pub fn in_place() -> Vec<Setting> {
    let of = [
        Setting {
            opening: Opening::Stale,
            kind: Kind::Bad,
            on_failure: OnFailure::Rollback,
            preflight: false,
            ..PLACE
        },
        Setting { opening: Opening::Dropped, zones: TWO, ..PLACE },
    ];
    in_two_loops(&of)
}

fn in_two_loops(of: &[Setting]) -> Vec<Setting> {
    let of = of
        .iter()
        .flat_map(|setting| [LOOPS[0], LOOPS[3]].map(|(parallel, native)| Setting { native, parallel, ..*setting }));
    of.collect()
}
