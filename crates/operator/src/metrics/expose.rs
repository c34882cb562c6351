//! The numbers as `OpenMetrics`. Those of a PhasedRollout come from the cache at the moment of the scrape, so they go with the object;
//! only the leader shows them, so that a sum over all operators counts each once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use sts_plus_api::{ConditionType, Phase, PhasedRollout};

use super::{Counts, Key, Metrics, lock, versions};
use crate::leader::Guard;
use crate::watch::Caches;

/// Of what [`Exposed::text`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) type Labels = Vec<(&'static str, String)>;

/// All numbers of this process.
#[derive(Debug)]
pub struct Exposed {
    registry: Registry,
}

impl Exposed {
    /// Of these counts and caches.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, caches: Vec<Arc<Caches>>, guard: Arc<Guard>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Source { metrics, caches, guard }));
        Self { registry }
    }

    /// As `OpenMetrics`.
    ///
    /// # Errors
    ///
    /// If they cannot be written, which is a bug.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

struct Source {
    metrics: Arc<Metrics>,
    caches: Vec<Arc<Caches>>,
    guard: Arc<Guard>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = self.guard.is_open();
        let mut leader =
            encoder.encode_descriptor("sts_plus_leader", "Whether this operator leads", None, MetricType::Gauge)?;
        leader.encode_gauge(&i64::from(leads))?;
        let writes = lock(&self.metrics.writes).clone();
        let rows = writes.into_iter().map(|(write, count)| {
            let labels = vec![
                ("resource", write.resource),
                ("verb", write.verb.to_owned()),
                ("result", write.result.to_owned()),
            ];
            (labels, count)
        });
        counter(&mut encoder, "sts_plus_api_writes", "Writes to the API server", rows)?;
        if !leads {
            return Ok(());
        }
        let mut rollouts = BTreeMap::new();
        for caches in &self.caches {
            for rollout in caches.rollouts.state() {
                rollouts.insert((rollout.namespace().unwrap_or_default(), rollout.name_any()), rollout);
            }
        }
        gauges(&mut encoder, &rollouts, Timestamp::now())?;
        counters(&mut encoder, &self.metrics.rollouts(|key| rollouts.contains_key(key)))?;
        versions::encode(&mut encoder, &self.metrics, &self.caches, Timestamp::now())
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    rollouts: &BTreeMap<Key, Arc<PhasedRollout>>,
    now: Timestamp,
) -> fmt::Result {
    let status = |rollout: &PhasedRollout| rollout.status.clone().unwrap_or_default();
    let phases = rollouts.iter().flat_map(|(key, rollout)| {
        let is = status(rollout).phase;
        Phase::ALL.map(|phase| (with(key, "phase", format!("{phase:?}")), if phase == is { 1.0 } else { 0.0 }))
    });
    gauge(encoder, "sts_plus_rollout_phase", "1 for the phase of the PhasedRollout, 0 for all others", phases)?;
    let conditions = rollouts.iter().flat_map(|(key, rollout)| {
        let status = status(rollout);
        ConditionType::ALL.map(|kind| {
            let is = |condition: &Condition| condition.type_ == kind.to_string() && condition.status == "True";
            (with(key, "type", kind.to_string()), if status.conditions.iter().any(is) { 1.0 } else { 0.0 })
        })
    });
    gauge(encoder, "sts_plus_rollout_condition", "1 for a condition that is True, else 0", conditions)?;
    let times = rollouts.iter().filter_map(|(key, rollout)| {
        let status = status(rollout);
        status.current.as_ref()?;
        let since = status.last_progress_time.or(status.start_time)?;
        Some((of(key), now.duration_since(since).as_secs_f64().max(0.0)))
    });
    gauge(encoder, "sts_plus_rollout_step_seconds", "Time since the last progress of a rollout that goes on", times)?;
    let values = rollouts.iter().flat_map(|(key, rollout)| {
        // The newest is last and replaces those before it.
        let newest: BTreeMap<_, _> =
            status(rollout).checks.into_iter().map(|check| (check.name, check.series)).collect();
        newest.into_iter().filter_map(|(query, series)| {
            let value = series.first()?.value.parse().ok()?;
            Some((with(key, "query", query), value))
        })
    });
    gauge(encoder, "sts_plus_check_value", "First value of the last answer to a query that had one", values)
}

