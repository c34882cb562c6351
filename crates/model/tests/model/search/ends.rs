//! Every state is run to its end: nobody does anything any more but controller, operator, pods and Prometheus.

use std::collections::HashSet;

use sts_plus_api::{OnFailure, Phase, names};
use sts_plus_model::world::{ROLLOUT, SET, template_of};
use sts_plus_model::{Metric, Pod, Release, World};

use super::{
    Node,
    key::Key,
    openings::HEIR,
    worlds::{Kind, Setting},
};
use crate::explore::ends::{ANSWERS, FIX, Halt, Runs, Wrong, good, run};

/// Ends of one world.
pub struct Ends {
    passing: HashSet<u64>,
    refusing: HashSet<u64>,
    fixed: HashSet<u64>,
    kind: Kind,
}

impl Ends {
    pub fn new(setting: &Setting) -> Self {
        Self { passing: HashSet::new(), refusing: HashSet::new(), fixed: HashSet::new(), kind: setting.kind }
    }

    /// How many different states were met on the way to an end.
    pub fn count(&self) -> usize {
        self.passing.len() + self.refusing.len() + self.fixed.len()
    }

    /// What is wrong with the ends of a state, and what happened on the way.
    pub fn of(&mut self, node: &Node) -> Vec<(String, String)> {
        if !node.world.rollouts.contains_key(ROLLOUT) {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        wrong.extend(passes(node, &mut self.passing));
        if self.kind != Kind::Good {
            wrong.extend(is_refused(node, self.kind, &mut self.refusing));
            wrong.extend(is_fixed(node, &mut self.fixed));
        }
        wrong
    }
}

/// S11: Prometheus passes and pods come up: all pods reach the wanted revision, as soon as those for whom it says that it waits have acted.
fn passes(node: &Node, known: &mut HashSet<u64>) -> Wrong {
    let mut world = node.world.clone();
    calm(&mut world);
    world.releases.clear();
    world.refused_templates.clear();
    heal(&mut world, |_| true);
    let mut met = Vec::new();
    for _ in 0..ANSWERS {
        let halt = run(&mut world, known, &mut met);
        match halt {
            Halt::Known => return good(known, met),
            Halt::Restless => return wrong("S11: it never rests", "all pass", &world),
            Halt::Quiet | Halt::Again => {}
        }
        if is_done(&world) {
            return good(known, met);
        }
        if let Err(why) = answer(&mut world) {
            return wrong("S11: it waits", &why, &world);
        }
    }
    wrong("S11: people answer", "and it never comes to its end", &world)
}

/// S11, S8: Prometheus refuses, or the pods do not come up: the state that onFailure names.
fn is_refused(node: &Node, kind: Kind, known: &mut HashSet<u64>) -> Wrong {
    let mut world = node.world.clone();
    calm(&mut world);
    if kind == Kind::Flaky {
        world.releases.insert(2, Release { metric: Metric::Fail, ..Release::default() });
    }
    heal(&mut world, |_| false);
    let failed = node.world.sets.get(SET).map(|set| set.template);
    let must_leave = failed.filter(|failed| node.mind.gone_back.contains(failed));
    let mut met = Vec::new();
    match run(&mut world, known, &mut met) {
        Halt::Known => return good(known, met),
        Halt::Restless => return wrong("S11: it never rests", "refused", &world),
        Halt::Quiet | Halt::Again => {}
    }
    let (own, set) = (world.rollouts.get(ROLLOUT)?, world.sets.get(SET)?);
    let has_flipped = set.status.current == Some(set.wanted());
    let stays = |pod: &Pod| Some(template_of(&pod.revision)) == must_leave;
    // Somebody may have chosen another policy since.
    if set.pods.values().any(stays)
        && own.spec.check.on_failure == OnFailure::Rollback
        && !has_flipped
        && !own.spec.paused
        && !own.spec.skips_checks()
        && own.spec.target_ref == SET
    {
        return wrong("S8: a pod of the failed revision stays", &set.layout(), &world);
    }
    let is_named = match own.status.phase {
        _ if own.spec.skips_checks() => true,
        Phase::Completed => is_done(&world),
        // At rest on pods that do not come up, and so it says.
        Phase::Idle => is_done(&world) || !is_true(&world, "Ready"),
        Phase::Held => !is_ill(&world) || own.status.failure.is_some() || !own.status.rejected_revisions.is_empty(),
        Phase::Failed | Phase::Paused | Phase::Blocked => true,
        Phase::RolledBack => {
            own.spec.check.on_failure == OnFailure::Rollback || !own.status.rejected_revisions.is_empty()
        }
        Phase::RollingBack => is_true(&world, "Stalled") || is_waiting_for_pods(&world),
        Phase::Rolling | Phase::Checking => is_waiting_for_pods(&world) && !is_ill(&world),
    };
    if is_named {
        good(known, met)
    } else {
        wrong("S11: refused, and it ends", &format!("{:?}", own.status.phase), &world)
    }
}

/// S9: a good template is not kept out by what it replaces, and needs nobody's retry.
fn is_fixed(node: &Node, known: &mut HashSet<u64>) -> Wrong {
    // What was rolled without checks is the last good revision afterwards, whatever its checks say.
    let own = node.world.rollouts.get(ROLLOUT)?;
    let set = node.world.sets.get(SET)?;
    if own.spec.skips_checks() || set.annotations.contains_key(names::HOLD_SWITCH) {
        return None;
    }
    let mut world = node.world.clone();
    calm(&mut world);
    let good_one = template_of(world.ledger.good(SET).unwrap_or_default());
    heal(&mut world, |template| template == good_one);
    world.releases.remove(&good_one);
    world.refused_templates.remove(&good_one);
    resume(&mut world);
    // Where a template is refused in mid-rollout, the refusal says that the partition is to be raised with it.
    let must_raise = world.refuses;
    world.edit(SET, "a fix", |set| {
        set.template = FIX;
        set.partition = if must_raise { Some(names::HOLD) } else { set.partition };
    });
    let mut met = Vec::new();
    match run(&mut world, known, &mut met) {
        Halt::Known => good(known, met),
        Halt::Quiet if is_done(&world) => good(known, met),
        // Nobody holds the set any more.
        _ if !world.rollouts.contains_key(ROLLOUT) => None,
        // It was let in, and its own checks are refused.
        _ if has_failed_there(&world) => None,
        halt => wrong("S9: a fix is kept out", &format!("{halt:?}"), &world),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "as every end gives it")]
fn wrong(what: &str, why: &str, world: &World) -> Wrong {
    let own = world.rollouts.get(ROLLOUT);
    let layout = world.sets.get(SET).map(|set| (set.layout(), set.partition));
    let text = format!("{what} ({why}): {layout:?} {:?}", own.map(|own| (own.status.phase, &own.status.message)));
    let tale = world.tale.long_story();
    let last: Vec<&str> = tale.lines().take(40).collect();
    Some((text, format!("--- on the way to the end\n{}\n", last.join("\n"))))
}

/// Nobody stands in the way.
fn calm(world: &mut World) {
    world.tale.clear();
    (world.quota, world.prometheus_down) = (None, false);
    world.rollouts.remove(HEIR);
    for own in world.rollouts.values_mut() {
        own.seen = None;
    }
}

/// People let it go on.
fn resume(world: &mut World) {
    world.configure(ROLLOUT, "goes on", |spec| {
        (spec.paused, spec.skip_check, spec.target_ref) = (false, false, SET.to_owned());
        spec.pause_before.clear();
    });
}

/// Pods that broke for a reason of their own, and those of the templates that are to come up.
fn heal(world: &mut World, comes_up: impl Fn(u32) -> bool) {
    let Some(set) = world.sets.get(SET) else { return };
    let is_hurt = |pod: &Pod| {
        let template = template_of(&pod.revision);
        !pod.ready && (comes_up(template) || pod.health != world.release(template).health)
    };
    let hurt: Vec<i32> = set.pods.iter().filter(|(_, pod)| is_hurt(pod)).map(|(ordinal, _)| *ordinal).collect();
    for ordinal in hurt {
        world.heal_pod(SET, ordinal);
    }
}

impl Runs for World {
    fn key(&self) -> u64 {
        Key::of_end(self)
    }

