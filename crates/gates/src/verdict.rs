//! The verdict on one answer (phased-rollout.md §3), with the sentence for people. It must never let anything but a complete,
//! well-formed answer pass.

use sts_plus_api::{Series, SuccessWhen, Verdict};

use crate::credentials::Credentials;
use crate::decode::{Decoded, DecodedReply, Found};
use crate::promql::MISSING_LABEL;
use crate::text::{cut, escape, one_line};

/// Longest labels or value of a series in a record, in bytes.
pub const MAX_SERIES_TEXT: usize = 256;
/// Longest query, error text and labels inside a sentence, in bytes, so that its end is never cut off.
const IN_SENTENCE: usize = 140;

/// What the sentence needs to know about the question.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The query as sent.
    pub query: &'a str,
    /// Endpoint without credentials.
    pub endpoint: &'a str,
    /// What a passed query looks like.
    pub success_when: SuccessWhen,
    /// Name of the Secret that was used, if there is one.
    pub secret: Option<&'a str>,
    /// What was sent as credentials, so that an answer that repeats them does not show them.
    pub credentials: Option<&'a Credentials>,
}

/// The outcome of one query.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the answer was.
    pub verdict: Verdict,
    /// Whether the query passed.
    pub passed: bool,
    /// One sentence, of any length.
    pub sentence: String,
    /// Number of series in the answer.
    pub series_count: u32,
    /// Up to 3 of them; labels and values uncut.
    pub series: Vec<Series>,
}

impl Judgement {
    /// No usable answer.
    #[must_use]
    pub fn error(sentence: String) -> Self {
        Self { verdict: Verdict::Error, passed: false, sentence, series_count: 0, series: Vec::new() }
    }
}

/// Judges a reply. Total: garbage is an Error and never passes.
#[must_use]
pub fn judge(reply: &DecodedReply, asked: Asked<'_>) -> Judgement {
    let mut judgement = judge_hidden(reply, asked);
    // A tab before what looks like the rest of a token is written as `\t`, and now it looks like all of it.
    if let Some(credentials) = asked.credentials {
        let shown = judgement.series.iter_mut().flat_map(|series| [&mut series.labels, &mut series.value]);
        shown.chain([&mut judgement.sentence]).for_each(|text| *text = credentials.hide(text));
    }
    judgement
}

fn judge_hidden(reply: &DecodedReply, asked: Asked<'_>) -> Judgement {
    let endpoint = asked.endpoint;
    match hidden(reply.decoded.clone(), asked.credentials) {
        Decoded::Series { count, first, warnings, .. } => judge_series(count, &first, &warnings, asked),
        Decoded::WrongType(kind) => Judgement::error(format!(
            "the expression must return a vector, and {} returned a {kind}: compare a metric, for example up == 0",
            in_sentence(asked.query)
        )),
        Decoded::Refused { kind, text } => Judgement::error(refused_sentence(reply.status, &kind, &text, asked)),
        Decoded::Unusable { why, cure } => {
            Judgement::error(format!("Prometheus at {endpoint}: {}{cure}", in_sentence(&why)))
        }
    }
}

/// `decoded` without credentials: a server, or a proxy in front of it, may repeat what it was sent. Done before anything is cut,
/// so that no half of a token stays.
fn hidden(decoded: Decoded, credentials: Option<&Credentials>) -> Decoded {
    let Some(credentials) = credentials else { return decoded };
    let hide = |text: String| credentials.hide(&text);
    match decoded {
        Decoded::Series { count, first, warnings, is_victoria } => {
            let hide_found = |found: Found| Found {
                labels: found.labels.into_iter().map(|(label, value)| (hide(label), hide(value))).collect(),
                value: hide(found.value),
            };
            Decoded::Series {
                count,
                first: first.into_iter().map(hide_found).collect(),
                warnings: warnings.into_iter().map(hide).collect(),
                is_victoria,
            }
        }
        Decoded::WrongType(kind) => Decoded::WrongType(kind),
        Decoded::Refused { kind, text } => Decoded::Refused { kind: hide(kind), text: hide(text) },
        Decoded::Unusable { why, cure } => Decoded::Unusable { why: hide(why), cure },
    }
}

