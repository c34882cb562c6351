//! What may happen in a search, and how often.

use std::sync::Arc;

use sts_plus_decide::Try;
use sts_plus_model::versions::{World, operator::Look};
use sts_plus_model::{Answer, Deed, Metric, Stop};

use super::{
    key::Key,
    laws::{Eyes, Mind},
    worlds::{LISTS, Setting},
};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
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
    People(Deeds),
}

/// What people, their tools, and accidents do. A StatefulSet is named by its place in the order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deeds {
    Template(u32),
    Scale(i32),
    Pause(bool),
    Retry,
    NotReady(bool),
    Canaries(i32),
    /// The list with this place.
    Zones(u8),
    Delete(u8, i32),
    Break(u8, i32),
    /// All its pods.
    BreakAll(u8),
    Heal(u8, i32),
    DeleteSet(u8),
    ScaleSet(u8, i32),
    Partition(u8, i32),
    Image(u8),
    StatusLost,
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

/// What a second pair of eyes has seen, or the answer that is on its way.
pub struct Kept {
    pub world: World,
    pub mind: Mind,
    pub look: Look,
    pub answer: Option<Try>,
}

#[derive(Clone)]
pub struct Node {
    pub world: World,
    pub mind: Mind,
    pub left: Budget,
    pub kept: Option<Arc<Kept>>,
}

impl Node {
    pub fn new(setting: &Setting, left: Budget) -> Self {
        let world = setting.world();
        Self { mind: Mind::of(&world), world, left, kept: None }
    }
}

/// All that people may do in such a world.
pub fn people(setting: &Setting) -> Vec<Deeds> {
    let sets: u8 = if setting.in_place && setting.zones.len() < 2 { 1 } else { 2 };
    let mut deeds: Vec<Deeds> = [1, 2, 3].into_iter().map(Deeds::Template).collect();
    deeds.extend([0, 1, 2, 3].map(Deeds::Scale));
    deeds.extend([true, false].into_iter().flat_map(|on| [Deeds::Pause(on), Deeds::NotReady(on)]));
    deeds.extend([Deeds::Retry, Deeds::StatusLost]);
    if !setting.zones.is_empty() {
        deeds.extend([0, 1, 2, 3].map(Deeds::Zones));
    }
    for set in 0..sets {
        deeds.extend((0..setting.pods).flat_map(|pod| [Deeds::Delete(set, pod), Deeds::Break(set, pod)]));
        deeds.extend([Deeds::Heal(set, 0), Deeds::Heal(set, setting.pods - 1)]);
        deeds.extend([
            Deeds::BreakAll(set),
            Deeds::DeleteSet(set),
            Deeds::Image(set),
            Deeds::ScaleSet(set, 0),
            Deeds::ScaleSet(set, 3),
        ]);
        deeds.extend([Deeds::Partition(set, 0), Deeds::Partition(set, 1)]);
    }
    if !setting.in_place {
        deeds.extend([0, 1].map(Deeds::Canaries));
    }
    deeds
}

