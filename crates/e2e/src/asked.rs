//! What Prometheus was asked for a scenario and what it answered, as it was heard on the line in front of it. Whether a check has
//! passed is told by this, never by the operator.

use jiff::Timestamp;
use serde_json::Value;
use testcluster::SeenRequest;
use url::form_urlencoded;

use crate::Scene;

/// A question of a check, and its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it was answered, before the operator had the answer.
    pub at: Timestamp,
    /// The expression.
    pub query: String,
    /// How many series came; none if there was no answer that a check can use.
    pub series: Option<usize>,
}

impl Asked {
    /// Whether that is a pass for an expression in alert style.
    pub fn has_passed(&self) -> bool {
        self.series == Some(0)
    }

    /// Whether the expression has this value of the label `pod`.
    pub fn is_about(&self, pod: &str) -> bool {
        self.query.contains(&format!(r#"pod="{pod}""#))
    }

    fn read(request: &SeenRequest) -> Option<Self> {
        let mut form = form_urlencoded::parse(request.body.as_bytes());
        let query = form.find(|(key, _)| key == "query")?.1.into_owned();
        let answer = serde_json::from_str::<Value>(&request.answer).unwrap_or_default();
        let series = answer.pointer("/data/result").and_then(Value::as_array).map(Vec::len);
        let series =
            series.filter(|_| request.status == 200 && answer.get("status").is_some_and(|status| status == "success"));
        Some(Self { at: request.at, query, series })
    }
}

impl Scene {
    /// What was answered so far, in its order: to questions that name this namespace, by way of [`Scene::prometheus`]. Whether a metric
    /// exists at all is asked without one.
    pub fn asked(&self) -> Vec<Asked> {
        let Some(tap) = self.ground.tap() else { return Vec::new() };
        // A quotation mark in a form.
        let part = format!("%22{}%22", self.namespace);
        tap.seen_about(&part).iter().filter_map(Asked::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(status: u16, answer: &str) -> Asked {
        let request = SeenRequest {
            method: "POST".to_owned(),
            uri: "/api/v1/query".to_owned(),
            body: "timeout=5s&query=e%7Bnamespace%3D%22ns%22%2Cpod%3D%22web-1%22%7D".to_owned(),
            authorization: None,
            user_agent: None,
            status,
            answer: answer.to_owned(),
            at: Timestamp::UNIX_EPOCH,
        };
        Asked::read(&request).expect("a question")
    }

    #[test]
    fn only_an_answer_without_series_is_a_pass() {
        let of = |series: &str| format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{series}}}}}"#);
        let empty = heard(200, &of("[]"));
        assert_eq!(
            (empty.series, empty.has_passed(), empty.query.as_str()),
            (Some(0), true, r#"e{namespace="ns",pod="web-1"}"#)
        );
        assert!(empty.is_about("web-1") && !empty.is_about("web"));
        assert_eq!(heard(200, &of(r#"[{"metric":{},"value":[0,"1"]}]"#)).series, Some(1));
        for (status, answer) in [(503, of("[]")), (200, String::new()), (200, r#"{"status":"error"}"#.to_owned())] {
            assert_eq!(heard(status, &answer).series, None, "{status} {answer}");
        }
    }
}
