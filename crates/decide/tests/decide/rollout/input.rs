//! Arbitrary inputs: sensible and absurd values side by side.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use sts_plus_api::{
    Check, CheckProblem, CheckRecord, Current, DeletionPolicy, Failure, FailureReason, OnFailure, Passed, Phase,
    PhasedRolloutSpec, PhasedRolloutStatus, ProblemReason, Query, Reason, Step, StuckPods, Verdict, names,
};
use sts_plus_decide::{
    CheckKey, ConfigProblem, HoldState, Observed, PodView, Problem, Rival, RolloutView, SetView, Strategy as Rolling,
    Target, Try,
};

pub const NOW: i64 = 1_750_000_000;

pub fn moment(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn number() -> impl Strategy<Value = i32> + Clone {
    prop_oneof![6 => 0..6_i32, 1 => Just(-1), 1 => Just(i32::MIN), 1 => Just(i32::MAX), 1 => any::<i32>()]
}

fn time() -> impl Strategy<Value = Timestamp> + Clone {
    prop_oneof![
        6 => (-200..200_i64).prop_map(|offset| moment(NOW + offset)),
        1 => Just(Timestamp::MIN),
        1 => Just(Timestamp::MAX),
    ]
}

fn revision() -> impl Strategy<Value = String> + Clone {
    select(vec!["web-a", "web-b", "web-c", ""]).prop_map(str::to_owned)
}

fn word() -> impl Strategy<Value = String> + Clone {
    select(vec!["web", "db", "gate", "other", "", "ü/§", "web-b/2", "web-b/2147483647", "0", "off", "true"])
        .prop_map(str::to_owned)
}

fn step() -> impl Strategy<Value = Step> + Clone {
    select(vec![Step::Preflight, Step::Pod, Step::Final, Step::Repair, Step::Rollback])
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let keys = select(vec![
        names::CLAIM,
        names::WRITTEN_PARTITION,
        names::ALLOW_PARTITION,
        names::REFUSED_PARTITION,
        names::RELEASE,
        names::HOLD_SWITCH,
        names::APPROVE,
        names::RETRY,
        "foreign",
    ]);
    let values = prop_oneof![
        word(),
        number().prop_map(|n| n.to_string()),
        (revision(), number()).prop_map(|(r, n)| format!("{r}/{n}"))
    ];
    vec((keys.prop_map(str::to_owned), values), 0..5).prop_map(|entries| entries.into_iter().collect())
}

/// Annotations of a set that is ours more often than not.
fn claimed() -> impl Strategy<Value = BTreeMap<String, String>> {
    (annotations(), prop::bool::weighted(0.8)).prop_map(|(mut annotations, is_ours)| {
        if is_ours {
            annotations.insert(names::CLAIM.to_owned(), "gate".to_owned());
            annotations.remove(names::HOLD_SWITCH);
        }
        annotations
    })
}

prop_compose! {
    fn pod()(
        uid in word(), ordinal in number(), revision in of(revision()), created in time(), flags in any::<[bool; 3]>(), gone_by in of(time()),
        ready_since in of(time()), problem in of((word(), word())), node in of(word()),
    ) -> PodView {
        PodView {
            name: format!("web-{ordinal}"),
            uid,
            ordinal,
            revision,
            created,
            deleting: flags[0],
            gone_by,
            finished: flags[1],
            ready: flags[2],
            ready_since,
            problem: problem.map(|(container, reason)| Problem { container, reason, message: "x".repeat(3000) }),
            zone: node.clone(),
            version: None,
            node,
        }
    }
}

prop_compose! {
    fn set()(
        name in select(vec!["web", "db"]), generation in any::<i8>(), lag in 0..2_i64, annotations in claimed(),
        replicas in number(), start in number(), is_rolling in prop::bool::weighted(0.9), partition in of(number()),
        parallel in any::<bool>(), min_ready in number(), revisions in (of(revision()), of(revision())),
        controller in of(word()), flags in (prop::bool::weighted(0.1), any::<bool>()), manager in of(word()),
    ) -> SetView {
        SetView {
            name: name.to_owned(),
            uid: format!("{name}-uid"),
            generation: i64::from(generation),
            observed_generation: i64::from(generation) - lag,
            deleting: flags.0,
            annotations,
            replicas,
            start,
            strategy: if is_rolling { Rolling::RollingUpdate } else { Rolling::Other("OnDelete".into()) },
            has_rolling_update: flags.1,
            partition,
            parallel,
            min_ready_seconds: min_ready,
            current_revision: revisions.0,
            update_revision: revisions.1,
            controller: controller.map(|kind| (kind, "owner".into())),
            partition_manager: manager,
            changed: None,
            refused_pods: Vec::new(),
            in_the_way: None,
        }
    }
}

pub fn record(size: usize) -> CheckRecord {
    CheckRecord {
        time: moment(NOW),
        name: "n".repeat(size.min(63)),
        pod: "p".repeat(size.min(253)),
        query: "\"".repeat(size.min(512)),
        endpoint: "e".repeat(size.min(256)),
        verdict: Verdict::Data,
        passed: false,
        message: "\"".repeat(size.min(512)),
        http_status: Some(200),
        series_count: u32::MAX,
        series: Vec::new(),
    }
}

prop_compose! {
    fn checked()(verdict in select(vec![Verdict::Data, Verdict::NoData, Verdict::Unproven, Verdict::Error]),
        passed in any::<bool>(), time in time(), size in select(vec![1_usize, 400])) -> CheckRecord {
        CheckRecord { verdict, passed, time, ..record(size) }
    }
}

prop_compose! {
    fn current()(index in number(), step in step(), since in of(time()), tries in number(), passes in number(),
        failed in any::<bool>(), times in (of(time()), of(time()), of(time())), is_unusable in any::<bool>()) -> Current {
        Current {
            index,
            pod: format!("web-{index}"),
            step,
            since,
            tries,
            consecutive_passes: passes,
            failed,
            broken_since: times.0,
            last_check_time: times.1,
            next_check_time: times.2,
            problem: is_unusable.then(|| CheckProblem { reason: ProblemReason::InvalidQuery, message: "spec.check".into() }),
            check: None,
        }
    }
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    let reasons = select(vec!["Ready", "InvalidQuery", "ChecksFailed", "PodBroken", "nonsense"]);
    vec((select(vec!["Ready", "Stalled", "ChecksValid", "Strange"]), reasons, time()), 0..4).prop_map(|conditions| {
        let one = |(kind, reason, time): (&str, &str, Timestamp)| Condition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            last_transition_time: Time(time),
            observed_generation: None,
        };
        conditions.into_iter().map(one).collect()
    })
}

