//! What people read: phase, message, versions, conditions. The same stand gives the same words, and a condition keeps its time while
//! it says the same.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sts_plus_api::{Reason, Rewritten, VersionCondition, VersionDetail, VersionPhase, VersionSet, ZoneReplicas};

use crate::{
    conditions::{dated, is_ready_for},
    pods::is_ready,
    versions::{
        draft::Draft,
        keep,
        observed::{ChildView, TemplateView},
        plan::VersionsPlan,
        scaling, services,
        stand::{Motion, Stand},
        told,
        world::World,
    },
};

/// One version, wanted and in charge.
pub(super) fn rest(world: &World, current: i32) -> Stand {
    if let Some(message) = world.conflict(current) {
        return Stand::new(Motion::Refused, VersionPhase::Blocked, Reason::NameConflict, message);
    }
    if let Some(obstacle) = world.obstacle_anywhere(current) {
        let words = |what: &str| format!("version {current}: {what}");
        if world.children(current).iter().any(|child| child.in_the_way.is_some()) {
            return Stand::new(Motion::Held, VersionPhase::Held, Reason::BlockedByPod, words(&obstacle));
        }
        let stand = Stand::moving(VersionPhase::Progressing, Reason::Progressing, words(&obstacle));
        return in_time(world, current, stand);
    }
    let wanted = world.wanted();
    if wanted == 0 {
        return Stand::new(Motion::Rest, VersionPhase::Ready, Reason::NoPods, format!("version {current} has no pods"));
    }
    let has = match wanted {
        1 => format!("version {current} has its pod available"),
        _ => format!("version {current} has all {wanted} pods available"),
    };
    let mislabelled = world.children(current).iter().find_map(|child| child.mislabelled.clone());
    let told: Vec<_> = [Some(has), mislabelled, abandoned(&world.observed.abandoned)].into_iter().flatten().collect();
    Stand::new(Motion::Rest, VersionPhase::Ready, Reason::AtRest, told.join("; "))
}

/// Pods that nobody looks after, in words. They are not deleted: whoever orphaned them wanted them to stay.
fn abandoned(pods: &[String]) -> Option<String> {
    let (what, them) = match pods {
        [] => return None,
        [one] => (format!("pod {one} belongs"), "it"),
        [first, others @ ..] => (format!("pod {first} and {} more belong", others.len()), "them"),
    };
    Some(format!("{what} to no StatefulSet any more, and nobody looks after {them}: delete {them} unless wanted"))
}

/// The version in charge is all that is wanted, and comes by itself, unless one of its pods has not come up for too long.
pub(super) fn in_time(world: &World, current: i32, stand: Stand) -> Stand {
    let is_coming = stand.motion == Motion::Moving && stand.phase == VersionPhase::Progressing;
    match world.overdue(current).filter(|_| is_coming) {
        Some(pod) => late(stand.phase, format!("version {current}: {pod}")),
        None => stand,
    }
}

fn late(phase: VersionPhase, message: String) -> Stand {
    Stand::new(Motion::Stalled, phase, Reason::ProgressDeadlineExceeded, message)
}

/// Something waits for the pods of the version in charge, as it comes by itself; when one of them has not come up for too long, a person is
/// needed. `words` say it with what it waits for.
pub(super) fn waiting(
    world: &World,
    current: i32,
    (phase, reason): (VersionPhase, Reason),
    obstacle: &str,
    words: impl Fn(&str) -> String,
) -> Stand {
    match world.overdue(current) {
        Some(pod) => late(phase, words(&pod)),
        None => Stand::moving(phase, reason, words(obstacle)),
    }
}

/// The plan, with where it stands.
pub(super) fn finish(mut draft: Draft, world: &World, stand: &Stand) -> VersionsPlan {
    let was_told = is_ready_for(&draft.observed.owner.status.conditions, stand.reason) || draft.has_told(stand.reason);
    if matches!(stand.motion, Motion::Held | Motion::Stalled | Motion::Refused) && !was_told {
        draft.warn(stand.reason, &stand.message);
    }
    write(&mut draft, world, Some(stand));
    draft.into_plan(None)
}

