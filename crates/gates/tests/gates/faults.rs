//! Answers that no Prometheus gives when it is told to: the server is one of the test, and sends exactly these bytes. Most stand
//! for something between us and Prometheus: a proxy, a login page, a load balancer, a broken network.

use std::time::Duration;

use rstest::rstest;
use sts_plus_api::{Query, SuccessWhen};
use sts_plus_gates::Secrets;

use crate::server::{Act, ONE, Server, http, json, vector};
use crate::{Data, Error, Fail, Pass, Want, ask, assertion, judge, query};

/// Much more than the deadline of a question, since the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(1);
const JSON: (&str, &str) = ("Content-Type", "application/json");
const HTML: (&str, &str) = ("Content-Type", "text/html; charset=utf-8");

fn text(status: u16, body: &str) -> Vec<u8> {
    http(status, &[("Content-Type", "text/plain")], body)
}

fn raw(head: &str, body: &str) -> Vec<u8> {
    format!("{}\r\n\r\n{body}", head.replace('\n', "\r\n")).into_bytes()
}

fn deep(levels: usize) -> String {
    format!(r#"{{"status":"success","x":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels))
}

fn padded(size: usize) -> Vec<u8> {
    let body = vector("");
    let padding = " ".repeat(size - body.len());
    raw("HTTP/1.0 200 OK\nContent-Type: application/json", &(body + &padding))
}

const INFO: &str =
    "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"errors\" (1:6)";

fn warned(warnings: &[&str]) -> String {
    vector("").replace("\"data\"", &format!("\"warnings\":{},\"data\"", serde_json::json!(warnings)))
}

/// None of these is an answer, in whatever style it is asked for.
// spec: pr§3
#[rstest]
#[case::nothing(Vec::new(), "the connection broke before the answer was complete")]
#[case::half_a_body(raw("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 5000", &vector("")), "connection broke")]
#[case::half_a_chunk(
    raw("HTTP/1.1 200 OK\nContent-Type: application/json\nTransfer-Encoding: chunked", "ff\r\n{}"),
    "connection broke"
)]
#[case::cut_off(
    raw("HTTP/1.0 200 OK\nContent-Type: application/json", "{\"status\":\"success\",\"data\":{\"res"),
    "cannot be read"
)]
#[case::over_4_mib(padded((4 << 20) + 1), "larger than 4 MiB")]
#[case::announced_over_4_mib(
    raw("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 4194305", ""),
    "larger than 4 MiB"
)]
#[case::no_http(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), "the answer is not HTTP")]
#[case::huge_header(raw(&format!("HTTP/1.1 200 OK\nX: {}", "x".repeat(1 << 20)), ""), "the answer is not HTTP")]
#[case::no_content(http(204, &[], ""), "HTTP 204")]
#[case::empty_body(http(200, &[JSON], ""), "cannot be read")]
#[case::no_content_type(http(200, &[], &vector("")), "not JSON (content type none)")]
#[case::login_page(http(200, &[HTML], "<html>Sign in</html>"), "not JSON (content type text/html")]
#[case::html_as_json(http(200, &[JSON], "<html>Sign in</html>"), "cannot be read")]
#[case::json_as_text(http(200, &[("Content-Type", "text/plain")], &vector("")), "not JSON")]
#[case::gzip(http(200, &[JSON, ("Content-Encoding", "gzip")], "\u{1f}"), "compressed (gzip), although none was asked for")]
#[case::byte_order_mark(json(&format!("\u{feff}{}", vector(""))), "cannot be read")]
#[case::more_after_the_end(json(&(vector("") + "{}")), "cannot be read")]
#[case::two_answers(json(&vector("").repeat(2)), "cannot be read")]
#[case::deep(json(&deep(100_000)), "no data")]
#[case::deep_label(json(&vector(&format!(r#"{{"metric":{{"a":{}}},"value":[1,"1"]}}"#, "[".repeat(10_000)))), "cannot be read")]
#[case::huge_time(json(&vector(r#"{"metric":{},"value":[1e999,"1"]}"#)), "cannot be read")]
#[case::value_is_no_number(json(&vector(r#"{"metric":{},"value":[1,"one"]}"#)), "a value is not a number")]
#[case::value_not_in_a_string(json(&vector(r#"{"metric":{},"value":[1,1]}"#)), "cannot be read")]
#[case::no_value(json(&vector(r#"{"metric":{}}"#)), "a series has no value")]
#[case::bad_after_good(json(&vector(&format!("{ONE},{ONE},{ONE},{ONE},null"))), "cannot be read")]
#[case::status_twice(
    json(r#"{"status":"error","status":"success","data":{"resultType":"vector","result":[]}}"#),
    "duplicate field"
)]
#[case::data_twice(json(&vector("").replace("\"data\"", "\"data\":{\"resultType\":\"vector\",\"result\":[]},\"data\"")), "duplicate field")]
#[case::no_data(json(r#"{"status":"success"}"#), "no data")]
#[case::null_data(json(r#"{"status":"success","data":null}"#), "no data")]
#[case::unknown_type(
    json(r#"{"status":"success","data":{"resultType":"streams","result":[]}}"#),
    "unknown result type"
)]
#[case::scalar(json(r#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#), "returned a scalar")]
#[case::string(json(r#"{"status":"success","data":{"resultType":"string","result":[1,"x"]}}"#), "returned a string")]
#[case::unknown_status(json(r#"{"status":"ok","data":{"resultType":"vector","result":[]}}"#), "unknown status")]
#[case::error_with_200(json(r#"{"status":"error","errorType":"internal","error":"boom"}"#), "internal: boom")]
#[case::data_with_503(http(503, &[JSON], &vector("")), "HTTP 503")]
#[case::data_with_201(http(201, &[JSON], &vector("")), "HTTP 201")]
#[case::proxy_is_down(text(502, "no healthy\nupstream"), "HTTP 502: no healthy upstream")]
#[case::starting(text(503, "Service Unavailable"), "HTTP 503: Service Unavailable")]
#[case::error_page(http(500, &[HTML], "<html>secret details</html>"), "HTTP 500")]
#[case::too_many_requests(text(429, "slow down"), "HTTP 429: slow down")]
#[case::method_not_allowed(text(405, "use GET"), "HTTP 405: use GET")]
#[case::upgrade(raw("HTTP/1.1 101 Switching Protocols\nUpgrade: x\nConnection: upgrade", ""), "")]
#[case::redirect_to_another_host(http(307, &[("Location", "http://sso.example.com/login?token=abc")], ""), "redirect (HTTP 307) to http://sso.example.com:80: give the final address")]
#[case::redirect_to_another_scheme(http(308, &[("Location", "https://127.0.0.1/api/v1/query")], ""), "redirect (HTTP 308) to https://127.0.0.1:443")]
#[case::redirect_to_another_port(http(307, &[("Location", "//127.0.0.1:1/api/v1/query")], ""), "to http://127.0.0.1:1")]
#[case::redirect_that_loses_the_body(http(302, &[("Location", "/login")], ""), "/login: give the final address as the url")]
#[case::redirect_to_be_got(http(303, &[("Location", "/graph")], ""), "redirect (HTTP 303)")]
#[case::redirect_of_old(http(301, &[("Location", "/prom/api/v1/query")], ""), "redirect (HTTP 301)")]
#[case::multiple_choices(http(300, &[], ""), "HTTP 300")]
#[case::redirect_loop(http(307, &[("Location", "/api/v1/query")], ""), "more than 3 redirects")]
#[case::redirect_to_a_file(http(307, &[("Location", "file:///etc/passwd")], ""), "redirect (HTTP 307) to file://")]
#[case::redirect_with_userinfo(http(307, &[("Location", "http://u:canary-7f3a9c1d5e@x/")], ""), "to http://x:80")]
#[case::redirect_nowhere(http(307, &[], ""), "names no usable address")]
#[tokio::test]
async fn no_answer(#[case] bytes: Vec<u8>, #[case] words: &str) {
    let server = Server::sending(bytes).await;
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let answer = ask(Query { success_when, ..query("up", &server.url()) }, &Secrets::default()).await;
        judge(&answer, Fail(Error), words);
        assert!(!answer.record.message.contains("secret details"), "no page of HTML in a sentence");
    }
}

