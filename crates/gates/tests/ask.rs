//! One query from end to end, over the wire. The server is a mock on purpose: every case is a fault, or needs to see the bytes
//! that were sent.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use common::{Act, ONE, Server, ask, ask_with, http, json, query, secret, vector};
use rstest::rstest;
use sts_plus_api::{OnMissingMetric, Query, Reason, SuccessWhen, Verdict};
use sts_plus_gates::{AddressPolicy, Secrets};

const CANARY: &str = "canary-7f3a9c1d5e";

fn none() -> Secrets {
    Secrets::default()
}

#[tokio::test]
async fn what_is_sent() {
    let server = Server::sending(json(&vector(ONE))).await;
    let url = format!("{}/xx", server.url());
    let answer = ask(query("up{pod=\"${pod}\"} == ${ordinal}", &url), &none()).await;
    let record = &answer.record;
    assert_eq!((record.verdict, record.passed, record.http_status), (Verdict::Data, false, Some(200)));
    assert_eq!(record.query, "up{pod=\"web-1\"} == 1");
    assert_eq!(record.endpoint, format!("http://{url}"));
    assert_eq!((record.name.as_str(), record.pod.as_str(), record.series_count), ("query", "web-1", 1));
    assert_eq!(
        record.message,
        "1 series returned by up{pod=\"web-1\"} == 1, first up{job=\"x\"} = 1: not passed (successWhen NoData)"
    );
    assert_eq!((&answer.problem, answer.warnings.len()), (&None, 0));
    let received = server.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].head.starts_with("POST /xx/api/v1/query HTTP/1.1"));
    assert_eq!(received[0].query(), "up{pod=\"web-1\"} == 1");
    assert!(received[0].body.ends_with("&timeout=2s"));
    assert_eq!(received[0].headers("user-agent"), ["sts-plus/0.1.0"]);
    assert_eq!(received[0].headers("accept-encoding"), ["identity"]);
    assert_eq!(received[0].headers("content-type"), ["application/x-www-form-urlencoded"]);
    assert_eq!(received[0].headers("authorization"), [""; 0]);
}

/// Faults of the answer: none passes, whichever way the query is meant, and each sentence says what is wrong.
#[rstest]
#[case::half_a_body(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{\"status\":".to_vec(), "connection broke before the answer was complete")]
#[case::half_a_chunk(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}".to_vec(), "connection broke before the answer was complete")]
#[case::unbounded_half(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"status\":\"success\",\"data\":{\"res".to_vec(), "cannot be read")]
#[case::nothing(Vec::new(), "connection broke before the answer was complete")]
#[case::no_http(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), "the answer is not HTTP")]
#[case::login_page(http(200, &[("Content-Type", "text/html")], "<html>"), "not JSON (content type text/html)")]
#[case::gzip(http(200, &[("Content-Type", "application/json"), ("Content-Encoding", "gzip")], "\u{1f}"), "compressed (gzip)")]
#[case::proxy_error(http(502, &[("Content-Type", "text/plain")], "no healthy\nupstream"), "answered HTTP 502: no healthy upstream")]
#[case::huge_header(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)).into_bytes(), "the answer is not HTTP")]
#[case::announced_too_large(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4194305\r\n\r\n".to_vec(), "larger than 4 MiB")]
#[case::redirect_elsewhere(http(307, &[("Location", "https://sso.example.com/login?token=abc")], ""), "redirect (HTTP 307) to https://sso.example.com:443: give the final address")]
#[case::redirect_302(http(302, &[("Location", "/login")], ""), "/login: give the final address as the url")]
#[case::redirect_303(http(303, &[("Location", "/graph")], ""), "redirect (HTTP 303)")]
#[case::redirect_301(http(301, &[("Location", "/prom/api/v1/query")], ""), "redirect (HTTP 301)")]
#[case::redirect_with_userinfo(http(308, &[("Location", "http://u:canary@elsewhere/")], ""), "redirect (HTTP 308) to http://elsewhere:80")]
#[case::redirect_nowhere(http(307, &[], ""), "names no usable address")]
#[case::redirect_to_a_file(http(307, &[("Location", "file:///etc/passwd")], ""), "redirect (HTTP 307) to file://")]
#[case::multiple_choices(http(300, &[], ""), "HTTP 300")]
#[tokio::test]
async fn faults(#[case] bytes: Vec<u8>, #[case] want: &str) {
    let server = Server::sending(bytes).await;
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let answer = ask(Query { success_when, ..query("up", &server.url()) }, &none()).await;
        assert_eq!((answer.record.verdict, answer.record.passed), (Verdict::Error, false));
        assert!(answer.record.message.contains(want), "{}", answer.record.message);
        assert!(!answer.record.message.contains("canary"));
        assert_eq!(answer.problem, None);
    }
}

