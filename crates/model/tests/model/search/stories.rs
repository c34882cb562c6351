//! Stories that a search has found, each with what was wrong. A new one is copied here as it is printed.

use sts_plus_api::OnFailure;
use sts_plus_model::{Answer, Loop};

use super::{
    Rollouts,
    moves::{Deeds, Move},
    openings::Opening,
    worlds::{Kind, Policies, Setting, USUAL},
};
use crate::explore::is_lawful;

const SEEN: Move = Move::Controller(0);
const ACTS: Move = Move::Operator(Answer::Pass);

/// Under the hold the missing pod can only be made at the current revision, which is neither the last good nor the wanted one.
#[test]
fn a_fix_where_the_current_revision_cannot_be_made() {
    let setting = Setting { kind: Kind::Refused, policies: Policies::Off, ..USUAL };
    is_lawful::<Rollouts>(setting, &[Move::People(Deeds::Remake(2)), SEEN]);
}

/// A preflight covers no pod, so a pod that is born in the same second has not passed.
#[test]
fn a_fix_after_a_scale_up_in_the_second_of_the_preflight() {
    let setting = Setting { kind: Kind::Bad, ..USUAL };
    is_lawful::<Rollouts>(setting, &[SEEN, ACTS, ACTS, ACTS, Move::People(Deeds::Scale(3)), SEEN]);
}

/// The answer to a question of an operator before this one.
#[test]
fn two_answers_in_one_period() {
    let setting = Setting { native: Loop::GateOff, passes: 2, pause_before: true, ..USUAL };
    is_lawful::<Rollouts>(setting, &[SEEN, ACTS, ACTS, Move::Ask(Answer::Pass), ACTS, Move::Act]);
}

/// What a person allows while the controller is slow is for the template that it has not seen: it was taken for the revision before, and all
/// pods were said to be rolled out.
#[test]
fn a_partition_that_is_allowed_before_the_controller_has_seen_the_template() {
    is_lawful::<Rollouts>(USUAL, &[Move::Late, ACTS, Move::People(Deeds::BreakGlass(0)), ACTS]);
}

/// A person let the pods roll, and in the same write it was told that there is no progress.
#[test]
fn a_partition_that_is_allowed_is_progress() {
    let setting =
        Setting { opening: Opening::GoingBack, kind: Kind::Bad, pods: 3, on_failure: OnFailure::Rollback, ..USUAL };
    is_lawful::<Rollouts>(setting, &[Move::Time, Move::People(Deeds::BreakGlass(0)), SEEN, ACTS]);
}

/// The same, and the operator was stopped before it had noted what the person allowed.
#[test]
fn a_partition_that_is_allowed_is_progress_even_if_it_was_not_noted() {
    let setting = Setting {
        opening: Opening::GoingBack,
        kind: Kind::Bad,
        native: Loop::Gate135,
        parallel: true,
        pods: 3,
        on_failure: OnFailure::Rollback,
        ..USUAL
    };
    is_lawful::<Rollouts>(setting, &[Move::Time, Move::People(Deeds::BreakGlass(0)), SEEN, Move::Kill(1), ACTS]);
}

/// The cycle after a repair is new, and the pod at the revision was broken for long before it.
#[test]
fn a_pod_that_was_broken_before_a_repair_has_failed_after_it() {
    let setting = Setting {
        opening: Opening::Hidden,
        kind: Kind::Crashing,
        native: Loop::GateOff,
        pods: 3,
        on_failure: OnFailure::Pause,
        ..USUAL
    };
    let people = Move::People(Deeds::Break(1));
    let kill = Move::Kill(1);
    is_lawful::<Rollouts>(setting, &[SEEN, ACTS, Move::Time, ACTS, Move::Time, people, kill, SEEN, kill, ACTS, ACTS]);
}

/// A pod that had passed refuses the checks of the fix, and above it a pod of the last good revision was born: the fix waited for ever.
#[test]
fn a_fix_after_a_scale_up_beside_a_pod_that_does_not_pass_any_more() {
    let setting = Setting { opening: Opening::Awaits, kind: Kind::Bad, pause_before: true, ..USUAL };
    is_lawful::<Rollouts>(setting, &[Move::People(Deeds::Scale(3))]);
}

/// The pod that is to go waits for the broken one of the release below it, whose failure was never counted.
#[test]
fn a_pod_of_the_release_is_judged_before_one_that_is_to_go() {
    let setting = Setting { opening: Opening::Hidden, kind: Kind::Crashing, on_failure: OnFailure::Pause, ..USUAL };
    is_lawful::<Rollouts>(setting, &[Move::People(Deeds::Scale(1))]);
}

/// The controller had not seen the template, somebody lowered the partition, and in the same write all pods were said to be rolled out.
#[test]
fn what_the_controller_has_not_seen_is_not_rolled_out() {
    let setting = Setting { policies: Policies::Off, ..USUAL };
    is_lawful::<Rollouts>(setting, &[Move::Late, ACTS, Move::People(Deeds::Partition(None)), ACTS]);
}
