//! The status stays under 16 KiB after any number of checks, and no longer than five verdicts (phased-rollout §9).

use jiff::{SignedDuration, Timestamp};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use sts_plus_api::{Current, Passed, PhasedRolloutStatus, Series, Step, Verdict, names};
use sts_plus_decide::{HoldState, Observed, PodView, SetView, Strategy as Rolling, Target, Try, decide};

use super::input::{NOW, moment, observed, record};

const LONG: &str = "a-name-as-long-as-a-name-of-a-statefulset-may-be-really";

/// A set of long names in the middle of a rollout, with failing checks of 16 queries.
fn rolling() -> Observed {
    let mut observed = observed().new_tree(&mut TestRunner::deterministic()).unwrap().current();
    let revision = |id: usize| format!("{LONG}-{id:08}");
    let pod = |ordinal: i32| PodView {
        name: format!("{LONG}-{ordinal}"),
        uid: ordinal.to_string(),
        ordinal,
        revision: Some(revision(usize::from(ordinal == 2))),
        created: moment(NOW - 1000),
        deleting: false,
        gone_by: None,
        finished: false,
        ready: true,
        ready_since: Some(moment(NOW - 900)),
        problem: None,
        node: None,
        zone: None,
        version: None,
    };
    let written = format!("{}/{}", revision(1), 2);
    observed.target = Target::Found(Box::new(SetView {
        name: LONG.into(),
        uid: "uid".into(),
        generation: 7,
        observed_generation: 7,
        deleting: false,
        annotations: [(names::CLAIM, "gate".to_owned()), (names::WRITTEN_PARTITION, written)]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        replicas: 3,
        start: 0,
        strategy: Rolling::RollingUpdate,
        has_rolling_update: true,
        partition: Some(2),
        parallel: false,
        min_ready_seconds: 0,
        current_revision: Some(revision(0)),
        update_revision: Some(revision(1)),
        controller: None,
        partition_manager: None,
        changed: None,
        refused_pods: Vec::new(),
        in_the_way: None,
    }));
    observed.pods = (0..3).map(pod).collect();
    (observed.rivals, observed.former_targets, observed.config) = (Vec::new(), Vec::new(), Vec::new());
    (observed.tried, observed.hold) = (None, HoldState::Enforced);
    let rollout = &mut observed.rollout;
    (rollout.deleting, rollout.has_finalizer) = (false, true);
    rollout.annotations.clear();
    let spec = &mut rollout.spec;
    (spec.target_ref, spec.skip_check, spec.paused, spec.progress_deadline_seconds) = (LONG.into(), false, false, None);
    spec.check = sts_plus_api::Check {
        period_seconds: 1,
        queries: vec![sts_plus_api::Query::default(); 16],
        ..sts_plus_api::Check::default()
    };
    rollout.status = PhasedRolloutStatus {
        target: Some(LONG.into()),
        target_uid: Some("uid".into()),
        target_revision: Some(revision(1)),
        previous_revision: Some(revision(0)),
        verified_revision: Some(revision(0)),
        rejected_revisions: (10..20).map(revision).collect(),
        replicas: 3,
        start_time: Some(moment(NOW - 1000)),
        passed: vec![Passed { revision: revision(0), index: 0, since: Some(moment(NOW - 900)) }],
        partition: Some(2),
        current: Some(Current { since: Some(moment(NOW - 900)), ..Current::new(Step::Pod, 2, format!("{LONG}-2")) }),
        ..PhasedRolloutStatus::default()
    };
    rollout.status.put_seal();
    observed
}