#[rstest]
#[case::silence(|| Act::Silence)]
#[case::slow_header(|| Act::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec()))]
#[case::slow_body(|| Act::Drip(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n".to_vec()))]
#[tokio::test]
async fn the_deadline_is_for_the_whole_exchange(#[case] act: fn() -> Act) {
    let server = Server::start(move |_, _| act()).await;
    let start = Instant::now();
    let answer = ask(Query { timeout_seconds: 1, ..query("up", &server.url()) }, &none()).await;
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(answer.record.verdict, Verdict::Error);
    assert!(
        answer.record.message.ends_with("no complete answer within 1 s (timeoutSeconds)"),
        "{}",
        answer.record.message
    );
}

/// Without Content-Length the limit must hold while reading.
#[rstest]
#[case(4 << 20, true)]
#[case((4 << 20) + 1, false)]
#[tokio::test]
async fn the_body_limit(#[case] size: usize, #[case] passed: bool) {
    let body = vector("");
    let padding = " ".repeat(size - body.len());
    let bytes = format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}{padding}").into_bytes();
    let server = Server::sending(bytes).await;
    let answer = ask(Query { timeout_seconds: 20, ..query("vector(1) == 0", &server.url()) }, &none()).await;
    assert_eq!(answer.record.passed, passed, "{}", answer.record.message);
    assert_eq!(answer.record.message.contains("larger than 4 MiB"), !passed);
}

#[tokio::test]
async fn refused_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("localhost:{}", listener.local_addr().unwrap().port());
    drop(listener);
    let answer = ask(query("up", &url), &none()).await;
    assert_eq!(answer.record.verdict, Verdict::Error);
    assert!(answer.record.message.contains("cannot connect: Connection refused"), "{}", answer.record.message);
}

