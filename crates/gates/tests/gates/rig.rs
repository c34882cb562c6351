//! The real servers, started by the first case that needs them and shared by all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use testcluster::{Exporter, Prometheus, PrometheusConfig};
use tokio::sync::OnceCell;

/// A label value with everything that has to be escaped somewhere.
pub const ODD: &str = "a\"b\\c'd\ne.f";

/// Series whose labels alone are more than 4 MiB of JSON, in number.
pub const MANY: usize = 5000;

static MAIN: OnceCell<(Prometheus, Exporter)> = OnceCell::const_new();
static HEAVY: OnceCell<(Prometheus, Exporter)> = OnceCell::const_new();
static LIMITED: OnceCell<[Prometheus; 2]> = OnceCell::const_new();

/// The Prometheus that most cases ask: recording and alerting rules, external labels, native histograms.
pub async fn main() -> &'static Prometheus {
    let (prometheus, _) = MAIN
        .get_or_init(|| async {
            let exporter = Exporter::start().await.unwrap();
            publish(&exporter);
            let dir = dir("main");
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("rules.yaml"), rules()).unwrap();
            let document = json!({
                "global": {
                    "external_labels": { "region": "north" },
                    "convert_classic_histograms_to_nhcb": true,
                    "always_scrape_classic_histograms": true,
                },
                "rule_files": ["rules.yaml"],
            });
            // A scrape that fails makes every series stale, so it has time.
            let config = PrometheusConfig {
                document,
                scrape_interval: Duration::from_secs(1),
                ..PrometheusConfig::scraping(&[exporter.target()])
            };
            let prometheus = Prometheus::start(&dir, &config).await.unwrap();
            for expr in ["gone", "latency", "job:probe:sum", "ALERTS"] {
                prometheus.wait_for(expr, true).await.unwrap();
            }
            exporter.remove("gone", &[]);
            prometheus.wait_for("gone", false).await.unwrap();
            (prometheus, exporter)
        })
        .await;
    prometheus
}

/// A Prometheus with [`MANY`] series. Their samples bring their time along: such series do not end when a scrape fails.
pub async fn heavy() -> &'static Prometheus {
    let start = || async {
        let exporter = Exporter::start().await.unwrap();
        let (mut text, padding) = (String::from("# TYPE many gauge\n"), "p".repeat(1000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        for i in 0..MANY {
            let _ = writeln!(text, "many{{i=\"{i}\",padding=\"{padding}\"}} 1 {now}");
        }
        exporter.set_text(&text);
        let config = PrometheusConfig {
            scrape_interval: Duration::from_secs(5),
            lookback: Duration::from_hours(1),
            ..PrometheusConfig::scraping(&[exporter.target()])
        };
        let prometheus = Prometheus::start(&dir("heavy"), &config).await.unwrap();
        prometheus.wait_for("count(many)", true).await.unwrap();
        (prometheus, exporter)
    };
    let (prometheus, _) = HEAVY.get_or_init(start).await;
    prometheus
}

/// Two that give up soon: after 50 ms, and at more than 50 samples.
pub async fn limited() -> &'static [Prometheus; 2] {
    let start = |name, flag: &'static str| async move {
        let config = PrometheusConfig { flags: vec![flag.to_owned()], ..PrometheusConfig::default() };
        Prometheus::start(&dir(name), &config).await.unwrap()
    };
    let both =
        || async { [start("short", "--query.timeout=50ms").await, start("few", "--query.max-samples=50").await] };
    LIMITED.get_or_init(both).await
}

/// A folder for a server of this process. Those of processes that are gone are taken away.
pub fn dir(name: &str) -> PathBuf {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for entry in std::fs::read_dir(base).unwrap().flatten() {
        let folder = entry.file_name().into_string().unwrap_or_default();
        let owner = folder.strip_prefix("gates-").filter(|pid| !Path::new("/proc").join(pid).exists());
        if owner.is_some() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    base.join(format!("gates-{}", std::process::id())).join(name)
}

fn publish(exporter: &Exporter) {
    exporter.set("probe", &[("job", "x")], 1.0);
    exporter.set("odd_number", &[], f64::NAN);
    exporter.set("gone", &[], 1.0);
    exporter.set("twin", &[("n", "1")], 1.0);
    exporter.set("twin", &[("n", "2")], 2.0);
    exporter.set("oddly", &[("v", ODD)], 1.0);
    exporter.set("oddly", &[("v", "eu.west")], 2.0);
    exporter.set("oddly", &[("v", "euxwest")], 3.0);
    exporter.set("city", &[("name", "Zürich 東京 🚀")], 1.0);
    exporter.set("long", &[("text", &"ä".repeat(2000))], 1.0);
    let mut text = String::from("# TYPE latency histogram\n");
    for (le, count) in [("0.1", 1), ("1", 5), ("+Inf", 6)] {
        let _ = writeln!(text, "latency_bucket{{le=\"{le}\"}} {count}");
    }
    text.push_str("latency_sum 7.5\nlatency_count 6\n");
    // A name and a label that only version 3 knows.
    text.push_str("# TYPE \"http.näme\" gauge\n{\"http.näme\",\"status.code\"=\"500\"} 1\n");
    exporter.set_text(&text);
}

fn rules() -> &'static str {
    r#"{"groups": [{"name": "test", "rules": [
        {"record": "job:probe:sum", "expr": "sum by (job) (probe)"},
        {"alert": "Lagging", "expr": "probe == 1"}
    ]}]}"#
}
