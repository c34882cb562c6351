//! Input that no API server would give: each one gives a plan, the same one again, and the plan keeps the rules of a plan.

use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use sts_plus_api::{
    CheckRecord, Current, ExtendedStatefulSetStatus, Reason, Step, Upgrade, UpgradeStep, Verdict, VersionDetail,
    VersionSet, names,
};
use sts_plus_decide::{
    CheckKey, ChildView, ConfigProblem, PodView, ServiceView, Try, VersionsObserved, decide_versions,
};
use sts_plus_model::random::cases;

use super::native;
use super::world::{START, World};

fn number() -> impl Strategy<Value = i32> + Clone {
    prop_oneof![8 => 0..5_i32, 1 => Just(-1), 1 => Just(i32::MIN), 1 => Just(i32::MAX)]
}

fn time() -> impl Strategy<Value = Timestamp> + Clone {
    prop_oneof![
        6 => (-100..100_i64).prop_map(|offset| Timestamp::from_second(START + offset).unwrap()),
        1 => Just(Timestamp::MIN),
        1 => Just(Timestamp::MAX),
    ]
}

fn hash() -> impl Strategy<Value = String> + Clone {
    select(vec!["h1", "h2", "h3", ""]).prop_map(str::to_owned)
}

fn zone() -> impl Strategy<Value = Option<String>> + Clone {
    of(select(vec!["a", "b", "ü", ""]).prop_map(str::to_owned))
}

fn step() -> impl Strategy<Value = UpgradeStep> {
    use UpgradeStep::{Canary, Clearing, Rolling, Stale, Waiting};
    select(vec![Waiting, Canary, Rolling, Clearing, Stale])
}

prop_compose! {
    fn pod()(ordinal in number(), flags in any::<[bool; 3]>(), since in of(time())) -> PodView {
        let pod = native::pod("web", ordinal, 0, Timestamp::from_second(START).unwrap());
        PodView { ready: flags[0], deleting: flags[1] && flags[2], finished: flags[1] && !flags[2], ready_since: since, ..pod }
    }
}

prop_compose! {
    fn child()(
        zone in zone(), version in number(), hash in hash(), generation in 0..3_i64, deleting in prop::bool::weighted(0.1),
        replicas in number(), min_ready_seconds in number(), stale in of("[a-z]{0,3}"), pods in vec(pod(), 0..5),
    ) -> ChildView {
        let place = zone.as_ref().map(|zone| format!("{zone}-")).unwrap_or_default();
        let name = format!("web-{place}v{version}");
        ChildView {
            uid: format!("uid-{name}"), name, zone, version, hash, settings: "s".into(), generation, deleting, replicas,
            min_ready_seconds, selector: String::new(), stale, pods, refused: None, changed: None, in_the_way: None, mislabelled: None,
            set: None,
        }
    }
}

prop_compose! {
    fn cycle()(index in number(), tries in number(), passes in number(), times in (of(time()), of(time()), of(time()))) -> Current {
        Current {
            index, pod: "web-0".into(), step: Step::Pod, since: times.0, tries, consecutive_passes: passes, failed: false,
            broken_since: None, last_check_time: times.1, next_check_time: times.2, problem: None, check: None,
        }
    }
}

prop_compose! {
    fn upgrade()(version in number(), hash in hash(), step in step(), failures in number(), since in of(time()), cycle in of(cycle()))
        -> Upgrade {
        Upgrade { version, hash, step, failures, since, cycle, reason: "x".repeat(2000) }
    }
}

prop_compose! {
    fn detail()(version in number(), hash in hash(), generation in 0..3_i64) -> VersionDetail {
        let set = VersionSet { name: format!("web-v{version}"), generation, ..VersionSet::default() };
        VersionDetail { version, hash, sets: vec![set], ..VersionDetail::default() }
    }
}

prop_compose! {
    fn status()(
        current in of(number()), update in of(number()), last in number(), details in vec(detail(), 0..3), upgrade in of(upgrade()),
        promoted in of(time()), retry in of(Just("1".to_owned())),
    ) -> ExtendedStatefulSetStatus {
        ExtendedStatefulSetStatus {
            current_version: current, update_version: update, last_version: last, details, upgrade, promotion_time: promoted, retry,
            ..ExtendedStatefulSetStatus::default()
        }
    }
}

