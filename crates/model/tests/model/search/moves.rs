//! What may happen in a search, and what comes of it.

use std::sync::Arc;

use sts_plus_api::{DeletionPolicy, OnFailure, names};
use sts_plus_decide::Try;
use sts_plus_model::world::{ROLLOUT, SET, template_of};
use sts_plus_model::{Answer, Deed, Metric, Stop, World};

use super::{
    Node,
    laws::{Eyes, Mind},
};
use crate::explore;

pub type Move = explore::moves::Move<Deeds>;

/// What people, their tools, and accidents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deeds {
    Template(u32),
    Scale(i32),
    Partition(Option<i32>),
    BreakGlass(i32),
    Delete(i32),
    Break(i32),
    Heal(i32),
    /// Deleted with orphan, and made anew with this template.
    Remake(u32),
    Leave(Option<DeletionPolicy>),
    Claim,
    Approve(i32),
    Retry,
    Pause(bool),
    SkipCheck(bool),
    Threshold(i32),
    OnFailure(OnFailure),
    Target(bool),
    Quota(Option<usize>),
}

/// What a second pair of eyes has seen, or the answer that is on its way.
pub struct Kept {
    pub world: World,
    pub mind: Mind,
    pub answer: Option<Try>,
}

/// The name under which the target is away.
const ELSEWHERE: &str = "elsewhere";

/// All that people may do to a set of so many pods.
pub fn people(pods: i32) -> Vec<Deeds> {
    let last = pods - 1;
    let all = (0..pods).flat_map(|index| [Deeds::Delete(index), Deeds::Break(index)]);
    let policies = [OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed];
    let mut deeds: Vec<Deeds> = [1, 2, 3].into_iter().map(Deeds::Template).collect();
    deeds.extend([0, last, pods, pods + 1].map(Deeds::Scale));
    deeds.extend([None, Some(0), Some(last)].map(Deeds::Partition));
    deeds.extend([Deeds::BreakGlass(0), Deeds::BreakGlass(last), Deeds::Remake(1), Deeds::Remake(2)]);
    deeds.extend(all);
    deeds.extend([None, Some(DeletionPolicy::Hold), Some(DeletionPolicy::Release)].map(Deeds::Leave));
    deeds.extend([Deeds::Claim, Deeds::Approve(0), Deeds::Retry, Deeds::Heal(last), Deeds::Heal(0)]);
    deeds.extend([true, false].into_iter().flat_map(|on| [Deeds::Pause(on), Deeds::SkipCheck(on), Deeds::Target(on)]));
    deeds.extend([1, 2].map(Deeds::Threshold));
    deeds.extend(policies.map(Deeds::OnFailure));
    deeds.extend([Deeds::Quota(None), Deeds::Quota(usize::try_from(last).ok())]);
    deeds
}

pub fn is_flaky(world: &World) -> bool {
    let wanted = world.sets.get(SET).map(|set| world.release(set.template).metric);
    wanted == Some(Metric::Flaky)
}

/// What comes of one move, and the laws that it breaks. `None` if it cannot happen.
pub fn after(before: &Node, step: Move) -> Option<(Node, Vec<String>)> {
    let mut node = before.clone();
    let kept = if step == Move::Act { node.kept.take() } else { None };
    let world = &mut node.world;
    world.tale.clear();
    world.oracle = Answer::Pass;
    match step {
        Move::Time => {
            world.now = world.next_due()?;
            world.live();
        }
        Move::Late => {
            world.now += 66;
            world.live();
        }
        Move::Controller(_) => drop(world.sync(SET)),
        Move::Operator(answer) => {
            world.oracle = answer;
            world.operate(ROLLOUT, Stop::Never);
            let has_asked = world.tale.deeds().any(|deed| matches!(deed, Deed::Checked(..)));
            if answer != Answer::Pass && !has_asked {
                return None;
            }
        }
        Move::Kill(write) => {
            world.operate(ROLLOUT, Stop::Before(usize::from(write)));
            // It had no such write to make.
            world.tale.deeds().find(|deed| **deed == Deed::Crashed)?;
        }
        Move::OldStatus => drop(world.operate_with_old_status(ROLLOUT)),
        Move::Look => {
            world.rollouts.get(ROLLOUT)?;
            let seen = Kept { world: world.clone(), mind: node.mind.clone(), answer: None };
            node.kept = Some(Arc::new(seen));
        }
        Move::Ask(answer) => {
            world.oracle = answer;
            let answer = Some(world.question(ROLLOUT)?);
            node.kept = Some(Arc::new(Kept { world: world.clone(), mind: node.mind.clone(), answer }));
        }
        Move::Act => act(world, kept.as_deref()?)?,
        Move::People(deed) => people_do(world, deed)?,
    }
    node.left.pay(&step);
    // What the operator process remembers is of no use here: it may run at any moment.
    for own in node.world.rollouts.values_mut() {
        own.seen = None;
    }
    node.world.oracle = Answer::Pass;
    let eyes = Eyes { step, kept: kept.as_deref(), before };
    let mut breaches = node.mind.watch(&eyes, &node.world);
    // Of steps and of what pods carry the laws know more: also what was seen, if that was not what is.
    let is_law =
        |breach: &String| ["partition of", " moved from ", " was born at "].iter().any(|of| breach.contains(of));
    let rules = node.world.ledger.breaches.drain(..).filter(|breach| !is_law(breach));
    breaches.extend(rules.map(|breach| format!("rule: {breach}")));
    Some((node, breaches))
}