/// Odd, and answers all the same; asserted.
#[rstest]
#[case::exactly_4_mib(padded(4 << 20), Fail(crate::NoData), "no series")]
#[case::with_a_charset(http(200, &[("Content-Type", "Application/JSON; charset=utf-8")], &vector(ONE)), Pass(Data), "1 series")]
#[case::identity(http(200, &[JSON, ("Content-Encoding", "identity")], &vector(ONE)), Pass(Data), "1 series")]
#[case::more_fields(json(&vector(ONE).replace("\"data\"", "\"stats\":{\"a\":[1,2]},\"infos\":[\"i\"],\"data\"")), Pass(Data), "1 series")]
#[case::no_warnings(json(&vector(ONE).replace("\"data\"", "\"warnings\":[],\"data\"")), Pass(Data), "1 series")]
#[case::partial_with_data(json(&vector(ONE).replace("\"data\"", "\"isPartial\":true,\"data\"")), Pass(Data), "1 series")]
#[case::partial(json(&vector("").replace("\"data\"", "\"isPartial\":true,\"data\"")), Fail(Error), "may be partial")]
#[case::whole(json(&vector("").replace("\"data\"", "\"isPartial\":false,\"data\"")), Fail(crate::NoData), "no series")]
// `metric might not be a counter` comes among the warnings from Prometheus before 3.0 and from Thanos.
#[case::info_as_warning(json(&warned(&[INFO])), Fail(crate::NoData), "no series")]
#[case::infos_left_out(json(&warned(&[INFO, "3 more info annotations omitted"])), Fail(crate::NoData), "no series")]
#[case::warning_beside_an_info(json(&warned(&[INFO, "PromQL warning: quantile"])), Fail(Error), "does not count: PromQL warning")]
#[case::store_that_failed(json(&warned(&["receive series from Addr: 10.0.0.1:10901: rpc error"])), Fail(Error), "may be partial")]
#[case::null_for_no_series(json(&vector("").replace("[]", "null")), Fail(crate::NoData), "no series")]
#[case::null_for_no_range(json(&vector("").replace("[]", "null").replace("vector", "matrix")), Fail(crate::NoData), "no series")]
#[case::label_twice(json(&vector(r#"{"metric":{"a":"1","a":"2"},"value":[1,"1"]}"#)), Pass(Data), "1 series")]
#[case::many_digits(json(&vector(&format!(r#"{{"metric":{{}},"value":[1,"1{}"]}}"#, "0".repeat(5000)))), Pass(Data), "1 series")]
#[case::control_characters(json(&vector(r#"{"metric":{"a":"\u0000\u001b[31m\n"},"value":[1,"1"]}"#)), Pass(Data), "1 series")]
#[tokio::test]
async fn an_odd_answer(#[case] bytes: Vec<u8>, #[case] want: Want, #[case] words: &str) {
    let server = Server::sending(bytes).await;
    let answer = ask(assertion(query("up", &server.url())), &Secrets::default()).await;
    judge(&answer, want, words);
    assert!(!answer.record.message.chars().any(char::is_control), "{:?}", answer.record.message);
}

