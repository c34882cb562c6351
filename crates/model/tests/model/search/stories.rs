//! Stories that a search has found, each with what was wrong. A new one is copied here as it is printed.

use sts_plus_model::{Answer, Loop};

use super::{
    Rollouts,
    moves::{Deeds, Move},
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
