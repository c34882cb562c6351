//! A metrics endpoint whose gauges a test sets.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Router, extract::State, http::StatusCode, routing::get};

use super::Server;

type Labels = Vec<(String, String)>;

#[derive(Debug, Default)]
struct Gauges {
    values: BTreeMap<String, BTreeMap<Labels, f64>>,
    text: String,
    failing: bool,
}

/// An endpoint for Prometheus to scrape. It ends when it is dropped.
#[derive(Debug)]
pub struct Exporter {
    gauges: Arc<Mutex<Gauges>>,
    server: Server,
}

impl Exporter {
    /// Serves no gauges yet, on a free loopback port.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start() -> anyhow::Result<Self> {
        let gauges = Arc::new(Mutex::new(Gauges::default()));
        let routes = Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(&gauges));
        let server = Server::start(routes).await?;
        Ok(Self { gauges, server })
    }

    /// `127.0.0.1:<port>`, as a scrape configuration names a target.
    #[must_use]
    pub fn target(&self) -> String {
        self.server.address.to_string()
    }

    /// Sets a gauge. Its old value is seen until the next scrape.
    pub fn set(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.gauges().values.entry(name.to_owned()).or_default().insert(owned(labels), value);
    }

    /// Serves this beside the gauges, as it is: what gauges cannot be, in the text format of Prometheus.
    pub fn set_text(&self, text: &str) {
        text.clone_into(&mut self.gauges().text);
    }

    /// Takes a gauge away; queries find it no more after the next scrape.
    pub fn remove(&self, name: &str, labels: &[(&str, &str)]) {
        if let Some(values) = self.gauges().values.get_mut(name) {
            values.remove(&owned(labels));
        }
    }

    /// Takes all gauges away.
    pub fn clear(&self) {
        self.gauges().values.clear();
    }

    /// Whether scrapes are answered with 500, as by an application that is ill.
    pub fn set_failing(&self, failing: bool) {
        self.gauges().failing = failing;
    }

    fn gauges(&self) -> MutexGuard<'_, Gauges> {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn metrics(State(gauges): State<Arc<Mutex<Gauges>>>) -> Result<String, StatusCode> {
    let gauges = gauges.lock().unwrap_or_else(PoisonError::into_inner);
    if gauges.failing {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    Ok(render(&gauges.values) + &gauges.text)
}

fn owned(labels: &[(&str, &str)]) -> Labels {
    let mut labels: Labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    labels.sort();
    labels
}

fn render(gauges: &BTreeMap<String, BTreeMap<Labels, f64>>) -> String {
    let mut text = String::new();
    for (name, values) in gauges {
        let _ = writeln!(text, "# TYPE {name} gauge");
        for (labels, value) in values {
            let pairs: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(text, "{name}{{{}}} {}", pairs.join(","), number(*value));
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_special_values_are_written_as_prometheus_reads_them() {
        let mut gauges: BTreeMap<String, BTreeMap<Labels, f64>> = BTreeMap::new();
        let errors = gauges.entry("errors".to_owned()).or_default();
        errors.insert(owned(&[("pod", "web-0"), ("note", "a \"b\"\n")]), 1.5);
        errors.insert(owned(&[]), f64::NEG_INFINITY);
        let text = render(&gauges);
        assert_eq!(text, "# TYPE errors gauge\nerrors{} -Inf\nerrors{note=\"a \\\"b\\\"\\n\",pod=\"web-0\"} 1.5\n");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
