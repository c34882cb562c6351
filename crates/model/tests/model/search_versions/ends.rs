//! Every state is run to its end: nobody does anything any more but controllers, operator, pods and Prometheus.

use std::collections::HashSet;

use sts_plus_api::{OnFailure, VersionPhase};
use sts_plus_model::versions::{World, world::content_of};
use sts_plus_model::{Health, Metric, Pod, Release};

use super::{
    Node,
    key::Key,
    laws::is_true,
    worlds::{Kind, Setting},
};
use crate::explore::ends::{ANSWERS, FIX, Halt, LONG, Runs, Wrong, good, run};

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
        let mut wrong = Vec::new();
        wrong.extend(passes(node, &mut self.passing));
        if self.kind != Kind::Good {
            wrong.extend(is_refused(node, self.kind, &mut self.refusing));
            wrong.extend(is_fixed(node, &mut self.fixed));
        }
        wrong
    }
}

/// S11: Prometheus passes and pods come up: the wanted template gets in charge with all its pods, as soon as those for whom it says that it
/// waits have acted.
fn passes(node: &Node, known: &mut HashSet<u64>) -> Wrong {
    let mut world = node.world.clone();
    calm(&mut world);
    world.releases.clear();
    world.unmakeable.clear();
    heal(&mut world, |_| true);
    comes_to_be_wanted(world, known, "all pass")
}

/// S9: a good template is not kept out by what it replaces, and needs nobody's retry.
fn is_fixed(node: &Node, known: &mut HashSet<u64>) -> Wrong {
    let mut world = node.world.clone();
    calm(&mut world);
    // Side by side one of which all pods are broken is not waited for.
    let current = world.status.current_version.unwrap_or(0);
    let is_down = !world.is_in_place() && world.available(current) == 0;
    if !is_down {
        heal(&mut world, |template| template != 2);
    }
    world.configure("goes on", |spec| spec.paused = false);
    world.edit(FIX);
    let mut met = Vec::new();
    for _ in 0..3 {
        let halt = run(&mut world, known, &mut met);
        if halt == Halt::Known || (halt == Halt::Quiet && is_done(&world)) {
            return good(known, met);
        }
        if halt == Halt::Restless {
            break;
        }
        match reason(&world).as_str() {
            // Side by side a person says which pods count.
            "RunningVersionNotReady" => {
                world.configure("updateNotReady", |spec| spec.update_strategy.update_not_ready = true);
            }
            "ProgressDeadlineExceeded" if is_unmade(&world) => begins_anew(&mut world),
            // In place nothing tells which pods count, those that are Ready or those that are not: a person mends them.
            "ProgressDeadlineExceeded" | "BlockedByPod" if world.is_in_place() && is_mixed(&world) => {
                heal(&mut world, |_| true);
            }
            _ => break,
        }
    }
    wrong("S9: a fix is kept out", &reason(&world), &world)
}

/// In place, a StatefulSet that never had a pod, since none of its first template can be made: under the hold none of the next one can be made
/// either. Nobody is told that it helps to scale to 0 and back.
fn is_unmade(world: &World) -> bool {
    let mut sets = world.native.sets.values().filter(|set| set.replicas > 0);
    world.is_in_place() && sets.any(|set| set.pods.is_empty() && !set.refused.is_empty())
}

/// Some pods of what is replaced are Ready, and others are not.
fn is_mixed(world: &World) -> bool {
    let pods = || world.native.sets.values().flat_map(|set| set.pods.values());
    let is_old = |pod: &&Pod| content_of(&pod.revision) != FIX;
    pods().filter(is_old).any(|pod| pod.ready) && pods().filter(is_old).any(|pod| !pod.ready)
}

fn begins_anew(world: &mut World) {
    let replicas = world.owner.replicas();
    world.scale(0);
    world.settle(LONG);
    world.scale(replicas);
}

