//! The answer of Prometheus, from bytes to what it says. It must never panic, never take garbage for an answer, and never hold
//! more than the first series in memory, however large the answer is.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Longest body in bytes; a longer one is an error.
pub const MAX_BODY: usize = 4 << 20;
/// How many series are kept; all are counted.
pub const KEPT: usize = 3;

/// An HTTP answer, read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Content-Type header, if there is one.
    pub content_type: Option<String>,
    /// Content-Encoding header, if there is one.
    pub content_encoding: Option<String>,
    /// Age header, if there is one: for how many seconds a cache on the way has had this.
    pub age: Option<u64>,
    /// The body.
    pub body: Bytes,
}

/// What a reply says.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// A vector or matrix.
    Series {
        /// Number of series.
        count: usize,
        /// The first [`KEPT`] of them.
        first: Vec<Found>,
        /// Warnings of Prometheus: the answer may be partial.
        warnings: Vec<String>,
        /// True for `VictoriaMetrics`: unless it is told not to, it answers for a time before the question.
        is_victoria: bool,
    },
    /// `scalar` or `string`.
    WrongType(&'static str),
    /// Prometheus says that it failed: kind of error (may be empty) and text.
    Refused {
        /// `errorType`, such as `bad_data`.
        kind: String,
        /// `error`; cut by the reader, not here.
        text: String,
    },
    /// No usable answer.
    Unusable {
        /// A clause that tells why, with words of the answer; cut by the reader, not here.
        why: String,
        /// What follows it, and is never cut off.
        cure: &'static str,
    },
}

/// What is kept of a reply, and shared: not its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedReply {
    /// HTTP status.
    pub status: u16,
    /// What it says.
    pub decoded: Decoded,
}

impl DecodedReply {
    /// Reads `reply`.
    #[must_use]
    pub fn of(reply: &Reply) -> Self {
        Self { status: reply.status, decoded: decode(reply) }
    }

    /// True for a complete answer.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(&self.decoded, Decoded::Series { warnings, .. } if warnings.is_empty())
    }

    /// True if it may be about a time before the question, see [`Decoded::Series::is_victoria`].
    pub(crate) fn is_victoria(&self) -> bool {
        matches!(&self.decoded, Decoded::Series { is_victoria: true, .. })
    }

    /// The memory that its texts take, in bytes.
    pub(crate) fn size(&self) -> usize {
        let each = |text: &String| size_of::<String>() + text.len();
        match &self.decoded {
            Decoded::Series { first, warnings, .. } => {
                let labels =
                    |found: &Found| found.labels.iter().map(|(key, value)| each(key) + each(value)).sum::<usize>();
                first.iter().map(|found| labels(found) + each(&found.value)).sum::<usize>()
                    + warnings.iter().map(each).sum::<usize>()
            }
            Decoded::WrongType(_) => 0,
            Decoded::Refused { kind, text } => each(kind) + each(text),
            Decoded::Unusable { why, .. } => each(why),
        }
    }
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its labels, with `__name__`.
    pub labels: BTreeMap<String, String>,
    /// Its latest value as Prometheus wrote it, or a short form of a native histogram.
    pub value: String,
}

/// Reads a reply. HTTP status 200 is a must for anything but [`Decoded::Refused`] and [`Decoded::Unusable`].
#[must_use]
pub fn decode(reply: &Reply) -> Decoded {
    if reply.body.len() > MAX_BODY {
        return unusable("the answer is larger than 4 MiB", ": aggregate in the expression");
    }
    if let Some(coding) = reply.content_encoding.as_deref().filter(|c| !c.trim().eq_ignore_ascii_case("identity")) {
        return unusable(format!("the answer is compressed ({coding})"), ", although none was asked for");
    }
    let json = reply.content_type.as_deref().is_some_and(is_json);
    if reply.status != 200 {
        return refused(reply, json);
    }
    if let Some(age) = reply.age.filter(|age| *age > 0) {
        return unusable(
            format!("the answer is {age} s old, and comes from a cache on the way"),
            ": have that cache leave out /api/v1/query",
        );
    }
    if !json {
        let found = reply.content_type.as_deref().unwrap_or("none");
        let why = format!("the answer is not JSON (content type {found})");
        return unusable(why, ": check that the url is the one of Prometheus");
    }
    match parse::<Envelope<'_>>(&reply.body) {
        Ok(envelope) => envelope.read(),
        Err(why) => unusable(format!("the answer cannot be read: {why}"), ""),
    }
}

fn unusable(why: impl Into<String>, cure: &'static str) -> Decoded {
    Decoded::Unusable { why: why.into(), cure }
}

/// The whole body is text before anything in it counts: in a field that is skipped, the parser would not look.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|e| e.to_string())?;
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn is_json(content_type: &str) -> bool {
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// An error status. Its body is used if it is an error in the form of Prometheus or of a gateway, or a plain text.
fn refused(reply: &Reply, json: bool) -> Decoded {
    let plain = reply.content_type.as_deref().is_some_and(|kind| kind.starts_with("text/plain"));
    if json && let Ok(complaint) = parse::<Complaint>(&reply.body) {
        return complaint.read();
    }
    let text = if plain { String::from_utf8_lossy(&reply.body).into_owned() } else { String::new() };
    Decoded::Refused { kind: String::new(), text }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    status: String,
    #[serde(borrow, default)]
    data: Option<Data<'a>>,
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// `VictoriaMetrics` tells so, and without a warning, that some of its storage did not answer.
    #[serde(default)]
    is_partial: Option<bool>,
    /// Here only in an answer of `VictoriaMetrics`; those of Prometheus are part of `data`.
    #[serde(borrow, default)]
    stats: Option<&'a RawValue>,
}

/// The words of an error. Prometheus has them in `error`; Google and Azure have an object there, Amazon and Kubernetes a `message`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Complaint {
    #[serde(default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<Words>,
    #[serde(default, alias = "Message")]
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Object { message: String },
}

