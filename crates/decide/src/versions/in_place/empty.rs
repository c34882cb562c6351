//! In place, without pods. Without any pod Kubernetes makes every template the current revision, and no hold keeps pods from starting on it
//! (native-statefulset B12.12). So a StatefulSet that is to have no pods has the template of the version in charge, until another one is.

use sts_plus_api::{Reason, UpgradeStep, VersionPhase, names};

use crate::versions::{
    draft::Draft,
    keep,
    observed::ChildView,
    report,
    stand::{Motion, Stand},
    templates, tidy, upgrade,
    world::World,
};

/// True if a StatefulSet has no pods or is to have none: pods would not start on what is in charge.
pub(super) fn rests(draft: &Draft, world: &World, child: &ChildView, count: i32, current: i32) -> bool {
    let is_bare = child.replicas == 0 && child.pods.is_empty();
    (count == 0 || is_bare) && templates::is_known(draft, world, current)
}

/// The template of the version in charge comes with the write that takes the last pods, and pods come only after its controller has taken it.
pub(super) fn keep(draft: &mut Draft, child: &ChildView, current: i32, count: i32, now: i32) {
    if child.version == current || (count == 0 && now > 0) {
        keep::keep(draft, child, count, now);
    } else {
        keep::apply(draft, child, current, 0, names::HOLD);
    }
}

/// No pods are wanted in mid-upgrade: there is nothing to verify. What has failed, and what is paused, is not put in charge for that.
pub(super) fn stand(draft: &mut Draft, world: &World, current: i32, target: i32) -> Stand {
    if draft.observed.owner.spec.paused {
        return report::paused(draft, world, current);
    }
    let children = world.children(target);
    let leaving: usize = children.iter().filter(|child| world.is_listed(child)).map(|child| child.pods.len()).sum();
    if leaving > 0 {
        let message = format!("version {current}: {leaving} pods leave, none are wanted");
        let moving = || Stand::moving(VersionPhase::Upgrading, Reason::VersionRolling, message.clone());
        return tidy::lost(world, children, &message).unwrap_or_else(moving);
    }
    let Some(failed) = draft.status.upgrade.clone().filter(|upgrade| upgrade.failures > 0) else {
        return upgrade::promote(draft, world, target, current);
    };
    tidy::dropped_meanwhile(draft, world, current);
    let reason = if failed.step == UpgradeStep::Stale { Reason::RevisionRejected } else { Reason::ChecksFailed };
    let why = if failed.reason.is_empty() { String::new() } else { format!(" ({})", failed.reason) };
    let message = format!(
        "version {target} has failed{why} and there are no pods: when it is scaled up, version {current} starts, and version {target} is \
         held; change spec.template to have another one"
    );
    Stand::new(Motion::Stalled, VersionPhase::Failed, reason, message)
}