fn act(world: &mut World, kept: &Kept) -> Option<()> {
    world.rollouts.get(ROLLOUT)?;
    let observed = match &kept.answer {
        Some(_) => sts_plus_decide::Observed { tried: kept.answer.clone(), ..world.observe(ROLLOUT)? },
        None => kept.world.observe(ROLLOUT)?,
    };
    world.ledger.stale = kept.answer.is_none();
    world.operate_on(ROLLOUT, observed, Stop::Never);
    world.ledger.stale = false;
    Some(())
}

fn people_do(world: &mut World, deed: Deeds) -> Option<()> {
    let own = world.rollouts.get(ROLLOUT).cloned();
    let mut configure = |what: &str, change: &dyn Fn(&mut sts_plus_api::PhasedRolloutSpec)| {
        world.configure(ROLLOUT, what, |spec| change(spec));
    };
    match deed {
        Deeds::Template(to) => world.set_template(SET, to),
        Deeds::Scale(to) => world.scale(SET, to),
        Deeds::Partition(to) => world.set_partition(SET, to),
        Deeds::BreakGlass(to) => world.break_glass(SET, to),
        Deeds::Delete(ordinal) => {
            world.sets.get(SET)?.pods.get(&ordinal)?;
            world.delete_pod(SET, ordinal);
        }
        Deeds::Break(ordinal) => {
            world.sets.get(SET)?.pods.get(&ordinal).filter(|pod| pod.ready)?;
            world.break_pod(SET, ordinal);
        }
        Deeds::Heal(ordinal) => {
            world.sets.get(SET)?.pods.get(&ordinal).filter(|pod| !pod.ready)?;
            world.heal_pod(SET, ordinal);
        }
        Deeds::Remake(template) => world.remake(SET, template),
        Deeds::Leave(policy) => {
            own.filter(|own| !own.deleting)?;
            configure("deletion policy", &|spec| spec.deletion_policy = policy);
            world.delete_rollout(ROLLOUT);
        }
        Deeds::Claim => {
            if own.is_some() {
                return None;
            }
            world.add_rollout(ROLLOUT, SET);
            super::worlds::shorten(world);
        }
        Deeds::Approve(index) => {
            own?;
            let wanted = world.sets.get(SET)?.wanted();
            world.annotate(ROLLOUT, names::APPROVE, &format!("{wanted}/{index}"));
        }
        Deeds::Retry => {
            let before = own?.annotations.get(names::RETRY).cloned();
            let token = if before.as_deref() == Some("1") { "2" } else { "1" };
            world.annotate(ROLLOUT, names::RETRY, token);
        }
        Deeds::Pause(paused) => configure("pause", &|spec| spec.paused = paused),
        Deeds::SkipCheck(skip) => configure("skipCheck", &|spec| spec.skip_check = skip),
        Deeds::Threshold(passes) => configure("threshold", &|spec| spec.check.success_threshold = passes),
        Deeds::OnFailure(policy) => configure("onFailure", &|spec| spec.check.on_failure = policy),
        Deeds::Target(is_here) => {
            let target = if is_here { SET } else { ELSEWHERE };
            configure("targetRef", &|spec| target.clone_into(&mut spec.target_ref));
        }
        Deeds::Quota(quota) => world.quota = quota,
    }
    Some(())
}

/// The template of a revision of the set.
pub fn template(revision: Option<&str>) -> u32 {
    revision.map_or(0, template_of)
}
