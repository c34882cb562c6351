//! The table of phased-rollout.md §3, made by hand: answers that a real Prometheus gives only when it is broken, or never.

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::credentials::SecretData;
use crate::decode::Reply;
use crate::promql;

const UP: &str = r#"{"metric":{"__name__":"up","job":"x"},"value":[1700000000.123,"1"]}"#;

fn reply(body: &str) -> Reply {
    Reply {
        status: 200,
        content_type: Some("application/json; charset=utf-8".into()),
        body: body.to_owned().into(),
        ..Reply::default()
    }
}

fn judge(reply: &Reply, asked: Asked<'_>) -> Judgement {
    super::judge(&DecodedReply::of(reply), asked)
}

fn missing(reply: &Reply, asked: Asked<'_>) -> Result<Vec<usize>, String> {
    super::missing(&DecodedReply::of(reply), asked)
}

fn answer(result_type: &str, result: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"{result_type}","result":{result}}}}}"#)
}

fn asked(success_when: SuccessWhen) -> Asked<'static> {
    Asked {
        query: "up{job=\"x\"}",
        endpoint: "http://prom:9090",
        success_when,
        secret: Some("prom-secret"),
        credentials: None,
    }
}

fn of(reply: &Reply, success_when: SuccessWhen) -> (Verdict, bool, String) {
    let found = judge(reply, asked(success_when));
    (found.verdict, found.passed, found.sentence)
}

/// Verdicts that are no error: (verdict, value shown). Whether it passed follows from successWhen.
// spec: pr§3, L027, L060, L061
#[rstest]
#[case::one_series(answer("vector", &format!("[{UP}]")), Verdict::Data, "up{job=\"x\"} = 1")]
#[case::empty(answer("vector", "[]"), Verdict::NoData, "no series returned by up{job=\"x\"}")]
#[case::empty_matrix(answer("matrix", "[]"), Verdict::NoData, "no series returned")]
#[case::matrix(answer("matrix", r#"[{"metric":{},"values":[[1,"1"],[2,"7"]]}]"#), Verdict::Data, "{} = 7")]
#[case::matrix_histogram(
    answer("matrix", r#"[{"metric":{},"histograms":[[1,{"count":"3","sum":"4"}]]}]"#),
    Verdict::Data,
    "histogram count=3 sum=4"
)]
#[case::nan(answer("vector", r#"[{"metric":{},"value":[1,"NaN"]}]"#), Verdict::Data, "{} = NaN")]
#[case::plus_inf(answer("vector", r#"[{"metric":{},"value":[1,"+Inf"]}]"#), Verdict::Data, "{} = +Inf")]
#[case::minus_inf(answer("vector", r#"[{"metric":{},"value":[1,"-Inf"]}]"#), Verdict::Data, "{} = -Inf")]
#[case::zero(answer("vector", r#"[{"metric":{},"value":[1,"0"]}]"#), Verdict::Data, "{} = 0")]
#[case::exponent(answer("vector", r#"[{"metric":{},"value":[1,"1.5e-07"]}]"#), Verdict::Data, "{} = 1.5e-07")]
#[case::histogram(
    answer("vector", r#"[{"metric":{},"histogram":[1,{"count":"12","sum":"3.5","buckets":[[0,"0","1","12"]]}]}]"#),
    Verdict::Data,
    "histogram count=12 sum=3.5"
)]
#[case::quotes_in_labels(
    answer("vector", r#"[{"metric":{"a":"x\"y"},"value":[1,"1"]}]"#),
    Verdict::Data,
    r#"{a="x\"y"} = 1"#
)]
#[case::infos(r#"{"status":"success","data":{"resultType":"vector","result":[]},"infos":["PromQL info: metric might not be a counter"]}"#.into(), Verdict::NoData, "no series returned")]
#[case::no_warnings(r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":[]}"#.into(), Verdict::NoData, "no series returned")]
#[case::null_warnings(r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":null}"#.into(), Verdict::NoData, "no series returned")]
#[case::other_order(r#"{"data":{"result":[],"resultType":"vector","stats":{}},"status":"success"}"#.into(), Verdict::NoData, "no series returned")]
fn usable(#[case] body: String, #[case] verdict: Verdict, #[case] shown: &str) {
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let (found, passed, sentence) = of(&reply(&body), success_when);
        assert_eq!(found, verdict, "{sentence}");
        let wanted = if success_when == SuccessWhen::Data { Verdict::Data } else { Verdict::NoData };
        assert_eq!(passed, verdict == wanted);
        assert!(sentence.contains(shown), "{sentence}");
        let end = if passed { ": passed (successWhen" } else { ": not passed (successWhen" };
        assert!(sentence.contains(end), "{sentence}");
    }
}

