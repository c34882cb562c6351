//! The answer of Prometheus, from bytes to a verdict and its sentence. The first line of the input is
//! `<HTTP status> <content type or -> <content encoding or -> <NoData or Data>`, the rest is the body.

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;
use sts_plus_api::{SuccessWhen, Verdict};
use sts_plus_gates::{
    SecretData,
    credentials::Credentials,
    decode::{DecodedReply, KEPT, Reply},
    verdict::{self, Asked, Judgement, missing},
};

/// What was sent as a token, and must never come back.
pub const TOKEN: &str = "t0ken-t0ken";
/// Longest sentence, in bytes.
const SENTENCE: usize = 1024;

/// # Panics
/// Something breaks.
pub fn run(bytes: &[u8]) {
    let (reply, success_when) = read(bytes);
    holds(&reply, success_when, judge);
    let credentials = credentials();
    let asked = asked(success_when, &credentials);
    if let Ok(positions) = missing(&DecodedReply::of(&reply), asked).as_ref()
        && !is_beyond(&reply)
    {
        let list = result(&reply).expect("an answer about metrics is a list");
        assert_eq!(positions.len(), list.len().min(KEPT));
    }
}

/// The verdict on a reply.
#[must_use]
pub fn judge(reply: &Reply, asked: Asked<'_>) -> Judgement {
    verdict::judge(&DecodedReply::of(reply), asked)
}

/// What must hold for `judge`, which is a parameter so that a test can show that a worse one is noticed.
///
/// # Panics
/// It does not hold.
pub fn holds(reply: &Reply, success_when: SuccessWhen, judge: fn(&Reply, Asked<'_>) -> Judgement) {
    let credentials = credentials();
    let asked = asked(success_when, &credentials);
    let Judgement { verdict, passed, sentence, series_count, series } = judge(reply, asked);

    assert!(!sentence.is_empty() && sentence.len() <= SENTENCE, "{} bytes: {sentence}", sentence.len());
    assert!(!sentence.contains(|c: char| c.is_control()), "one line: {sentence:?}");
    let shown = series.iter().flat_map(|series| [&series.labels, &series.value]).chain([&sentence]);
    shown.for_each(|text| assert!(!text.contains(TOKEN), "the token is shown: {text}"));
    assert!(series.len() <= KEPT && series.len() <= series_count as usize);

    let expected = match success_when {
        SuccessWhen::NoData => Verdict::NoData,
        SuccessWhen::Data => Verdict::Data,
    };
    assert_eq!(passed, verdict == expected, "{verdict:?} with successWhen {success_when:?}");
    if verdict == Verdict::Error {
        return;
    }
    if is_beyond(reply) {
        return;
    }
    // The same answer, read in the plainest way.
    let list = result(reply).expect("a verdict on an answer that is none");
    assert_eq!(list.len(), series_count as usize);
    assert_eq!(verdict, if list.is_empty() { Verdict::NoData } else { Verdict::Data });
    assert!(passed && success_when == SuccessWhen::Data || !warns(reply), "a partial answer counts: {sentence}");
}

fn credentials() -> Credentials {
    let data = [("token".to_owned(), TOKEN.as_bytes().to_vec())].into();
    Credentials::read(&SecretData { name: "prom-secret".into(), data }).expect("a token")
}

fn asked(success_when: SuccessWhen, credentials: &Credentials) -> Asked<'_> {
    Asked {
        query: "up == 0",
        endpoint: "http://prom:9090",
        success_when,
        secret: Some("prom-secret"),
        credentials: Some(credentials),
    }
}

/// The reply and the polarity that an input stands for.
#[must_use]
pub fn read(bytes: &[u8]) -> (Reply, SuccessWhen) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let body = bytes.get(end + 1..).unwrap_or_default();
    let mut words = head.split(' ');
    let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(200);
    let mut header = || words.next().filter(|word| *word != "-").map(str::to_owned);
    let (content_type, content_encoding) = (header(), header());
    let success_when = if words.next() == Some("Data") { SuccessWhen::Data } else { SuccessWhen::NoData };
    let body = Bytes::copy_from_slice(body);
    (Reply { status, content_type, content_encoding, body, ..Reply::default() }, success_when)
}

/// Half a surrogate pair or a number out of range, in what nobody reads, is JSON, but no `Value`.
fn is_beyond(reply: &Reply) -> bool {
    let is_json = || serde_json::from_slice::<IgnoredAny>(&reply.body).is_ok();
    serde_json::from_slice::<Value>(&reply.body).is_err() && is_json()
}

/// The list of a complete answer.
fn result(reply: &Reply) -> Option<Vec<Value>> {
    let answer: Value = serde_json::from_slice(&reply.body).ok()?;
    let is_json = reply.content_type.as_deref()?.to_ascii_lowercase().contains("application/json");
    let kind = answer["data"]["resultType"].as_str()?;
    let is_complete = reply.status == 200 && is_json && answer["status"] == "success";
    let list = answer["data"]["result"].as_array()?;
    (is_complete && ["vector", "matrix"].contains(&kind)).then(|| list.clone())
}

fn warns(reply: &Reply) -> bool {
    let answer: Option<Value> = serde_json::from_slice(&reply.body).ok();
    answer.is_some_and(|answer| answer["warnings"].as_array().is_some_and(|list| !list.is_empty()))
}