prop_compose! {
    fn status()(
        phase in select(&Phase::ALL[..]),
        uid in of(select(vec!["web-uid", "db-uid", "gone"])), revisions in (of(revision()), of(revision()), of(revision())),
        rejected in vec(revision(), 0..12), counts in (number(), number(), number()), partition in of(number()),
        times in (of(time()), of(time()), of(time()), of(time())), current in of(current()), passed in of((revision(), number(), of(time()))),
        failure in of((revision(), select(vec![OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback]))),
        never_healthy in any::<bool>(), is_sealed in prop::bool::weighted(0.8), retry in of(word()), checks in vec(checked(), 0..7), conditions in conditions(),
    ) -> PhasedRolloutStatus {
        let mut status = PhasedRolloutStatus {
            observed_generation: None,
            phase,
            message: String::new(),
            target: uid.map(str::to_owned),
            target_uid: uid.map(str::to_owned),
            target_revision: revisions.0,
            previous_revision: revisions.1,
            verified_revision: revisions.2,
            rejected_revisions: rejected,
            replicas: counts.0,
            updated_replicas: counts.1,
            ready_replicas: counts.2,
            updated: "?".into(),
            partition,
            start_time: times.0,
            completion_time: times.1,
            last_progress_time: times.2,
            current,
            failure: failure.map(|(revision, policy)| Failure { revision, reason: FailureReason::ChecksFailed, policy }),
            passed: passed.map(|(revision, index, since)| Passed { revision, index, since }).into_iter().collect(),
            never_healthy,
            remade_since: times.3,
            retry,
            seal: None,
            checks,
            conditions,
        };
        if is_sealed {
            status.put_seal();
        }
        status
    }
}

