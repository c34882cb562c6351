//! In place: one StatefulSet for each zone, whose pods the rollout engine of PhasedRollout moves to the next version, one at a time.
//!
//! A new version is written to all zones at once, under the full hold; then zone by zone is rolled. At most one zone moves: the others
//! are given to the engine as paused, so that it looks after their hold.

use std::collections::{BTreeMap, BTreeSet};

use sts_plus_api::{Check, Phase, PhasedRolloutStatus, Reason, StuckPods, VersionCheck, VersionPhase, names};

use super::{
    ChildView, Step, VersionAction,
    draft::{Draft, Motion, Stand},
    empty, failed, keep, report, templates, tidy, upgrade,
    world::World,
};
use crate::{
    Action, CheckRequest, ConfigProblem, EventTarget, Keeper, NewPartition, PodView, SetView, Try,
    claim::{self, claimed_by, is_released},
    hold,
    phased_rollout::retry_given,
    pods::is_ready,
    roll::{self, Memory, Next, Policy, Seen},
    slots::{Slots, unavailable},
    units::{Ordinal, Partition},
    why::{self, Why, Words},
};

/// One round on the way from `current` to `target`, or at rest if they are the same.
pub(super) fn advance(draft: &mut Draft, world: &World, current: i32, target: i32) -> Step {
    if let Some(message) = world.conflict(target) {
        return Step::Stand(Stand::new(Motion::Refused, VersionPhase::Blocked, Reason::NameConflict, message));
    }
    if draft.observed.owner.status.last_version < draft.status.last_version {
        // The status was lost. What knows the number may be the StatefulSet that is written next.
        draft.wake_now();
        let message = format!("version {} is known again from the StatefulSets", draft.status.last_version);
        return Step::Stand(Stand::new(Motion::Moving, VersionPhase::Progressing, Reason::Progressing, message));
    }
    templates::tend(draft, world, current, target);
    write_template(draft, world, current, target);
    hold_dropped(draft, world, target);
    let is_free = draft.actions.is_empty() && !draft.observed.owner.spec.paused;
    if is_free && let Some(child) = world.children(target).iter().find(|child| tidy::delete_blocked(draft, child)) {
        let message = format!("version {target}: StatefulSet {} has more pods than are wanted", child.name);
        return Step::Stand(Stand::new(Motion::Moving, VersionPhase::Progressing, Reason::Progressing, message));
    }
    if draft.actions.iter().any(|action| !matches!(action, VersionAction::Forget { .. })) {
        // What the engine is to decide on is about to change.
        draft.wake_now();
        let (phase, what_runs) = if target == current {
            (VersionPhase::Progressing, "")
        } else {
            (VersionPhase::Upgrading, "; what runs is held")
        };
        let message = format!("version {target} is written to its StatefulSets{what_runs}");
        return Step::Stand(Stand::new(Motion::Moving, phase, Reason::VersionRolling, message));
    }
    let is_starting = |child: &ChildView| {
        keep::is_settling(child) || (target != current && child.version == current && keep::is_coming(child, target))
    };
    let starts = |(zone, count): &(Option<String>, i32)| {
        world.child(target, zone.as_deref()).filter(|child| *count > 0 && is_starting(child))
    };
    if let Some(child) = world.zones.iter().find_map(starts) {
        return Step::Stand(not_yet(child, current, target));
    }
    failed::keep_rollouts(draft, world, target);
    if target != current && world.wanted() == 0 {
        return Step::Stand(empty::stand(draft, world, current, target));
    }
    let Round { check, stand, is_unchanged } = roll(draft, world, current, target);
    if let Some(request) = check.filter(|_| draft.actions.is_empty()) {
        return Step::Ask(request);
    }
    if is_unchanged && draft.actions.is_empty() {
        return Step::Unchanged;
    }
    failed::mark(draft, world, target);
    if stand.as_ref().is_some_and(|stand| stand.phase == VersionPhase::Failed) {
        tidy::dropped_meanwhile(draft, world, current);
    }
    Step::Stand(match stand {
        Some(stand) if stand.motion == Motion::Stalled => with_zones(stand, world, target),
        Some(stand) if target == current => report::in_time(world, current, stand),
        Some(stand) => stand,
        None if draft.observed.owner.spec.paused => super::paused(draft, world, current),
        None if target != current => upgrade::promote(draft, world, target, current),
        None => {
            draft.status.upgrade = None;
            tidy::dropped_zones(draft, world, current).unwrap_or_else(|| report::rest(world, current))
        }
    })
}