#[tokio::test]
async fn unknown_host() {
    let answer = ask(query("up", "no-such-host.invalid:9090"), &none()).await;
    assert_eq!(answer.record.verdict, Verdict::Error);
    let message = answer.record.message;
    assert!(message.starts_with("Prometheus at http://no-such-host.invalid:9090: "), "{message}");
    assert!(message.contains("cannot be resolved") || message.contains("no complete answer"), "{message}");
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_method_body_and_credentials() {
    let server = Server::start(|n, _| match n {
        0 => Act::Send(http(307, &[("Location", "/a")], "")),
        1 => Act::Send(http(308, &[("Location", "b?x=1")], "")),
        _ => Act::Send(json(&vector(ONE))),
    })
    .await;
    let secrets = Secrets { credentials: Some(secret("s", &[("token", CANARY)])), ..none() };
    let asked = Query { secret_ref: Some("s".into()), success_when: SuccessWhen::Data, ..query("up", &server.url()) };
    let answer = ask(asked, &secrets).await;
    assert!(answer.record.passed, "{}", answer.record.message);
    let received = server.received();
    let lines: Vec<_> = received.iter().map(|r| r.head.lines().next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["POST /api/v1/query HTTP/1.1", "POST /a HTTP/1.1", "POST /b?x=1 HTTP/1.1"]);
    for request in &received {
        assert_eq!(request.query(), "up");
        assert_eq!(request.headers("authorization"), [format!("Bearer {CANARY}")]);
    }
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::sending(http(307, &[("Location", "/again")], "")).await;
    let answer = ask(query("up", &server.url()), &none()).await;
    assert!(answer.record.message.contains("more than 3 redirects"), "{}", answer.record.message);
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn credentials_do_not_follow_to_another_origin() {
    let other = Server::sending(json(&vector(ONE))).await;
    let target = format!("http://{}/api/v1/query", other.url());
    let server = Server::sending(http(307, &[("Location", &target)], "")).await;
    let secrets = Secrets { credentials: Some(secret("s", &[("token", CANARY)])), ..none() };
    let answer = ask(Query { secret_ref: Some("s".into()), ..query("up", &server.url()) }, &secrets).await;
    assert_eq!(answer.record.verdict, Verdict::Error);
    assert!(other.received().is_empty());
}

/// A server that sends back all it got, in every place that can end up in a sentence.
#[rstest]
#[case(&[("token", CANARY)])]
#[case(&[("username", "me"), ("password", CANARY)])]
#[case(&[("token", CANARY), ("username", "me"), ("password", "canary-of-the-pair")])]
#[tokio::test]
async fn credentials_are_never_shown(#[case] pairs: &'static [(&str, &str)]) {
    let server = Server::start(|n, request| {
        let authorization = request.headers("authorization").join(" ").replace('"', "");
        let error = format!(r#"{{"status":"error","errorType":"x","error":"{authorization} {CANARY}"}}"#);
        let series = format!(r#"{{"metric":{{"a":"{authorization} {CANARY}"}},"value":[1,"1"]}}"#);
        Act::Send(match n {
            0 => http(401, &[("Content-Type", "application/json")], &error),
            1 => http(500, &[("Content-Type", "text/plain")], &format!("{authorization} {CANARY}")),
            2 => http(200, &[("Content-Type", &authorization)], ""),
            3 => http(307, &[("Location", &format!("http://{CANARY}/"))], ""),
            4 => json(&vector(&series)),
            5 => json(&vector(&format!("\"{authorization}\""))),
            _ => json(&error),
        })
    })
    .await;
    let secrets = Secrets { credentials: Some(secret("prom-secret", pairs)), ..none() };
    for _ in 0..7 {
        let asked = Query { secret_ref: Some("prom-secret".into()), ..query("up", &server.url()) };
        let answer = ask(asked, &secrets).await;
        let shown = format!("{answer:?}{}{secrets:?}", serde_json::to_string(&answer.record).unwrap());
        assert!(!shown.contains("canary") && !shown.contains("bWU6Y2FuYXJ5"), "{shown}");
        assert!(!answer.record.passed);
    }
    for request in server.received() {
        assert_eq!(request.headers("authorization").len(), 1);
    }
}

#[tokio::test]
async fn token_wins_with_a_warning() {
    let server = Server::sending(json(&vector(ONE))).await;
    let secrets = Secrets {
        credentials: Some(secret("prom-secret", &[("token", "t"), ("username", "u"), ("password", "p")])),
        ..none()
    };
    let answer = ask(Query { secret_ref: Some("prom-secret".into()), ..query("up", &server.url()) }, &secrets).await;
    assert_eq!(answer.warnings[0].0, Reason::TokenWins);
    assert!(answer.warnings[0].1.contains("Secret prom-secret, named in spec.check.query.secretRef"));
    assert_eq!(server.received()[0].headers("authorization"), ["Bearer t"]);
}

/// Nothing is asked while the configuration is wrong.
#[rstest]
#[case::no_secret(Query { secret_ref: Some("s".into()), ..query("up", "x") }, none(), Reason::InvalidCredentials, "spec.check.query.secretRef names Secret s, which does not exist")]
#[case::half(Query { secret_ref: Some("s".into()), ..query("up", "x") }, Secrets { credentials: Some(secret("s", &[("username", "u")])), ..none() }, Reason::InvalidCredentials, "spec.check.query.secretRef: Secret s has the key username but no key password")]
#[case::no_zone(
    query("up{z=\"${zone}\"}", "x"),
    none(),
    Reason::InvalidQuery,
    "spec.check.query.expr uses ${zone}, which has no value for this pod"
)]
#[case::bad_url(
    query("up", "ftp://x"),
    none(),
    Reason::InvalidUrl,
    "spec.check.query.url has a scheme other than http and https"
)]
#[case::no_url(Query { url: None, ..query("up", "x") }, none(), Reason::InvalidUrl, "spec.check.query.url is missing")]
#[case::bad_query(query("up{", "x"), none(), Reason::InvalidQuery, "spec.check.query.expr is not valid PromQL")]
#[tokio::test]
async fn problems(#[case] asked: Query, #[case] secrets: Secrets, #[case] reason: Reason, #[case] start: &str) {
    let answer = ask(asked, &secrets).await;
    let problem = answer.problem.unwrap();
    assert_eq!(problem.reason, reason);
    assert!(problem.message.starts_with(start), "{}", problem.message);
    assert_eq!((answer.record.verdict, answer.record.passed), (Verdict::Error, false));
    assert_eq!(answer.record.message, problem.message);
}

#[rstest]
#[case("127.0.0.1:9", "a loopback address")]
#[case("localhost:9", "a loopback address")]
#[case("[::1]:9", "a loopback address")]
#[case("[::ffff:127.0.0.1]:9", "a loopback address")]
#[case("169.254.169.254", "a link-local address")]
#[case("0.0.0.0:9090", "an unspecified address")]
#[tokio::test]
async fn addresses_that_must_not_be_asked(#[case] url: &str, #[case] what: &str) {
    let answer = ask_with(AddressPolicy::default(), query("up", url), &none()).await;
    let problem = answer.problem.unwrap();
    assert_eq!(problem.reason, Reason::InvalidUrl);
    assert!(problem.message.starts_with("spec.check.query.url names a host that is"), "{}", problem.message);
    assert!(problem.message.contains(what), "{}", problem.message);
}

