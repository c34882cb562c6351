//! The entry point: one query, from the spec to a record. It must give a record for everything that can happen, and let a query
//! pass only on a verdict that passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use sts_plus_api::{Check, CheckRecord, OnMissingMetric, Query, Reason, Series, SuccessWhen, Verdict};
use url::Url;

use crate::credentials::{Credentials, Secrets};
use crate::decode::DecodedReply;
use crate::endpoint::Endpoint;
use crate::listener::Listener;
use crate::policy::{Policy, SecretPolicy, refused};
use crate::problem::Problem;
use crate::promql::{self, MAX_METRICS, Metric};
use crate::question::Question;
use crate::request::QueryRequest;
use crate::shared::{Freshness, Shared};
use crate::template;
use crate::text::{cut, one_line};
use crate::tls::TlsSettings;
use crate::transport::{Transport, TransportError};
use crate::validate::{allowed, tls_problem, validate};
use crate::verdict::{Asked, Judgement, MAX_SERIES_TEXT, judge, missing};

/// Longest query and message of a record, and longest warning, in bytes.
const MAX_TEXT: usize = 512;
/// Longest endpoint of a record, in bytes.
const MAX_ENDPOINT: usize = 256;
/// Longest object name, in bytes.
const MAX_NAME: usize = 253;

/// Asks Prometheus. Cheap to keep, safe to share; holds no credentials and no connections between calls. Those who ask the same
/// with the same credentials share one request.
#[derive(Debug)]
pub struct Prober {
    user_agent: HeaderValue,
    policy: Policy,
    transport: Transport,
    shared: Shared,
}

/// What came of one query of one try.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The record for the status. All its texts are cut to their documented length.
    pub record: CheckRecord,
    /// Set if the configuration cannot be used; the record then has verdict Error and the same sentence.
    pub problem: Option<Problem>,
    /// Reason (`TokenWins`, `PassedOnMissingMetric`) and sentence of each Warning event, at most 512 bytes each.
    pub warnings: Vec<(Reason, String)>,
}

/// Everything that is needed to ask, found without asking.
struct Prepared {
    request: QueryRequest,
    metrics: Vec<Metric>,
    query: String,
}

impl Prober {
    /// `user_agent` as `sts-plus/<version>`; one that no header can hold becomes `sts-plus`.
    #[must_use]
    pub fn new(user_agent: &str, policy: Policy) -> Self {
        let user_agent = HeaderValue::from_str(user_agent).unwrap_or_else(|_| HeaderValue::from_static("sts-plus"));
        Self { user_agent, transport: Transport::new(policy.clone()), shared: Shared::new(), policy }
    }

    /// Which Secrets may be handed to it.
    #[must_use]
    pub fn secrets(&self) -> SecretPolicy {
        self.policy.secrets
    }

    /// `hear` is told of each request that was sent, once for all who share it: the origin, and how long it took until its whole answer was
    /// there, or it was certain that there is none.
    #[must_use]
    pub fn heard_by(mut self, hear: impl Fn(&str, Duration) + Send + Sync + 'static) -> Self {
        self.transport.set_listener(Listener::new(hear));
        self
    }

    /// What is wrong with the queries of `check`, without asking anybody; see [`validate()`](crate::validate()).
    #[must_use]
    pub fn validate(&self, check: &Check) -> Vec<Problem> {
        validate(check, &self.policy)
    }

    /// Asks one query once, or takes an answer that is `fresh` enough from somebody who has asked the same. `variables` are the values
    /// for `${…}`, one that has no value now is missing; `pod` is the pod that the record names. Takes at most `timeoutSeconds` per request; there is a second request if a `NoData` answer passes.
    ///
    /// Never fails: what goes wrong is in the record, and what a person has to change is in `problem` too.
    pub async fn ask(
        &self,
        question: &Question<'_>,
        variables: &BTreeMap<&'static str, String>,
        secrets: &Secrets,
        pod: &str,
        fresh: Freshness,
    ) -> Answer {
        let mut draft = Draft::new(question, pod);
        let outcome = self.try_ask(question, variables, secrets, &mut draft, fresh).await;
        draft.finish(outcome)
    }