/// Every zone has its StatefulSet, with the template of the version and as many pods as are wanted.
fn write_template(draft: &mut Draft, world: &World, current: i32, target: i32) {
    // Paused, the template may already be that of a version that has no number yet; and what a version was is not known if the status
    // was lost.
    let known = templates::hash_of(draft, world, target);
    let is_written = known.map_or(draft.observed.children.is_empty(), |hash| hash == draft.observed.template.hash);
    for (zone, count, now) in keep::turns(world, target) {
        match world.child(target, zone) {
            // What a person has taken back is not written to, and the engine says so.
            Some(child) if child.deleting || child.set.as_ref().is_some_and(|set| is_released(set)) => {}
            Some(child) if target != current && empty::rests(draft, world, child, count, current) => {
                empty::keep(draft, child, current, count, now);
            }
            Some(child)
                if is_written
                    && (child.version != target || child.hash != draft.observed.template.hash)
                    && !keep::is_coming(child, target) =>
            {
                keep::apply(draft, child, target, now, names::HOLD);
            }
            Some(child) => keep::keep(draft, child, count, now),
            // Somebody else has deleted it, or the zone is a new one: its pods come as the version in charge, and go to the next one as the
            // others do.
            None if !is_anew(draft, world, current, zone) && templates::is_known(draft, world, current) => {
                keep::make(draft, world, current, zone, count);
            }
            None if is_written && (target == current || draft.observed.children.is_empty()) => {
                keep::make(draft, world, target, zone, count);
            }
            None => {}
        }
    }
}

/// Nothing is there, and nothing was when the version on its way began: a person made room for what no StatefulSet takes in its life.
fn is_anew(draft: &Draft, world: &World, current: i32, zone: Option<&str>) -> bool {
    draft.observed.children.is_empty() && !keep::was_there(draft, &world.name_of(current, zone))
}

/// A zone that was dropped while it moved is nobody's turn any more: nothing of it moves beside another one.
fn hold_dropped(draft: &mut Draft, world: &World, version: i32) {
    for child in world.children(version).iter().filter(|child| !world.is_listed(child) && !child.deleting) {
        let Some(set) = &child.set else { continue };
        let opens = |pod: &PodView| Partition::of(set).opens(Ordinal(pod.ordinal).index(set.start));
        let moves = |pod: &&PodView| opens(pod) && pod.revision != set.update_revision;
        let Some(revision) = set.update_revision.as_ref().filter(|_| child.pods.iter().any(|pod| moves(&pod))) else {
            continue;
        };
        draft.act(VersionAction::Roll(Action::PatchSet {
            set: set.name.clone(),
            uid: set.uid.clone(),
            generation: set.generation,
            partition: NewPartition::Set(names::HOLD),
            annotations: BTreeMap::from([(names::WRITTEN_PARTITION, Some(format!("{revision}/{}", names::HOLD)))]),
        }));
    }
}

/// What the engine wants.
struct Round {
    /// A try that is due.
    check: Option<CheckRequest>,
    /// Where the first zone that is not done stands.
    stand: Option<Stand>,
    /// Of that zone nothing is known that is not written already.
    is_unchanged: bool,
}

fn roll(draft: &mut Draft, world: &World, current: i32, target: i32) -> Round {
    // A zone that no node carries comes last, and no upgrade waits for it.
    let is_carried = |child: &ChildView| world.is_carried(child.zone.as_deref());
    let is_awaited =
        |child: &ChildView| is_carried(child) || (target == current && world.is_served(child.zone.as_deref()));
    let mut zones = taking_part(draft, world, current, target);
    zones.sort_by_key(|child| (!is_carried(child), turn(draft, child, current, target)));
    let mut round = Round { check: None, stand: failed::stand(draft, &zones, target), is_unchanged: false };
    for child in zones {
        let Some(set) = &child.set else { continue };
        let must_wait = draft.observed.owner.spec.paused || round.stand.is_some() || round.check.is_some();
        let elsewhere = elsewhere(draft, world, child, current, target);
        let next = engine(draft, child, set, current, must_wait, elsewhere.as_deref());
        let is_quiet = is_quiet(&next);
        let (check, why) = absorb(draft, child, set, next, must_wait);
        if must_wait {
            continue;
        }
        round.check = check;
        let is_done = is_quiet && is_rolled(draft, child, set, target);
        let stand = match &why {
            Some(why) => with_cure(stand(why, target), draft, child, set, target),
            None => not_yet(child, current, target),
        };
        let stand = if stand.motion == Motion::Rest && !is_done { not_yet(child, current, target) } else { stand };
        let stand = in_the_way(child, target).filter(|_| stand.motion != Motion::Stalled).unwrap_or(stand);
        if !(is_done && stand.motion == Motion::Rest) && is_awaited(child) {
            round.is_unchanged = why.is_none() && round.check.is_none();
            round.stand = Some(stand);
        }
    }
    round
}

