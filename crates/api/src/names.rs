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
/// On a StatefulSet, in dry runs only: makes the admission policy treat the operator like anybody else.
pub const PROBE: &str = "sts.plus/probe";
/// On a PhasedRollout: `<revision>/<index>`, approves the index that `pauseBefore` waits for.
pub const APPROVE: &str = "sts.plus/approve";
/// On a PhasedRollout: any new value lets a failed or rejected revision be tried again.
pub const RETRY: &str = "sts.plus/retry";

/// Finalizer of a PhasedRollout: the set is released before the object goes.
pub const FINALIZER: &str = "sts.plus/finalizer";

/// Field manager of the partition and of the annotations of a StatefulSet.
pub const MANAGER_HOLD: &str = "sts-plus-hold";
/// Field manager of the finalizer and of consumed annotations of a PhasedRollout.
pub const MANAGER_LIFECYCLE: &str = "sts-plus-lifecycle";
/// Field manager of the status of a PhasedRollout.
pub const MANAGER_STATUS: &str = "sts-plus-status";