prop_compose! {
    fn spec()(
        zones in vec(select(vec!["a", "b", "ü", ""]), 0..4), spread in any::<bool>(), replicas in of(number()),
        limits in (of(number()), of(number()), any::<bool>(), any::<bool>()), flags in any::<[bool; 3]>(), check in of(any::<[bool; 2]>()),
        numbers in (number(), number(), number(), number()), checks in (number(), number(), number(), number()),
    ) -> Value {
        let mut spec = json!({
            "az": zones, "zoneReplicas": if spread { "Spread" } else { "PerZone" }, "paused": flags[0] && flags[1],
            "scaling": {
                "min": limits.0, "max": limits.1, "oddOnly": limits.2, "policy": if limits.3 { "Clamp" } else { "Reject" },
            },
            "updateStrategy": {
                "canaries": numbers.0, "retryCount": numbers.1, "canaryWatchSeconds": numbers.2,
                "scaleDownDelaySeconds": numbers.3, "updateNotReady": flags[2], "activeService": "live",
            },
            "template": { "spec": { "replicas": replicas, "template": {} } },
        });
        if check.is_some() {
            spec["updateStrategy"]["check"] = json!({
                "initialDelaySeconds": checks.0, "periodSeconds": checks.1, "successThreshold": checks.2, "maxTries": checks.3,
                "query": { "expr": "up" },
            });
        }
        spec
    }
}

prop_compose! {
    fn tried()(revision in hash(), index in number(), time in time(), passed in any::<bool>(), records in 0..4_usize,
        verdict in select(vec![Verdict::Data, Verdict::NoData, Verdict::Unproven, Verdict::Error]), config in 0..5_u8) -> Try {
        let record = CheckRecord {
            time, name: "q".into(), pod: "p".into(), query: "up".into(), endpoint: "e".into(), verdict, passed,
            message: "x".repeat(2000), http_status: None, series_count: 0, series: Vec::new(),
        };
        let problem = ConfigProblem { reason: Reason::InvalidQuery, message: "x".repeat(5000) };
        Try {
            request: CheckKey { revision, index, step: Step::Pod }, time, records: vec![record; records],
            config: (config == 0).then_some(problem).into_iter().collect(), warnings: Vec::new(),
        }
    }
}

prop_compose! {
    fn service()(exists in any::<bool>(), is_foreign in any::<bool>(), version in of(number())) -> ServiceView {
        let version = version.map(|number| number.to_string());
        ServiceView { name: "live".into(), exists, version, is_foreign, is_ours: !is_foreign }
    }
}

prop_compose! {
    fn observed()(
        spec in spec(), status in status(), children in vec(child(), 0..6), hash in hash(), tried in of(tried()), retry in of("[12]"),
        active in of(service()), foreign in vec(number(), 0..2), kept in btree_map(number(), hash(), 0..3), problem in prop::bool::weighted(0.05), config in prop::bool::weighted(0.1),
    ) -> VersionsObserved {
        let mut world = World::new(&json!({}));
        (world.owner.spec, world.status, world.children, world.owner.hash, world.active) = (spec, status, children, hash, active);
        world.owner.annotations = retry.map(|value| (names::RETRY_VERSION.to_owned(), value)).into_iter().collect();
        world.kept = kept;
        world.foreign = foreign.iter().map(|number| format!("web-v{number}")).collect();
        let mut observed = world.observe(tried);
        observed.template.problem = problem.then(|| "no".repeat(3000));
        let unusable = ConfigProblem { reason: Reason::InvalidQuery, message: "x".repeat(5000) };
        observed.config = config.then_some(unusable).into_iter().collect();
        observed
    }
}

proptest! {
    #![proptest_config(cases(5000))]

    // spec: L023
    #[test]
    fn every_input_gives_one_plan(observed in observed(), now in time()) {
        let plan = decide_versions(&observed, now);
        prop_assert_eq!(&plan, &decide_versions(&observed.clone(), now), "not the same plan twice");
        if plan.check.is_some() {
            prop_assert!(plan.actions.is_empty() && plan.events.is_empty(), "a question comes alone");
            prop_assert!(plan.status == observed.owner.status, "a question changes nothing");
            prop_assert!(observed.tried.is_none(), "a question after an answer");
        }
        for event in &plan.events {
            prop_assert!(event.note.len() <= 1024);
        }
        let is_true = |kind: &&&str| plan.status.conditions.iter().any(|c| c.type_ == ***kind && c.status == "True");
        if plan.check.is_none() {
            prop_assert_eq!(["Ready", "Reconciling", "Stalled"].iter().filter(is_true).count(), 1);
        }
        prop_assert!(plan.status.last_version >= observed.owner.status.last_version);
        prop_assert!(plan.status.checks.len() <= 5);
    }
}
