//! The numbers of ExtendedStatefulSets, from the cache at the moment of the scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;
use sts_plus_api::{ExtendedStatefulSetStatus, VersionCondition, VersionDetail, VersionPhase, is_true};

use super::rows::{Shown, checks, errors, gauge, key_of, of, one_if, shown, with};
use super::{Metrics, Zeros};
use crate::watch::Caches;

/// What a version is to its ExtendedStatefulSet.
const STATES: [&str; 4] = ["current", "coming", "stale", "leaving"];

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &Metrics,
    caches: &[Arc<Caches>],
    now: Timestamp,
    zeros: Zeros,
) -> fmt::Result {
    let unknown = ExtendedStatefulSetStatus::default();
    let states: Vec<_> = caches.iter().flat_map(|caches| caches.owners.state()).collect();
    let owners: BTreeMap<_, _> =
        states.iter().filter_map(|owner| Some((shown(&**owner)?, owner.status.as_ref().unwrap_or(&unknown)))).collect();
    gauges(encoder, &owners, now, zeros)?;
    let counts = metrics.owners(|key| owners.contains_key(&key_of(key)));
    checks(encoder, "sts_plus_versions_checks", "Answers of Prometheus about canaries by verdict", &counts)?;
    errors(encoder, "sts_plus_versions_errors", "Looks at an ExtendedStatefulSet that ended with an error", &counts)
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    owners: &BTreeMap<Shown<'_>, &ExtendedStatefulSetStatus>,
    now: Timestamp,
    zeros: Zeros,
) -> fmt::Result {
    let statuses = || owners.iter().map(|(key, status)| (*key, *status));
    let words = VersionPhase::ALL.map(|phase| (phase, format!("{phase:?}")));
    let phases = statuses().flat_map(|(key, status)| {
        words.iter().map(move |(phase, word)| (with(key, "phase", word), one_if(*phase == status.phase)))
    });
    let help = "1 for the phase of the ExtendedStatefulSet, 0 for all others";
    gauge(encoder, "sts_plus_versions_phase", help, phases.filter(|row| zeros.show(row.1)))?;
    let types = VersionCondition::ALL.map(|kind| kind.to_string());
    let conditions = statuses().flat_map(|(key, status)| {
        types.iter().map(move |kind| (with(key, "type", kind), one_if(is_true(&status.conditions, kind))))
    });
    let help = "1 for a condition that is True, else 0";
    gauge(encoder, "sts_plus_versions_condition", help, conditions.filter(|row| zeros.show(row.1)))?;
    let times = statuses().filter_map(|(key, status)| {
        let since = status.upgrade.as_ref().and_then(|upgrade| upgrade.since).or_else(|| rolling_since(status))?;
        Some((of(key), now.duration_since(since).as_secs_f64().max(0.0)))
    });
    gauge(encoder, "sts_plus_versions_step_seconds", "Time in the step of an upgrade that goes on", times)?;
    let states = statuses()
        .flat_map(|(key, status)| STATES.map(|state| (with(key, "state", state), f64::from(in_state(status, state)))));
    gauge(encoder, "sts_plus_versions", "Versions that exist, by what they are", states)?;
    let replicas = statuses().flat_map(|(key, status)| {
        replicas(status).into_iter().flatten().map(move |(kind, count)| (with(key, "kind", kind), count))
    });
    gauge(encoder, "sts_plus_versions_replicas", "Pods of the version that is in charge", replicas)
}

/// In place: the last progress of the StatefulSet that is rolled.
fn rolling_since(status: &ExtendedStatefulSetStatus) -> Option<Timestamp> {
    let mut rolling = status.rollouts.values().filter(|rollout| rollout.current.is_some());
    rolling.find_map(|rollout| rollout.last_progress_time.or(rollout.start_time))
}

