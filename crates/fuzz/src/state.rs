//! Any state of the world, made from bytes: a decision must be total over all of them, and come to rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sts_plus_api::{
    Check, Current, DeletionPolicy, Failure, FailureReason, OnFailure, Passed, Phase, PhasedRolloutSpec,
    PhasedRolloutStatus, Query, Reason, Step, StuckPods, names,
};
use sts_plus_decide::{
    CheckKey, ConfigProblem, HoldState, Observed, PodView, Problem, RefusedPod, Rival, SetView, Strategy, Target, Try,
};

use crate::{
    draw::{Draw, noon},
    world,
};

const REVISIONS: [&str; 3] = ["web-a", "web-b", "web-c"];

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let observed = observed(&mut draw);
    let now = if draw.rarely(8) { draw.time() } else { noon() };
    world::settle(observed, now);
}

fn observed(draw: &mut Draw) -> Observed {
    let mut rollout = world::rollout(spec(draw), status(draw));
    rollout.deleting = draw.rarely(8);
    rollout.has_finalizer = !draw.rarely(8);
    rollout.created = draw.time();
    rollout.generation = draw.generation();
    if draw.rarely(4) {
        rollout.annotations.insert(names::APPROVE.into(), place(draw));
    }
    if draw.rarely(4) {
        rollout.annotations.insert(names::RETRY.into(), draw.one(&["", "1", "2"]).into());
    }
    let set = set(draw);
    let mut observed = world::observed(rollout, set, draw.list(6, pod));
    if draw.rarely(16) {
        observed.target = Target::Missing;
    }
    if draw.rarely(16) {
        observed.former_targets = draw.list(2, former);
    }
    if draw.rarely(16) {
        observed.rivals = draw.list(2, |draw| Rival {
            name: draw.one(&["a", "gate", "z"]).into(),
            target: draw.one(&["web", "other"]).into(),
            created: draw.time(),
        });
    }
    if draw.rarely(8) {
        observed.config =
            vec![ConfigProblem { reason: Reason::InvalidQuery, message: "spec.check: a sentence".into() }];
    }
    observed.hold = match draw.below(4) {
        0 => HoldState::Unknown,
        1 => HoldState::NotEnforced(Reason::InvalidQuery, "a sentence".into()),
        _ => HoldState::Enforced,
    };
    if draw.rarely(8) {
        let request = CheckKey { revision: revision(draw), index: draw.number(), step: step(draw) };
        let time = draw.time();
        observed.tried = Some(Try { request, time, records: Vec::new(), config: Vec::new(), warnings: Vec::new() });
    }
    observed
}

fn revision(draw: &mut Draw) -> String {
    draw.one(&REVISIONS).to_owned()
}

fn maybe_revision(draw: &mut Draw) -> Option<String> {
    draw.maybe(&REVISIONS).map(str::to_owned)
}

/// `<revision>/<number>`, as in several annotations, and what is not quite that.
fn place(draw: &mut Draw) -> String {
    match draw.below(8) {
        6 => draw.one(&["", "/", "web-b/", "/1", "web-b/x", "web-b/99999999999"]).to_owned(),
        7 => format!("{}/{}/{}", revision(draw), draw.number(), draw.number()),
        _ => format!("{}/{}", revision(draw), draw.number()),
    }
}

fn step(draw: &mut Draw) -> Step {
    draw.one(&[Step::Pod, Step::Preflight, Step::Final, Step::Repair, Step::Rollback])
}

fn spec(draw: &mut Draw) -> PhasedRolloutSpec {
    let mut check = Check { initial_delay_seconds: 0, query: Some(Query::default()), ..Check::default() };
    if draw.flag() {
        check.initial_delay_seconds = draw.number();
        check.period_seconds = draw.number();
        check.success_threshold = draw.number();
        check.max_tries = draw.number();
    }
    check.on_failure = draw.one(&[OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed]);
    check.preflight = draw.flag();
    check.final_check = draw.flag();
    PhasedRolloutSpec {
        target_ref: if draw.rarely(16) { "other" } else { "web" }.into(),
        skip_check: draw.rarely(8),
        standard_rolling_update: draw.maybe(&[false, false, false, true]),
        paused: draw.rarely(8),
        check,
        pause_before: draw.list(2, Draw::number),
        progress_deadline_seconds: draw.flag().then(|| draw.number()),
        stuck_pods: draw.one(&[StuckPods::Delete, StuckPods::Wait]),
        deletion_policy: draw.maybe(&[DeletionPolicy::Release, DeletionPolicy::Hold]),
    }
}