prop_compose! {
    fn spec()(
        target in select(vec!["web", "db"]), flags in any::<[bool; 4]>(), skip in prop::bool::weighted(0.1),
        numbers in (number(), number(), number(), number()), pauses in vec(number(), 0..3), deadline in of(number()),
        stuck in select(vec![StuckPods::Delete, StuckPods::Wait]),
        policy in of(select(vec![DeletionPolicy::Hold, DeletionPolicy::Release])),
        on_failure in select(vec![OnFailure::Hold, OnFailure::Pause, OnFailure::Rollback, OnFailure::Proceed]),
        queries in 0..17_usize,
    ) -> PhasedRolloutSpec {
        let query = Query { name: Some("q".into()), expr: "up".into(), ..Query::default() };
        PhasedRolloutSpec {
            target_ref: target.to_owned(),
            skip_check: skip,
            standard_rolling_update: None,
            paused: flags[0] && flags[1],
            check: Check {
                initial_delay_seconds: numbers.0,
                period_seconds: numbers.1,
                success_threshold: numbers.2,
                max_tries: numbers.3,
                queries: std::iter::repeat_n(query, queries).collect(),
                on_failure,
                preflight: flags[2],
                final_check: flags[3],
                ..Check::default()
            },
            pause_before: pauses,
            progress_deadline_seconds: deadline,
            stuck_pods: stuck,
            deletion_policy: policy,
        }
    }
}

prop_compose! {
    fn rollout()(spec in spec(), status in status(), annotations in annotations(), created in time(),
        deleting in prop::bool::weighted(0.1), has_finalizer in prop::bool::weighted(0.9)) -> RolloutView {
        RolloutView {
            name: "gate".into(),
            namespace: "ns".into(),
            uid: "gate-uid".into(),
            generation: 1,
            created,
            deleting,
            has_finalizer,
            annotations,
            spec,
            status,
        }
    }
}

prop_compose! {
    fn tried()(revision in revision(), index in number(), step in step(), time in time(), records in vec(checked(), 0..17),
        is_unusable in prop::bool::weighted(0.1)) -> Try {
        let problem = ConfigProblem { reason: Reason::InvalidCredentials, message: "x".repeat(5000) };
        Try {
            request: CheckKey { revision, index, step },
            time,
            records,
            config: is_unusable.then_some(problem).into_iter().collect(),
            warnings: vec![(Reason::TokenWins, "x".repeat(5000))],
        }
    }
}

prop_compose! {
    /// Anything at all.
    pub fn observed()(
        rollout in rollout(), rivals in vec((word(), time()), 0..2), target in of(set()), former in vec(set(), 0..2),
        pods in vec(pod(), 0..7), is_misconfigured in prop::bool::weighted(0.1), hold in 0..3_u8, tried in of(tried()),
    ) -> Observed {
        let problem = ConfigProblem { reason: Reason::InvalidQuery, message: "x".repeat(5000) };
        Observed {
            rollout,
            rivals: rivals.into_iter().map(|(name, created)| Rival { name, target: "web".into(), created }).collect(),
            target: target.map_or(Target::Missing, |set| Target::Found(Box::new(set))),
            former_targets: former,
            pods,
            config: is_misconfigured.then_some(problem).into_iter().collect(),
            hold: match hold {
                0 => HoldState::Unknown,
                1 => HoldState::Enforced,
                _ => HoldState::NotEnforced(Reason::PolicyNotServed, "x".repeat(5000)),
            },
            tried,
        }
    }
}