/// The StatefulSets that the engine looks after, in the order of the list: those that have pods, and one of a dropped zone that has rejected
/// the version, since that is rolled in no other zone then.
fn taking_part<'w>(draft: &Draft, world: &World<'w>, current: i32, target: i32) -> Vec<&'w ChildView> {
    let has_part = |count: i32| count > 0 || target == current;
    let listed = world.zones.iter().filter(|(_, count)| has_part(*count));
    let listed = listed.filter_map(|(zone, _)| world.child(target, zone.as_deref()));
    let dropped = world.children(target).iter().copied().filter(|child| !world.is_listed(child));
    listed
        .chain(dropped.filter(|child| !child.pods.is_empty() && failed::rejection(draft, child, target).is_some()))
        .collect()
}

/// What keeps pods of the other zones from being available, as those of one StatefulSet are waited for. Those that carry neither version are
/// what an upgrade repairs. Where no node carries the zone, a pod that leaves would not come back.
fn elsewhere(draft: &Draft, world: &World, here: &ChildView, current: i32, target: i32) -> Option<String> {
    if let Some(zone) = here.zone.as_deref().filter(|zone| !world.is_carried(Some(zone))) {
        let label = &draft.observed.owner.spec.zone_node_label;
        return Some(format!("no node has the label {label} with {zone}, and a pod that leaves would not come back"));
    }
    let may_be_broken = draft.observed.owner.spec.update_strategy.update_not_ready;
    let is_other = |child: &&ChildView| child.name != here.name && world.is_served(child.zone.as_deref());
    let others = world.zones.iter().filter_map(|(zone, _)| world.child(target, zone.as_deref())).filter(is_other);
    let is_stray = |pod: &PodView| pod.version != Some(current) && pod.version != Some(target);
    let obstacle = others.filter_map(|child| Some((child, child.set.as_deref()?))).find_map(|(child, set)| {
        unavailable(set, &child.pods, draft.now, |pod, is_broken| is_stray(pod) || (is_broken && may_be_broken))
    });
    let cure = if may_be_broken { "" } else { "; set spec.updateStrategy.updateNotReady to true to go on without" };
    obstacle.map(|obstacle| format!("a pod of another zone is away: {obstacle}{cure}"))
}

/// A pod of an older version that does not come up holds the others, also if it never was well: nothing that the pods say tells which of
/// them a person would rather lose (phased-rollout §4.9). What that person can do is said.
fn with_cure(stand: Stand, draft: &Draft, child: &ChildView, set: &SetView, target: i32) -> Stand {
    let is_broken = |pod: &&PodView| !is_ready(pod) && !pod.deleting && pod.version != Some(target);
    let broken = child
        .pods
        .iter()
        .find(is_broken)
        .filter(|_| matches!(stand.reason, Reason::BlockedByPod | Reason::ProgressDeadlineExceeded));
    let Some(pod) = broken else { return stand };
    let may_pass = if set.parallel && !draft.observed.owner.spec.update_strategy.update_not_ready {
        ", or set spec.updateStrategy.updateNotReady to true"
    } else {
        ""
    };
    let index = Ordinal(pod.ordinal).index(set.start).0;
    let message = format!(
        "{}: mend it{may_pass}; or let version {target} replace the pods from {} up without checks: annotate StatefulSet {} with {}: \
         \"{index}\", then set its partition to {index} and delete pod {}",
        stand.message,
        pod.name,
        child.name,
        names::ALLOW_PARTITION,
        pod.name
    );
    Stand::new(stand.motion, stand.phase, stand.reason, message)
}

/// Only a person can make room for a pod.
fn in_the_way(child: &ChildView, target: i32) -> Option<Stand> {
    let why = child.in_the_way.as_ref()?;
    let message = format!("version {target}: StatefulSet {} cannot make a pod: {why}", child.name);
    Some(Stand::new(Motion::Held, VersionPhase::Held, Reason::BlockedByPod, message))
}

/// The engine may rest because it does not know yet that another template was written. Then the pods do not carry the version.
fn is_rolled(draft: &Draft, child: &ChildView, set: &SetView, target: i32) -> bool {
    let known = draft.status.rollouts.get(&child.name).and_then(|rollout| rollout.target_revision.as_ref());
    let is_seen = set.observed_generation >= set.generation && known == set.update_revision.as_ref();
    is_seen && child.pods.iter().all(|pod| pod.version == Some(target))
}