/// Where it stands is as it was.
pub(super) fn finish_as_before(mut draft: Draft, world: &World) -> VersionsPlan {
    write(&mut draft, world, None);
    draft.into_plan(None)
}

/// Without a stand it stands where it stood.
fn write(draft: &mut Draft, world: &World, stand: Option<&Stand>) {
    if let Some(change) = world.next_change(draft.status.current_version) {
        draft.wake_at(change);
    }
    tell_empty_zones(draft);
    told::removed(draft, world);
    told::switched(draft);
    draft.status.observed_generation = Some(draft.observed.owner.generation);
    draft.status.rewritten = rewritten(&draft.observed.template);
    let details: Vec<_> = world.versions().map(|version| detail(draft, world, version)).collect();
    draft.status.versions = details.iter().map(|detail| (detail.version.to_string(), detail.ready > 0)).collect();
    draft.status.details = details;
    count(draft, world);
    let Some(stand) = stand else { return };
    draft.status.phase = stand.phase;
    draft.status.message.clone_from(&stand.message);
    let generation = draft.observed.owner.generation;
    let conditions = VersionCondition::ALL.into_iter().filter_map(|kind| {
        let new = condition(draft, stand, kind)?;
        Some(dated(&kind.to_string(), Some(new), &draft.observed.owner.status.conditions, generation, draft.now))
    });
    let conditions: Vec<Condition> = conditions.collect();
    draft.status.conditions = conditions;
}

fn rewritten(template: &TemplateView) -> Option<Rewritten> {
    let TemplateView { hash, written, .. } = template;
    (hash != written).then(|| Rewritten { written: written.clone(), hash: hash.clone() })
}

fn detail(draft: &Draft, world: &World, version: i32) -> VersionDetail {
    let sets: Vec<_> = world.children(version).iter().map(|child| set(draft, world, child, version)).collect();
    let mut marked = world.children(version).iter().filter(|child| child.version == version);
    let stale = marked.find_map(|child| child.stale.clone());
    let upgrade = draft.status.upgrade.as_ref().filter(|upgrade| upgrade.version == version);
    let is_stale = stale.is_some() || upgrade.is_some_and(|upgrade| upgrade.step == sts_plus_api::UpgradeStep::Stale);
    VersionDetail {
        version,
        hash: world.hash_of(version).unwrap_or_default().to_owned(),
        replicas: sets.iter().map(|set| set.replicas).fold(0, i32::saturating_add),
        ready: sets.iter().map(|set| set.ready).fold(0, i32::saturating_add),
        stale: is_stale,
        reason: upgrade.map(|upgrade| upgrade.reason.clone()).or(stale).unwrap_or_default(),
        sets,
    }
}

fn set(draft: &Draft, world: &World, child: &ChildView, version: i32) -> VersionSet {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let pods = || world.pods_at(child, version);
    VersionSet {
        name: child.name.clone(),
        zone: child.zone.clone(),
        replicas: if world.is_in_place { number(pods().count()) } else { child.replicas },
        ready: number(pods().filter(|pod| is_ready(pod)).count()),
        generation: keep::to_be_noted(draft, child),
    }
}

