//! The numbers of ExtendedStatefulSets, from the cache at the moment of the scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use prometheus_client::encoding::DescriptorEncoder;
use sts_plus_api::{ExtendedStatefulSet, ExtendedStatefulSetStatus, VersionCondition, VersionDetail, VersionPhase};

use super::expose::{Labels, counter, gauge, of, with};
use super::{Key, Metrics};
use crate::watch::Caches;

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    metrics: &Metrics,
    caches: &[Arc<Caches>],
    now: Timestamp,
) -> fmt::Result {
    let owners: BTreeMap<Key, ExtendedStatefulSetStatus> =
        caches.iter().flat_map(|caches| caches.owners.state()).map(|owner| status(&owner)).collect();
    gauges(encoder, &owners, now)?;
    let counts = metrics.owners(|key| owners.contains_key(key));
    let checks = counts.iter().flat_map(|(key, counts)| {
        counts.checks.iter().map(|(verdict, count)| (with(key, "verdict", (*verdict).to_owned()), *count))
    });
    counter(encoder, "sts_plus_versions_checks", "Answers of Prometheus about canaries by verdict", checks)?;
    let errors = counts.iter().flat_map(|(key, counts)| {
        counts.errors.iter().map(|(class, count)| (with(key, "class", class.to_string()), *count))
    });
    counter(encoder, "sts_plus_versions_errors", "Looks at an ExtendedStatefulSet that ended with an error", errors)
}

fn status(owner: &ExtendedStatefulSet) -> (Key, ExtendedStatefulSetStatus) {
    ((owner.namespace().unwrap_or_default(), owner.name_any()), owner.status.clone().unwrap_or_default())
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    owners: &BTreeMap<Key, ExtendedStatefulSetStatus>,
    now: Timestamp,
) -> fmt::Result {
    let phases = owners.iter().flat_map(|(key, status)| {
        VersionPhase::ALL.map(|phase| (with(key, "phase", format!("{phase:?}")), one_if(phase == status.phase)))
    });
    let help = "1 for the phase of the ExtendedStatefulSet, 0 for all others";
    gauge(encoder, "sts_plus_versions_phase", help, phases)?;
    let conditions = owners.iter().flat_map(|(key, status)| {
        VersionCondition::ALL.map(|kind| {
            let is = |condition: &Condition| condition.type_ == kind.to_string() && condition.status == "True";
            (with(key, "type", kind.to_string()), one_if(status.conditions.iter().any(is)))
        })
    });
    gauge(encoder, "sts_plus_versions_condition", "1 for a condition that is True, else 0", conditions)?;
    let times = owners.iter().filter_map(|(key, status)| {
        let since = status.upgrade.as_ref().and_then(|upgrade| upgrade.since).or_else(|| rolling_since(status))?;
        Some((of(key), now.duration_since(since).as_secs_f64().max(0.0)))
    });
    gauge(encoder, "sts_plus_versions_step_seconds", "Time in the step of an upgrade that goes on", times)?;
    let states = owners.iter().flat_map(|(key, status)| states(key, status));
    gauge(encoder, "sts_plus_versions", "Versions that exist, by what they are", states)?;
    let replicas = owners.iter().flat_map(|(key, status)| replicas(key, status));
    gauge(encoder, "sts_plus_versions_replicas", "Pods of the version that is in charge", replicas)
}

/// In place: the last progress of the StatefulSet that is rolled.
fn rolling_since(status: &ExtendedStatefulSetStatus) -> Option<Timestamp> {
    let mut rolling = status.rollouts.values().filter(|rollout| rollout.current.is_some());
    rolling.find_map(|rollout| rollout.last_progress_time.or(rollout.start_time))
}

/// How many versions are in charge, on their way, stale, or on their way out.
fn states(key: &Key, status: &ExtendedStatefulSetStatus) -> [(Labels, f64); 4] {
    let state = |detail: &VersionDetail| {
        let version = Some(detail.version);
        match () {
            () if version == status.current_version => "current",
            () if detail.stale => "stale",
            () if version == status.update_version => "coming",
            () => "leaving",
        }
    };
    ["current", "coming", "stale", "leaving"].map(|wanted| {
        let count = status.details.iter().filter(|detail| state(detail) == wanted).count();
        (with(key, "state", wanted.to_owned()), f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
    })
}

/// Over all zones. Nothing before the first version is there.
fn replicas(key: &Key, status: &ExtendedStatefulSetStatus) -> Vec<(Labels, f64)> {
    let Some((ready, wanted)) = status.ready.split_once('/') else { return Vec::new() };
    let rows = [("ready", ready), ("wanted", wanted)].into_iter();
    rows.filter_map(|(kind, count)| Some((with(key, "kind", kind.to_owned()), count.parse().ok()?))).collect()
}

fn one_if(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use sts_plus_api::Verdict;

    use super::*;
    use crate::errors::Class;
    use crate::leader::Guard;
    use crate::metrics::Exposed;
    use crate::watch::Writer;

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
        let exposed = Exposed::new(Arc::clone(&metrics), vec![Arc::new(caches)], Arc::new(guard));
        (metrics, exposed, owners)
    }

    #[test]
    fn an_extended_set_has_its_numbers_until_it_is_gone() {
        let (metrics, exposed, mut owners) = exposed(Guard::always());
        metrics.version_checked("ns", "db", Verdict::Data);
        metrics.version_failed("ns", "db", Class::Transient);
        metrics.version_failed("ns", "another", Class::Transient);
        let text = exposed.text().expect("it can be written");
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
        assert!(text.contains("sts_plus_versions_step_seconds{") && !text.contains("another"), "{text}");
        assert!(!text.contains("sts_plus_rollout_phase{"), "it is no PhasedRollout: {text}");
        owners.apply(&Event::Init);
        owners.apply(&Event::InitDone);
        assert!(!exposed.text().expect("it can be written").contains("db"));
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
        assert!(!exposed.text().expect("it can be written").contains("db"));
    }
}
