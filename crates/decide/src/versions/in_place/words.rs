//! Where the rollout of one StatefulSet stands, as an ExtendedStatefulSet says it.

use std::collections::BTreeSet;

use sts_plus_api::{Phase, Reason, VersionPhase, names};

use crate::{
    observed::{PodView, SetView},
    pods::is_ready,
    units::Ordinal,
    versions::{
        draft::Draft,
        observed::ChildView,
        stand::{Motion, Stand},
        world::World,
    },
    why::{self, Why},
};

/// Where a rollout stands, as the ExtendedStatefulSet says it.
pub(super) fn stand(why: &Why, version: i32) -> Stand {
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
pub(super) fn with_zones(stand: Stand, world: &World, target: i32) -> Stand {
    let [_, _, ..] = world.zones.as_slice() else { return stand };
    let zones = world.children(target).iter().map(|child| {
        let carried: BTreeSet<_> = child.pods.iter().filter_map(|pod| pod.version).collect();
        format!("{} {}", child.name, carried.iter().map(i32::to_string).collect::<Vec<_>>().join(" and "))
    });
    let zones = zones.collect::<Vec<_>>().join(", ");
    Stand::new(stand.motion, stand.phase, stand.reason, format!("versions {zones}; {}", stand.message))
}

/// A pod of an older version that does not come up holds the others, also if it never was well: nothing that the pods say tells which of
/// them a person would rather lose (phased-rollout §4.9). What that person can do is said.
pub(super) fn with_cure(stand: Stand, draft: &Draft, child: &ChildView, set: &SetView, target: i32) -> Stand {
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
pub(super) fn in_the_way(child: &ChildView, target: i32) -> Option<Stand> {
    let why = child.in_the_way.as_ref()?;
    let message = format!("version {target}: StatefulSet {} cannot make a pod: {why}", child.name);
    Some(Stand::new(Motion::Held, VersionPhase::Held, Reason::BlockedByPod, message))
}

pub(super) fn not_yet(child: &ChildView, current: i32, target: i32) -> Stand {
    let phase = if target == current { VersionPhase::Progressing } else { VersionPhase::Upgrading };
    let message = format!("version {target}: StatefulSet {} takes up the latest change", child.name);
    Stand::moving(phase, Reason::VersionRolling, message)
}
