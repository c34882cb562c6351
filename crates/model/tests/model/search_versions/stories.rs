//! Stories that a search has found, each with what was wrong. A new one is copied here as it is printed.

use sts_plus_api::OnFailure;
use sts_plus_model::{Answer, Loop};

use super::{
    Versions,
    moves::{Deeds, Move},
    openings::Opening,
    worlds::{Kind, PLACE, SIDE, Setting},
};
use crate::explore::is_lawful;

const SEEN: Move = Move::Controller(0);
const ACTS: Move = Move::Operator(Answer::Pass);

/// All pods of the running version broke, and the next one came into charge: the StatefulSet controller removes no pod above one that is not
/// Ready, so the broken version was being removed for ever.
#[test]
fn a_version_with_several_broken_pods_is_removed() {
    let setting = Setting { kind: Kind::Crashing, delay: 1, ..SIDE };
    is_lawful::<Versions>(setting, &[Move::People(Deeds::BreakAll(0))]);
}

/// The operator was late, and killed after it had asked for the canaries: they had failed before they were there.
#[test]
fn canaries_that_a_crash_kept_from_being_noted_have_all_their_time() {
    for setting in [SIDE, Setting { canaries: 0, parallel: true, ..SIDE }] {
        is_lawful::<Versions>(setting, &[ACTS, ACTS, ACTS, Move::Late, Move::Kill(1), ACTS]);
    }
}

/// The first version does not come up and its status was lost: nobody was woken at the end of the time that it has.
#[test]
fn an_install_that_does_not_come_up_is_stalled_also_when_the_status_was_lost() {
    let setting = Setting { kind: Kind::Crashing, fresh: true, native: Loop::Gate137, ..SIDE };
    is_lawful::<Versions>(setting, &[ACTS, ACTS, SEEN, ACTS, Move::Time, Move::People(Deeds::StatusLost)]);
}

/// The status was lost after version 2 had failed in place, and the fix was written: the mark of version 2 rejected the fix.
#[test]
fn the_mark_of_a_version_does_not_reject_the_fix_of_a_lost_status() {
    let setting =
        Setting { kind: Kind::Unmakeable, parallel: true, on_failure: OnFailure::Rollback, policies: false, ..PLACE };
    let lost = Move::People(Deeds::StatusLost);
    let path = [ACTS, ACTS, SEEN, ACTS, ACTS, ACTS, SEEN, ACTS, Move::Time, SEEN, ACTS, Move::Time, ACTS, lost];
    is_lawful::<Versions>(setting, &path);
}

/// A restore without the status: the canary came up before the pods of the version in charge did, and was in charge, unchecked.
#[test]
fn a_canary_that_comes_up_first_after_a_restore_is_not_in_charge() {
    for pods in [1, 2] {
        let setting = Setting { opening: Opening::Watched, passes: 2, pods, ..SIDE };
        is_lawful::<Versions>(
            setting,
            &[Move::People(Deeds::StatusLost), Move::People(Deeds::BreakAll(0)), ACTS, ACTS],
        );
    }
}