fn comes_to_be_wanted(mut world: World, known: &mut HashSet<u64>, what: &str) -> Wrong {
    let mut met = Vec::new();
    for _ in 0..ANSWERS {
        match run(&mut world, known, &mut met) {
            Halt::Known => return good(known, met),
            Halt::Restless => return wrong("S11: it never rests", what, &world),
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

/// S11, S8: Prometheus refuses, or the pods do not come up: the state that the strategy names.
fn is_refused(node: &Node, kind: Kind, known: &mut HashSet<u64>) -> Wrong {
    let mut world = node.world.clone();
    calm(&mut world);
    if kind == Kind::Flaky {
        world.releases.insert(2, Release { metric: Metric::Fail, ..Release::default() });
    }
    heal(&mut world, |_| false);
    let mut met = Vec::new();
    match run(&mut world, known, &mut met) {
        Halt::Known => return good(known, met),
        Halt::Restless => return wrong("S11: it never rests", "refused", &world),
        Halt::Quiet | Halt::Again => {}
    }
    if !world.breaches.is_empty() {
        return wrong("rule", &world.breaches.concat(), &world);
    }
    let status = &world.status;
    let is_named = match status.phase {
        VersionPhase::Ready => is_done(&world),
        VersionPhase::Failed if world.is_in_place() => is_true(status, "Stalled"),
        VersionPhase::Failed => has_failed(&world),
        VersionPhase::Paused => world.owner.spec.paused,
        VersionPhase::Held | VersionPhase::Blocked => true,
        // Nobody knows any more that there was another version, and the pods that do not come up are named.
        VersionPhase::Progressing if node.mind.is_lost => !is_true(status, "Ready"),
        // A person has to change the template, and is told so.
        _ => is_true(status, "Stalled"),
    };
    if !is_named {
        return wrong("S11: refused, and it ends", &format!("{:?} {}", status.phase, reason(&world)), &world);
    }
    if let Some(stays) = stays(node, &world) {
        return wrong("S8: a pod of the failed version stays", &stays, &world);
    }
    good(known, met)
}

/// Side by side: the stale version is marked and has no pods, and the one in charge has all of its own.
fn has_failed(world: &World) -> bool {
    let status = &world.status;
    let (Some(current), Some(upgrade)) = (status.current_version, &status.upgrade) else { return false };
    let is_marked = |name: &String| world.marks.get(name).is_some_and(|marks| marks.stale.is_some());
    let is_gone = world.sets_of(upgrade.version).all(|set| set.pods.is_empty() && is_marked(&set.name));
    let is_bad = world.template_of_version(current) == Some(2);
    is_true(status, "Stale") && is_gone && (is_bad || world.is_complete(current))
}

/// In place, what a rollback has begun to take back.
fn stays(node: &Node, world: &World) -> Option<String> {
    let set = world.native.sets.values().find(|set| {
        let gone_back = node.mind.zones.get(&set.name).map(|zone| zone.gone_back.clone()).unwrap_or_default();
        let stays = |pod: &Pod| gone_back.contains(&sts_plus_model::world::template_of(&pod.revision));
        let has_flipped = set.status.current == Some(set.wanted());
        set.pods.values().any(stays) && !has_flipped
    });
    // Where the status was lost, it is told that pods carry what was rejected, and they stay.
    set.filter(|_| !world.owner.spec.paused && !node.mind.is_lost).map(sts_plus_model::Set::layout)
}

#[allow(clippy::unnecessary_wraps, reason = "as every end gives it")]
fn wrong(what: &str, why: &str, world: &World) -> Wrong {
    let status = &world.status;
    let text = format!("{what} ({why}): {} {:?} {}", world.layout(), status.phase, status.message);
    let tale = world.native.tale.long_story();
    let last: Vec<&str> = tale.lines().take(60).collect();
    Some((text, format!("--- on the way to the end\n{}\n", last.join("\n"))))
}

/// Nobody stands in the way.
fn calm(world: &mut World) {
    world.native.tale.clear();
    world.seen = None;
}

/// Pods that broke for a reason of their own, and those of the templates that are to come up.
fn heal(world: &mut World, comes_up: impl Fn(u32) -> bool) {
    world.behave();
    let is_hurt = |pod: &Pod| {
        let template = content_of(&pod.revision);
        let is_as_its_template = pod.health == world.release(template).health;
        !pod.ready && !matches!(pod.health, Health::ReadyAfter(_)) && (comes_up(template) || !is_as_its_template)
    };
    let sets = world.native.sets.values();
    let hurt: Vec<(String, i32)> = sets
        .flat_map(|set| set.pods.iter().filter(|(_, pod)| is_hurt(pod)).map(|(at, _)| (set.name.clone(), *at)))
        .collect();
    for (name, ordinal) in hurt {
        world.native.heal_pod(&name, ordinal);
    }
}

impl Runs for World {
    fn key(&self) -> u64 {
        Key::of_end(self)
    }

    fn now(&mut self) -> &mut i64 {
        &mut self.native.now
    }

    fn round(&mut self) -> bool {
        Self::round(self)
    }

    fn next_due(&self) -> Option<i64> {
        Self::next_due(self)
    }
}

fn is_done(world: &World) -> bool {
    let Some(current) = world.status.current_version else { return false };
    let is_wanted = world.template_of_version(current) == Some(world.owner.template);
    let is_alone = world.marks.values().all(|marks| marks.version == current && marks.stale.is_none());
    let selects = world.active.as_ref().is_none_or(|service| service.version == Some(current.to_string()));
    world.status.phase == VersionPhase::Ready
        && is_wanted
        && is_alone
        && selects
        && world.is_complete(current)
        && world.marks.len() == world.wanted().len()
}

fn reason(world: &World) -> String {
    let ready = world.status.conditions.iter().find(|one| one.type_ == "Ready");
    ready.map(|ready| ready.reason.clone()).unwrap_or_default()
}

/// The one who is waited for does what the reason asks for.
fn answer(world: &mut World) -> Result<(), String> {
    let on_failure = world.owner.spec.update_strategy.check.as_ref().and_then(|check| check.on_failure);
    let is_pause = on_failure == Some(OnFailure::Pause);
    match reason(world).as_str() {
        "Paused" if world.owner.spec.paused => world.configure("goes on", |spec| spec.paused = false),
        // In place, what has failed is not put in charge for that there are no pods.
        "ChecksFailed" | "PodBroken" | "RevisionRejected" if world.owner.replicas() == 0 => world.scale(2),
        "ChecksFailed" | "PodBroken" if is_pause => retry(world),
        "VersionStale" | "RevisionRejected" => retry(world),
        other => return Err(format!("for nobody that its reason {other} names")),
    }
    Ok(())
}

fn retry(world: &mut World) {
    let before = world.owner.annotations.get(sts_plus_api::names::RETRY_VERSION).cloned().unwrap_or_default();
    world.retry(&format!("{before}x"));
}
