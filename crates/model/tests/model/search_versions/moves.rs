//! What may happen in a search, and what comes of it.

use std::sync::Arc;

use sts_plus_decide::Try;
use sts_plus_model::versions::{World, operator::Look};
use sts_plus_model::{Answer, Deed, Metric, Stop};

use super::{
    Node,
    laws::{Eyes, Mind},
    worlds::{LISTS, Setting},
};
use crate::explore;

pub type Move = explore::moves::Move<Deeds>;

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

/// What a second pair of eyes has seen, or the answer that is on its way.
pub struct Kept {
    pub world: World,
    pub mind: Mind,
    pub look: Look,
    pub answer: Option<Try>,
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

pub fn is_flaky(world: &World) -> bool {
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
    node.left.pay(&step);
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
