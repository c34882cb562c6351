//! What goes over the wire: requests, redirects, credentials; and when none is sent. The server is one of the test, since every case
//! needs to see the bytes that it received.

use rstest::rstest;
use sts_plus_api::{OnMissingMetric, Query, Reason};
use sts_plus_gates::{AddressPolicy, Freshness, Origin, Policy, Secrets};

use crate::credentials::CANARY;
use crate::server::{Act, ONE, Server, http, json, vector};
use crate::{
    Data, Error, Fail, NoData, Pass, Problem, Want, ask, ask_about, ask_by, assertion, judge, loopback, prober, query,
    secret,
};

fn none() -> Secrets {
    Secrets::default()
}

fn credentials(pairs: &[(&str, &str)]) -> Secrets {
    Secrets { credentials: Some(secret("prom-secret", pairs)), ..none() }
}

/// `query` with the Secret of [`credentials`].
fn with_secret(query: Query) -> Query {
    Query { secret_ref: Some("prom-secret".into()), ..query }
}

#[tokio::test]
async fn what_is_sent() {
    let server = Server::sending(json(&vector(ONE))).await;
    let url = format!("{}/xx", server.url());
    let answer = ask(query("up{pod=\"${pod}\"} == ${ordinal}", &url), &none()).await;
    let record = &answer.record;
    assert_eq!((record.verdict, record.passed, record.http_status), (Data, false, Some(200)));
    assert_eq!(record.query, "up{pod=\"web-1\"} == 1");
    assert_eq!(record.endpoint, format!("http://{url}"));
    assert_eq!((record.name.as_str(), record.pod.as_str(), record.series_count), ("query", "web-1", 1));
    assert_eq!(
        record.message,
        "1 series returned by up{pod=\"web-1\"} == 1, first up{job=\"x\"} = 1: not passed (successWhen NoData)"
    );
    assert!(answer.problem.is_none() && answer.warnings.is_empty(), "{answer:?}");
    let received = server.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].head.starts_with("POST /xx/api/v1/query HTTP/1.1"));
    assert_eq!(received[0].query(), "up{pod=\"web-1\"} == 1");
    assert!(received[0].body.ends_with("&timeout=20s"));
    assert_eq!(received[0].headers("user-agent"), ["sts-plus/test"]);
    assert_eq!(received[0].headers("accept-encoding"), ["identity"]);
    assert_eq!(received[0].headers("content-type"), ["application/x-www-form-urlencoded"]);
    assert_eq!(received[0].headers("authorization"), [""; 0]);
}

#[tokio::test]
async fn a_redirect_within_the_origin_keeps_method_body_and_credentials() {
    let server = Server::start(|n, _| match n {
        0 => Act::Send(http(307, &[("Location", "/a")], "")),
        1 => Act::Send(http(308, &[("Location", "b?x=1")], "")),
        _ => Act::Send(json(&vector(ONE))),
    })
    .await;
    let asked = assertion(with_secret(query("up", &server.url())));
    judge(&ask(asked, &credentials(&[("token", CANARY)])).await, Pass(Data), "passed");
    let received = server.received();
    let lines: Vec<_> = received.iter().map(|r| r.head.lines().next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["POST /api/v1/query HTTP/1.1", "POST /a HTTP/1.1", "POST /b?x=1 HTTP/1.1"]);
    for request in &received {
        assert_eq!(request.query(), "up");
        assert_eq!(request.headers("authorization"), [format!("Bearer {CANARY}")]);
    }
}