fn status(draw: &mut Draw) -> PhasedRolloutStatus {
    if draw.rarely(6) {
        return PhasedRolloutStatus::default();
    }
    let mut status = PhasedRolloutStatus {
        observed_generation: draw.flag().then(|| draw.generation()),
        phase: draw.one(&Phase::ALL),
        target: (!draw.rarely(8)).then(|| "web".into()),
        target_uid: (!draw.rarely(8)).then(|| "set".into()),
        target_revision: maybe_revision(draw),
        previous_revision: maybe_revision(draw),
        verified_revision: maybe_revision(draw),
        rejected_revisions: draw.list(2, revision),
        replicas: draw.number(),
        partition: draw.flag().then(|| draw.number()),
        start_time: draw.maybe_time(),
        completion_time: draw.maybe_time(),
        last_progress_time: draw.maybe_time(),
        current: draw.flag().then(|| current(draw)),
        failure: draw.flag().then(|| failure(draw)),
        passed: draw.list(3, |draw| Passed {
            revision: revision(draw),
            index: draw.number(),
            since: draw.maybe_time(),
        }),
        never_healthy: draw.rarely(4),
        retry: draw.maybe(&["", "1"]).map(str::to_owned),
        remade_since: draw.maybe_time(),
        ..PhasedRolloutStatus::default()
    };
    // Without it, it was edited by hand and is not believed.
    if !draw.rarely(8) {
        status.put_seal();
    }
    status
}

fn failure(draw: &mut Draw) -> Failure {
    let policy = draw.one(&[OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback]);
    Failure { revision: revision(draw), reason: FailureReason::ChecksFailed, policy }
}

fn current(draw: &mut Draw) -> Current {
    let index = draw.number();
    Current {
        index,
        pod: format!("web-{index}"),
        step: step(draw),
        since: draw.maybe_time(),
        tries: draw.number(),
        consecutive_passes: draw.number(),
        failed: draw.flag(),
        broken_since: draw.maybe_time(),
        last_check_time: draw.maybe_time(),
        next_check_time: draw.maybe_time(),
        problem: None,
        check: draw.maybe(&["", "1"]).map(str::to_owned),
    }
}

fn set(draw: &mut Draw) -> SetView {
    let mut set = world::set();
    set.generation = draw.generation();
    set.observed_generation = if draw.rarely(4) { draw.generation() } else { set.generation };
    set.changed = draw.maybe_time();
    set.deleting = draw.rarely(16);
    set.replicas = draw.number();
    set.start = if draw.rarely(4) { draw.number() } else { 0 };
    if draw.rarely(16) {
        set.strategy = Strategy::Other("OnDelete".into());
    }
    set.has_rolling_update = !draw.rarely(8);
    set.partition = (!draw.rarely(8)).then(|| draw.number());
    set.parallel = draw.flag();
    set.min_ready_seconds = if draw.rarely(4) { draw.number() } else { 0 };
    set.current_revision = maybe_revision(draw);
    set.update_revision = (!draw.rarely(8)).then(|| revision(draw));
    set.annotations = annotations(draw);
    set.partition_manager = draw.maybe(&["kubectl"]).map(str::to_owned);
    if draw.rarely(8) {
        let refused = |draw: &mut Draw| RefusedPod {
            name: format!("web-{}", draw.below(3)),
            since: draw.time(),
            last: draw.time(),
            message: draw.one(&["exceeded quota: pods", "denied"]).into(),
        };
        set.refused_pods = draw.list(2, refused);
    }
    if draw.rarely(16) {
        set.controller = Some((draw.one(&["Other", "ExtendedStatefulSet"]).into(), "db".into()));
    }
    set
}

/// A set that was the target before.
fn former(draw: &mut Draw) -> SetView {
    let mut set = set(draw);
    set.annotations.insert(names::CLAIM.into(), "gate".into());
    let number = draw.below(2);
    SetView { name: format!("former-{number}"), uid: format!("former-{number}"), ..set }
}

fn annotations(draw: &mut Draw) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    if !draw.rarely(4) {
        annotations.insert(names::CLAIM.to_owned(), draw.one(&["gate", "gate", "gate", "other"]).to_owned());
    }
    for name in [names::WRITTEN_PARTITION, names::ALLOW_PARTITION, names::REFUSED_PARTITION] {
        if draw.flag() {
            annotations.insert(name.to_owned(), place(draw));
        }
    }
    for (name, value) in [(names::RELEASE, "true"), (names::HOLD_SWITCH, "off")] {
        if draw.rarely(8) {
            annotations.insert(name.to_owned(), value.to_owned());
        }
    }
    annotations
}

fn pod(draw: &mut Draw) -> PodView {
    let ordinal = draw.number();
    let mut pod = world::pod(ordinal, "");
    pod.revision = (!draw.rarely(8)).then(|| revision(draw));
    pod.created = if draw.flag() { draw.time() } else { Timestamp::UNIX_EPOCH };
    pod.deleting = draw.rarely(8);
    pod.finished = draw.rarely(8);
    pod.ready = draw.flag();
    pod.ready_since = draw.maybe_time();
    pod.problem = draw.rarely(4).then(|| Problem {
        container: draw.one(&["app", ""]).into(),
        reason: draw.one(&["CrashLoopBackOff", "Unschedulable"]).into(),
        message: "back-off".into(),
    });
    if draw.rarely(4) {
        (pod.node, pod.zone) = (None, None);
    }
    if draw.is_empty() {
        pod.uid.push_str("-last");
    }
    pod
}
