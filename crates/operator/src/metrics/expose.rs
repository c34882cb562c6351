//! The numbers as `OpenMetrics`. Those of a PhasedRollout come from the cache at the moment of the scrape, so they go with the object;
//! only the leader shows them, so that a sum over all operators counts each once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use sts_plus_api::{ConditionType, Phase, PhasedRollout, PhasedRolloutStatus, is_true};

use super::process::Process;
use super::rows::{Shown, checks, counter, errors, gauge, key_of, of, one_if, shown, with};
use super::{Counts, Key, Metrics, lock, resource_of, versions};
use crate::leader::Guard;
use crate::pulse::Pulse;
use crate::watch::Caches;
use crate::wire::WireLayer;

/// Of what [`Exposed::text`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What becomes of the rows about an object that only say what it is not: the phases in which it is not, the conditions that are not
/// True. With ten thousand objects they are most of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Zeros {
    /// They are shown.
    #[default]
    Keep,
    /// They are left out.
    Omit,
}

impl Zeros {
    pub(super) fn show(self, value: f64) -> bool {
        self == Self::Keep || value != 0.0
    }
}

/// All numbers of this process.
#[derive(Debug)]
pub struct Exposed {
    whole: Registry,
    short: Registry,
}

impl Exposed {
    /// Of what passes this wire, and of these caches.
    #[must_use]
    pub fn new(wire: &WireLayer, caches: &[Arc<Caches>]) -> Self {
        let registry = |zeros| {
            let mut registry = Registry::default();
            wire.metrics.own.register(&mut registry);
            registry.register_collector(Box::new(Process));
            let (metrics, guard, pulse) = (Arc::clone(&wire.metrics), Arc::clone(&wire.guard), Arc::clone(&wire.pulse));
            registry.register_collector(Box::new(Source { metrics, caches: caches.to_vec(), guard, pulse, zeros }));
            registry
        };
        Self { whole: registry(Zeros::Keep), short: registry(Zeros::Omit) }
    }

    /// As `OpenMetrics`.
    ///
    /// # Errors
    ///
    /// If they cannot be written, which is a bug.
    pub fn text(&self, zeros: Zeros) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = match zeros {
            Zeros::Keep => &self.whole,
            Zeros::Omit => &self.short,
        };
        text::encode(&mut text, registry)?;
        Ok(text)
    }
}

struct Source {
    metrics: Arc<Metrics>,
    caches: Vec<Arc<Caches>>,
    guard: Arc<Guard>,
    pulse: Arc<Pulse>,
    zeros: Zeros,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = self.guard.is_open();
        encoder
            .encode_descriptor("sts_plus_leader", "Whether this operator leads", None, MetricType::Gauge)?
            .encode_gauge(&i64::from(leads))?;
        let writes = lock(&self.metrics.writes).clone();
        let rows = writes.iter().map(|(write, count)| {
            let labels = [("resource", write.resource.as_str()), ("verb", write.verb), ("result", write.result)];
            (labels, *count)
        });
        counter(&mut encoder, "sts_plus_api_writes", "Writes to the API server", rows)?;
        watches(&mut encoder, self.pulse.watches())?;
        if !leads {
            return Ok(());
        }
        let now = Timestamp::now();
        let states: Vec<_> = self.caches.iter().flat_map(|caches| caches.rollouts.state()).collect();
        let rollouts: BTreeMap<_, _> =
            states.iter().filter_map(|rollout| Some((shown(&**rollout)?, &**rollout))).collect();
        gauges(&mut encoder, &rollouts, now, self.zeros)?;
        counters(&mut encoder, &self.metrics.rollouts(|key| rollouts.contains_key(&key_of(key))))?;
        versions::encode(&mut encoder, &self.metrics, &self.caches, now, self.zeros)
    }
}

