//! The objects of the model's cluster, as the API server would hold them. Nothing here moves by itself.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sts_plus_api::{Check, PhasedRolloutSpec, PhasedRolloutStatus, Query};
use sts_plus_decide::{Observed, RefusedPod, Strategy};

use crate::{
    Shared,
    native::Loop,
    prometheus::{Answer, Metric},
    rules::Ledger,
    tale::{Deed, Tale},
};

/// The name of the StatefulSet that [`World::new`] makes.
pub const SET: &str = "web";
/// The name of the PhasedRollout that [`World::new`] makes.
pub const ROLLOUT: &str = "gate";

/// A whole cluster.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own that a test throws")]
pub struct World {
    /// Seconds since the beginning.
    pub now: i64,
    /// Which loop the StatefulSet controller runs.
    pub native: Loop,
    /// True if the admission policies of sts-plus are installed.
    pub policy: bool,
    /// True if there is no mutating policy, and the validating one refuses what it would put right (API servers before 1.36).
    pub refuses: bool,
    /// StatefulSets by name.
    pub sets: BTreeMap<String, Set>,
    /// Pods of StatefulSets that were deleted with orphan, by name of the set.
    pub orphans: BTreeMap<String, BTreeMap<i32, Pod>>,
    /// PhasedRollouts by name.
    pub rollouts: BTreeMap<String, Rollout>,
    /// How pods and metrics of a template behave; the default for those that are not named.
    pub releases: Shared<BTreeMap<u32, Release>>,
    /// True if the StatefulSet controller does nothing.
    pub controller_down: bool,
    /// A resource quota: so many pods of a set, and no more, can be made.
    pub quota: Option<usize>,
    /// Templates whose pods the API server refuses: their service account is missing.
    pub refused_templates: BTreeSet<u32>,
    /// True if Prometheus answers nothing.
    pub prometheus_down: bool,
    /// Tries that were made.
    pub asked: usize,
    /// What a flaky metric says now.
    pub oracle: Answer,
    /// Seconds from the deletion of a pod to its end.
    pub grace: i64,
    /// What happened.
    pub tale: Shared<Tale>,
    /// What the rules know.
    pub ledger: Shared<Ledger>,
    uids: u64,
}

/// How the pods of one template behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// What becomes of its pods.
    pub health: Health,
    /// What the checks say about it.
    pub metric: Metric,
}

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Ready after so many seconds.
    ReadyAfter(i64),
    /// `CrashLoopBackOff` after one second.
    Crashing,
    /// Runs, says nothing, and is never Ready.
    NeverReady,
}

impl Default for Release {
    fn default() -> Self {
        Self { health: Health::ReadyAfter(2), metric: Metric::Pass }
    }
}

/// A StatefulSet with its revisions and pods.
#[derive(Clone, Debug)]
pub struct Set {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Which template `spec.template` is.
    pub template: u32,
    /// `spec.replicas`.
    pub replicas: i32,
    /// `spec.ordinals.start`.
    pub start: i32,
    /// `spec.updateStrategy.type`.
    pub strategy: Strategy,
    /// `spec.updateStrategy.rollingUpdate.partition`.
    pub partition: Option<i32>,
    /// `spec.minReadySeconds`.
    pub min_ready: i32,
    /// True if `spec.podManagementPolicy` is Parallel.
    pub parallel: bool,
    /// `status`.
    pub status: SetStatus,
    /// Names of the stored `ControllerRevisions`.
    pub revisions: BTreeSet<String>,
    /// Its pods, by ordinal.
    pub pods: BTreeMap<i32, Pod>,
    /// Who wrote the partition last, if it was not the operator.
    pub writer: Option<String>,
    /// When its spec was written last.
    pub changed: i64,
    /// Pods that could not be made.
    pub refused: Vec<RefusedPod>,
}