/// The deadline is for the whole exchange: none of these ends by itself.
#[rstest]
#[case::silence(|| Act::Silence, "no complete answer within 1 s (timeoutSeconds)")]
#[case::slow_header(|| Act::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec()), "no complete answer within 1 s (timeoutSeconds)")]
#[case::slow_body(|| Act::Drip(raw("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 100000", "")), "no complete answer within 1 s (timeoutSeconds)")]
#[case::endless_body(|| Act::Drip(raw("HTTP/1.0 200 OK\nContent-Type: application/json", &vector(""))), "no complete answer within 1 s (timeoutSeconds)")]
#[case::reset(|| Act::Reset, "connection broke before the answer was complete: Connection reset")]
#[tokio::test]
async fn a_bad_connection(#[case] act: fn() -> Act, #[case] words: &str) {
    let server = Server::start(move |_, _| act()).await;
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let asked = Query { timeout_seconds: 1, success_when, ..query("up", &server.url()) };
        let answer = tokio::time::timeout(PATIENCE, ask(asked, &Secrets::default())).await;
        judge(&answer.expect("an answer long after the deadline"), Fail(Error), words);
    }
}

/// What is over the limit is neither waited for nor kept in memory.
#[tokio::test]
async fn a_large_body_without_an_end() {
    let server = Server::start(|_, _| Act::Drip(padded((4 << 20) + 1))).await;
    let asked = Query { timeout_seconds: 10, ..query("up", &server.url()) };
    judge(&ask(asked, &Secrets::default()).await, Fail(Error), "larger than 4 MiB");
}