/// What `/scale` shows, and with it an HPA: it multiplies what it sees, so with PerZone only the first zone counts.
fn count(draft: &mut Draft, world: &World) {
    let Some(current) = draft.status.current_version else { return };
    let children = world.children(current);
    let ready = |child: &&&ChildView| child.pods.iter().filter(|pod| is_ready(pod)).count();
    let there: usize = children.iter().map(|child| ready(&child)).sum();
    draft.status.ready = format!("{there}/{}", world.wanted());
    let is_first_alone = draft.observed.owner.spec.zone_replicas == ZoneReplicas::PerZone;
    let first = world.zones.first().and_then(|(zone, _)| world.child(current, zone.as_deref()));
    let counted: Vec<&ChildView> = if is_first_alone { first.into_iter().collect() } else { children.to_vec() };
    let number = |of: &dyn Fn(&ChildView) -> usize| {
        i32::try_from(counted.iter().map(|child| of(child)).sum::<usize>()).unwrap_or(i32::MAX)
    };
    draft.status.replicas = number(&|child| child.pods.len());
    draft.status.ready_replicas = number(&|child| child.pods.iter().filter(|pod| is_ready(pod)).count());
    draft.status.selector = first.map(|child| child.selector.clone());
}

/// One condition. A missing one has nothing to say.
fn condition(draft: &Draft, stand: &Stand, kind: VersionCondition) -> Option<(bool, Reason, String)> {
    let Stand { motion, reason, message, .. } = stand;
    let is_stalled = matches!(motion, Motion::Stalled | Motion::Refused);
    let is_ready = *motion == Motion::Rest;
    let said = |is: bool| Some((is, *reason, message.clone()));
    let observed = draft.observed;
    match kind {
        VersionCondition::Ready => said(is_ready),
        VersionCondition::Reconciling => said(!is_ready && !is_stalled),
        VersionCondition::Stalled => said(is_stalled),
        VersionCondition::Stale => {
            let stale = draft.status.upgrade.as_ref().filter(|u| u.step == sts_plus_api::UpgradeStep::Stale);
            Some(match stale {
                Some(upgrade) => {
                    (true, Reason::VersionStale, format!("version {}: {}", upgrade.version, upgrade.reason))
                }
                None => (false, Reason::NoStaleVersion, "the version that is wanted has not failed".to_owned()),
            })
        }
        VersionCondition::TemplateValid => Some(match &observed.template.problem {
            Some(problem) => (false, Reason::TemplateRefused, problem.clone()),
            None => (true, Reason::TemplateAccepted, "the API server accepts the template".to_owned()),
        }),
        VersionCondition::ScalingLimited => Some(scaling_limited(draft)),
        VersionCondition::Scalable => Some(scalable(draft)),
        VersionCondition::ZoneUnschedulable => zones(draft),
        VersionCondition::WithoutEffect => without_effect(draft).map(|message| (true, Reason::WithoutEffect, message)),
        VersionCondition::ServicesFollow => {
            let strategy = &observed.owner.spec.update_strategy;
            if strategy.active_service.is_none() && strategy.preview_service.is_none() {
                return None;
            }
            Some(match (services::unusable(draft), services::coming(draft)) {
                (Some(problem), _) => (false, Reason::ServiceUnusable, problem),
                (None, Some(name)) => {
                    (false, Reason::Progressing, format!("Service {name} does not select a version yet"))
                }
                (None, None) => {
                    let selected = told::selected(draft);
                    let message =
                        selected.unwrap_or_else(|| "the Services select the versions that they should".to_owned());
                    (true, Reason::ServiceSwitched, message)
                }
            })
        }
    }
}

/// The fields that are accepted and do nothing.
fn without_effect(draft: &Draft) -> Option<String> {
    let spec = &draft.observed.owner.spec;
    let config = spec.restarts_on_config_change().then(|| {
        "spec.updateOnEnvChange is accepted and has no effect in this release: pods do not restart when a ConfigMap or Secret changes"
            .to_owned()
    });
    let strategy = spec.template.pointer("/spec/updateStrategy");
    let kind = strategy.and_then(|strategy| strategy.get("type")?.as_str()).filter(|kind| *kind != "RollingUpdate");
    // 0 is what Kubernetes itself writes there.
    let partition = strategy.and_then(|strategy| strategy.pointer("/rollingUpdate/partition")?.as_i64());
    let kind = kind.map(|kind| format!("type {kind}"));
    let partition = partition.filter(|partition| *partition != 0).map(|at| format!("rollingUpdate.partition {at}"));
    let overruled: Vec<_> = kind.into_iter().chain(partition).collect();
    let overruled = Some(overruled.join(" and ")).filter(|what| !what.is_empty()).map(|what| {
        format!("spec.template.spec.updateStrategy.{what} is accepted and has no effect: this operator rolls the pods")
    });
    let fields: Vec<_> = config.into_iter().chain(overruled).collect();
    Some(fields.join("; ")).filter(|message| !message.is_empty())
}