// spec: pr§9, L065
#[test]
fn status_stays_small_after_ten_thousand_checks() {
    let mut observed = rolling();
    let mut now = moment(NOW);
    let (mut checks, mut largest) = (0, 0);
    let series = Series { labels: "\\".repeat(256), value: "9".repeat(256) };
    for round in 0..40_000_u32 {
        let mut plan = decide(&observed, now);
        if let Some(request) = plan.check.take() {
            let records = (0..16).map(|_| sts_plus_api::CheckRecord {
                time: now,
                verdict: if round % 3 == 0 { Verdict::Error } else { Verdict::Data },
                series: vec![series.clone(); 3],
                ..record(usize::MAX)
            });
            let tried = Try {
                request: request.key,
                time: now,
                records: records.collect(),
                config: Vec::new(),
                warnings: Vec::new(),
            };
            observed.tried = Some(tried);
            plan = decide(&observed, now);
            observed.tried = None;
            checks += 1;
        }
        follow(&mut observed, &plan);
        let size = serde_json::to_vec(&plan.status).unwrap().len();
        largest = largest.max(size);
        assert!(size < 16 * 1024, "{size} bytes after {checks} checks");
        assert!(plan.status.checks.len() <= 5);
        if checks >= 10_000 {
            break;
        }
        now = next(&plan, now);
    }
    assert_eq!(checks, 10_000);
    println!("largest status: {largest} bytes");
}

/// Texts from elsewhere (a scheduler, an admission webhook, a token) in every phase: control characters take six bytes each in JSON.
// spec: pr§9, L065
#[test]
fn a_status_stays_small_whatever_others_write() {
    let dirt = "\u{1}\"\\".repeat(5000);
    let mut largest = 0;
    for kind in 0..6 {
        let mut observed = rolling();
        observed.rollout.annotations.insert(names::RETRY.to_owned(), dirt.clone());
        observed.rollout.spec.check.on_failure = sts_plus_api::OnFailure::Pause;
        observed.hold = HoldState::NotEnforced(sts_plus_api::Reason::PolicyNotEffective, dirt.clone());
        let Target::Found(set) = &mut observed.target else { unreachable!() };
        match kind {
            0 => {
                let problem = sts_plus_decide::Problem {
                    container: "c".repeat(63),
                    reason: "Unschedulable".into(),
                    message: dirt.clone(),
                };
                (observed.pods[2].ready, observed.pods[2].problem) = (false, Some(problem));
            }
            1 => {
                set.refused_pods = vec![sts_plus_decide::RefusedPod {
                    name: format!("{LONG}-1"),
                    since: moment(NOW),
                    last: moment(NOW),
                    message: dirt.clone(),
                }];
                observed.pods.remove(1);
            }
            2 => {
                let problem = sts_plus_decide::ConfigProblem {
                    reason: sts_plus_api::Reason::InvalidQuery,
                    message: dirt.clone(),
                };
                observed.config = vec![problem];
            }
            3 => (set.partition, set.partition_manager) = (Some(0), Some(dirt.clone())),
            4 => observed.rollout.spec.target_ref.clone_from(&dirt),
            _ => observed.rollout.status.rejected_revisions.push(format!("{LONG}-00000001")),
        }
        observed.rollout.status.put_seal();
        let mut now = moment(NOW);
        for _ in 0..200 {
            let plan = decide(&observed, now);
            let size = serde_json::to_vec(&plan.status).unwrap().len();
            largest = largest.max(size);
            assert!(size < 16 * 1024, "{size} bytes of kind {kind}");
            assert!(plan.events.iter().all(|event| event.note.len() <= 1000 && !event.note.contains('\u{1}')));
            follow(&mut observed, &plan);
            now = next(&plan, now);
        }
    }
    println!("largest status: {largest} bytes");
}

/// The world does as it is told, at once.
fn follow(observed: &mut Observed, plan: &sts_plus_decide::Plan) {
    observed.rollout.status = plan.status.clone();
    let Target::Found(set) = &mut observed.target else { return };
    for action in &plan.actions {
        if let sts_plus_decide::Action::PatchSet { partition, annotations, .. } = action {
            if let sts_plus_decide::NewPartition::Set(value) = partition {
                set.partition = Some(*value);
            }
            for (name, value) in annotations {
                match value {
                    Some(value) => drop(set.annotations.insert((*name).to_owned(), value.clone())),
                    None => drop(set.annotations.remove(*name)),
                }
            }
        }
    }
}

fn next(plan: &sts_plus_decide::Plan, now: Timestamp) -> Timestamp {
    let soon = now.checked_add(SignedDuration::from_millis(10)).unwrap();
    plan.wake.map_or(soon, |wake| wake.max(soon))
}