/// A gateway that lets nobody write takes no POST; a POST that is refused for another reason is no reason to ask for ever in two ways.
#[rstest]
#[case::not_allowed(405)]
#[case::not_implemented(501)]
#[case::forbidden_by_a_proxy_that_knows_verbs(403)]
#[tokio::test]
async fn where_no_post_is_taken_it_is_asked_by_get_from_then_on(#[case] status: u16) {
    let server = Server::start(move |_, request| {
        let is_post = request.head.starts_with("POST ");
        Act::Send(if is_post { http(status, &[], "") } else { json(&vector(ONE)) })
    })
    .await;
    let (prober, form) = (loopback(), "query=up+%3D%3D+1&timeout=20s");
    let asked = || assertion(with_secret(query("up == 1", &format!("{}/xx", server.url()))));
    for _ in 0..2 {
        judge(
            &ask_by(&prober, asked(), &credentials(&[("token", CANARY)]), Freshness::now()).await,
            Pass(Data),
            "passed",
        );
    }
    let received = server.received();
    let lines: Vec<_> = received.iter().map(|request| request.head.lines().next().unwrap().to_owned()).collect();
    let get = format!("GET /xx/api/v1/query?{form} HTTP/1.1");
    assert_eq!(lines, ["POST /xx/api/v1/query HTTP/1.1", &get, &get]);
    assert!(received.iter().all(|request| request.headers("authorization") == [format!("Bearer {CANARY}")]));
    assert!(received[1].body.is_empty());
}

/// What comes of neither is told by the answer to the POST; and a gateway that is replaced by Prometheus itself is found out.
#[tokio::test]
async fn by_get_too_only_what_is_answered_counts() {
    let refusing = Server::start(|_, request| {
        let word = if request.head.starts_with("POST ") { "not by POST" } else { "nor by GET" };
        Act::Send(http(403, &[("Content-Type", "text/plain")], word))
    })
    .await;
    judge(&ask(query("up", &refusing.url()), &none()).await, Fail(Error), "not by POST");
    assert_eq!(refusing.received().len(), 2);

    let changing = Server::start(|n, request| {
        let is_taken = request.head.starts_with("POST ") == (n > 1);
        Act::Send(if is_taken { json(&vector(ONE)) } else { http(405, &[], "") })
    })
    .await;
    let prober = loopback();
    for _ in 0..3 {
        judge(
            &ask_by(&prober, assertion(query("up", &changing.url())), &none(), Freshness::now()).await,
            Pass(Data),
            "passed",
        );
    }
    let methods: Vec<_> = changing.received().iter().map(|request| request.head[..4].trim().to_owned()).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST", "POST"]);
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::sending(http(307, &[("Location", "/again")], "")).await;
    judge(&ask(query("up", &server.url()), &none()).await, Fail(Error), "more than 3 redirects");
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn credentials_do_not_follow_to_another_origin() {
    let other = Server::sending(json(&vector(ONE))).await;
    let target = format!("http://{}/api/v1/query", other.url());
    let server = Server::sending(http(307, &[("Location", &target)], "")).await;
    let answer = ask(with_secret(query("up", &server.url())), &credentials(&[("token", CANARY)])).await;
    judge(&answer, Fail(Error), "redirect (HTTP 307)");
    assert!(other.received().is_empty());
}

/// A server that sends back all it got, in every place that can end up in a sentence.
// spec: pr§3
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
    let secrets = credentials(pairs);
    for _ in 0..7 {
        let answer = ask(with_secret(query("up", &server.url())), &secrets).await;
        let shown = format!("{answer:?}{}{secrets:?}", serde_json::to_string(&answer.record).unwrap());
        assert!(!shown.contains("canary") && !shown.contains("bWU6Y2FuYXJ5"), "{shown}");
        assert!(!answer.record.passed);
    }
    for request in server.received() {
        assert_eq!(request.headers("authorization").len(), 1);
    }
}

// spec: pr§3
#[tokio::test]
async fn token_wins_with_a_warning() {
    let server = Server::sending(json(&vector(ONE))).await;
    let secrets = credentials(&[("token", "t"), ("username", "u"), ("password", "p")]);
    let answer = ask(with_secret(query("up", &server.url())), &secrets).await;
    assert_eq!(answer.warnings[0].0, Reason::TokenWins);
    assert!(answer.warnings[0].1.contains("Secret prom-secret, named in spec.check.query.secretRef"));
    assert_eq!(server.received()[0].headers("authorization"), ["Bearer t"]);
}