/// Everything that can happen next, and what comes of it.
pub fn next(node: &Node, people: &[Deeds]) -> Vec<(Move, Node, Vec<String>)> {
    let here = Key::of_world(node);
    let mut next = Vec::new();
    let mut try_move = |step: Move, must_change: bool| {
        let Some((after, breaches)) = after(node, step) else { return false };
        if must_change && Key::of_world(&after) == here && breaches.is_empty() {
            return false;
        }
        next.push((step, after, breaches));
        true
    };
    let mut is_busy = false;
    for set in 0..u8::try_from(node.world.native.sets.len()).unwrap() {
        is_busy |= try_move(Move::Controller(set), true);
    }
    is_busy |= try_move(Move::Operator(Answer::Pass), true);
    let is_flaky = is_flaky(&node.world);
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

const FLAKES: [Answer; 3] = [Answer::Pass, Answer::Refuse, Answer::Error];

fn is_flaky(world: &World) -> bool {
    world.release(world.owner.template).metric == Metric::Flaky
}

/// What comes of one move, and the laws that it breaks. `None` if it cannot happen.
pub fn after(before: &Node, step: Move) -> Option<(Node, Vec<String>)> {
    let mut node = before.clone();
    let kept = if step == Move::Act { node.kept.take() } else { None };
    let world = &mut node.world;
    world.native.tale.clear();
    world.native.oracle = Answer::Pass;
    match step {
        Move::Time => {
            world.native.now = world.next_due()?;
            world.native.live();
        }
        Move::Late => {
            world.native.now += 66;
            world.native.live();
            node.left.delays -= 1;
        }
        Move::Controller(nth) => {
            let name = nth_set(world, nth)?;
            world.native.sync(&name);
        }
        Move::Operator(answer) => {
            world.native.oracle = answer;
            world.operate(Stop::Never);
            let has_asked = world.native.tale.deeds().any(|deed| matches!(deed, Deed::Checked(..)));
            if answer != Answer::Pass && !has_asked {
                return None;
            }
        }
        Move::Kill(write) => {
            world.operate(Stop::Before(usize::from(write)));
            // It had no such write to make.
            world.native.tale.deeds().find(|deed| **deed == Deed::Crashed)?;
        }
        Move::OldStatus => drop(world.operate_with_old_status()),
        Move::Look | Move::Ask(_) => {
            let answer = if let Move::Ask(answer) = step {
                world.native.oracle = answer;
                Some(world.question()?)
            } else {
                None
            };
            world.native.tale.clear();
            let kept = Kept { look: world.look(), world: world.clone(), mind: node.mind.clone(), answer };
            node.kept = Some(Arc::new(kept));
        }
        Move::Act => act(world, kept.as_deref()?),
        Move::People(deed) => people_do(world, deed)?,
    }
    match step {
        Move::Kill(_) | Move::OldStatus | Move::Look | Move::Ask(_) => node.left.faults -= 1,
        Move::People(_) => node.left.people -= 1,
        _ => {}
    }
    // What the operator process remembers is of no use here: it may run at any moment.
    node.world.seen = None;
    node.world.native.oracle = Answer::Pass;
    let eyes = Eyes { step, kept: kept.as_deref(), before };
    let mut breaches = node.mind.watch(&eyes, &node.world);
    breaches.append(&mut node.world.breaches);
    Some((node, breaches))
}

fn act(world: &mut World, kept: &Kept) {
    let mut look = if kept.answer.is_some() { world.look() } else { kept.look.clone() };
    look.observed.tried.clone_from(&kept.answer);
    world.operate_on(look, Stop::Never);
}

pub fn nth_set(world: &World, nth: u8) -> Option<String> {
    world.native.sets.keys().nth(usize::from(nth)).cloned()
}

fn people_do(world: &mut World, deed: Deeds) -> Option<()> {
    let set = |world: &World, nth: u8| nth_set(world, nth);
    let is_ready =
        |world: &World, name: &str, pod: i32| world.native.sets.get(name)?.pods.get(&pod).map(|pod| pod.ready);
    match deed {
        Deeds::Template(to) => world.edit(to),
        Deeds::Scale(to) => world.scale(to),
        Deeds::Pause(paused) => world.configure("pause", |spec| spec.paused = paused),
        Deeds::NotReady(is_fine) => {
            world.configure("updateNotReady", |spec| spec.update_strategy.update_not_ready = is_fine);
        }
        Deeds::Canaries(to) => world.configure("canaries", |spec| spec.update_strategy.canaries = to),
        Deeds::Retry => {
            let before = world.owner.annotations.get(sts_plus_api::names::RETRY_VERSION).cloned();
            world.retry(if before.as_deref() == Some("1") { "2" } else { "1" });
        }
        Deeds::Zones(list) => world.zones(LISTS.get(usize::from(list))?),
        Deeds::Delete(nth, pod) => {
            let name = set(world, nth)?;
            is_ready(world, &name, pod)?;
            world.native.delete_pod(&name, pod);
        }
        Deeds::Break(nth, pod) => {
            let name = set(world, nth)?;
            is_ready(world, &name, pod).filter(|ready| *ready)?;
            world.native.break_pod(&name, pod);
        }
        Deeds::BreakAll(nth) => {
            let name = set(world, nth)?;
            let ready = world.native.sets.get(&name)?.pods.iter().filter(|(_, pod)| pod.ready).map(|(at, _)| *at);
            let ready: Vec<i32> = ready.collect();
            for pod in ready {
                world.native.break_pod(&name, pod);
            }
        }
        Deeds::Heal(nth, pod) => {
            let name = set(world, nth)?;
            is_ready(world, &name, pod).filter(|ready| !ready)?;
            world.native.heal_pod(&name, pod);
        }
        Deeds::DeleteSet(nth) => {
            let name = set(world, nth)?;
            world.delete_set(&name);
        }
        Deeds::ScaleSet(nth, to) => {
            let name = set(world, nth)?;
            world.edit_set(&name, &format!("replicas {to}"), |set| set.replicas = to);
        }
        Deeds::Partition(nth, to) => {
            let name = set(world, nth)?;
            world.edit_set(&name, &format!("partition {to}"), |set| set.partition = Some(to));
        }
        Deeds::Image(nth) => {
            let name = set(world, nth)?;
            world.edit_image(&name);
        }
        Deeds::StatusLost => world.lose_status(),
    }
    Some(())
}
