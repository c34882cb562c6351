//! A real Prometheus that is not there, or not all of it.

use rstest::rstest;
use serde_json::json;
use sts_plus_api::{Query, SuccessWhen};
use sts_plus_gates::Secrets;
use testcluster::{Exporter, Prometheus, PrometheusConfig};

use crate::{Data, Error, Fail, NoData, Pass, ask, assertion, judge, query, rig};

/// Two Prometheis, of which one asks the other for what it does not have itself.
struct Two {
    asked: Prometheus,
    other: Prometheus,
    _exporters: [Exporter; 2],
}

impl Two {
    async fn start(name: &str) -> Self {
        let (near, far) = (Exporter::start().await.unwrap(), Exporter::start().await.unwrap());
        near.set("shard", &[("where", "near")], 1.0);
        far.set("shard", &[("where", "far")], 1.0);
        let config = PrometheusConfig::scraping(&[far.target()]);
        let other = Prometheus::start(&rig::dir(&format!("{name}-other")), &config).await.unwrap();
        let read = json!({ "url": format!("{}/api/v1/read", other.url()), "read_recent": true });
        let config = PrometheusConfig {
            document: json!({ "remote_read": [read] }),
            ..PrometheusConfig::scraping(&[near.target()])
        };
        let asked = Prometheus::start(&rig::dir(&format!("{name}-asked")), &config).await.unwrap();
        asked.wait_for("count(shard) == 2", true).await.unwrap();
        Self { asked, other, _exporters: [near, far] }
    }

    async fn ask(&self, expr: &str, style: SuccessWhen) -> sts_plus_gates::Answer {
        ask(Query { success_when: style, ..query(expr, self.asked.url()) }, &Secrets::default()).await
    }
}

/// The half that is left answers HTTP 200, success, with a warning: a real partial answer.
#[tokio::test]
async fn one_of_two_is_down() {
    let mut two = Two::start("two").await;
    for (expr, style, whole) in [
        ("shard", SuccessWhen::NoData, Fail(Data)),
        ("shard == 0", SuccessWhen::NoData, Pass(NoData)),
        (r#"shard{where="far"}"#, SuccessWhen::Data, Pass(Data)),
    ] {
        judge(&two.ask(expr, style).await, whole, "");
    }
    two.other.stop().await.unwrap();
    judge(&two.ask("shard", SuccessWhen::NoData).await, Fail(Error), "the answer may be partial and does not count");
    judge(&two.ask("shard == 0", SuccessWhen::NoData).await, Fail(Error), "may be partial");
    judge(&two.ask(r#"shard{where="far"}"#, SuccessWhen::Data).await, Fail(Error), "may be partial");
    judge(&two.ask(r#"shard{where="near"}"#, SuccessWhen::Data).await, Pass(Data), "passed");
    two.other.restart().await.unwrap();
    judge(&two.ask("shard == 0", SuccessWhen::NoData).await, Pass(NoData), "passed");
}

#[tokio::test]
async fn stopped_frozen_and_back() {
    let mut prometheus = Prometheus::start(&rig::dir("outage"), &PrometheusConfig::default()).await.unwrap();
    let asked = || Query { timeout_seconds: 1, ..assertion(query("vector(1)", prometheus.url())) };
    let (frozen, refused, back) = (asked(), asked(), Query { timeout_seconds: 20, ..asked() });
    prometheus.pause().unwrap();
    judge(&ask(frozen, &Secrets::default()).await, Fail(Error), "no complete answer within 1 s (timeoutSeconds)");
    prometheus.resume().unwrap();
    prometheus.stop().await.unwrap();
    judge(&ask(refused, &Secrets::default()).await, Fail(Error), "cannot connect: Connection refused");
    prometheus.restart().await.unwrap();
    judge(&ask(back, &Secrets::default()).await, Pass(Data), "passed");
}

#[tokio::test]
async fn an_unknown_host() {
    let answer = ask(query("probe", "no-such-host.invalid:9090"), &Secrets::default()).await;
    judge(&answer, Fail(Error), "Prometheus at http://no-such-host.invalid:9090: ");
    let message = answer.record.message;
    assert!(message.contains("cannot be resolved") || message.contains("no complete answer"), "{message}");
}

#[rstest]
#[case::wrong_path("/wrong", "HTTP 404: check the path of the url")]
#[case::url_of_the_api("/api/v1/query", "passed")]
#[tokio::test]
async fn an_address(#[case] url: &str, #[case] words: &str) {
    let url = format!("{}{url}", rig::main().await.url());
    let want = if words == "passed" { Pass(Data) } else { Fail(Error) };
    judge(&ask(assertion(query("probe", &url)), &Secrets::default()).await, want, words);
}
