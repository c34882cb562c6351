//! What other servers of Prometheus' API are known to answer, and the gateways before them: one row for each difference, with the
//! public report of it where there is one.

use rstest::rstest;
use sts_plus_api::{Query, Reason, SuccessWhen};
use sts_plus_gates::{Freshness, Secrets};

use crate::server::{Act, ONE, Server, http, json, vector};
use crate::{Data, Error, Fail, NoData, Pass, Want, ask, ask_by, assertion, judge, loopback, query, secret};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const TEXT: (&str, &str) = ("Content-Type", "text/plain; charset=utf-8");

/// An empty answer of which `from` stands as `to`.
fn empty(from: &str, to: &str) -> Vec<u8> {
    let body = vector("");
    assert!(body.contains(from));
    json(&body.replace(from, to))
}

/// An answer with a field more.
fn with(series: &str, field: &str) -> Vec<u8> {
    json(&vector(series).replace("\"data\"", &format!("{field},\"data\"")))
}

/// An answer from a cache that has had it for so long.
fn aged(age: &str) -> Vec<u8> {
    http(200, &[JSON, ("Age", age), ("X-Cache", "HIT")], &vector(""))
}

fn refusal(status: u16, body: &str) -> Vec<u8> {
    http(status, &[JSON], body)
}

fn chunked(body: &str) -> Vec<u8> {
    let (first, second) = body.split_at(body.len() / 2);
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=UTF-8\r\nTransfer-Encoding: chunked\r\nTrailer: X-Time\r\n\r\n\
         {:x}\r\n{first}\r\n{:x};ext=1\r\n{second}\r\n0\r\nX-Time: 1\r\n\r\n",
        first.len(),
        second.len()
    )
    .into_bytes()
}