fn existence(missing: &str) -> impl Fn(usize, &common::Received) -> Act + Send + Sync + 'static {
    let missing = missing.to_owned();
    move |n, _| Act::Send(if n == 0 { json(&vector("")) } else { json(&missing) })
}

#[rstest]
#[case::exists(OnMissingMetric::Hold, vector(""), Verdict::NoData, true, 0)]
#[case::exists_pass(OnMissingMetric::Pass, vector(""), Verdict::NoData, true, 0)]
#[case::missing(
    OnMissingMetric::Hold,
    vector(r#"{"metric":{"sts_plus_missing":"1"},"value":[1,"1"]}"#),
    Verdict::Unproven,
    false,
    0
)]
#[case::missing_pass(
    OnMissingMetric::Pass,
    vector(r#"{"metric":{"sts_plus_missing":"1"},"value":[1,"1"]}"#),
    Verdict::NoData,
    true,
    1
)]
#[case::error(OnMissingMetric::Hold, "garbage".into(), Verdict::Error, false, 0)]
#[case::error_pass(OnMissingMetric::Pass, "garbage".into(), Verdict::NoData, true, 0)]
#[tokio::test]
async fn missing_metrics(
    #[case] on_missing_metric: OnMissingMetric,
    #[case] second: String,
    #[case] verdict: Verdict,
    #[case] passed: bool,
    #[case] warnings: usize,
) {
    let server = Server::start(existence(&second)).await;
    let answer = ask(Query { on_missing_metric, ..query("good > 1 or typo > 1", &server.url()) }, &none()).await;
    let record = &answer.record;
    assert_eq!(
        (record.verdict, record.passed, answer.warnings.len()),
        (verdict, passed, warnings),
        "{}",
        record.message
    );
    assert_eq!(record.query, "good > 1 or typo > 1");
    if verdict == Verdict::Unproven || warnings > 0 {
        assert!(record.message.contains("has no metric typo"), "{}", record.message);
    }
    if warnings > 0 {
        assert_eq!(answer.warnings[0].0, Reason::PassedOnMissingMetric);
        assert!(answer.warnings[0].1.contains("no metric typo"));
    }
    let received = server.received();
    assert_eq!(received.len(), 2);
    assert!(received[1].query().contains("absent({__name__=\"typo\"})"), "{}", received[1].query());
}

/// Without a passed `NoData` there is nothing to prove, so there is no second request.
#[tokio::test]
async fn no_second_request_without_need() {
    let server = Server::sending(json(&vector(ONE))).await;
    ask(Query { on_missing_metric: OnMissingMetric::Hold, ..query("up == 0", &server.url()) }, &none()).await;
    let empty = Server::sending(json(&vector(""))).await;
    ask(Query { success_when: SuccessWhen::Data, ..query("up == 0", &empty.url()) }, &none()).await;
    ask(query("vector(1) == 0", &empty.url()), &none()).await;
    assert_eq!((server.received().len(), empty.received().len()), (1, 2));
}

/// A server that closes every connection right after its answer: a dead connection must never be an error by itself.
#[tokio::test]
async fn a_dead_connection_is_never_reused() {
    let server = Server::sending(json(&vector(ONE))).await;
    for _ in 0..20 {
        let answer = ask(Query { success_when: SuccessWhen::Data, ..query("up", &server.url()) }, &none()).await;
        assert!(answer.record.passed, "{}", answer.record.message);
    }
}

/// Every text of a record is cut to what the CRD documents.
#[tokio::test]
async fn records_are_bounded() {
    let long = "ä".repeat(3000);
    let series = format!(r#"{{"metric":{{"a":"{long}"}},"value":[1,"1"]}}"#);
    let server = Server::sending(json(&vector(&vec![series; 50].join(",")))).await;
    let url = format!("{}/{}", server.url(), "p".repeat(1500));
    let answer = ask(query(&format!("up{{a=\"{long}\"}}"), &url), &none()).await;
    let record = answer.record;
    assert_eq!((record.series_count, record.series.len()), (50, 3));
    assert!(record.query.len() <= 512 && record.endpoint.len() <= 256 && record.message.len() <= 512);
    assert!(record.series.iter().all(|s| s.labels.len() <= 256 && s.value.len() <= 256));
    assert!(record.query.ends_with('…') && record.series[0].labels.ends_with('…'));
    assert!(record.message.ends_with("not passed (successWhen NoData)"));
}
