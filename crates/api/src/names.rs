//! Every name that sts-plus writes into an object: annotations, finalizers, field managers. Nothing else may spell them.

/// A partition that no index reaches: no pod is rolled, and new pods start on the current revision.
///
/// The API accepts any non-negative int32 (native StatefulSet controller, observed O2).
pub const HOLD: i32 = i32::MAX;

/// On a StatefulSet: the name of the PhasedRollout that claims it.
pub const CLAIM: &str = "sts.plus/phased-rollout";
/// On a StatefulSet: `<update revision>/<partition>`, the partition that the operator wrote last and the revision for which. A
/// lower partition in the spec is somebody else's. Written in the same patch as the partition, so that a crash between a
/// step and its status cannot make the step look like a stranger's.
pub const WRITTEN_PARTITION: &str = "sts.plus/written-partition";
/// On a StatefulSet: a person allows exactly this partition (break-glass); honoured once, then removed.
pub const ALLOW_PARTITION: &str = "sts.plus/allow-partition";
/// On a StatefulSet, written by the admission policy: the partition that a writer asked for and did not get.
pub const REFUSED_PARTITION: &str = "sts.plus/refused-partition";
/// On a StatefulSet: `"true"` in the write that drops the claim lets it go.
pub const RELEASE: &str = "sts.plus/release";
/// On a StatefulSet: `"off"` exempts it from the admission policies (skipCheck).
pub const HOLD_SWITCH: &str = "sts.plus/hold";
/// Annotations that live on a claimed StatefulSet only.
pub const OF_A_CLAIM: [&str; 5] = [CLAIM, WRITTEN_PARTITION, HOLD_SWITCH, REFUSED_PARTITION, ALLOW_PARTITION];
/// On a StatefulSet, in dry runs only: makes the admission policy treat the operator like anybody else.
pub const PROBE: &str = "sts.plus/probe";
/// On a PhasedRollout: `<revision>/<index>`, approves the index that `pauseBefore` waits for.
pub const APPROVE: &str = "sts.plus/approve";
/// On a PhasedRollout: any new value lets a failed or rejected revision be tried again.
pub const RETRY: &str = "sts.plus/retry";

/// On a Secret, as a label: `"true"` says that it may be sent to the Prometheus of a check.
pub const CHECK_CREDENTIALS: &str = "sts.plus/check-credentials";

/// Finalizer of a PhasedRollout: the set is released before the object goes.
pub const FINALIZER: &str = "sts.plus/finalizer";

/// Field manager of the partition and of the annotations of a StatefulSet.
pub const MANAGER_HOLD: &str = "sts-plus-hold";
/// Field manager of the finalizer and of consumed annotations of a PhasedRollout.
pub const MANAGER_LIFECYCLE: &str = "sts-plus-lifecycle";
/// Field manager of the status of a PhasedRollout.
pub const MANAGER_STATUS: &str = "sts-plus-status";

// ExtendedStatefulSet

/// On a StatefulSet: the number of its version. As a label of its pods: part of its selector.
pub const VERSION: &str = "fissile.cloudfoundry.org/version";
/// Finalizer of an ExtendedStatefulSet: its Services are let go, and its StatefulSets if they are to stay, before the object goes.
pub const FINALIZER_VERSIONS: &str = "fissile.cloudfoundry.org/finalizer";
/// On a StatefulSet and its pods: the name of the ExtendedStatefulSet that made it. On a Service: of the one that writes its selector.
pub const OWNER: &str = "fissile.cloudfoundry.org/extended-statefulset";
/// On a StatefulSet and its pods: the name of their zone.
pub const ZONE: &str = "fissile.cloudfoundry.org/az-name";
/// On a StatefulSet: the digest of what makes it a version.
pub const HASH: &str = "fissile.cloudfoundry.org/version-hash";
/// On a StatefulSet: the digest of what can be changed in place.
pub const SETTINGS: &str = "fissile.cloudfoundry.org/settings-hash";
/// On a StatefulSet: `"true"` if the upgrade to its version failed.
pub const STALE: &str = "fissile.cloudfoundry.org/stale";
/// On a StatefulSet: why.
pub const STALE_REASON: &str = "fissile.cloudfoundry.org/stale-reason";
/// On an ExtendedStatefulSet: any new value lets a stale version be tried again.
pub const RETRY_VERSION: &str = "fissile.cloudfoundry.org/retry";
/// Environment of the containers: the name of the zone.
pub const ENV_ZONE: &str = "KUBE_AZ";
/// Environment of the containers: the place of the zone in the list, from 1.
pub const ENV_ZONE_INDEX: &str = "AZ_INDEX";
/// Field manager of the StatefulSets of an ExtendedStatefulSet.
pub const MANAGER_VERSIONS: &str = "sts-plus-versions";
/// Field manager of their marks.
pub const MANAGER_MARKS: &str = "sts-plus-marks";
/// On a StatefulSet: the place of its zone in the list when it was made, from 1.
pub const ZONE_INDEX: &str = "fissile.cloudfoundry.org/az-index";
/// Annotations of a StatefulSet that nobody but the operator and a person at the StatefulSet itself write: no template brings them along.
pub const OF_A_SET: [&str; 13] = [
    CLAIM,
    WRITTEN_PARTITION,
    HOLD_SWITCH,
    REFUSED_PARTITION,
    ALLOW_PARTITION,
    RELEASE,
    PROBE,
    VERSION,
    HASH,
    SETTINGS,
    STALE,
    STALE_REASON,
    ZONE_INDEX,
];
/// All field managers of the operator. What its user writes under another one, a person writes.
pub const MANAGERS: [&str; 5] = [MANAGER_HOLD, MANAGER_LIFECYCLE, MANAGER_STATUS, MANAGER_VERSIONS, MANAGER_MARKS];