/// The row says what comes of it with successWhen `NoData`, and with `Data`; and what the sentence of the first says.
// spec: pr§3
#[rstest]
// Thanos. `null`: thanos-io/thanos#576, prometheus/prometheus#3515.
#[case::thanos_null(empty("[]", "null"), Pass(NoData), Fail(NoData), "no series")]
#[case::thanos_analysis(
    empty("\"result\":[]", r#""result":[],"analysis":{"name":"[concat]","children":[]}"#),
    Pass(NoData),
    Fail(NoData),
    "no series"
)]
#[case::thanos_without_stores(
    with("", r#""warnings":["No StoreAPIs matched for this query"]"#),
    Fail(Error),
    Fail(Error),
    "No StoreAPIs matched"
)]
#[case::thanos_store_down(
    with(ONE, r#""warnings":["fetch series for {cluster: \"a\"} 10.0.0.1:10901: rpc error: code = Unavailable"]"#),
    Fail(Error),
    Pass(Data),
    "may be partial"
)]
#[case::thanos_abort(refusal(422, r#"{"status":"error","errorType":"execution","error":"expand series set: proxy Series(): rpc error: code = Aborted"}"#), Fail(Error), Fail(Error), "HTTP 422, execution: expand series set")]
#[case::thanos_info(with("", r#""warnings":["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"x\" (1:6)"]"#), Pass(NoData), Fail(NoData), "no series")]
// Cortex. An answer without a type: cortexproject/cortex#1142.
#[case::cortex_no_type(
    empty(r#""resultType":"vector","result":[]"#, r#""resultType":"","result":null"#),
    Fail(Error),
    Fail(Error),
    "unknown result type"
)]
#[case::cortex_tenant(http(401, &[TEXT], "no org id\n"), Fail(Error), Fail(Error), "give the url of a gateway that adds it: no org id")]
#[case::cortex_limit(refusal(422, r#"{"status":"error","errorType":"execution","error":"the query hit the max number of series limit (limit: 100000)"}"#), Fail(Error), Fail(Error), "max number of series limit")]
#[case::cortex_frontend(http(500, &[TEXT], "rpc error: code = Unknown desc = context canceled"), Fail(Error), Fail(Error), "HTTP 500: rpc error")]
// Mimir. Tenant: grafana/mimir#2030. Blocks that are missing are an error, never a part: grafana/mimir#3499.
#[case::mimir_tenant(
    refusal(401, r#"{"status":"error","errorType":"unauthorized","error":"no org id"}"#),
    Fail(Error),
    Fail(Error),
    "X-Scope-OrgID"
)]
#[case::mimir_queue_full(
    refusal(429, r#"{"status":"error","errorType":"too_many_requests","error":"too many outstanding requests"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 429, too_many_requests"
)]
#[case::mimir_blocks(refusal(500, r#"{"status":"error","errorType":"internal","error":"failed to fetch some blocks (err-mimir-store-consistency-check-failed)"}"#), Fail(Error), Fail(Error), "internal: failed to fetch some blocks")]
#[case::mimir_infos(with("", r#""infos":["PromQL info: x"],"warnings":[]"#), Pass(NoData), Fail(NoData), "no series")]
#[case::mimir_warning(
    with("", r#""warnings":["PromQL warning: quantile value should be between 0 and 1, got 2"]"#),
    Fail(Error),
    Fail(Error),
    "does not count"
)]
// VictoriaMetrics. Codes: #6413, #156; partial: #4721; compressed by vmauth though it was not asked for: #514.
#[case::victoria(with(ONE, r#""isPartial":false,"stats":{"seriesFetched":"1","executionTimeMsec":2},"trace":{"duration_msec":0.1,"children":[]}"#), Fail(Data), Pass(Data), "1 series")]
#[case::victoria_partial(
    with("", r#""isPartial":true"#),
    Fail(Error),
    Fail(Error),
    "some of the storage did not answer"
)]
#[case::victoria_partial_data(
    with(ONE, r#""isPartial":true"#),
    Fail(Error),
    Pass(Data),
    "some of the storage did not answer"
)]
#[case::victoria_refused(
    refusal(422, r#"{"status":"error","errorType":"422","error":"error when executing query: unknown func"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 422, 422: error when executing"
)]
#[case::victoria_storage_down(
    refusal(503, r#"{"status":"error","errorType":"503","error":"cannot fetch query results from vmstorage nodes"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 503, 503: cannot fetch"
)]
#[case::victoria_path(http(400, &[TEXT], "unsupported path requested: \"/select/0/prometheus\""), Fail(Error), Fail(Error), "HTTP 400: unsupported path")]
#[case::vmauth_gzip(http(200, &[JSON, ("Content-Encoding", "gzip")], "\u{1f}"), Fail(Error), Fail(Error), "compressed (gzip)")]
#[case::vmauth_deflate(http(200, &[JSON, ("Content-Encoding", "deflate")], "x"), Fail(Error), Fail(Error), "compressed (deflate)")]
// Google Managed Service for Prometheus. `null`: GoogleCloudPlatform/prometheus-engine#1645.
#[case::google_null(empty("[]", "null"), Pass(NoData), Fail(NoData), "no series")]
#[case::google_chunked(chunked(&vector("")), Pass(NoData), Fail(NoData), "no series")]
#[case::google_chunked_data(chunked(&vector(ONE)), Fail(Data), Pass(Data), "1 series")]
#[case::google_no_token(refusal(401, r#"{"error":{"code":401,"message":"Request is missing required authentication credential.","status":"UNAUTHENTICATED"}}"#), Fail(Error), Fail(Error), "in secretRef: Request is missing required")]
#[case::google_no_right(refusal(403, r#"{"error":{"code":403,"message":"Permission monitoring.timeSeries.list denied","status":"PERMISSION_DENIED"}}"#), Fail(Error), Fail(Error), "Permission monitoring.timeSeries.list denied")]
#[case::google_quota(
    refusal(429, r#"{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 429: Quota exceeded"
)]
// Amazon Managed Service for Prometheus: requests have to be signed.
#[case::amazon_unsigned(
    refusal(403, r#"{"message":"Missing Authentication Token"}"#),
    Fail(Error),
    Fail(Error),
    "Missing Authentication Token"
)]
#[case::amazon_old_signature(
    refusal(403, r#"{"Message":"Signature expired"}"#),
    Fail(Error),
    Fail(Error),
    "Signature expired"
)]
#[case::amazon_throttled(http(429, &[JSON, ("Retry-After", "1")], r#"{"message":"Rate exceeded"}"#), Fail(Error), Fail(Error), "HTTP 429: Rate exceeded")]
#[case::amazon_timeout(
    refusal(422, r#"{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 422, timeout"
)]
// Grafana Cloud, and Grafana as a proxy of its data sources.
#[case::grafana_token(
    refusal(401, r#"{"status":"error","error":"authentication error: invalid token"}"#),
    Fail(Error),
    Fail(Error),
    "authentication error: invalid token"
)]
#[case::grafana_proxy(
    refusal(401, r#"{"message":"Unauthorized","statusCode":401,"traceID":""}"#),
    Fail(Error),
    Fail(Error),
    "in secretRef: Unauthorized"
)]
#[case::grafana_method(
    refusal(500, r#"{"message":"An error occurred within the plugin"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 500: An error occurred"
)]
// Azure Monitor, M3 (m3db/m3#2836), prom-label-proxy, a proxy through the API server of Kubernetes, Prometheus as an agent.
#[case::azure_token(
    refusal(401, r#"{"error":{"code":"AuthenticationFailed","message":"Authentication failed"}}"#),
    Fail(Error),
    Fail(Error),
    "Authentication failed"
)]
#[case::m3_limited(
    with("", r#""warnings":["m3db_max_fetch_series_limit_applied"]"#),
    Fail(Error),
    Fail(Error),
    "m3db_max_fetch_series_limit_applied"
)]
#[case::label_proxy(refusal(400, r#"{"status":"error","errorType":"prom-label-proxy","error":"The \"namespace\" query parameter must be provided."}"#), Fail(Error), Fail(Error), "The \"namespace\" query parameter")]
#[case::kubernetes_proxy(refusal(403, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"services \"prom:9090\" is forbidden","code":403}"#), Fail(Error), Fail(Error), "services \"prom:9090\" is forbidden")]
#[case::agent(
    refusal(503, r#"{"status":"error","errorType":"unavailable","error":"unavailable with Prometheus Agent"}"#),
    Fail(Error),
    Fail(Error),
    "unavailable with Prometheus Agent"
)]
// Something else that answers in JSON.
#[case::other_error(
    refusal(500, r#"{"timestamp":1,"status":500,"error":"Internal Server Error","path":"/"}"#),
    Fail(Error),
    Fail(Error),
    "HTTP 500: Internal Server Error"
)]
#[case::other_shape(refusal(500, r#"{"error":["x"]}"#), Fail(Error), Fail(Error), "HTTP 500")]
#[case::other_list(refusal(502, "[]"), Fail(Error), Fail(Error), "HTTP 502")]
// A cache: what it had before it was asked says nothing.
#[case::cached(
    aged("90"),
    Fail(Error),
    Fail(Error),
    "is 90 s old, and comes from a cache on the way: have that cache leave out"
)]
#[case::cached_just_now(aged("0"), Pass(NoData), Fail(NoData), "no series")]
#[case::cached_for_an_odd_time(aged("a while"), Fail(Error), Fail(Error), "comes from a cache")]
#[tokio::test]
async fn a_server(#[case] bytes: Vec<u8>, #[case] alert: Want, #[case] assert: Want, #[case] words: &str) {
    let server = Server::sending(bytes).await;
    let asked = |success_when| Query { success_when, ..query("up == 0", &server.url()) };
    judge(&ask(asked(SuccessWhen::NoData), &Secrets::default()).await, alert, words);
    judge(&ask(asked(SuccessWhen::Data), &Secrets::default()).await, assert, "");
}

