//! The Secrets of the checks: read when they are needed, never kept. What is kept is only what is wrong with them, so that a
//! PhasedRollout at rest says so before the next rollout needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use sts_plus_api::{Check, ConditionType, PhasedRollout, Reason, names};
use sts_plus_decide::ConfigProblem;
use sts_plus_gates::{Problem, Question, SecretData, SecretPolicy, Secrets, check_secrets, questions};
use tokio::time::Instant;

use super::config_problem;
use crate::client::deadline;
use crate::errors::{Class, Error};

/// Secrets that cannot be used are looked at again after this time: a person who mends one wakes nobody up.
const AGAIN: Duration = Duration::from_secs(10);

/// What Kubernetes makes for a service account: with it anybody is that account.
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// A Secret as far as it could be read.
pub(super) enum Read {
    Found(SecretData),
    Missing,
    Failed(Error),
}

/// Secrets by name.
pub(super) type Found = BTreeMap<String, Read>;

/// Reads every Secret that the questions name, once. One that `policy` does not let be used is as good as unreadable.
pub(super) async fn read(client: &Client, namespace: &str, questions: &[Question<'_>], policy: SecretPolicy) -> Found {
    let names: BTreeSet<&str> =
        questions.iter().flat_map(|question| fields(question).map(|(_, name)| name)).flatten().collect();
    let api: &Api<Secret> = &Api::namespaced(client.clone(), namespace);
    let reads = names.into_iter().map(|name| async move {
        let read = match deadline(format!("reading Secret {name}"), api.get_opt(name)).await {
            Ok(None) => Read::Missing,
            Ok(Some(secret)) => match kept_back(&secret, policy) {
                Some(problem) => Read::Failed(Error::Unusable { what: format!("Secret {name}"), problem }),
                None => Read::Found(data(name, secret)),
            },
            Err(error) => Read::Failed(error),
        };
        (name.to_owned(), read)
    });
    join_all(reads).await.into_iter().collect()
}

/// The fields of a query that name a Secret, with the name, in the order credentials, authority, client certificate.
fn fields<'a>(question: &Question<'a>) -> [(String, Option<&'a str>); 3] {
    let tls = question.query.tls.as_ref();
    [
        (question.secret_field.clone(), question.secret_ref),
        (format!("{}.tls.caSecretRef", question.field), tls.and_then(|tls| tls.ca_secret_ref.as_deref())),
        (format!("{}.tls.certSecretRef", question.field), tls.and_then(|tls| tls.cert_secret_ref.as_deref())),
    ]
}

/// The Secrets of one query. The error is the field, the name and the error of the first that could not be read; one that does
/// not exist is no such error: what that means is said where the query is asked.
pub(super) fn of<'a>(question: &Question<'a>, read: &'a Found) -> Result<Secrets, (String, &'a str, &'a Error)> {
    let [credentials, ca, client_certificate] =
        fields(question).map(|(field, name)| match name.and_then(|name| read.get_key_value(name)) {
            None | Some((_, Read::Missing)) => Ok(None),
            Some((_, Read::Found(data))) => Ok(Some(data.clone())),
            Some((name, Read::Failed(error))) => Err((field, name.as_str(), error)),
        });
    Ok(Secrets { credentials: credentials?, ca: ca?, client_certificate: client_certificate? })
}

/// Why a Secret is sent to nobody: whoever may write a PhasedRollout says where it goes, and may not read it himself.
fn kept_back(secret: &Secret, policy: SecretPolicy) -> Option<String> {
    if secret.type_.as_deref() == Some(SERVICE_ACCOUNT_TOKEN) {
        return Some(format!(
            "it is the token of a service account (type {SERVICE_ACCOUNT_TOKEN}), which is sent to nobody: put a token for Prometheus into \
             a Secret of its own"
        ));
    }
    let label = names::CHECK_CREDENTIALS;
    let is_labelled = secret.labels().get(label).is_some_and(|value| value == "true");
    (policy == SecretPolicy::Labelled && !is_labelled).then(|| {
        format!(
            "it has no label {label}: \"true\", and this operator sends only Secrets that have it (--require-labelled-secrets). If it is meant \
             for checks: kubectl -n {} label secret {} {label}=true",
            secret.namespace().unwrap_or_default(),
            secret.name_any(),
        )
    })
}

/// The problem of a Secret that we may not read or use; any other failure may pass by itself.
pub(super) fn for_a_person(field: &str, secret: &str, namespace: &str, error: &Error) -> Option<Problem> {
    let message = match error.class() {
        Class::Forbidden => format!(
            "{field} names Secret {secret}, which the operator may not read: give it the right to get Secrets in namespace {namespace}"
        ),
        Class::Invalid => format!("{field} names {error}"),
        Class::Transient | Class::Conflict | Class::Bug => return None,
    };
    Some(Problem { reason: Reason::InvalidCredentials, message })
}

fn data(name: &str, secret: Secret) -> SecretData {
    let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    SecretData { name: name.to_owned(), data }
}

/// What the last look at the Secrets of a check found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Of the spec whose check it was. None is a look that counts no more.
    generation: Option<i64>,
    problems: Vec<ConfigProblem>,
    at: Instant,
}

impl Default for Seen {
    /// Nobody has looked.
    fn default() -> Self {
        Self { generation: None, problems: Vec::new(), at: Instant::now() }
    }
}

impl Seen {
    /// Looks.
    pub(crate) async fn look(
        namespace: &str,
        check: &Check,
        generation: Option<i64>,
        client: &Client,
        policy: SecretPolicy,
    ) -> Self {
        let questions = questions(check);
        let read = read(client, namespace, &questions, policy).await;
        let problems = questions.iter().filter_map(|question| match of(question, &read) {
            Ok(secrets) => check_secrets(question, &secrets),
            Err((field, secret, error)) => for_a_person(&field, secret, namespace, error),
        });
        let mut problems: Vec<_> = problems.map(config_problem).collect();
        problems.dedup();
        Self { generation, problems, at: Instant::now() }
    }

    /// What the status says of the same spec: after a restart that is believed, so that thousands at rest cost no read.
    pub(crate) fn remembered(rollout: &PhasedRollout) -> Option<Self> {
        let generation = rollout.metadata.generation;
        let status = rollout.status.as_ref().filter(|status| status.observed_generation == generation)?;
        let valid = ConditionType::ChecksValid.to_string();
        let is_of_it = |told: Option<i64>| told == generation;
        let mut valid = status.conditions.iter().filter(|condition| condition.type_ == valid);
        let valid = valid.find(|condition| is_of_it(condition.observed_generation))?;
        let is_refused = valid.reason == Reason::InvalidCredentials.to_string();
        let problem = || ConfigProblem { reason: Reason::InvalidCredentials, message: valid.message.clone() };
        let problems = is_refused.then(problem).into_iter().collect();
        Some(Self { generation, problems, at: Instant::now() })
    }

    /// True if the spec is new, or something was wrong some time ago.
    pub(crate) fn is_due(&self, generation: Option<i64>) -> bool {
        self.generation.is_none()
            || self.generation != generation
            || (!self.problems.is_empty() && self.at.elapsed() >= AGAIN)
    }

    /// It counts no more.
    pub(crate) fn is_void(&mut self) {
        self.generation = None;
    }

    /// What is wrong.
    pub(crate) fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }
}