/// What the StatefulSet controller writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetStatus {
    /// Generation of the spec that it has seen.
    pub observed_generation: i64,
    /// `currentRevision`.
    pub current: Option<String>,
    /// `updateRevision`.
    pub update: Option<String>,
    /// Created pods, terminating and condemned ones too.
    pub replicas: i32,
    /// Ready pods, terminating ones too.
    pub ready: i32,
    /// Pods at the current revision, without terminating ones.
    pub current_replicas: i32,
    /// Pods at the update revision, without terminating ones.
    pub updated_replicas: i32,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// UID.
    pub uid: u64,
    /// Label `controller-revision-hash`.
    pub revision: String,
    /// When it was created.
    pub created: i64,
    /// What becomes of it.
    pub health: Health,
    /// Whether it is Ready.
    pub ready: bool,
    /// Since when it is (not) Ready.
    pub since: i64,
    /// When it is gone, if it is being deleted.
    pub gone_at: Option<i64>,
}

/// A PhasedRollout, and when its operator looks again.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// When it was created.
    pub created: i64,
    /// True if it is being deleted.
    pub deleting: bool,
    /// True if our finalizer is there.
    pub finalizer: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Spec.
    pub spec: Shared<PhasedRolloutSpec>,
    /// Status.
    pub status: Shared<PhasedRolloutStatus>,
    /// The status before the last write of it.
    pub older: Shared<PhasedRolloutStatus>,
    /// Counts the writes of the status, as `metadata.resourceVersion` does.
    pub version: u64,
    /// When the operator decides again if nothing happens.
    pub wake: Option<i64>,
    /// What it saw last, but for its status; it decides again when that changes.
    pub seen: Option<Shared<Observed>>,
    /// True while the check configuration cannot be used.
    pub misconfigured: bool,
}

impl World {
    /// A healthy set `web` of `replicas` pods on template 1, claimed and at rest.
    #[must_use]
    pub fn new(replicas: i32) -> Self {
        let mut world = Self::empty();
        world.add_set(SET, replicas, 1);
        world.settle(600);
        world.add_rollout(ROLLOUT, SET);
        world.settle(600);
        world.tale.clear();
        world
    }

    /// No objects, the gate-off loop, and the policy on.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            now: 0,
            native: Loop::GateOff,
            policy: true,
            refuses: false,
            sets: BTreeMap::new(),
            orphans: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            releases: Shared::default(),
            controller_down: false,
            quota: None,
            refused_templates: BTreeSet::new(),
            prometheus_down: false,
            oracle: Answer::Pass,
            asked: 0,
            grace: 1,
            tale: Shared::default(),
            ledger: Shared::default(),
            uids: 0,
        }
    }

    /// Makes a StatefulSet that is not claimed. It adopts orphans of its name.
    pub fn add_set(&mut self, name: &str, replicas: i32, template: u32) {
        let set = Set {
            name: name.to_owned(),
            uid: format!("set-{}", self.next_uid()),
            generation: 1,
            annotations: BTreeMap::new(),
            template,
            replicas,
            start: 0,
            strategy: Strategy::RollingUpdate,
            partition: None,
            min_ready: 0,
            parallel: false,
            status: SetStatus::default(),
            revisions: BTreeSet::new(),
            pods: self.orphans.remove(name).unwrap_or_default(),
            writer: None,
            changed: self.now,
            refused: Vec::new(),
        };
        let set = self.admit_birth(set);
        self.sets.insert(name.to_owned(), set);
    }

    /// Makes a PhasedRollout with short times: delay 3 s, period 2 s, 2 passes, 4 tries.
    pub fn add_rollout(&mut self, name: &str, target: &str) {
        let query = Query { name: Some("q".into()), expr: "errors > 0".into(), ..Query::default() };
        let check = Check {
            initial_delay_seconds: 3,
            period_seconds: 2,
            success_threshold: 2,
            max_tries: 4,
            query: Some(query),
            url: Some("prom:9090".into()),
            ..Check::default()
        };
        let spec = PhasedRolloutSpec {
            target_ref: target.to_owned(),
            skip_check: false,
            standard_rolling_update: None,
            paused: false,
            check,
            pause_before: Vec::new(),
            progress_deadline_seconds: None,
            stuck_pods: sts_plus_api::StuckPods::Delete,
            deletion_policy: None,
        };
        let rollout = Rollout {
            name: name.to_owned(),
            generation: 1,
            created: self.now,
            deleting: false,
            finalizer: false,
            annotations: BTreeMap::new(),
            spec: spec.into(),
            status: Shared::default(),
            older: Shared::default(),
            version: 0,
            wake: None,
            seen: None,
            misconfigured: false,
        };
        self.rollouts.insert(name.to_owned(), rollout);
    }

    /// How `template` behaves.
    #[must_use]
    pub fn release(&self, template: u32) -> Release {
        self.releases.get(&template).copied().unwrap_or_default()
    }

    /// An identifier that was not used before.
    pub(crate) fn next_uid(&mut self) -> u64 {
        self.uids += 1;
        self.uids
    }

    /// Writes into the tale.
    pub(crate) fn tell(&mut self, deed: Deed) {
        self.tale.push(self.now, deed);
    }
}