/// Once for each set of zones.
fn tell_empty_zones(draft: &mut Draft) {
    let Some((true, reason, message)) = zones(draft) else { return };
    let before = &draft.observed.owner.status.conditions;
    let kind = VersionCondition::ZoneUnschedulable.to_string();
    if !before.iter().any(|condition| condition.type_ == kind && condition.message == message) {
        draft.warn(reason, &message);
    }
}

fn zones(draft: &Draft) -> Option<(bool, Reason, String)> {
    let spec = &draft.observed.owner.spec;
    if spec.all_zones().is_empty() {
        return None;
    }
    let zones = draft.observed.empty_zones.join(", ");
    Some(if zones.is_empty() {
        (false, Reason::AtRest, format!("every zone is carried by a node ({})", spec.zone_node_label))
    } else {
        let message = format!(
            "no node has the label {} with {zones}: pods there wait; label a node or take the zone out of spec.az",
            spec.zone_node_label
        );
        (true, Reason::ZoneUnschedulable, message)
    })
}

/// A count that is missing was not filled in when the object was written last, whatever policies there are by now.
fn scalable(draft: &Draft) -> (bool, Reason, String) {
    let spec = &draft.observed.owner.spec;
    if spec.written_replicas().is_some() {
        let message = "kubectl scale and autoscalers change spec.template.spec.replicas";
        return (true, Reason::CountWritten, message.to_owned());
    }
    let what = "spec.template.spec.replicas is not written, so /scale cannot be read and every autoscaler fails";
    if draft.observed.serves_policies {
        let cure = "install the admission policy sts-plus-replicas, which fills it in whenever the object is written (`make install`), and write \
                    the object again; or write the number yourself";
        (false, Reason::PolicyNotEffective, format!("{what}: {cure}"))
    } else {
        let cure = "write it; the API server does not serve MutatingAdmissionPolicy as v1 (Kubernetes 1.36 or later does), which would fill it in";
        (false, Reason::PolicyNotServed, format!("{what}: {cure}"))
    }
}

fn scaling_limited(draft: &Draft) -> (bool, Reason, String) {
    match scaling::wanted(&draft.observed.owner.spec) {
        Ok(scaling::Wanted { replicas, written: Some(written) }) if replicas != written => (
            true,
            Reason::Clamped,
            format!("spec.template.spec.replicas is {written}; spec.scaling makes it {replicas}"),
        ),
        Ok(_) => (false, Reason::WithinLimits, "the number of replicas is used as it is written".to_owned()),
        Err(_) => (true, Reason::OutsideLimits, "the number of replicas is not allowed by spec.scaling".to_owned()),
    }
}

/// A person has stopped it.
pub(super) fn paused(draft: &Draft, world: &World, current: i32) -> Stand {
    let pods = |version: i32| world.children(version).iter().flat_map(|child| world.pods_at(child, version)).count();
    let others = world.versions().filter(|version| *version != current && pods(*version) > 0);
    let others: Vec<_> = others.map(|version| format!("; version {version} has pods too: {}", pods(version))).collect();
    let others = others.concat();
    let pending = if world.hash_of(current).is_some_and(|hash| *hash != draft.observed.template.hash) {
        "; spec.template asks for another version"
    } else {
        ""
    };
    let message =
        format!("spec.paused is true: version {current} stays as it is, and no step is made{others}{pending}");
    Stand::new(Motion::Held, VersionPhase::Paused, Reason::Paused, message)
}