    fn now(&mut self) -> &mut i64 {
        &mut self.now
    }

    fn round(&mut self) -> bool {
        Self::round(self)
    }

    fn next_due(&self) -> Option<i64> {
        Self::next_due(self)
    }
}

fn is_true(world: &World, kind: &str) -> bool {
    sts_plus_api::is_true(&world.rollouts[ROLLOUT].status.conditions, kind)
}

fn is_done(world: &World) -> bool {
    let (Some(own), Some(set)) = (world.rollouts.get(ROLLOUT), world.sets.get(SET)) else { return true };
    let all = set.pods.values().all(|pod| pod.revision == set.wanted()) && world.is_whole(set);
    let is_held = set.partition == Some(set.replicas);
    let is_over = matches!(own.status.phase, Phase::Completed | Phase::Idle);
    set.replicas == 0 || (all && is_over && (is_held || own.spec.skips_checks()))
}

/// Only the StatefulSet controller and the pods can do something, and a pod does not come up.
fn is_waiting_for_pods(world: &World) -> bool {
    let set = &world.sets[SET];
    !world.is_whole(set)
}

/// A pod of a new template, and none that is to go, is not available for as long as this has run. That is a failure of the release, whatever else is broken.
fn is_ill(world: &World) -> bool {
    let set = &world.sets[SET];
    let is_new = world.ledger.good(SET) != Some(&set.wanted());
    let mut pods = set.ordinals().filter_map(|ordinal| set.pods.get(&ordinal));
    is_new && pods.any(|pod| pod.revision == set.wanted() && !pod.is_healthy())
}

/// The cycle of a pod of the template has failed.
fn has_failed_there(world: &World) -> bool {
    let (own, set) = (&world.rollouts[ROLLOUT], &world.sets[SET]);
    let failed = own.status.failure.as_ref().map(|failure| &failure.revision);
    failed == Some(&set.wanted()) && set.pods.values().any(|pod| pod.revision == set.wanted())
}

/// The one who is waited for does what the reason asks for.
fn answer(world: &mut World) -> Result<(), String> {
    let own = &world.rollouts[ROLLOUT];
    let ready = own.status.conditions.iter().find(|one| one.type_ == "Ready");
    let reason = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
    let (spec, failure) = (own.spec.clone(), own.status.failure.clone());
    let is_pause = spec.check.on_failure == OnFailure::Pause
        || failure.as_ref().is_some_and(|failure| failure.policy == OnFailure::Pause);
    match reason.as_str() {
        "Paused" if spec.paused => world.configure(ROLLOUT, "goes on", |spec| spec.paused = false),
        "AwaitingApproval" if !spec.pause_before.is_empty() => {
            world.configure(ROLLOUT, "approves", |spec| spec.pause_before.clear());
        }
        "ChecksFailed" | "PodBroken" if is_pause => retry(world),
        "RevisionRejected" if !own.status.rejected_revisions.is_empty() => retry(world),
        "SkipCheck" if world.sets[SET].partition.is_some() => world.set_partition(SET, None),
        "RollingBack" if is_true(world, "Stalled") => world.set_template(SET, FIX),
        "TargetNotFound" if spec.target_ref != SET => {
            world.configure(ROLLOUT, "back", |spec| SET.clone_into(&mut spec.target_ref));
        }
        other => return Err(format!("for nobody that its reason {other} names")),
    }
    Ok(())
}

fn retry(world: &mut World) {
    let before = world.rollouts[ROLLOUT].annotations.get(names::RETRY).cloned().unwrap_or_default();
    world.annotate(ROLLOUT, names::RETRY, &format!("{before}x"));
}