/// How many versions are in charge, on their way, stale, or on their way out.
fn in_state(status: &ExtendedStatefulSetStatus, wanted: &str) -> u32 {
    let state = |detail: &VersionDetail| {
        let version = Some(detail.version);
        match () {
            () if version == status.current_version => "current",
            () if detail.stale => "stale",
            () if version == status.update_version => "coming",
            () => "leaving",
        }
    };
    let count = status.details.iter().filter(|detail| state(detail) == wanted).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Over all zones. Nothing before the first version is there.
fn replicas(status: &ExtendedStatefulSetStatus) -> Option<[(&'static str, f64); 2]> {
    let (ready, wanted) = status.ready.split_once('/')?;
    Some([("ready", ready.parse().ok()?), ("wanted", wanted.parse().ok()?)])
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use sts_plus_api::{ExtendedStatefulSet, Verdict};

    use super::*;
    use crate::errors::Class;
    use crate::leader::Guard;
    use crate::metrics::Exposed;
    use crate::watch::Writer;
    use crate::wire::WireLayer;

    fn exposed(guard: Guard) -> (Arc<Metrics>, Exposed, Writer<ExtendedStatefulSet>) {
        let mut owners = Writer::<ExtendedStatefulSet>::default();
        let caches = Caches {
            rollouts: Writer::default().cache(),
            owners: owners.cache(),
            sets: Writer::default().cache(),
            pods: Writer::default().cache(),
            refusals: Writer::default().cache(),
            services: Writer::default().cache(),
        };
        let version = |version: i32, stale: bool| json!({"version": version, "stale": stale, "sets": []});
        let owner = serde_json::from_value(json!({
            "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedStatefulSet",
            "metadata": {"name": "db", "namespace": "ns"}, "spec": {"template": {"spec": {"template": {}}}},
            "status": {
                "phase": "Failed", "ready": "2/3", "currentVersion": 3, "updateVersion": 4,
                "details": [version(1, false), version(3, false), version(4, true)],
                "upgrade": {"version": 4, "hash": "h", "step": "Canary", "since": "2026-01-01T00:00:00Z"},
                "conditions": [{"type": "Stale", "status": "True", "reason": "VersionStale", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        }));
        owners.apply(&Event::Apply(owner.expect("it is one")));
        let metrics = Arc::new(Metrics::default());
        let wire = WireLayer { metrics: Arc::clone(&metrics), guard: Arc::new(guard), pulse: Arc::default() };
        let exposed = Exposed::new(&wire, &[Arc::new(caches)]);
        (metrics, exposed, owners)
    }

    #[test]
    fn an_extended_set_has_its_numbers_until_it_is_gone() {
        let (metrics, exposed, mut owners) = exposed(Guard::always());
        metrics.version_checked("ns", "db", Verdict::Data);
        metrics.version_failed("ns", "db", Class::Transient);
        metrics.version_failed("ns", "another", Class::Transient);
        let text = exposed.text(Zeros::Keep).expect("it can be written");
        for line in [
            r#"sts_plus_versions_phase{namespace="ns",name="db",phase="Failed"} 1.0"#,
            r#"sts_plus_versions_phase{namespace="ns",name="db",phase="Ready"} 0.0"#,
            r#"sts_plus_versions_condition{namespace="ns",name="db",type="Stale"} 1.0"#,
            r#"sts_plus_versions_condition{namespace="ns",name="db",type="Stalled"} 0.0"#,
            r#"sts_plus_versions{namespace="ns",name="db",state="current"} 1.0"#,
            r#"sts_plus_versions{namespace="ns",name="db",state="coming"} 0.0"#,
            r#"sts_plus_versions{namespace="ns",name="db",state="stale"} 1.0"#,
            r#"sts_plus_versions{namespace="ns",name="db",state="leaving"} 1.0"#,
            r#"sts_plus_versions_replicas{namespace="ns",name="db",kind="wanted"} 3.0"#,
            r#"sts_plus_versions_replicas{namespace="ns",name="db",kind="ready"} 2.0"#,
            r#"sts_plus_versions_checks_total{namespace="ns",name="db",verdict="Data"} 1"#,
            r#"sts_plus_versions_errors_total{namespace="ns",name="db",class="Transient"} 1"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        let short = exposed.text(Zeros::Omit).expect("it can be written");
        assert!(!short.contains(r#"phase="Ready""#) && !short.contains(r#"type="Stalled""#), "{short}");
        assert!(short.contains(r#"{namespace="ns",name="db",state="coming"} 0.0"#), "a count of none is one: {short}");
        assert!(text.contains("sts_plus_versions_step_seconds{") && !text.contains("another"), "{text}");
        assert!(!text.contains("sts_plus_rollout_phase{"), "it is no PhasedRollout: {text}");
        owners.apply(&Event::Init);
        owners.apply(&Event::InitDone);
        assert!(!exposed.text(Zeros::Keep).expect("it can be written").contains("db"));
    }

    #[test]
    fn in_place_the_time_is_that_of_the_set_that_is_rolled() {
        let status = |current: bool| -> ExtendedStatefulSetStatus {
            let current = current.then(|| json!({"step": "Pod", "index": 2, "pod": "db-2"}));
            let rollouts = json!({"db": {"startTime": "2026-01-01T00:00:00Z", "current": current}});
            serde_json::from_value(json!({ "rollouts": rollouts })).expect("a status")
        };
        assert_eq!(rolling_since(&status(true)), Some("2026-01-01T00:00:00Z".parse().expect("a time")));
        assert_eq!(rolling_since(&status(false)), None);
    }

    #[test]
    fn who_stands_by_shows_no_extended_set() {
        let (_metrics, exposed, _owners) = exposed(Guard::waiting());
        assert!(!exposed.text(Zeros::Keep).expect("it can be written").contains("db"));
    }
}