/// The url is the one that each of them gives to Grafana.
#[rstest]
#[case::cortex("/api/prom")]
#[case::mimir("/prometheus")]
#[case::victoria("/select/0/prometheus")]
#[case::victoria_tenant("/select/1:2/prometheus/")]
#[case::google("/v1/projects/p/location/global/prometheus")]
#[case::amazon("/workspaces/ws-1")]
#[case::grafana("/api/datasources/proxy/uid/abc")]
#[case::kubernetes("/api/v1/namespaces/monitoring/services/http:prom:9090/proxy")]
#[tokio::test]
async fn a_prefix(#[case] prefix: &str) {
    let server = Server::sending(json(&vector(ONE))).await;
    judge(
        &ask(assertion(query("up", &format!("{}{prefix}", server.url()))), &Secrets::default()).await,
        Pass(Data),
        "",
    );
    let line = format!("POST {}/api/v1/query HTTP/1.1", prefix.trim_end_matches('/'));
    assert_eq!(server.received()[0].head.lines().next(), Some(line.as_str()));
}

/// It answers for 30 s ago (`-search.latencyOffset`, VictoriaMetrics#1390): a time at which the pod may not have been there. What it can be
/// told apart by is in its answers, so it is asked twice once, and for now from then on; and nobody else is sent what he does not know.
#[rstest]
#[case::single(r#""stats":{"seriesFetched":"0","executionTimeMsec":1}"#, true)]
#[case::cluster(r#""isPartial":false"#, true)]
#[case::another_server(r#""stats":{"samples":{}}"#, false)]
#[tokio::test]
async fn victoria_metrics_is_asked_for_now(#[case] field: &'static str, #[case] is_told: bool) {
    let server = Server::start(move |_, request| {
        let is_for_now = request.body.ends_with("&timeout=20s&nocache=1");
        Act::Send(with(if is_for_now { ONE } else { "" }, field))
    })
    .await;
    let prober = loopback();
    for _ in 0..2 {
        let answer =
            ask_by(&prober, assertion(query("up == 0", &server.url())), &Secrets::default(), Freshness::now()).await;
        judge(&answer, if is_told { Pass(Data) } else { Fail(NoData) }, "");
    }
    let told: Vec<_> = server.received().iter().map(|request| request.body.contains("nocache")).collect();
    assert_eq!(told, if is_told { vec![false, true, true] } else { vec![false, false] });
}