    async fn try_ask(
        &self,
        question: &Question<'_>,
        variables: &BTreeMap<&'static str, String>,
        secrets: &Secrets,
        draft: &mut Draft,
        fresh: Freshness,
    ) -> Result<Judgement, Problem> {
        let prepared = self.prepare(question, variables, secrets, draft)?;
        let (endpoint, credentials) = (draft.endpoint.clone(), draft.credentials.clone());
        let asked = Asked {
            query: &prepared.query,
            endpoint: &endpoint,
            success_when: question.query.success_when,
            secret: question.secret_ref,
            credentials: credentials.as_ref(),
        };
        let reply = match self.exchange(&prepared.request, question, secrets, fresh).await? {
            Ok(reply) => reply,
            Err(e) => return refused_or_error(&e, asked, question),
        };
        draft.http_status = Some(reply.status);
        let judgement = judge(&reply, asked);
        let must_ask_for_metrics = judgement.passed && judgement.verdict == Verdict::NoData;
        let Some(existence) = promql::missing_query(&prepared.metrics).filter(|_| must_ask_for_metrics) else {
            return Ok(judgement);
        };
        let request = self.request(prepared.request.url.clone(), &existence, question.query, credentials.clone());
        let answer = match self.exchange(&request, question, secrets, fresh).await? {
            Ok(reply) => missing(&reply, asked),
            Err(e) => Err(transport_sentence(&e, asked)),
        };
        Ok(with_existence(judgement, answer, &prepared.metrics, question.query, draft))
    }

    fn prepare(
        &self,
        question: &Question<'_>,
        variables: &BTreeMap<&'static str, String>,
        secrets: &Secrets,
        draft: &mut Draft,
    ) -> Result<Prepared, Problem> {
        let field = &question.field;
        let endpoint: Endpoint = allowed(question, &self.policy)?;
        draft.endpoint = endpoint.to_string();
        let problem = |e: String| Problem::query(one_line(&format!("{field}.expr {e}")));
        let query = template::fill(&question.query.expr, variables).map_err(|e| problem(e.to_string()))?;
        draft.query.clone_from(&query);
        let metrics = promql::check(&query).map_err(|e| problem(e.to_string()))?.metrics;
        if question.query.success_when == SuccessWhen::NoData && metrics.len() > MAX_METRICS {
            return Err(problem(format!("names more than {MAX_METRICS} metrics: split it into several queries")));
        }
        if let Some(problem) = tls_problem(question) {
            return Err(problem);
        }
        draft.credentials = credentials(question, secrets, &mut draft.warnings)?;
        let url = endpoint.query_url().clone();
        let request = self.request(url, &query, question.query, draft.credentials.clone());
        Ok(Prepared { request, metrics, query })
    }

    fn request(&self, url: Url, expr: &str, query: &Query, credentials: Option<Credentials>) -> QueryRequest {
        let seconds = u64::try_from(query.timeout_seconds.clamp(1, 60)).unwrap_or(1);
        QueryRequest::new(url, expr, Duration::from_secs(seconds), self.user_agent.clone(), credentials)
    }

    /// The outer result is a problem with the TLS Secrets.
    async fn exchange(
        &self,
        request: &QueryRequest,
        question: &Question<'_>,
        secrets: &Secrets,
        fresh: Freshness,
    ) -> Result<Result<Arc<DecodedReply>, TransportError>, Problem> {
        let tls = tls(question, secrets)?;
        Ok(self.shared.exchange(&self.transport, request, tls, fresh).await)
    }
}

/// What is wrong with the Secrets of one query, found without asking Prometheus.
#[must_use]
pub fn check_secrets(question: &Question<'_>, secrets: &Secrets) -> Option<Problem> {
    credentials(question, secrets, &mut Vec::new()).err().or_else(|| tls(question, secrets).err())
}

fn tls(question: &Question<'_>, secrets: &Secrets) -> Result<TlsSettings, Problem> {
    match &question.query.tls {
        None => Ok(TlsSettings::system()),
        Some(tls) => {
            TlsSettings::read(tls, secrets).map_err(|e| Problem::credentials(format!("{}.tls.{e}", question.field)))
        }
    }
}

fn credentials(
    question: &Question<'_>,
    secrets: &Secrets,
    warnings: &mut Vec<(Reason, String)>,
) -> Result<Option<Credentials>, Problem> {
    let field = &question.secret_field;
    let Some(name) = question.secret_ref else { return Ok(None) };
    let Some(secret) = &secrets.credentials else {
        return Err(Problem::credentials(format!(
            "{field} names Secret {name}, which does not exist: create it or correct the name"
        )));
    };
    let found = Credentials::read(secret).map_err(|e| Problem::credentials(format!("{field}: {e}")))?;
    if found.ignored_pair() {
        let sentence = format!(
            "Secret {name}, named in {field}, holds a token beside username or password: the token is used; remove the one \
             that is not needed"
        );
        warnings.push((Reason::TokenWins, cut(&sentence, MAX_TEXT)));
    }
    Ok(Some(found))
}