// spec: pr§3
#[rstest]
#[case::scalar(answer("scalar", r#"[1,"1"]"#), "must return a vector")]
#[case::string(answer("string", r#"[1,"x"]"#), "must return a vector")]
#[case::unknown_type(answer("streams", "[]"), "unknown result type")]
#[case::status_error(r#"{"status":"error","errorType":"execution","error":"query timed out"}"#.into(), "execution: query timed out")]
#[case::status_error_with_data(r#"{"status":"error","data":{"resultType":"vector","result":[]},"error":"partial"}"#.into(), "partial")]
#[case::unknown_status(r#"{"status":"ok","data":{"resultType":"vector","result":[]}}"#.into(), "unknown status")]
#[case::no_status(r#"{"data":{"resultType":"vector","result":[]}}"#.into(), "cannot be read")]
#[case::no_data(r#"{"status":"success"}"#.into(), "no data")]
#[case::null_data(r#"{"status":"success","data":null}"#.into(), "no data")]
#[case::object_result(answer("vector", "{}"), "cannot be read")]
#[case::no_result(r#"{"status":"success","data":{"resultType":"vector"}}"#.into(), "cannot be read")]
#[case::no_type(r#"{"status":"success","data":{"result":[]}}"#.into(), "cannot be read")]
#[case::empty_body(String::new(), "cannot be read")]
#[case::half(r#"{"status":"success","data":{"resultType":"vector","result":["#.into(), "cannot be read")]
#[case::two(format!("{0}{0}", answer("vector", "[]")), "cannot be read")]
#[case::twice(r#"{"status":"error","status":"success","data":{"resultType":"vector","result":[]}}"#.into(), "duplicate field")]
#[case::a_list("[]".into(), "cannot be read")]
#[case::html("<html>".into(), "cannot be read")]
#[case::null("null".into(), "cannot be read")]
#[case::no_value(answer("vector", r#"[{"metric":{}}]"#), "a series has no value")]
#[case::null_value(answer("vector", r#"[{"metric":{},"value":null}]"#), "a series has no value")]
#[case::no_metric(answer("vector", r#"[{"value":[1,"1"]}]"#), "cannot be read")]
#[case::number_value(answer("vector", r#"[{"metric":{},"value":[1,1]}]"#), "cannot be read")]
#[case::word_value(answer("vector", r#"[{"metric":{},"value":[1,"one"]}]"#), "not a number")]
#[case::empty_value(answer("vector", r#"[{"metric":{},"value":[1,""]}]"#), "not a number")]
#[case::short_value(answer("vector", r#"[{"metric":{},"value":[1]}]"#), "cannot be read")]
#[case::long_value(answer("vector", r#"[{"metric":{},"value":[1,"1","1"]}]"#), "cannot be read")]
#[case::garbage_after_good(answer("vector", &format!("[{UP},{UP},{UP},{UP},7]")), "cannot be read")]
#[case::matrix_without_points(answer("matrix", r#"[{"metric":{},"values":[]}]"#), "a series has no value")]
#[case::vector_as_matrix(answer("matrix", &format!("[{UP}]")), "a series has no value")]
#[case::label_number(answer("vector", r#"[{"metric":{"a":1},"value":[1,"1"]}]"#), "cannot be read")]
#[case::warnings_text(r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":"x"}"#.into(), "cannot be read")]
#[case::deep("[".repeat(100_000), "cannot be read")]
#[case::deep_inside(answer("vector", &"[".repeat(100_000)), "cannot be read")]
fn errors(#[case] body: String, #[case] want: &str) {
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let (verdict, passed, sentence) = of(&reply(&body), success_when);
        assert_eq!((verdict, passed), (Verdict::Error, false), "{sentence}");
        assert!(sentence.contains(want), "{sentence}");
    }
}

// spec: pr§3
#[rstest]
#[case("[]", SuccessWhen::NoData, Verdict::Error, false)]
#[case("[]", SuccessWhen::Data, Verdict::Error, false)]
#[case(&format!("[{UP}]"), SuccessWhen::NoData, Verdict::Error, false)]
#[case(&format!("[{UP}]"), SuccessWhen::Data, Verdict::Data, true)]
fn warnings(#[case] result: &str, #[case] success_when: SuccessWhen, #[case] verdict: Verdict, #[case] passed: bool) {
    let body = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}},"warnings":["store a is down"]}}"#
    );
    let found = of(&reply(&body), success_when);
    assert_eq!((found.0, found.1), (verdict, passed));
    if verdict == Verdict::Error {
        assert!(found.2.contains("may be partial and does not count: store a is down"), "{}", found.2);
    }
}