/// A router that wants a slash at the end: 307 and 308 keep the query, 301 and 302 lose it.
#[rstest]
#[case(307, Pass(Data), "1 series")]
#[case(308, Pass(Data), "1 series")]
#[case(301, Fail(Error), "redirect (HTTP 301) to")]
#[case(302, Fail(Error), "redirect (HTTP 302) to")]
#[tokio::test]
async fn a_slash_at_the_end(#[case] status: u16, #[case] want: Want, #[case] words: &str) {
    let server = Server::start(move |_, request| {
        let is_there = request.head.contains("/api/v1/query/ HTTP");
        Act::Send(if is_there { json(&vector(ONE)) } else { http(status, &[("Location", "/api/v1/query/")], "") })
    })
    .await;
    judge(&ask(assertion(query("up", &server.url())), &Secrets::default()).await, want, words);
}

/// The form that Grafana Cloud wants: the number of the instance, and a token as the password.
#[tokio::test]
async fn a_pair_for_grafana_cloud() {
    let server = Server::start(|_, request| {
        let is_known = request.headers("authorization") == ["Basic MTIzNDU2OmdsY190b2tlbg=="];
        Act::Send(if is_known { json(&vector(ONE)) } else { http(401, &[], "") })
    })
    .await;
    let pair = [("username", "123456"), ("password", "glc_token")];
    let secrets = Secrets { credentials: Some(secret("cloud", &pair)), ..Secrets::default() };
    let asked = Query { secret_ref: Some("cloud".into()), ..assertion(query("up", &server.url())) };
    judge(&ask(asked, &secrets).await, Pass(Data), "");
}

/// A query string is no part of a url: a tenant of prom-label-proxy or of `OpenShift` cannot be named in it.
#[tokio::test]
async fn a_query_string_is_refused() {
    let answer = ask(query("up", "thanos:9092/?namespace=web"), &Secrets::default()).await;
    judge(&answer, Want::Problem(Reason::InvalidUrl), "has a query string");
}

/// An error that is larger than anybody reads is told by its status, whatever its type.
#[rstest]
#[case(JSON)]
#[case(TEXT)]
#[tokio::test]
async fn a_large_error(#[case] kind: (&str, &str)) {
    let page = http(502, &[kind], &format!(r#"{{"error":"{}"}}"#, "x".repeat(100_000)));
    let server = Server::start(move |_, _| Act::Drip(page.clone())).await;
    let answer = ask(query("up", &server.url()), &Secrets::default()).await;
    judge(&answer, Fail(Error), "answered HTTP 502");
    assert!(!answer.record.message.contains("xx"), "{}", answer.record.message);
}