fn counters(encoder: &mut DescriptorEncoder<'_>, counts: &BTreeMap<Key, Counts>) -> fmt::Result {
    let steps = counts.iter().map(|(key, counts)| (of(key), counts.steps));
    counter(encoder, "sts_plus_rollout_steps", "Times that the partition was lowered", steps)?;
    let drifts = counts.iter().map(|(key, counts)| (of(key), counts.drifts));
    counter(encoder, "sts_plus_partition_drift", "Times that somebody else changed the partition", drifts)?;
    let checks = counts.iter().flat_map(|(key, counts)| {
        counts.checks.iter().map(|(verdict, count)| (with(key, "verdict", (*verdict).to_owned()), *count))
    });
    counter(encoder, "sts_plus_checks", "Answers of Prometheus by verdict", checks)?;
    let errors = counts.iter().flat_map(|(key, counts)| {
        counts.errors.iter().map(|(class, count)| (with(key, "class", class.to_string()), *count))
    });
    counter(encoder, "sts_plus_rollout_errors", "Looks at a PhasedRollout that ended with an error", errors)
}

pub(super) fn of((namespace, name): &Key) -> Labels {
    vec![("namespace", namespace.clone()), ("name", name.clone())]
}

pub(super) fn with(key: &Key, label: &'static str, value: String) -> Labels {
    let mut labels = of(key);
    labels.push((label, value));
    labels
}

pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl Iterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    rows.into_iter().try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
}

pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    rows.into_iter().try_for_each(|(labels, value)| {
        let mut row: MetricEncoder<'_> = family.encode_family(&labels)?;
        row.encode_counter::<NoLabelSet, _, f64>(&value, None)
    })
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use sts_plus_api::Verdict;

    use super::*;
    use crate::errors::Class;
    use crate::watch::Writer;

    fn exposed(guard: Guard) -> (Arc<Metrics>, Exposed, Writer<PhasedRollout>) {
        let mut rollouts = Writer::<PhasedRollout>::default();
        let caches = Caches {
            rollouts: rollouts.cache(),
            owners: Writer::default().cache(),
            sets: Writer::default().cache(),
            pods: Writer::default().cache(),
            refusals: Writer::default().cache(),
            services: Writer::default().cache(),
        };
        let rollout = serde_json::from_value(json!({
            "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "metadata": {"name": "gate", "namespace": "ns"},
            "spec": {"targetRef": "web", "skipCheck": true}, "status": {"phase": "Held", "conditions": [{"type": "Held", "status": "True", "reason": "PodRolling", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }));
        rollouts.apply(&Event::Apply(rollout.unwrap()));
        let metrics = Arc::new(Metrics::default());
        let exposed = Exposed::new(Arc::clone(&metrics), vec![Arc::new(caches)], Arc::new(guard));
        (metrics, exposed, rollouts)
    }

    #[test]
    fn a_rollout_has_its_numbers_until_it_is_gone() {
        let (metrics, exposed, mut rollouts) = exposed(Guard::always());
        metrics.stepped("ns", "gate");
        metrics.checked("ns", "gate", Verdict::NoData);
        metrics.failed("ns", "gate", Class::Bug);
        metrics.wrote(&http::Method::PATCH, "/apis/apps/v1/namespaces/ns/statefulsets/web", Some(200));
        let text = exposed.text().unwrap();
        for line in [
            "sts_plus_leader 1",
            r#"sts_plus_rollout_phase{namespace="ns",name="gate",phase="Held"} 1.0"#,
            r#"sts_plus_rollout_phase{namespace="ns",name="gate",phase="Idle"} 0.0"#,
            r#"sts_plus_rollout_condition{namespace="ns",name="gate",type="Held"} 1.0"#,
            r#"sts_plus_rollout_condition{namespace="ns",name="gate",type="Stalled"} 0.0"#,
            r#"sts_plus_rollout_steps_total{namespace="ns",name="gate"} 1"#,
            r#"sts_plus_checks_total{namespace="ns",name="gate",verdict="NoData"} 1"#,
            r#"sts_plus_rollout_errors_total{namespace="ns",name="gate",class="Bug"} 1"#,
            r#"sts_plus_api_writes_total{resource="statefulsets",verb="patch",result="ok"} 1"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        rollouts.apply(&Event::Init);
        rollouts.apply(&Event::InitDone);
        let text = exposed.text().unwrap();
        assert!(!text.contains("gate") && text.contains("statefulsets"), "{text}");
    }

    #[test]
    fn who_stands_by_shows_no_rollout() {
        let (metrics, exposed, _rollouts) = exposed(Guard::waiting());
        metrics.stepped("ns", "gate");
        let text = exposed.text().unwrap();
        assert!(text.contains("sts_plus_leader 0") && !text.contains("gate"), "{text}");
    }
}