// spec: pr§3
#[rstest]
#[case(
    400,
    r#"{"status":"error","errorType":"bad_data","error":"parse error at char 5"}"#,
    "HTTP 400, bad_data: parse error at char 5"
)]
#[case(
    422,
    r#"{"status":"error","errorType":"execution","error":"too many samples"}"#,
    "HTTP 422, execution: too many samples"
)]
#[case(503, r#"{"status":"error","errorType":"timeout","error":"timed out"}"#, "HTTP 503, timeout: timed out")]
#[case(500, "not json", "HTTP 500")]
#[case(404, "{}", "check the path of the url")]
#[case(
    401,
    "{}",
    "refused the credentials (HTTP 401): check the token, or username and password, in Secret prom-secret"
)]
#[case(403, "{}", "refused the credentials (HTTP 403)")]
#[case(204, "", "HTTP 204")]
#[case(206, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#, "HTTP 206")]
#[case(304, "", "HTTP 304")]
fn http_status(#[case] status: u16, #[case] body: &str, #[case] want: &str) {
    for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
        let (verdict, passed, sentence) = of(&Reply { status, ..reply(body) }, success_when);
        assert_eq!((verdict, passed), (Verdict::Error, false));
        assert!(sentence.contains(want), "{sentence}");
    }
}

#[test]
fn an_error_status_with_a_good_answer_is_an_error() {
    let body = answer("vector", "[]");
    let (verdict, passed, _) = of(&Reply { status: 500, ..reply(&body) }, SuccessWhen::NoData);
    assert_eq!((verdict, passed), (Verdict::Error, false));
}

#[test]
fn without_a_secret_401_names_secret_ref() {
    let asked = Asked { secret: None, ..asked(SuccessWhen::NoData) };
    let found = judge(&Reply { status: 401, ..reply("{}") }, asked);
    assert!(found.sentence.contains("wants credentials (HTTP 401): name a Secret"), "{}", found.sentence);
}

#[rstest]
#[case(Some("text/html; charset=utf-8"), None, "not JSON (content type text/html; charset=utf-8)")]
#[case(Some("text/plain"), None, "not JSON")]
#[case(Some("application/jsonp"), None, "not JSON")]
#[case(None, None, "not JSON (content type none)")]
#[case(Some("application/json"), Some("gzip"), "compressed (gzip)")]
fn headers(#[case] content_type: Option<&str>, #[case] content_encoding: Option<&str>, #[case] want: &str) {
    let reply = Reply {
        content_type: content_type.map(Into::into),
        content_encoding: content_encoding.map(Into::into),
        ..reply(&answer("vector", "[]"))
    };
    let (verdict, passed, sentence) = of(&reply, SuccessWhen::NoData);
    assert_eq!((verdict, passed), (Verdict::Error, false));
    assert!(sentence.contains(want), "{sentence}");
}

#[rstest]
#[case(Some("application/json"), None)]
#[case(Some("Application/JSON ; charset=UTF-8"), None)]
#[case(Some("application/json"), Some("identity"))]
fn good_headers(#[case] content_type: Option<&str>, #[case] content_encoding: Option<&str>) {
    let reply = Reply {
        content_type: content_type.map(Into::into),
        content_encoding: content_encoding.map(Into::into),
        ..reply(&answer("vector", "[]"))
    };
    assert!(of(&reply, SuccessWhen::NoData).1);
}

// spec: pr§3
#[test]
fn a_body_over_the_limit_is_an_error() {
    let good = answer("vector", "[]");
    let padded = |size: usize| reply(&format!("{good}{}", " ".repeat(size - good.len())));
    assert!(of(&padded(4 << 20), SuccessWhen::NoData).1);
    assert_eq!(of(&padded((4 << 20) + 1), SuccessWhen::NoData).0, Verdict::Error);
}

#[test]
fn all_series_are_counted_and_three_kept() {
    let many = vec![UP; 20_000].join(",");
    let found = judge(&reply(&answer("vector", &format!("[{many}]"))), asked(SuccessWhen::NoData));
    assert_eq!((found.series_count, found.series.len()), (20_000, 3));
    assert_eq!(found.series[0].labels, "up{job=\"x\"}");
    assert_eq!(
        found.sentence,
        "20000 series returned by up{job=\"x\"}, first up{job=\"x\"} = 1: not passed (successWhen NoData)"
    );
}

