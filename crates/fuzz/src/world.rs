//! A plain world around one object under test, and what must hold for every plan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{CheckRecord, PhasedRolloutSpec, PhasedRolloutStatus, Verdict, names};
use sts_plus_decide::{
    Action, CheckRequest, HoldState, NewPartition, Observed, Plan, PodView, RolloutView, SetView, Strategy, Target,
    Try, decide,
};

use crate::draw::noon;

/// Longest note of an event that the API server takes, in bytes.
const NOTE: usize = 1024;
/// Most writes until a state in which nothing else happens is at rest.
const WRITES: usize = 40;

/// A set of three healthy pods, the highest of which is rolled to web-b.
pub(crate) fn set() -> SetView {
    SetView {
        name: "web".into(),
        uid: "set".into(),
        generation: 3,
        observed_generation: 3,
        changed: None,
        deleting: false,
        annotations: BTreeMap::from([
            (names::CLAIM.into(), "gate".into()),
            (names::WRITTEN_PARTITION.into(), "web-b/2".into()),
        ]),
        replicas: 3,
        start: 0,
        strategy: Strategy::RollingUpdate,
        has_rolling_update: true,
        partition: Some(2),
        parallel: false,
        min_ready_seconds: 0,
        current_revision: Some("web-a".into()),
        update_revision: Some("web-b".into()),
        controller: None,
        partition_manager: None,
        refused_pods: Vec::new(),
        in_the_way: None,
    }
}

/// A healthy pod.
pub(crate) fn pod(ordinal: i32, revision: &str) -> PodView {
    PodView {
        name: format!("web-{ordinal}"),
        uid: format!("pod-{ordinal}"),
        ordinal,
        revision: Some(revision.into()),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        gone_by: None,
        finished: false,
        ready: true,
        ready_since: Some(Timestamp::UNIX_EPOCH),
        problem: None,
        node: Some("node-1".into()),
        zone: Some("zone-1".into()),
        version: None,
    }
}

/// A PhasedRollout of that set in mid-rollout.
pub(crate) fn rollout(spec: PhasedRolloutSpec, status: PhasedRolloutStatus) -> RolloutView {
    RolloutView {
        name: "gate".into(),
        namespace: "default".into(),
        uid: "rollout".into(),
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        has_finalizer: true,
        annotations: BTreeMap::new(),
        spec,
        status,
    }
}

/// All of it.
pub(crate) fn observed(rollout: RolloutView, set: SetView, pods: Vec<PodView>) -> Observed {
    Observed {
        rollout,
        rivals: Vec::new(),
        target: Target::Found(Box::new(set)),
        former_targets: Vec::new(),
        pods,
        config: Vec::new(),
        hold: HoldState::Enforced,
        tried: None,
    }
}

/// Three healthy pods.
pub(crate) fn pods() -> Vec<PodView> {
    vec![pod(0, "web-a"), pod(1, "web-a"), pod(2, "web-b")]
}

/// Decides and carries out, at the same second, until nothing more is to be done. Pods that are deleted stay terminating and a
/// StatefulSet that is written is not looked at by its controller: time stands still. Of a world that no API server shows, with a
/// negative partition for one, only a decision is asked for.
///
/// # Panics
/// A plan breaks a rule, or the writes have no end.
pub(crate) fn settle(mut observed: Observed, now: Timestamp) {
    if !is_possible(&observed) {
        let _ = decide(&observed, now);
        return;
    }
    for _ in 0..WRITES {
        let plan = plan(&observed, now);
        observed.tried = None;
        if let Some(request) = plan.check {
            observed.tried = Some(answer(request, now));
            continue;
        }
        if plan.actions.is_empty() && plan.status == observed.rollout.status {
            return;
        }
        for action in &plan.actions {
            if *action == Action::RemoveFinalizer {
                return;
            }
            carry_out(&mut observed, action);
        }
        observed.rollout.status = plan.status;
    }
    panic!("after {WRITES} writes within one second there is still something to write: {observed:#?}");
}

/// True for what passes the validation of the API server.
fn is_possible(observed: &Observed) -> bool {
    let is_possible = |set: &SetView| {
        let numbers = [set.replicas, set.start, set.min_ready_seconds, set.partition.unwrap_or(0)];
        numbers.into_iter().all(|number| number >= 0) && set.generation >= 1 && set.generation < i64::MAX
    };
    let check = &observed.rollout.spec.check;
    sets(observed).all(is_possible)
        && observed.pods.iter().all(|pod| pod.ordinal >= 0)
        && observed.rollout.spec.pause_before.iter().all(|index| *index >= 0)
        && observed.rollout.spec.progress_deadline_seconds.is_none_or(|seconds| seconds >= 1)
        && check.initial_delay_seconds >= 0
        && check.period_seconds >= 1
        && (1..=check.max_tries).contains(&check.success_threshold)
}