/// Nothing is asked while the configuration is wrong.
#[rstest]
#[case::no_zone(
    query("up{z=\"${zone}\"}", "x"),
    Reason::InvalidQuery,
    "spec.check.query.expr uses ${zone}, which has no value for this pod"
)]
#[case::bad_url(
    query("up", "ftp://x"),
    Reason::InvalidUrl,
    "spec.check.query.url has a scheme other than http and https"
)]
#[case::no_url(Query { url: None, ..query("up", "x") }, Reason::InvalidUrl, "spec.check.query.url is missing")]
#[tokio::test]
async fn a_problem(#[case] asked: Query, #[case] reason: Reason, #[case] words: &str) {
    let prober = loopback();
    let answer = ask_about(&prober, asked, &none(), Freshness::now(), &[("pod", "web-1")]).await;
    judge(&answer, Problem(reason), words);
    assert_eq!(answer.problem.map(|problem| problem.message), Some(answer.record.message));
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
    let prober = prober(AddressPolicy::default().into());
    let answer = ask_by(&prober, query("up", url), &none(), Freshness::now()).await;
    judge(&answer, Problem(Reason::InvalidUrl), "spec.check.query.url names a host that is");
    assert!(answer.record.message.contains(what), "{}", answer.record.message);
}

/// With a list, only what is in it hears of us: not what a redirect names, not the same host at another port or by another scheme.
#[tokio::test]
async fn only_origins_of_the_list_are_asked() {
    let other = Server::sending(json(&vector(ONE))).await;
    let target = format!("http://{}/api/v1/query", other.url());
    let server = Server::start(move |n, _| {
        Act::Send(if n == 0 { json(&vector(ONE)) } else { http(307, &[("Location", &target)], "") })
    })
    .await;
    let origins = vec![Origin::parse(&format!("HTTP://{}/", server.url())).unwrap()];
    let addresses = AddressPolicy { allow_loopback: true };
    let prober = prober(Policy { addresses, origins, ..Policy::default() });
    let asked = async |url: &str| {
        let query = assertion(with_secret(query("up", url)));
        ask_by(&prober, query, &credentials(&[("token", CANARY)]), Freshness::now()).await
    };
    judge(&asked(&format!("{}/path", server.url())).await, Pass(Data), "passed");
    judge(&asked(&server.url()).await, Fail(Error), "redirect (HTTP 307)");
    for url in [other.url(), format!("https://{}", server.url()), format!("localhost:{}", server.port)] {
        let words = "this operator asks only the origins that its administrator allows (--allowed-origin)";
        judge(&asked(&url).await, Problem(Reason::InvalidUrl), words);
    }
    assert_eq!((server.received().len(), other.received().len()), (2, 0));
}

/// The second question, which of its metrics are missing, is answered with nonsense. What Prometheus answers to it is in `answers`.
#[rstest]
#[case::hold(OnMissingMetric::Hold, Fail(Error))]
#[case::pass(OnMissingMetric::Pass, Pass(NoData))]
#[tokio::test]
async fn no_answer_which_metrics_are_missing(#[case] on_missing_metric: OnMissingMetric, #[case] want: Want) {
    let server = Server::start(|n, _| Act::Send(json(&if n == 0 { vector("") } else { "garbage".to_owned() }))).await;
    let answer = ask(Query { on_missing_metric, ..query("good > 1 or typo > 1", &server.url()) }, &none()).await;
    judge(&answer, want, "");
    assert_eq!((answer.record.query.as_str(), answer.warnings.len()), ("good > 1 or typo > 1", 0));
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
    ask(assertion(query("up == 0", &empty.url())), &none()).await;
    ask(query("vector(1) == 0", &empty.url()), &none()).await;
    assert_eq!((server.received().len(), empty.received().len()), (1, 2));
}

/// A server that closes every connection right after its answer: a dead connection must never be an error by itself.
#[tokio::test]
async fn a_dead_connection_is_never_reused() {
    let server = Server::sending(json(&vector(ONE))).await;
    for _ in 0..20 {
        judge(&ask(assertion(query("up", &server.url())), &none()).await, Pass(Data), "passed");
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
