//! What both strategies do to an upgrade: its clock stops, and the version takes over.

use sts_plus_api::{Reason, Upgrade, VersionPhase};

use crate::{
    checks::Cycle,
    versions::{draft::Draft, stand::Stand, world::World},
};

/// Paused, or nothing can be done: the step has all its time again when it goes on.
pub(super) fn stop_clock(draft: &mut Draft) {
    if let Some(upgrade) = &mut draft.status.upgrade {
        upgrade.since = None;
        interrupt(upgrade);
    }
}

/// The version takes over. It rests when what was there before is gone, too.
pub(super) fn promote(draft: &mut Draft, world: &World, version: i32, current: i32) -> Stand {
    draft.status.current_version = Some(version);
    (draft.status.update_version, draft.status.upgrade) = (None, None);
    draft.status.promotion_time = Some(draft.now);
    draft.wake_now();
    let (reason, how) = if world.wanted() == 0 {
        (Reason::PromotedUnverified, "; it has no pods, so nothing of it was verified")
    } else if world.has_empty_zone() {
        (Reason::Promoted, ", with all its pods available but for zones that no node carries")
    } else {
        (Reason::Promoted, ", with all its pods available")
    };
    let note = format!("version {version} is in charge after version {current}{how}");
    draft.normal(reason, &note);
    Stand::moving(VersionPhase::CleaningUp, reason, note)
}

/// Some canary is not available: delay and streak start again, not the tries.
pub(super) fn interrupt(upgrade: &mut Upgrade) {
    if let Some(current) = &mut upgrade.cycle {
        let mut cycle = Cycle::from(&*current);
        cycle.interrupt();
        cycle.store(current);
    }
}