/// One plan, which keeps every rule.
fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let plan = decide(observed, now);
    assert_eq!(plan, decide(observed, now), "the same input gives the same plan");
    if plan.check.is_some() {
        assert!(plan.actions.is_empty() && plan.events.is_empty(), "a try comes alone: {plan:#?}");
        assert!(observed.tried.is_none(), "a try that was made is not asked for again at once: {plan:#?}");
    }
    let pods: Vec<_> = plan.actions.iter().filter(|action| matches!(action, Action::DeletePod { .. })).collect();
    let opened = plan.actions.iter().filter(|action| opens(observed, action)).count();
    assert!(observed.rollout.deleting || pods.len() + opened <= 1, "one change that can disturb pods: {plan:#?}");
    for action in &plan.actions {
        match action {
            Action::DeletePod { name, uid } => {
                assert!(observed.pods.iter().any(|pod| pod.name == *name && pod.uid == *uid), "not our pod: {plan:#?}");
            }
            Action::PatchSet { set, uid, generation, partition, .. } => {
                let is_it =
                    |known: &&SetView| known.name == *set && known.uid == *uid && known.generation == *generation;
                assert!(sets(observed).any(|known| is_it(&known)), "not as it was read: {plan:#?}");
                assert!(
                    !matches!(partition, NewPartition::Set(..0)),
                    "the API server takes no negative one: {plan:#?}"
                );
            }
            _ => {}
        }
    }
    for event in &plan.events {
        assert!(!event.note.is_empty() && event.note.len() <= NOTE, "{event:?}");
    }
    let status = &plan.status;
    let before = &observed.rollout.status;
    assert!(status.checks.len() <= before.checks.len().max(5), "{status:#?}");
    assert!(status.passed.len() <= before.passed.len().max(8), "{status:#?}");
    assert!(status.rejected_revisions.len() <= before.rejected_revisions.len().max(10), "{status:#?}");
    plan
}

fn sets(observed: &Observed) -> impl Iterator<Item = &SetView> {
    let target = match &observed.target {
        Target::Found(set) => Some(set.as_ref()),
        Target::Missing => None,
    };
    target.into_iter().chain(&observed.former_targets)
}

/// True if it lets pods roll that could not before.
fn opens(observed: &Observed, action: &Action) -> bool {
    let Action::PatchSet { uid, partition, .. } = action else { return false };
    let before = sets(observed).find(|set| set.uid == *uid).and_then(|set| set.partition).unwrap_or(0);
    match partition {
        NewPartition::Keep => false,
        NewPartition::Set(partition) => *partition < before,
        NewPartition::Remove => before > 0,
    }
}

fn carry_out(observed: &mut Observed, action: &Action) {
    match action {
        Action::AddFinalizer => observed.rollout.has_finalizer = true,
        Action::RemoveFinalizer => {}
        Action::ConsumeAnnotation(name) => {
            observed.rollout.annotations.remove(*name);
        }
        Action::DeletePod { uid, .. } => {
            observed.pods.iter_mut().filter(|pod| pod.uid == *uid).for_each(|pod| pod.deleting = true);
        }
        Action::PatchSet { uid, partition, annotations, .. } => {
            let target = match &mut observed.target {
                Target::Found(set) => Some(set.as_mut()),
                Target::Missing => None,
            };
            for set in target.into_iter().chain(&mut observed.former_targets).filter(|set| set.uid == *uid) {
                patch(set, *partition, annotations);
            }
            let claims = |set: &SetView| set.annotations.get(names::CLAIM) == Some(&observed.rollout.name);
            observed.former_targets.retain(claims);
        }
    }
}

fn patch(set: &mut SetView, partition: NewPartition, annotations: &BTreeMap<&'static str, Option<String>>) {
    let before = set.partition;
    match partition {
        NewPartition::Keep => {}
        NewPartition::Set(partition) => set.partition = Some(partition),
        NewPartition::Remove => set.partition = None,
    }
    if set.partition != before {
        set.generation = set.generation.saturating_add(1);
    }
    for (name, value) in annotations {
        match value {
            Some(value) => set.annotations.insert((*name).to_owned(), value.clone()),
            None => set.annotations.remove(*name),
        };
    }
}

/// A try that passes for even pods and fails for odd ones.
pub(crate) fn answer(request: CheckRequest, now: Timestamp) -> Try {
    let passed = request.key.index % 2 == 0;
    let record = CheckRecord {
        time: now,
        name: "query".into(),
        pod: request.variables.get("pod").cloned().unwrap_or_default(),
        query: "up == 0".into(),
        endpoint: "http://prom:9090".into(),
        verdict: if passed { Verdict::NoData } else { Verdict::Data },
        passed,
        message: "one sentence".into(),
        http_status: Some(200),
        series_count: u32::from(!passed),
        series: Vec::new(),
    };
    Try { request: request.key, time: now, records: vec![record], config: Vec::new(), warnings: Vec::new() }
}

/// The time at which a target decides.
pub(crate) fn now() -> Timestamp {
    noon()
}