/// By resource: the oldest, if there are several, one for each namespace.
fn watches(encoder: &mut DescriptorEncoder<'_>, ages: Vec<(String, Duration)>) -> fmt::Result {
    let mut oldest: BTreeMap<String, Duration> = BTreeMap::new();
    for (path, age) in ages {
        let known = oldest.entry(resource_of(&path)).or_default();
        *known = age.max(*known);
    }
    let rows = oldest.iter().map(|(resource, age)| ([("resource", resource.as_str())], age.as_secs_f64()));
    let help = "Time since the watch was begun, or has failed; it is begun anew every two minutes";
    gauge(encoder, "sts_plus_watch_age_seconds", help, rows)
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    rollouts: &BTreeMap<Shown<'_>, &PhasedRollout>,
    now: Timestamp,
    zeros: Zeros,
) -> fmt::Result {
    let unknown = PhasedRolloutStatus::default();
    let statuses = || rollouts.iter().map(|(key, rollout)| (*key, rollout.status.as_ref().unwrap_or(&unknown)));
    let words = Phase::ALL.map(|phase| (phase, format!("{phase:?}")));
    let phases = statuses().flat_map(|(key, status)| {
        words.iter().map(move |(phase, word)| (with(key, "phase", word), one_if(*phase == status.phase)))
    });
    let help = "1 for the phase of the PhasedRollout, 0 for all others";
    gauge(encoder, "sts_plus_rollout_phase", help, phases.filter(|row| zeros.show(row.1)))?;
    let types = ConditionType::ALL.map(|kind| kind.to_string());
    let conditions = statuses().flat_map(|(key, status)| {
        types.iter().map(move |kind| (with(key, "type", kind), one_if(is_true(&status.conditions, kind))))
    });
    let help = "1 for a condition that is True, else 0";
    gauge(encoder, "sts_plus_rollout_condition", help, conditions.filter(|row| zeros.show(row.1)))?;
    let times = statuses().filter_map(|(key, status)| {
        status.current.as_ref()?;
        let since = status.last_progress_time.or(status.start_time)?;
        Some((of(key), now.duration_since(since).as_secs_f64().max(0.0)))
    });
    gauge(encoder, "sts_plus_rollout_step_seconds", "Time since the last progress of a rollout that goes on", times)?;
    let values = statuses().flat_map(|(key, status)| {
        // The newest is last and replaces those before it.
        let newest: BTreeMap<_, _> = status.checks.iter().map(|check| (check.name.as_str(), &check.series)).collect();
        newest.into_iter().filter_map(move |(query, series)| {
            let value: f64 = series.first()?.value.parse().ok()?;
            Some((with(key, "query", query), value))
        })
    });
    gauge(encoder, "sts_plus_check_value", "First value of the last answer to a query that had one", values)
}

fn counters(encoder: &mut DescriptorEncoder<'_>, counts: &BTreeMap<Key, Counts>) -> fmt::Result {
    let steps = counts.iter().map(|(key, counts)| (of(key_of(key)), counts.steps));
    counter(encoder, "sts_plus_rollout_steps", "Times that the partition was lowered", steps)?;
    let drifts = counts.iter().map(|(key, counts)| (of(key_of(key)), counts.drifts));
    counter(encoder, "sts_plus_partition_drift", "Times that somebody else changed the partition", drifts)?;
    checks(encoder, "sts_plus_checks", "Answers of Prometheus by verdict", counts)?;
    errors(encoder, "sts_plus_rollout_errors", "Looks at a PhasedRollout that ended with an error", counts)
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
        let wire = WireLayer { metrics: Arc::clone(&metrics), guard: Arc::new(guard), pulse: Arc::default() };
        wire.pulse.follows("/apis/apps/v1/namespaces/ns/statefulsets");
        let exposed = Exposed::new(&wire, &[Arc::new(caches)]);
        (metrics, exposed, rollouts)
    }

    #[test]
    fn without_zeros_there_are_few_rows_and_each_says_what_is() {
        let (_metrics, exposed, _rollouts) = exposed(Guard::always());
        let whole = exposed.text(Zeros::Keep).unwrap();
        let short = exposed.text(Zeros::Omit).unwrap();
        let of_it = |text: &str| {
            let rows = text.lines().filter(|line| line.contains(r#"name="gate""#));
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_it(&whole).len(), Phase::ALL.len() + ConditionType::ALL.len());
        let rows = [
            r#"sts_plus_rollout_phase{namespace="ns",name="gate",phase="Held"} 1.0"#,
            r#"sts_plus_rollout_condition{namespace="ns",name="gate",type="Held"} 1.0"#,
        ];
        assert_eq!(of_it(&short), rows);
        assert!(short.contains("sts_plus_leader 1") && short.contains("process_cpu_seconds_total "), "{short}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_has_its_numbers_until_it_is_gone() {
        let (metrics, exposed, mut rollouts) = exposed(Guard::always());
        metrics.stepped("ns", "gate");
        metrics.checked("ns", "gate", Verdict::NoData);
        metrics.failed("ns", "gate", Class::Bug);
        metrics.wrote(&http::Method::PATCH, "/apis/apps/v1/namespaces/ns/statefulsets/web", Some(200));
        let text = exposed.text(Zeros::Keep).unwrap();
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
            r#"sts_plus_watch_age_seconds{resource="statefulsets"} 0.0"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        rollouts.apply(&Event::Init);
        rollouts.apply(&Event::InitDone);
        let text = exposed.text(Zeros::Keep).unwrap();
        assert!(!text.contains("gate") && text.contains("statefulsets"), "{text}");
    }

    #[test]
    fn who_stands_by_shows_no_rollout() {
        let (metrics, exposed, _rollouts) = exposed(Guard::waiting());
        metrics.stepped("ns", "gate");
        let text = exposed.text(Zeros::Keep).unwrap();
        assert!(text.contains("sts_plus_leader 0") && !text.contains("gate"), "{text}");
    }
}