fn judge_series(count: usize, first: &[Found], warnings: &[String], asked: Asked<'_>) -> Judgement {
    let verdict = if count > 0 { Verdict::Data } else { Verdict::NoData };
    let passed = match asked.success_when {
        SuccessWhen::NoData => verdict == Verdict::NoData,
        SuccessWhen::Data => verdict == Verdict::Data,
    };
    let series: Vec<Series> =
        first.iter().map(|found| Series { labels: labels_text(found), value: found.value.clone() }).collect();
    let series_count = u32::try_from(count).unwrap_or(u32::MAX);
    let proven = asked.success_when == SuccessWhen::Data && verdict == Verdict::Data;
    if !warnings.is_empty() && !proven {
        let sentence = format!(
            "Prometheus at {} answered {} with a warning, so the answer may be partial and does not count: {}",
            asked.endpoint,
            in_sentence(asked.query),
            in_sentence(&warnings.join("; "))
        );
        return Judgement { series_count, series, ..Judgement::error(sentence) };
    }
    let what = match series.first() {
        None => format!("no series returned by {}", in_sentence(asked.query)),
        Some(first) => format!(
            "{count} series returned by {}, first {} = {}",
            in_sentence(asked.query),
            in_sentence(&first.labels),
            cut(&one_line(&first.value), 64)
        ),
    };
    let outcome = if passed { "passed" } else { "not passed" };
    let sentence = format!("{what}: {outcome} (successWhen {})", success_when_text(asked.success_when));
    Judgement { verdict, passed, sentence, series_count, series }
}

fn success_when_text(success_when: SuccessWhen) -> &'static str {
    match success_when {
        SuccessWhen::NoData => "NoData",
        SuccessWhen::Data => "Data",
    }
}

/// The sentence for an error that Prometheus, or something in front of it, reports.
fn refused_sentence(status: u16, kind: &str, text: &str, asked: Asked<'_>) -> String {
    let endpoint = asked.endpoint;
    let detail = match (in_sentence(kind), in_sentence(text)) {
        (_, text) if text.is_empty() => String::new(),
        (kind, text) if kind.is_empty() => format!(": {text}"),
        (kind, text) => format!(", {kind}: {text}"),
    };
    match (status, asked.secret) {
        // Mimir and Cortex, asked past the gateway that names the tenant.
        (400 | 401, _) if text.contains("no org id") => format!(
            "Prometheus at {endpoint} wants to know the tenant (HTTP {status}, header X-Scope-OrgID), and this operator sends none: \
             give the url of a gateway that adds it{detail}"
        ),
        (401 | 403, Some(secret)) => format!(
            "Prometheus at {endpoint} refused the credentials (HTTP {status}): check the token, or username and password, \
             in Secret {secret}{detail}"
        ),
        (401 | 403, None) => format!(
            "Prometheus at {endpoint} wants credentials (HTTP {status}): name a Secret with a token, or with username and \
             password, in secretRef{detail}"
        ),
        (404, _) => format!(
            "Prometheus at {endpoint} answered HTTP 404: check the path of the url, without /api/v1/query{detail}"
        ),
        (200, _) => format!("Prometheus at {endpoint} could not answer {}{detail}", in_sentence(asked.query)),
        _ => format!("Prometheus at {endpoint} answered HTTP {status}{detail}"),
    }
}

fn in_sentence(text: &str) -> String {
    cut(&one_line(text), IN_SENTENCE)
}

/// `up{job="x"}`, as PromQL writes it.
fn labels_text(found: &Found) -> String {
    let name = found.labels.get("__name__").map_or("", String::as_str);
    let labels = found.labels.iter().filter(|(label, _)| *label != "__name__");
    let labels: Vec<String> = labels.map(|(label, value)| format!("{label}=\"{}\"", escape(value, '"'))).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// Reads the answer to [`missing_query`](crate::promql::missing_query): the positions of the first missing metrics, empty if all
/// exist.
///
/// # Errors
/// The answer cannot be relied on: a sentence.
pub fn missing(reply: &DecodedReply, asked: Asked<'_>) -> Result<Vec<usize>, String> {
    let judgement = judge(reply, Asked { success_when: SuccessWhen::NoData, ..asked });
    match (judgement.verdict, &reply.decoded) {
        (Verdict::NoData, _) => Ok(Vec::new()),
        (Verdict::Data, Decoded::Series { first, .. }) => {
            let position = |found: &Found| found.labels.get(MISSING_LABEL).and_then(|text| text.parse().ok());
            first.iter().map(position).collect::<Option<_>>().ok_or_else(|| {
                format!("Prometheus at {} gave an odd answer to the question which metrics exist", asked.endpoint)
            })
        }
        _ => Err(judgement.sentence),
    }
}

#[cfg(test)]
mod tests;