fn not_yet(child: &ChildView, current: i32, target: i32) -> Stand {
    let phase = if target == current { VersionPhase::Progressing } else { VersionPhase::Upgrading };
    let message = format!("version {target}: StatefulSet {} takes up the latest change", child.name);
    Stand::new(Motion::Moving, phase, Reason::VersionRolling, message)
}

/// A zone where the version has failed keeps the others waiting, and the zone that moves goes on, in whatever order the list is by now. Then
/// pods that neither the old nor the new version wants are repaired (phased-rollout §4.9), and a zone of which no pod is Ready; then what
/// has begun.
fn turn(draft: &Draft, child: &ChildView, current: i32, target: i32) -> u8 {
    let partition = child.set.as_ref().and_then(|set| set.partition);
    if failed::here(draft, child, target) {
        0
    } else if partition.is_some_and(|partition| partition < child.replicas) {
        1
    } else if has_strays(child, current, target) || !child.pods.iter().any(is_ready) {
        2
    } else if child.pods.iter().any(|pod| pod.version == Some(target)) {
        3
    } else {
        4
    }
}

fn has_strays(child: &ChildView, current: i32, target: i32) -> bool {
    child.pods.iter().any(|pod| pod.version != Some(target) && (target == current || pod.version != Some(current)))
}

/// What a StatefulSet of an ExtendedStatefulSet says of whom it belongs to. No PhasedRollout can have this name, so none takes the
/// StatefulSet for its own.
#[must_use]
pub fn claim(owner: &str) -> String {
    format!("{}/{owner}", Keeper::ExtendedStatefulSet)
}

/// What the engine says to one StatefulSet. One whose turn it is not is paused to it.
fn engine(
    draft: &Draft,
    child: &ChildView,
    set: &SetView,
    current: i32,
    paused: bool,
    elsewhere: Option<&str>,
) -> Result<Next, Why> {
    let owner = &draft.observed.owner;
    let strategy = &owner.spec.update_strategy;
    let name = claim(&owner.name);
    if let Some(why) = claim::refusal(set, &name) {
        return Err(why);
    }
    let unchecked = || Check { preflight: false, final_check: false, ..Check::default() };
    let check = strategy.check.as_ref().map_or_else(unchecked, VersionCheck::to_check);
    let config: Vec<_> = draft.observed.config.iter().map(named_here).collect();
    let answer = draft
        .observed
        .tried
        .as_ref()
        .map(|tried| Try { config: tried.config.iter().map(named_here).collect(), ..tried.clone() });
    let status = owner.status.rollouts.get(&child.name).cloned().unwrap_or_else(|| unknown(child, set, current));
    let policy = Policy {
        words: words(owner.spec.paused),
        namespace: &owner.namespace,
        check: &check,
        paused,
        pause_before: &[],
        progress_deadline: Some(strategy.canary_watch_seconds),
        stuck_pods: StuckPods::default(),
        passes_broken: strategy.update_not_ready,
        elsewhere,
        retry: retry_given(Keeper::ExtendedStatefulSet, &owner.annotations),
        approve: None,
        config: &config,
        // A new template comes from the operator alone, with the hold in the same write.
        refuses_templates: false,
        writes_template: true,
        is_ours: claimed_by(set) == Some(&name) && !set.annotations.contains_key(names::HOLD_SWITCH),
        is_edited: !status.is_sealed(),
    };
    let seen = Seen { set, pods: &child.pods, answer: answer.as_ref(), checks: &status.checks };
    Ok(roll::next(&policy, &Memory::load(&status), &seen, draft.now))
}

fn words(is_paused: bool) -> Words {
    Words {
        keeper: Keeper::ExtendedStatefulSet,
        deadline: "spec.updateStrategy.canaryWatchSeconds",
        paused: if is_paused { "spec.paused is true" } else { "it is not the turn of this StatefulSet" },
    }
}

/// The field under the name that it has here.
fn named_here(problem: &ConfigProblem) -> ConfigProblem {
    let message = problem.message.replace("spec.check", "spec.updateStrategy.check");
    ConfigProblem { reason: problem.reason, message }
}