#[test]
fn the_end_of_a_sentence_survives_long_input() {
    let long = "ä".repeat(4000);
    let body = answer("vector", &format!(r#"[{{"metric":{{"a":"{long}"}},"value":[1,"1"]}}]"#));
    let asked = Asked { query: &long, ..asked(SuccessWhen::NoData) };
    let found = judge(&reply(&body), asked);
    assert!(found.sentence.len() <= 512, "{}", found.sentence.len());
    assert!(found.sentence.ends_with("not passed (successWhen NoData)"));
}

#[test]
fn credentials_that_come_back_are_hidden_before_the_cut() {
    let token = "canary0123456789".repeat(12);
    let data = [("token".to_owned(), token.clone().into_bytes())].into();
    let credentials = Credentials::read(&SecretData { name: "s".into(), data }).unwrap();
    let asked = Asked { credentials: Some(&credentials), ..asked(SuccessWhen::NoData) };
    let error = format!(r#"{{"status":"error","errorType":"{token}","error":"bad token {token} {token}"}}"#);
    let labels = answer("vector", &format!(r#"[{{"metric":{{"a":"{token}"}},"value":[1,"1"]}}]"#));
    let broken = answer("vector", &format!(r#""{token}""#));
    for body in [error, labels, broken] {
        for status in [200, 401, 500] {
            let found = judge(&Reply { status, ..reply(&body) }, asked);
            assert!(!format!("{found:?}").contains("canary"), "{found:?}");
        }
    }
}

#[test]
fn reads_which_metrics_are_missing() {
    let series = |position: &str| format!(r#"{{"metric":{{"sts_plus_missing":"{position}"}},"value":[1,"1"]}}"#);
    let of = |result: String| missing(&reply(&answer("vector", &result)), asked(SuccessWhen::NoData));
    assert_eq!(of("[]".into()), Ok(vec![]));
    assert_eq!(of(format!("[{},{}]", series("0"), series("5"))), Ok(vec![0, 5]));
    assert!(of(format!("[{}]", series("x"))).is_err());
    assert!(of(format!("[{UP}]")).is_err());
    assert!(missing(&Reply { status: 500, ..reply("") }, asked(SuccessWhen::NoData)).is_err());
    let parsed = promql::check("a or b").unwrap();
    assert_eq!(parsed.metrics.len(), 2);
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("\"success\"".to_owned()),
        Just("\"vector\"".to_owned()),
        Just("[]".to_owned()),
        Just("1".to_owned()),
        Just("\"1\"".to_owned())
    ];
    let key = prop_oneof![
        Just("status"),
        Just("data"),
        Just("result"),
        Just("resultType"),
        Just("metric"),
        Just("value"),
        Just("warnings")
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|items| {
                let items: Vec<_> = items.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", items.join(","))
            }),
        ]
    })
}

/// True for what may pass: the shape of a success with a vector or matrix. Written apart from the decoder.
fn is_an_answer(body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    value["status"] == "success"
        && (value["data"]["resultType"] == "vector" || value["data"]["resultType"] == "matrix")
        && value["data"]["result"].is_array()
}

proptest! {
    // spec: pr§3, L063
    #[test]
    fn bytes_never_panic_and_never_pass(body in prop::collection::vec(any::<u8>(), 0..200), status in 100_u16..600) {
        for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
            let reply = Reply { status, body: body.clone().into(), ..reply("") };
            prop_assert!(!judge(&reply, asked(success_when)).passed || is_an_answer(&body));
        }
    }

    // spec: pr§3, L063
    #[test]
    fn json_never_passes_unless_it_is_an_answer(body in json()) {
        for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
            let found = judge(&reply(&body), asked(success_when));
            prop_assert!(!found.passed || is_an_answer(body.as_bytes()), "{}", body);
        }
    }

    // spec: pr§3, L063
    #[test]
    fn a_damaged_answer_passes_only_if_it_still_is_one(at in 0_usize..200, byte in any::<u8>(), cut_off in any::<bool>()) {
        let mut body = answer("vector", &format!("[{UP}]")).into_bytes();
        let at = at % body.len();
        if cut_off {
            body.truncate(at);
        } else {
            body[at] = byte;
        }
        for success_when in [SuccessWhen::NoData, SuccessWhen::Data] {
            let reply = Reply { body: body.clone().into(), ..reply("") };
            prop_assert!(!judge(&reply, asked(success_when)).passed || is_an_answer(&body));
        }
    }
}

#[test]
fn bytes_that_are_no_text_spoil_the_answer_wherever_they_are() {
    let body = br#"{"status":"success","infos":["?"],"data":{"resultType":"vector","result":[]}}"#;
    let spoilt = body.map(|byte| if byte == b'?' { 0xff } else { byte });
    for (body, verdict) in [(*body, Verdict::NoData), (spoilt, Verdict::Error)] {
        let reply = Reply { body: body.to_vec().into(), ..reply("") };
        assert_eq!(judge(&reply, asked(SuccessWhen::NoData)).verdict, verdict);
    }
}

/// A header may be 64 KiB long; the cure at the end of the sentence stays.
#[test]
fn a_long_header_leaves_the_cure_in_the_sentence() {
    let reply = Reply { content_type: Some("x".repeat(60_000)), ..reply("{}") };
    let (_, _, sentence) = of(&reply, SuccessWhen::NoData);
    assert!(sentence.ends_with(": check that the url is the one of Prometheus") && sentence.len() < 512, "{sentence}");
}
