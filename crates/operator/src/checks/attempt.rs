//! One try: every query is asked once, with credentials read from their Secrets just now. Nothing of a Secret is kept, and nothing
//! is written to the API server.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use sts_plus_api::{Check, CheckRecord, Current, Step, Verdict};
use sts_plus_decide::{CheckRequest, ConfigProblem, Try};
use sts_plus_gates::{Answer, Freshness, Policy, Question, questions};

use super::{config_problem, secrets};
use crate::client::USER_AGENT;
use crate::controllers::now;
use crate::errors::{Error, cut};
use crate::telemetry::panic_text;

pub use sts_plus_gates::Prober;

/// Beyond the longest time-out that a query may have, twice, this is what a try may take before it counts as an error.
const SLACK: Duration = Duration::from_secs(10);

/// The way to Prometheus.
#[must_use]
pub fn prober(policy: Policy) -> Prober {
    Prober::new(USER_AGENT, policy)
}

/// What is wrong with the checks, as far as it shows without asking anybody.
pub(crate) fn validate(prober: &Prober, check: &Check) -> Vec<ConfigProblem> {
    prober.validate(check).into_iter().map(config_problem).collect()
}

/// A try that can be made.
pub(crate) struct Attempt {
    client: Client,
    prober: Arc<Prober>,
    namespace: String,
    check: Check,
    request: CheckRequest,
    fresh: Freshness,
}

impl Attempt {
    /// A try of `check` for `request`, in the cycle `current`.
    pub(crate) fn of(
        client: &Client,
        prober: &Arc<Prober>,
        namespace: &str,
        check: &Check,
        request: &CheckRequest,
        current: Option<&Current>,
    ) -> Self {
        Self {
            client: client.clone(),
            prober: Arc::clone(prober),
            namespace: namespace.to_owned(),
            check: check.clone(),
            request: request.clone(),
            fresh: fresh(check, current, now()),
        }
    }

    /// Makes it. There is always an outcome, also after a panic: an error of every query.
    pub(crate) async fn make(self) -> Try {
        let answers = tokio::time::timeout(self.longest(), AssertUnwindSafe(self.ask_all()).catch_unwind());
        let answers = match answers.await {
            Ok(Ok(answers)) => answers,
            Ok(Err(panic)) => {
                self.all_failed(&format!("bug: a panic while Prometheus was asked: {}", panic_text(&*panic)))
            }
            Err(_) => self.all_failed("the check took longer than its time-outs allow"),
        };
        let mut tried = Try {
            request: self.request.key.clone(),
            time: now(),
            records: Vec::new(),
            config: Vec::new(),
            warnings: Vec::new(),
        };
        for mut answer in answers {
            answer.record.time = tried.time;
            tried.records.push(answer.record);
            tried.config.extend(answer.problem.map(config_problem));
            tried.warnings.extend(answer.warnings);
        }
        tried.config.dedup();
        tried.warnings.dedup();
        tried
    }

    fn longest(&self) -> Duration {
        let seconds = self.check.all_queries().map(|query| query.timeout_seconds).max().unwrap_or(0);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) * 2 + SLACK
    }

    fn pod(&self) -> &str {
        self.request.variables.get("pod").map_or("", String::as_str)
    }

    async fn ask_all(&self) -> Vec<Answer> {
        let questions = questions(&self.check);
        let read = secrets::read(&self.client, &self.namespace, &questions, self.prober.secrets()).await;
        join_all(questions.iter().map(|question| self.ask(question, &read))).await
    }

    async fn ask(&self, question: &Question<'_>, read: &secrets::Found) -> Answer {
        match secrets::of(question, read) {
            Ok(secrets) => self.prober.ask(question, &self.request.variables, &secrets, self.pod(), self.fresh).await,
            Err((field, name, error)) => self.unreadable(question, &field, name, error),
        }
    }

    /// A Secret that we may not read or use is for a person to mend; any other failure may pass by itself.
    fn unreadable(&self, question: &Question<'_>, field: &str, secret: &str, error: &Error) -> Answer {
        let problem = secrets::for_a_person(field, secret, &self.namespace, error);
        let sentence = match &problem {
            Some(problem) => problem.message.clone(),
            None => format!("{field} names Secret {secret}, which could not be read: {error}"),
        };
        Answer { problem, ..self.failed(question, &sentence) }
    }

    fn all_failed(&self, sentence: &str) -> Vec<Answer> {
        questions(&self.check).iter().map(|question| self.failed(question, sentence)).collect()
    }

    fn failed(&self, question: &Question<'_>, sentence: &str) -> Answer {
        let record = CheckRecord {
            time: now(),
            name: cut(question.query.display_name(), 253).to_owned(),
            pod: cut(self.pod(), 253).to_owned(),
            query: cut(&question.query.expr, 512).to_owned(),
            endpoint: String::new(),
            verdict: Verdict::Error,
            passed: false,
            message: cut(sentence, 512).to_owned(),
            http_status: None,
            series_count: 0,
            series: Vec::new(),
        };
        Answer { record, problem: None, warnings: Vec::new() }
    }
}

