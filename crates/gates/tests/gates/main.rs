//! Prometheus as an adversary: a table, one line a case, of all that it can answer and all that can stand between it and us, with
//! the verdict of phased-rollout.md §3. It is the real Prometheus, behind a real TLS end or a proxy that demands credentials where
//! the case needs one. Only where the answer is a fault (`faults`) or one of another server of the same API (`servers`), or requests must be
//! seen or counted (`exchange`, `crowds`), a server of the test answers: no Prometheus breaks off in mid-answer when it is told to.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod answers;
mod credentials;
mod crowds;
mod exchange;
mod faults;
mod outages;
mod proxies;
mod rig;
mod server;
mod servers;
mod sharing;
mod tls;

use std::collections::BTreeMap;

use sts_plus_api::{Check, Query, Reason, SuccessWhen, Verdict};
use sts_plus_gates::{AddressPolicy, Answer, Freshness, Policy, Prober, SecretData, Secrets, questions};

/// The right answer to a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// This verdict, and it is a pass.
    Pass(Verdict),
    /// This verdict, and it is none.
    Fail(Verdict),
    /// A problem of the configuration that a person has to mend: an Error too.
    Problem(Reason),
}

pub(crate) use Verdict::{Data, Error, NoData, Unproven};
pub(crate) use Want::{Fail, Pass, Problem};

/// Asks as `sts-plus` does, about the pod `web-1` on a node whose name is as odd as a label value can be.
pub(crate) async fn ask(query: Query, secrets: &Secrets) -> Answer {
    ask_by(&loopback(), query, secrets, Freshness::now()).await
}

/// A way to the servers of these tests.
pub(crate) fn loopback() -> Prober {
    prober(AddressPolicy { allow_loopback: true }.into())
}

/// A way to Prometheus.
pub(crate) fn prober(policy: Policy) -> Prober {
    Prober::new("sts-plus/test", policy)
}

/// As [`ask`], on this way, and with an answer that may be as old.
pub(crate) async fn ask_by(prober: &Prober, query: Query, secrets: &Secrets, fresh: Freshness) -> Answer {
    let variables = [("pod", "web-1"), ("ordinal", "1"), ("zone", "eu.west"), ("node", rig::ODD)];
    ask_about(prober, query, secrets, fresh, &variables).await
}

/// As [`ask_by`], with these variables.
pub(crate) async fn ask_about(
    prober: &Prober,
    query: Query,
    secrets: &Secrets,
    fresh: Freshness,
    variables: &[(&'static str, &str)],
) -> Answer {
    let check = Check { query: Some(query), ..Check::default() };
    let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<BTreeMap<_, _>>();
    prober.ask(&questions(&check)[0], &variables, secrets, "web-1", fresh).await
}

/// A Secret as the operator reads it.
pub(crate) fn secret(name: &str, pairs: &[(&str, &str)]) -> SecretData {
    let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    SecretData { name: name.into(), data }
}

/// `expr` for the Prometheus at `url`, alert style.
pub(crate) fn query(expr: &str, url: &str) -> Query {
    Query { expr: expr.into(), url: Some(url.into()), timeout_seconds: 20, ..Query::default() }
}

/// `query` in assert style.
pub(crate) fn assertion(query: Query) -> Query {
    Query { success_when: SuccessWhen::Data, ..query }
}

/// Fails unless the answer is the right one and its sentence has these words.
#[track_caller]
pub(crate) fn judge(answer: &Answer, want: Want, words: &str) {
    let record = &answer.record;
    let found = match &answer.problem {
        Some(problem) => Problem(problem.reason),
        None if record.passed => Pass(record.verdict),
        None => Fail(record.verdict),
    };
    assert_eq!(found, want, "{}", record.message);
    assert!(record.message.contains(words), "{:?} is not in: {}", words, record.message);
    assert!(!record.passed || record.verdict != Error, "an Error never passes");
    assert!(record.message.len() <= 512 && record.series.len() <= 3, "{record:?}");
    assert!(!format!("{answer:?}").contains(credentials::CANARY), "a credential shows: {answer:?}");
}
