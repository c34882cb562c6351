//! How the operator itself is: its calls, runs and queues, and the Prometheus servers that it asks. Shown by whoever leads and by
//! those that stand by. Labels are few: verbs, codes, kinds, and the first origins that were asked.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::lock;

/// Whoever may create a PhasedRollout names the servers that are asked: beyond so many they share one row.
const ORIGINS: usize = 20;
const OTHER_ORIGINS: &str = "other";

/// What was measured since the start.
pub(super) struct Own {
    calls: Family<Call, Histogram>,
    runs: Family<Kind, Histogram>,
    queues: Family<Kind, Gauge>,
    prometheus: Family<Origin, Histogram>,
    origins: Mutex<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Origin {
    origin: String,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            calls: Family::new_with_constructor(seconds),
            runs: Family::new_with_constructor(seconds),
            queues: Family::default(),
            prometheus: Family::new_with_constructor(seconds),
            origins: Mutex::default(),
        }
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

/// The buckets that people know from elsewhere. A call may last ten seconds.
fn seconds() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// One that waits.
#[derive(Debug)]
pub struct Waiting(Gauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Own {
    pub(super) fn called(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.calls.get_or_create(&Call { verb, code }).observe(took.as_secs_f64());
    }

    pub(super) fn ran(&self, kind: &'static str, took: Duration) {
        self.runs.get_or_create(&Kind { kind }).observe(took.as_secs_f64());
    }

    pub(super) fn waits(&self, kind: &'static str) -> Waiting {
        let queue = self.queues.get_or_create(&Kind { kind }).clone();
        queue.inc();
        Waiting(queue)
    }

    pub(super) fn asked_prometheus(&self, origin: &str, took: Duration) {
        let origin = if self.has_row(origin) { origin } else { OTHER_ORIGINS };
        self.prometheus.get_or_create(&Origin { origin: origin.to_owned() }).observe(took.as_secs_f64());
    }

    fn has_row(&self, origin: &str) -> bool {
        let mut origins = lock(&self.origins);
        origins.contains(origin) || (origins.len() < ORIGINS && origins.insert(origin.to_owned()))
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("sts_plus_build", "What this operator was built from", version);
        let help = "Time until the API server began to answer, by verb and HTTP code";
        registry.register_with_unit("sts_plus_api_request_duration", help, Unit::Seconds, self.calls.clone());
        let help = "Time of one look at an object, by its kind";
        registry.register_with_unit("sts_plus_run_duration", help, Unit::Seconds, self.runs.clone());
        let help = "Time until a Prometheus had answered, by its origin";
        registry.register_with_unit(
            "sts_plus_prometheus_request_duration",
            help,
            Unit::Seconds,
            self.prometheus.clone(),
        );
        registry.register("sts_plus_queue_depth", "Objects that wait for a look, by kind", self.queues.clone());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(own: &Own) -> String {
        let (mut registry, mut text) = (Registry::default(), String::new());
        own.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn what_was_measured_is_shown() {
        let own = Own::default();
        own.called("get", Some(200), Duration::from_millis(20));
        own.called("watch", None, Duration::from_secs(20));
        own.ran("PhasedRollout", Duration::from_millis(300));
        let _waiting: Vec<_> = (0..7).map(|_| own.waits("PhasedRollout")).collect();
        own.asked_prometheus("http://prometheus:9090", Duration::from_millis(2));
        let text = text(&own);
        for line in [
            concat!(r#"sts_plus_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
            "# TYPE sts_plus_api_request_duration_seconds histogram",
            r#"sts_plus_api_request_duration_seconds_bucket{le="0.01",verb="get",code="200"} 0"#,
            r#"sts_plus_api_request_duration_seconds_bucket{le="0.025",verb="get",code="200"} 1"#,
            r#"sts_plus_api_request_duration_seconds_bucket{le="10.0",verb="watch",code="none"} 0"#,
            r#"sts_plus_api_request_duration_seconds_count{verb="watch",code="none"} 1"#,
            r#"sts_plus_run_duration_seconds_sum{kind="PhasedRollout"} 0.3"#,
            r#"sts_plus_queue_depth{kind="PhasedRollout"} 7"#,
            r#"sts_plus_prometheus_request_duration_seconds_count{origin="http://prometheus:9090"} 1"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn however_many_servers_are_asked_the_rows_are_few() {
        let own = Own::default();
        for number in 0..1000 {
            own.asked_prometheus(&format!("http://server-{number}:9090"), Duration::ZERO);
        }
        own.asked_prometheus("http://server-0:9090", Duration::ZERO);
        let text = text(&own);
        let counts: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("sts_plus_prometheus_request_duration_seconds_count"))
            .collect();
        assert_eq!(counts.len(), ORIGINS + 1);
        assert!(counts.iter().any(|row| row.ends_with(r#"{origin="other"} 980"#)), "{counts:?}");
        assert!(counts.iter().any(|row| row.ends_with(r#"{origin="http://server-0:9090"} 2"#)), "{counts:?}");
    }
}