impl Complaint {
    fn read(self) -> Decoded {
        let text = match self.error {
            Some(Words::Text(text) | Words::Object { message: text }) => text,
            None => self.message.unwrap_or_default(),
        };
        Decoded::Refused { kind: self.error_type.unwrap_or_default(), text }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    result_type: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

impl Envelope<'_> {
    fn read(self) -> Decoded {
        match self.status.as_str() {
            "success" => {}
            "error" => {
                let text = self.error.unwrap_or_default();
                return Decoded::Refused { kind: self.error_type.unwrap_or_default(), text };
            }
            _ => return unusable("the answer has an unknown status", ""),
        }
        let Some(data) = self.data else {
            return unusable("the answer has no data", "");
        };
        // Servers in Go write no series as `null` too.
        let result = if data.result.get() == "null" { "[]" } else { data.result.get() };
        let counted = match data.result_type.as_str() {
            "vector" => serde_json::from_str::<Counted<Sample>>(result).map(Counted::into_parts),
            "matrix" => serde_json::from_str::<Counted<Range>>(result).map(Counted::into_parts),
            "scalar" => return Decoded::WrongType("scalar"),
            "string" => return Decoded::WrongType("string"),
            _ => return unusable("the answer has an unknown result type", ""),
        };
        match counted {
            Ok((count, first)) => {
                let is_victoria = self.is_partial.is_some()
                    || self.stats.is_some_and(|stats| stats.get().contains("\"seriesFetched\""));
                let mut warnings = self.warnings.unwrap_or_default();
                warnings.retain(|warning| !is_info(warning));
                if self.is_partial == Some(true) {
                    warnings.push("isPartial: some of the storage did not answer".to_owned());
                }
                Decoded::Series { count, first, warnings, is_victoria }
            }
            Err(e) => unusable(format!("the answer cannot be read: {e}"), ""),
        }
    }
}

/// Prometheus before 3.0 and Thanos write what is no obstacle among the warnings.
fn is_info(warning: &str) -> bool {
    warning.starts_with("PromQL info: ") || warning.ends_with(" more info annotations omitted")
}

type Point<T> = (f64, T);

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: Option<Point<Number>>,
    histogram: Option<Point<Histogram>>,
}

#[derive(Deserialize)]
struct Range {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<Point<Number>>,
    #[serde(default)]
    histograms: Vec<Point<Histogram>>,
}

/// A number as Prometheus writes it, in a string: `1.5`, `NaN`, `+Inf`.
struct Number(String);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<f64>() {
            Ok(_) => Ok(Self(text)),
            Err(_) => Err(D::Error::custom("a value is not a number")),
        }
    }
}

#[derive(Deserialize)]
struct Histogram {
    count: Number,
    sum: Number,
}

trait IntoFound {
    fn into_found(self) -> Option<Found>;
}

impl IntoFound for Sample {
    fn into_found(self) -> Option<Found> {
        let value = shown(self.value.map(|(_, number)| number), self.histogram.map(|(_, histogram)| histogram))?;
        Some(Found { labels: self.metric, value })
    }
}

/// The latest value: a series may have been a number first and a histogram later.
impl IntoFound for Range {
    fn into_found(mut self) -> Option<Found> {
        let (number, histogram) = (self.values.pop(), self.histograms.pop());
        let is_older =
            number.as_ref().zip(histogram.as_ref()).is_some_and(|(number, histogram)| number.0 < histogram.0);
        let value = shown(number.filter(|_| !is_older).map(|(_, number)| number), histogram.map(|(_, found)| found))?;
        Some(Found { labels: self.metric, value })
    }
}

fn shown(number: Option<Number>, histogram: Option<Histogram>) -> Option<String> {
    match (number, histogram) {
        (Some(Number(text)), _) => Some(text),
        (None, Some(histogram)) => Some(format!("histogram count={} sum={}", histogram.count.0, histogram.sum.0)),
        (None, None) => None,
    }
}

/// A list of which all elements are read and counted and the first few kept.
struct Counted<T> {
    count: usize,
    first: Vec<Found>,
    of: PhantomData<T>,
}

impl<T> Counted<T> {
    fn into_parts(self) -> (usize, Vec<Found>) {
        (self.count, self.first)
    }
}

impl<'de, T: Deserialize<'de> + IntoFound> Deserialize<'de> for Counted<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CountedVisitor(PhantomData))
    }
}

struct CountedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + IntoFound> Visitor<'de> for CountedVisitor<T> {
    type Value = Counted<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut counted = Counted { count: 0, first: Vec::new(), of: PhantomData };
        while let Some(element) = seq.next_element::<T>()? {
            let found = element.into_found().ok_or_else(|| A::Error::custom("a series has no value"))?;
            counted.count += 1;
            if counted.first.len() < KEPT {
                counted.first.push(found);
            }
        }
        Ok(counted)
    }
}
