//! What may happen in every search, and how often.

use sts_plus_model::Answer;

use super::{Game, Node};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move<D> {
    /// Until something is due.
    Time,
    /// So long that answers are stale and what is not Ready is broken.
    Late,
    /// The StatefulSet controller looks at the set with this place in the order of names.
    Controller(u8),
    /// Its own periodic look too: it may run at any time.
    Operator(Answer),
    /// Killed before this write; with a write before it, that is a reply that was lost.
    Kill(u8),
    /// It sees the status as it was before the last write.
    OldStatus,
    /// A second operator, or the same one with old views, looks.
    Look,
    /// Prometheus is asked, and what happens until the answer is there has its time.
    Ask(Answer),
    /// What was seen, or the answer, is acted on.
    Act,
    People(D),
}

/// How often what costs something may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub people: u8,
    /// Crashes, lost replies, old views.
    pub faults: u8,
    /// Times that time passes although somebody has something to do.
    pub delays: u8,
}

/// What a long search takes. Two acts of people in one story are not in it: what such a search tells is not judged yet.
pub const LONG: [Budget; 3] = [
    Budget { people: 1, faults: 1, delays: 1 },
    Budget { people: 1, faults: 2, delays: 0 },
    Budget { people: 0, faults: 3, delays: 2 },
];

impl Budget {
    /// What a move costs; that time passes while somebody is busy is paid where that is known.
    pub fn pay<D>(&mut self, step: &Move<D>) {
        match step {
            Move::Late => self.delays -= 1,
            Move::Kill(_) | Move::OldStatus | Move::Look | Move::Ask(_) => self.faults -= 1,
            Move::People(_) => self.people -= 1,
            Move::Time | Move::Controller(_) | Move::Operator(_) | Move::Act => {}
        }
    }
}

const FLAKES: [Answer; 3] = [Answer::Pass, Answer::Refuse, Answer::Error];

/// A move, what comes of it, and the laws that it breaks.
pub type Step<G> = (Move<<G as Game>::Deed>, Node<G>, Vec<String>);

/// Everything that can happen next, and what comes of it.
pub fn next<G: Game>(node: &Node<G>, people: &[G::Deed]) -> Vec<Step<G>> {
    let here = G::key_of_world(node);
    let mut next = Vec::new();
    let mut try_move = |step: Move<G::Deed>, must_change: bool| {
        let Some((after, breaches)) = G::after(node, step) else { return false };
        if must_change && G::key_of_world(&after) == here && breaches.is_empty() {
            return false;
        }
        next.push((step, after, breaches));
        true
    };
    let mut is_busy = false;
    for set in 0..G::sets(&node.world) {
        is_busy |= try_move(Move::Controller(set), true);
    }
    is_busy |= try_move(Move::Operator(Answer::Pass), true);
    let is_flaky = G::is_flaky(&node.world);
    if is_flaky {
        for answer in [Answer::Refuse, Answer::Error] {
            is_busy |= try_move(Move::Operator(answer), true);
        }
    }
    let delay = u8::from(is_busy);
    if delay <= node.left.delays {
        try_move(Move::Time, false);
    }
    if node.left.delays > 0 {
        try_move(Move::Late, false);
    }
    if node.kept.is_some() {
        try_move(Move::Act, false);
    }
    if node.left.faults > 0 {
        let mut write = 0;
        while try_move(Move::Kill(write), false) {
            write += 1;
        }
        try_move(Move::OldStatus, true);
        if node.kept.is_none() {
            try_move(Move::Look, false);
            for answer in if is_flaky { &FLAKES[..] } else { &FLAKES[..1] } {
                try_move(Move::Ask(*answer), false);
            }
        }
    }
    if node.left.people > 0 {
        for deed in people {
            try_move(Move::People(*deed), true);
        }
    }
    for (step, after, _) in &mut next {
        if *step == Move::Time {
            after.left.delays -= delay;
        }
    }
    next
}
