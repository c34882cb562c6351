//! The real Prometheus, the exporter whose values a test sets, and the proxy that demands credentials.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use testcluster::{Access, AuthProxy, Exporter, Prometheus, PrometheusConfig};

/// A sample is seen for long, so that what is gone within the patience of a test has been ended by the scrape that did not find it.
async fn start() -> (tempfile::TempDir, Exporter, Prometheus) {
    let dir = tempfile::tempdir().unwrap();
    let exporter = Exporter::start().await.unwrap();
    let lookback = Duration::from_mins(5);
    let config = PrometheusConfig { lookback, ..PrometheusConfig::scraping(&[exporter.target()]) };
    let prometheus = Prometheus::start(dir.path(), &config).await.unwrap();
    (dir, exporter, prometheus)
}

#[tokio::test]
async fn what_a_test_sets_is_seen_and_what_it_removes_is_gone_at_the_next_scrape() {
    let (_dir, exporter, prometheus) = start().await;
    let labels = [("pod", "web-0"), ("namespace", "shop")];
    exporter.set("errors", &labels, 1.5);
    exporter.set("errors", &[("pod", "web-1")], f64::NAN);
    let query = r#"errors{pod="web-0",namespace="shop"}"#;
    let data = prometheus.wait_for(query, true).await.unwrap();
    assert_eq!(data["resultType"], "vector");
    assert_eq!(data["result"][0]["value"][1], "1.5");
    prometheus.wait_for(r#"errors{pod="web-1"}"#, true).await.unwrap();

    exporter.set("errors", &labels, 0.0);
    prometheus.wait_until(query, |data| data["result"][0]["value"][1] == json!("0")).await.unwrap();
    exporter.remove("errors", &labels);
    prometheus.wait_for(query, false).await.unwrap();

    exporter.set_failing(true);
    prometheus.wait_until("up", |data| data["result"][0]["value"][1] == json!("0")).await.unwrap();
    let error = prometheus.query("errors{").await.unwrap_err().to_string();
    assert!(error.contains("400") && error.contains("parse error"), "{error}");
}

#[tokio::test]
async fn an_outage_and_a_silence_end() {
    let (_dir, exporter, mut prometheus) = start().await;
    exporter.set("errors", &[], 1.0);
    prometheus.wait_for("errors", true).await.unwrap();
    prometheus.stop().await.unwrap();
    prometheus.query("errors").await.unwrap_err();
    prometheus.restart().await.unwrap();
    exporter.set("errors", &[], 2.0);
    prometheus.wait_until("errors", |data| data["result"][0]["value"][1] == json!("2")).await.unwrap();

    prometheus.pause().unwrap();
    let silent = tokio::time::timeout(Duration::from_secs(1), prometheus.query("errors")).await;
    assert!(silent.is_err(), "no answer while it is frozen");
    prometheus.resume().unwrap();
    exporter.set("errors", &[], 3.0);
    prometheus.wait_until("errors", |data| data["result"][0]["value"][1] == json!("3")).await.unwrap();
}

#[tokio::test]
async fn the_proxy_demands_credentials_and_remembers_what_it_was_asked() {
    let (_dir, exporter, prometheus) = start().await;
    exporter.set("errors", &[], 1.0);
    prometheus.wait_for("errors", true).await.unwrap();
    let proxy = AuthProxy::start(prometheus.url()).await.unwrap();
    let ask = async |authorization: &str| {
        let credentials = match authorization {
            "" => String::new(),
            value => format!("Authorization: {value}\r\n"),
        };
        let host = &proxy.url()[7..];
        let request = format!(
            "GET /api/v1/query?query=errors HTTP/1.1\r\nHost: {host}\r\n{credentials}User-Agent: somebody/1\r\nConnection: close\r\n\r\n"
        );
        raw(&proxy.url()[7..], &request).await
    };
    assert!(ask("").await.starts_with("HTTP/1.1 200"), "open at first");
    proxy.demand(Access::Bearer("s3cret".to_owned()));
    assert!(ask("").await.starts_with("HTTP/1.1 401"));
    assert!(ask("Bearer wrong").await.starts_with("HTTP/1.1 401"));
    let answer = ask("Bearer s3cret").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"success\""), "{answer}");
    proxy.demand(Access::Basic("ann".to_owned(), "pw".to_owned()));
    assert!(ask("Bearer s3cret").await.starts_with("HTTP/1.1 401"));
    let pair = format!("Basic {}", STANDARD.encode("ann:pw"));
    assert!(ask(&pair).await.starts_with("HTTP/1.1 200"));
    proxy.answer_with(403, "not you");
    assert!(ask(&pair).await.starts_with("HTTP/1.1 403"));
    proxy.answer_with(500, "ill");
    assert!(ask(&pair).await.ends_with("ill"));
    proxy.answer_series(&json!([]));
    let answer = ask(&pair).await;
    assert!(answer.contains("application/json") && answer.contains(r#""result":[]"#), "{answer}");
    proxy.forward();
    assert!(ask(&pair).await.starts_with("HTTP/1.1 200"));
    // Each request is about nothing in particular.
    proxy.fail_each(2, "", Duration::ZERO);
    for status in ["200", "503", "200", "503"] {
        assert!(ask(&pair).await.starts_with(&format!("HTTP/1.1 {status}")));
    }

    let seen: Vec<u16> = proxy.seen().iter().map(|request| request.status).collect();
    assert_eq!(seen, [200, 401, 401, 200, 401, 200, 403, 500, 200, 200, 200, 503, 200, 503]);
    let last = proxy.seen().pop().unwrap();
    assert_eq!(last.authorization.as_deref(), Some(pair.as_str()));
    assert_eq!(last.user_agent.as_deref(), Some("somebody/1"));
    assert_eq!(last.uri, "/api/v1/query?query=errors");
    proxy.forget();
    assert_eq!(proxy.count(), 0);
}

/// Sends a request byte by byte as given, and returns the whole answer.
async fn raw(address: &str, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