impl Set {
    /// The name of the revision of `template`; the same template has the same one (O10).
    #[must_use]
    pub fn revision_of(&self, template: u32) -> String {
        format!("{}-r{template}", self.name)
    }

    /// The revision of `spec.template`, whether or not the controller has seen it.
    #[must_use]
    pub fn wanted(&self) -> String {
        self.revision_of(self.template)
    }

    /// The name of the pod with `ordinal`.
    #[must_use]
    pub fn pod_name(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.name)
    }

    /// Ordinals inside the range of the spec.
    #[must_use]
    pub fn ordinals(&self) -> impl DoubleEndedIterator<Item = i32> + use<> {
        self.start..self.start.saturating_add(self.replicas)
    }

    /// The partition as an index; an absent one opens everything.
    #[must_use]
    pub fn threshold(&self) -> i32 {
        self.partition.unwrap_or(0)
    }

    /// Ordinal and template of every pod, such as `0:1 1:1 2:2`; `!` marks one that is not Ready, `-` one that is leaving.
    #[must_use]
    pub fn layout(&self) -> String {
        let one = |(ordinal, pod): (&i32, &Pod)| {
            let mark = match (pod.gone_at, pod.ready) {
                (Some(_), _) => "-",
                (None, false) => "!",
                (None, true) => "",
            };
            format!("{ordinal}:{}{mark}", template_of(&pod.revision))
        };
        self.pods.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

impl Pod {
    /// Ready and not leaving.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.ready && self.gone_at.is_none()
    }

    /// Healthy for `min_ready` seconds.
    #[must_use]
    pub fn is_available(&self, min_ready: i32, now: i64) -> bool {
        self.is_healthy() && self.since + i64::from(min_ready) <= now
    }

    /// Waits for a reason of phased-rollout §6.
    #[must_use]
    pub fn is_stuck(&self, now: i64) -> bool {
        self.health == Health::Crashing && !self.ready && now > self.created
    }
}

/// The template of a revision name.
#[must_use]
pub fn template_of(revision: &str) -> u32 {
    revision.rsplit_once("-r").and_then(|(_, id)| id.parse().ok()).unwrap_or(0)
}

/// A moment of the model as a time stamp.
#[must_use]
pub fn stamp(second: i64) -> Timestamp {
    let epoch = Timestamp::from_second(1_750_000_000).unwrap_or(Timestamp::MIN);
    epoch.checked_add(SignedDuration::from_secs(second)).unwrap_or(Timestamp::MAX)
}

/// The moment of a time stamp, rounded up to whole seconds.
#[must_use]
pub fn second(time: Timestamp) -> i64 {
    let millis = time.duration_since(stamp(0)).as_millis();
    i64::try_from(millis.div_euclid(1000) + i128::from(millis.rem_euclid(1000) > 0)).unwrap_or(i64::MAX)
}