/// An address that must not be asked is for a person to correct; everything else may pass by itself.
fn refused_or_error(e: &TransportError, asked: Asked<'_>, question: &Question<'_>) -> Result<Judgement, Problem> {
    match e {
        TransportError::Refused(what) => Err(Problem::url(format!("{} {}", question.url_field, refused(what)))),
        _ => Ok(Judgement::error(transport_sentence(e, asked))),
    }
}

fn transport_sentence(e: &TransportError, asked: Asked<'_>) -> String {
    format!("Prometheus at {}: {}", asked.endpoint, one_line(&e.to_string()))
}

/// Completes a passed `NoData` verdict with what is known about the metrics (onMissingMetric).
fn with_existence(
    judgement: Judgement,
    answer: Result<Vec<usize>, String>,
    metrics: &[Metric],
    query: &Query,
    draft: &mut Draft,
) -> Judgement {
    let missing = match (answer, query.on_missing_metric) {
        (Ok(missing), _) if missing.is_empty() => return judgement,
        (Ok(missing), _) => names(&missing, metrics),
        // The check itself passed; only the warning is not certain.
        (Err(_), OnMissingMetric::Pass) => return judgement,
        (Err(sentence), OnMissingMetric::Hold) => {
            return Judgement::error(format!("whether the metrics exist is not known: {sentence}"));
        }
    };
    let shown = cut(&one_line(&draft.query), 140);
    match query.on_missing_metric {
        OnMissingMetric::Hold => {
            let sentence = format!(
                "no series returned by {shown}, but Prometheus has no metric {missing}: not passed (onMissingMetric Hold)"
            );
            Judgement { verdict: Verdict::Unproven, passed: false, sentence, ..judgement }
        }
        OnMissingMetric::Pass => {
            let warning = format!(
                "query {} passed, but Prometheus has no metric {missing}: correct the expression {shown}, or set \
                 onMissingMetric to Hold",
                query.display_name()
            );
            draft.warnings.push((Reason::PassedOnMissingMetric, cut(&warning, MAX_TEXT)));
            let sentence = format!(
                "no series returned by {shown}, and Prometheus has no metric {missing}: passed (successWhen NoData, \
                 onMissingMetric Pass)"
            );
            Judgement { sentence, ..judgement }
        }
    }
}

fn names(missing: &[usize], metrics: &[Metric]) -> String {
    let names: Vec<&str> = missing.iter().filter_map(|i| metrics.get(*i)).map(|metric| metric.shown.as_str()).collect();
    cut(&one_line(&names.join(", ")), 140)
}

/// What is known so far about the record.
struct Draft {
    name: String,
    pod: String,
    query: String,
    endpoint: String,
    http_status: Option<u16>,
    credentials: Option<Credentials>,
    warnings: Vec<(Reason, String)>,
}

impl Draft {
    fn new(question: &Question<'_>, pod: &str) -> Self {
        Self {
            name: question.query.display_name().to_owned(),
            pod: pod.to_owned(),
            query: question.query.expr.clone(),
            endpoint: String::new(),
            http_status: None,
            credentials: None,
            warnings: Vec::new(),
        }
    }

    fn finish(self, outcome: Result<Judgement, Problem>) -> Answer {
        let (judgement, problem) = match outcome {
            Ok(judgement) => (judgement, None),
            Err(problem) => (Judgement::error(problem.message.clone()), Some(problem)),
        };
        let clean = |text: &str, max| {
            let hidden = self.credentials.as_ref().map_or_else(|| text.to_owned(), |known| known.hide(text));
            cut(&hidden, max)
        };
        let series = judgement.series.iter().map(|series| Series {
            labels: clean(&series.labels, MAX_SERIES_TEXT),
            value: clean(&series.value, MAX_SERIES_TEXT),
        });
        let record = CheckRecord {
            time: Timestamp::now(),
            name: cut(&self.name, MAX_NAME),
            pod: cut(&self.pod, MAX_NAME),
            query: cut(&self.query, MAX_TEXT),
            endpoint: cut(&self.endpoint, MAX_ENDPOINT),
            verdict: judgement.verdict,
            passed: judgement.passed,
            message: clean(&judgement.sentence, MAX_TEXT),
            http_status: self.http_status,
            series_count: judgement.series_count,
            series: series.collect(),
        };
        Answer { record, problem, warnings: self.warnings }
    }
}