/// Nothing is noted of it, or what was noted is lost: the version in charge tells what the last good revision is, and the mark of the
/// StatefulSet that the newest one was rejected.
fn unknown(child: &ChildView, set: &SetView, current: i32) -> PhasedRolloutStatus {
    let at_current = child.pods.iter().filter(|pod| pod.version == Some(current));
    let carried: BTreeSet<_> = at_current.filter_map(|pod| pod.revision.as_deref()).collect();
    let mut status = PhasedRolloutStatus { target: Some(child.name.clone()), ..PhasedRolloutStatus::default() };
    status.target_uid = Some(child.uid.clone());
    if let [good] = Vec::from_iter(carried).as_slice() {
        status.previous_revision = Some((*good).to_owned());
    }
    let rejected = child.stale.as_ref().and(set.update_revision.clone());
    status.rejected_revisions.extend(rejected);
    status.put_seal();
    status
}

fn is_quiet(next: &Result<Next, Why>) -> bool {
    match next {
        Ok(Next::Step(step)) => step.partition.is_none() && step.moves.is_empty(),
        Ok(Next::Unchanged(moves, _)) => moves.is_empty(),
        Ok(Next::Ask(_)) => false,
        Err(_) => true,
    }
}

/// Takes over what the engine wants for one StatefulSet: the check that is due, and where it stands if that is news.
fn absorb(
    draft: &mut Draft,
    child: &ChildView,
    set: &SetView,
    next: Result<Next, Why>,
    is_mute: bool,
) -> (Option<CheckRequest>, Option<Why>) {
    let step = match next {
        Err(why) => return (None, Some(why)),
        Ok(Next::Ask(request)) => return (Some(request), None),
        Ok(Next::Unchanged(_, wake)) => {
            if let Some(wake) = wake {
                draft.wake_at(wake);
            }
            return (None, None);
        }
        Ok(Next::Step(step)) => step,
    };
    let before = draft.status.rollouts.get(&child.name).cloned().unwrap_or_default();
    if let Some(partition) = step.partition {
        let owner = claim(&draft.observed.owner.name);
        draft.act(VersionAction::Roll(hold::patch(set, &owner, &step.revision, partition)));
    }
    for one in step.moves {
        draft.act(VersionAction::Roll(Action::from(one)));
    }
    // What the engine tells of a pause is no news.
    for event in step.events.iter().filter(|event| event.on == EventTarget::Rollout && !is_mute) {
        draft.tell(event.severity, event.reason, &event.note);
    }
    if let Some(wake) = step.wake {
        draft.wake_at(wake);
    }
    let slots = Slots::new(set, &child.pods, &step.revision, draft.now);
    let mut status = before;
    step.memory.store(&mut status, |index| slots.pod_name(index));
    (status.checks, status.phase) = (step.checks, step.why.phase);
    status.message.clone_from(&step.why.message);
    status.observed_generation = Some(draft.observed.owner.generation);
    status.replicas = slots.replicas();
    slots.count(&mut status);
    status.conditions.clear();
    status.put_seal();
    draft.status.rollouts.insert(child.name.clone(), status);
    (None, Some(step.why))
}

/// Where a rollout stands, as the ExtendedStatefulSet says it.
fn stand(why: &Why, version: i32) -> Stand {
    let is_ready = why.motion == why::Motion::Rest && why.reason != Reason::PodsNotAvailable;
    let phase = match why.phase {
        Phase::Idle | Phase::Completed if is_ready => VersionPhase::Ready,
        Phase::Idle | Phase::Completed => VersionPhase::Progressing,
        Phase::Rolling | Phase::Checking | Phase::RollingBack => VersionPhase::Upgrading,
        _ if why.reason == Reason::RevisionRejected => VersionPhase::Failed,
        Phase::Held => VersionPhase::Held,
        Phase::Paused => VersionPhase::Paused,
        Phase::Failed | Phase::RolledBack => VersionPhase::Failed,
        Phase::Blocked => VersionPhase::Blocked,
    };
    let motion = match why.motion {
        _ if is_ready => Motion::Rest,
        why::Motion::Stalled | why::Motion::Refused => Motion::Stalled,
        why::Motion::Held => Motion::Held,
        why::Motion::Moving | why::Motion::Rest => Motion::Moving,
    };
    Stand::new(motion, phase, why.reason, format!("version {version}: {}", why.message))
}

/// Which version the pods of each zone carry.
fn with_zones(stand: Stand, world: &World, target: i32) -> Stand {
    let [_, _, ..] = world.zones.as_slice() else { return stand };
    let zones = world.children(target).iter().map(|child| {
        let carried: BTreeSet<_> = child.pods.iter().filter_map(|pod| pod.version).collect();
        format!("{} {}", child.name, carried.iter().map(i32::to_string).collect::<Vec<_>>().join(" and "))
    });
    let zones = zones.collect::<Vec<_>>().join(", ");
    Stand::new(stand.motion, stand.phase, stand.reason, format!("versions {zones}; {}", stand.message))
}