/// How old an answer may be that another rollout has asked for.
fn fresh(check: &Check, current: Option<&Current>, now: Timestamp) -> Freshness {
    match current.and_then(|current| askable_for(check, current, now)) {
        Some(time) => Freshness::of(time, Duration::from_secs(u64::try_from(check.period_seconds).unwrap_or_default())),
        None => Freshness::now(),
    }
}

/// For how long this try could have been made: since the step's checks began, which is the initial delay after its pods were there,
/// and since our own last try. What was asked before says nothing about these pods. None if the pods are not there.
fn askable_for(check: &Check, current: &Current, now: Timestamp) -> Option<Duration> {
    let delay = match current.step {
        Step::Preflight => SignedDuration::ZERO,
        _ => SignedDuration::from_secs(i64::from(check.initial_delay_seconds)),
    };
    let begun = current.since?.checked_add(delay).ok()?;
    let begun = current.last_check_time.map_or(begun, |last| last.max(begun));
    Some(Duration::try_from(now.duration_since(begun)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use sts_plus_api::Reason;
    use sts_plus_decide::CheckKey;
    use sts_plus_gates::{AddressPolicy, SecretPolicy};

    use super::*;

    /// An API server that gives one answer to everything.
    fn attempt(code: u16, answer: &Value) -> Attempt {
        let answer = answer.to_string();
        let service = tower::service_fn(move |_: Request<Body>| {
            let response = Response::builder().status(code).body(Body::from(answer.clone().into_bytes()));
            async move { response }
        });
        let check = serde_json::from_value(json!({
            "query": {"expr": "up{pod=\"${pod}\"}", "url": "127.0.0.1:1", "secretRef": "prom-secret"},
        }));
        let key = CheckKey { revision: "web-a".to_owned(), index: 2, step: Step::Pod };
        Attempt {
            client: Client::new(service, "default"),
            prober: Arc::new(prober(AddressPolicy { allow_loopback: true }.into())),
            namespace: "default".to_owned(),
            check: check.unwrap(),
            request: CheckRequest { key, variables: [("pod", "web-2".to_owned())].into() },
            fresh: Freshness::now(),
        }
    }

    fn refusal(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no"})
    }

    /// Seconds at which the pods were there and the last try was made, and for how long it could be made again at second 100, with
    /// an initial delay of 10 seconds.
    #[test]
    fn no_answer_is_older_than_the_pods_their_delay_and_the_last_try() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let check = Check { initial_delay_seconds: 10, ..Check::default() };
        for (step, since, last, want) in [
            (Step::Preflight, Some(40), None, Some(60)),
            (Step::Pod, Some(40), None, Some(50)),
            (Step::Final, Some(40), None, Some(50)),
            (Step::Pod, Some(40), Some(80), Some(20)),
            (Step::Pod, Some(40), Some(45), Some(50)),
            (Step::Pod, Some(95), Some(80), Some(0)),
            (Step::Pod, Some(120), None, Some(0)),
            (Step::Pod, None, Some(80), None),
        ] {
            let current = json!({ "index": 0, "pod": "web-0", "step": step, "tries": 0, "consecutivePasses": 0 });
            let mut current: Current = serde_json::from_value(current).unwrap();
            (current.since, current.last_check_time) = (since.map(at), last.map(at));
            assert_eq!(askable_for(&check, &current, at(100)), want.map(Duration::from_secs), "{current:?}");
        }
    }

    #[tokio::test]
    async fn a_missing_secret_is_a_problem_that_names_the_field() {
        let tried = attempt(404, &refusal(404, "NotFound")).make().await;
        assert_eq!(tried.config.len(), 1);
        assert_eq!(tried.config[0].reason, Reason::InvalidCredentials);
        assert!(
            tried.config[0].message.contains("spec.check.query.secretRef names Secret prom-secret"),
            "{:?}",
            tried.config
        );
        assert_eq!(tried.records[0].verdict, Verdict::Error);
    }

    #[tokio::test]
    async fn a_secret_that_may_not_be_read_is_a_problem_with_its_cure() {
        let tried = attempt(403, &refusal(403, "Forbidden")).make().await;
        assert_eq!(tried.config[0].reason, Reason::InvalidCredentials);
        assert!(tried.config[0].message.contains("give it the right to get Secrets"), "{:?}", tried.config);
        assert_eq!((tried.records.len(), tried.records[0].pod.as_str()), (1, "web-2"));
    }

    #[tokio::test]
    async fn the_token_of_a_service_account_is_sent_to_nobody() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": "prom-secret" }, "data": { "token": "dG9wc2VjcmV0" } });
        let tried = attempt(200, &secret).make().await;
        assert_eq!((tried.config.len(), tried.config[0].reason), (1, Reason::InvalidCredentials));
        let words = "spec.check.query.secretRef names Secret prom-secret: it is the token of a service account";
        assert!(tried.config[0].message.starts_with(words), "{:?}", tried.config);
        assert!(tried.records[0].endpoint.is_empty(), "nobody was asked");
    }

    /// Labels of the Secret, and whether it is used where only labelled ones are, and where all are.
    #[tokio::test]
    async fn where_a_label_is_wanted_only_a_secret_that_has_it_is_sent() {
        let name = sts_plus_api::names::CHECK_CREDENTIALS;
        for (labels, is_used) in [
            (json!({}), false),
            (json!({ name: "false" }), false),
            (json!({ name: "" }), false),
            (json!({ "check-credentials": "true" }), false),
            (json!({ name: "true" }), true),
        ] {
            let metadata = json!({ "name": "prom-secret", "namespace": "shop", "labels": labels });
            let secret =
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "token": "dG9w" } });
            let addresses = AddressPolicy { allow_loopback: true };
            let policy = Policy { addresses, secrets: SecretPolicy::Labelled, ..Policy::default() };
            let strict = Attempt { prober: Arc::new(prober(policy)), ..attempt(200, &secret) };
            let tried = strict.make().await;
            assert_eq!(tried.config.is_empty(), is_used, "{labels}: {:?}", tried.config);
            assert_eq!(tried.records[0].endpoint.is_empty(), !is_used, "{labels}: nobody is asked without it");
            for problem in &tried.config {
                assert_eq!(problem.reason, Reason::InvalidCredentials);
                let start = "spec.check.query.secretRef names Secret prom-secret: it has no label sts.plus/check-credentials: \"true\"";
                let cure = "kubectl -n shop label secret prom-secret sts.plus/check-credentials=true";
                let told = &problem.message;
                assert!(
                    told.starts_with(start) && told.ends_with(cure) && told.contains("--require-labelled-secrets"),
                    "{told}"
                );
            }
            assert!(attempt(200, &secret).make().await.config.is_empty(), "{labels}: any Secret without the flag");
        }
    }

    #[tokio::test]
    async fn an_authority_and_a_client_certificate_need_the_label_as_well() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "shop" } });
        let policy = Policy { secrets: SecretPolicy::Labelled, ..Policy::default() };
        for field in ["caSecretRef", "certSecretRef"] {
            let mut strict = Attempt { prober: Arc::new(prober(policy.clone())), ..attempt(200, &secret) };
            strict.check = serde_json::from_value(json!({
                "query": { "expr": "up", "url": "https://prom", "tls": { field: "s" } },
            }))
            .unwrap();
            let tried = strict.make().await;
            let start = format!("spec.check.query.tls.{field} names Secret s: it has no label");
            assert!(tried.config.len() == 1 && tried.config[0].message.starts_with(&start), "{:?}", tried.config);
        }
    }

    #[tokio::test]
    async fn an_api_server_that_fails_is_an_error_that_may_pass() {
        let tried = attempt(500, &refusal(500, "InternalError")).make().await;
        assert!(tried.config.is_empty());
        assert_eq!((tried.records[0].verdict, tried.records[0].passed), (Verdict::Error, false));
        assert!(tried.records[0].message.contains("could not be read"), "{}", tried.records[0].message);
    }

    #[tokio::test]
    async fn a_prometheus_that_does_not_answer_is_an_error_and_the_token_shows_nowhere() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "prom-secret"}, "data": {"token": "dG9wc2VjcmV0"}});
        let tried = attempt(200, &secret).make().await;
        assert_eq!(tried.request.index, 2);
        assert_eq!(tried.records[0].verdict, Verdict::Error);
        assert_eq!(tried.records[0].query, "up{pod=\"web-2\"}");
        assert!(!format!("{tried:?}").contains("topsecret"));
    }
}
