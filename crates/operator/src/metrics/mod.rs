//! Numbers about the work, counted here and shown by `expose`, those of ExtendedStatefulSets by `versions`, of the operator itself by `own`
//! and `process`. Labels are bounded: namespace and name of objects that exist, words of ours, names of resources that we write, and the
//! first origins that we asked. No IO but what `process` reads of `/proc`.

mod expose;
mod own;
mod process;
mod rows;
mod versions;

pub use expose::{CONTENT_TYPE, Exposed, Zeros};
pub use own::Waiting;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sts_plus_api::Verdict;

use crate::errors::Class;

/// Namespace and name of an object.
type Key = (String, String);

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    writes: Mutex<BTreeMap<Write, u64>>,
    rollouts: Mutex<HashMap<Key, Counts>>,
    /// Of ExtendedStatefulSets, which may have the names of PhasedRollouts.
    owners: Mutex<HashMap<Key, Counts>>,
    own: own::Own,
}

/// One kind of write: resource, verb, result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Write {
    resource: String,
    verb: &'static str,
    result: &'static str,
}

/// About one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    steps: u64,
    drifts: u64,
    checks: BTreeMap<&'static str, u64>,
    errors: BTreeMap<Class, u64>,
}

impl Metrics {
    /// A write was answered with this HTTP status; missing: there was no answer.
    pub fn wrote(&self, method: &http::Method, path: &str, code: Option<u16>) {
        let write = Write { resource: resource_of(path), verb: verb_of(method), result: result_of(code) };
        let mut writes = lock(&self.writes);
        add_one(&mut writes, write);
    }

    /// A request with this verb (see [`verb_of_request`]) was answered with this HTTP status after this time; missing: there was no answer.
    pub fn called(&self, verb: &'static str, code: Option<u16>, took: Duration) {
        self.own.called(verb, code, took);
    }

    /// A look at an object of this kind has taken so long.
    pub fn ran(&self, kind: &'static str, took: Duration) {
        self.own.ran(kind, took);
    }

    /// An object of this kind waits for its turn, until what is returned is dropped.
    #[must_use]
    pub fn waits(&self, kind: &'static str) -> Waiting {
        self.own.waits(kind)
    }

    /// The Prometheus at `origin` has answered, or failed to, after this time.
    pub fn asked_prometheus(&self, origin: &str, took: Duration) {
        self.own.asked_prometheus(origin, took);
    }

    /// The partition was lowered.
    pub fn stepped(&self, namespace: &str, name: &str) {
        self.count(namespace, name, |counts| counts.steps = counts.steps.saturating_add(1));
    }

    /// Somebody else changed the partition.
    pub fn drifted(&self, namespace: &str, name: &str) {
        self.count(namespace, name, |counts| counts.drifts = counts.drifts.saturating_add(1));
    }

    /// Prometheus was asked.
    pub fn checked(&self, namespace: &str, name: &str, verdict: Verdict) {
        self.count(namespace, name, |counts| add_one(&mut counts.checks, word_of(verdict)));
    }

    /// A run has ended with an error.
    pub fn failed(&self, namespace: &str, name: &str, class: Class) {
        self.count(namespace, name, |counts| add_one(&mut counts.errors, class));
    }

    /// Prometheus was asked about the canaries of an ExtendedStatefulSet.
    pub fn version_checked(&self, namespace: &str, name: &str, verdict: Verdict) {
        change(&self.owners, namespace, name, |counts| add_one(&mut counts.checks, word_of(verdict)));
    }

    /// A run of an ExtendedStatefulSet has ended with an error.
    pub fn version_failed(&self, namespace: &str, name: &str, class: Class) {
        change(&self.owners, namespace, name, |counts| add_one(&mut counts.errors, class));
    }

    /// The ExtendedStatefulSet is gone.
    pub fn forget_versions(&self, namespace: &str, name: &str) {
        lock(&self.owners).remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// The PhasedRollout is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        lock(&self.rollouts).remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn count(&self, namespace: &str, name: &str, more: impl FnOnce(&mut Counts)) {
        change(&self.rollouts, namespace, name, more);
    }

    /// The counts of the PhasedRollouts that exist; those of others are dropped.
    fn rollouts(&self, exists: impl Fn(&Key) -> bool) -> BTreeMap<Key, Counts> {
        of_those(&self.rollouts, exists)
    }

    /// The same of ExtendedStatefulSets.
    fn owners(&self, exists: impl Fn(&Key) -> bool) -> BTreeMap<Key, Counts> {
        of_those(&self.owners, exists)
    }
}

fn change(counts: &Mutex<HashMap<Key, Counts>>, namespace: &str, name: &str, change: impl FnOnce(&mut Counts)) {
    change(lock(counts).entry((namespace.to_owned(), name.to_owned())).or_default());
}

fn of_those(counts: &Mutex<HashMap<Key, Counts>>, exists: impl Fn(&Key) -> bool) -> BTreeMap<Key, Counts> {
    let mut counts = lock(counts);
    counts.retain(|key, _| exists(key));
    counts.iter().map(|(key, counts)| (key.clone(), counts.clone())).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(1);
}

fn word_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Data => "Data",
        Verdict::NoData => "NoData",
        Verdict::Unproven => "Unproven",
        Verdict::Error => "Error",
    }
}

fn verb_of(method: &http::Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "PUT" => "update",
        _ => "other",
    }
}

fn result_of(code: Option<u16>) -> &'static str {
    match code {
        None => "unanswered",
        Some(200..=299) => "ok",
        Some(409 | 422) => "conflict",
        Some(401 | 403) => "forbidden",
        Some(400..=499) => "refused",
        Some(_) => "failed",
    }
}

/// The verb of a request as the audit log calls it, but for a dry run, which is no write.
#[must_use]
pub fn verb_of_request(method: &http::Method, uri: &http::Uri) -> &'static str {
    let has =
        |parameter: &str| uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(parameter)));
    match method.as_str() {
        "GET" if has("watch=") => "watch",
        "GET" if below(uri.path()).count() == 1 => "list",
        "GET" => "get",
        _ if has("dryRun=") => "dry-run",
        _ => verb_of(method),
    }
}

/// The resource in a path of the API server, with its subresource: `/apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUB`.
fn resource_of(path: &str) -> String {
    let mut rest = below(path);
    let resource = rest.next().unwrap_or("other");
    match rest.nth(1) {
        Some(sub) => format!("{resource}/{sub}"),
        None => resource.to_owned(),
    }
}

/// What a path has below the version and the namespace.
fn below(path: &str) -> impl Iterator<Item = &str> {
    let mut parts = path.trim_matches('/').split('/');
    let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
    let mut rest = parts.skip(skipped).peekable();
    if rest.peek() == Some(&"namespaces") {
        rest.next();
        rest.next();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_found_in_every_path_that_we_write_to() {
        for (path, resource) in [
            ("/apis/apps/v1/namespaces/ns/statefulsets/web", "statefulsets"),
            ("/apis/sts.plus/v1alpha1/namespaces/ns/phasedrollouts/gate/status", "phasedrollouts/status"),
            ("/api/v1/namespaces/ns/pods/web-0", "pods"),
            ("/apis/events.k8s.io/v1/namespaces/ns/events", "events"),
            ("/x", "other"),
        ] {
            assert_eq!(resource_of(path), resource, "{path}");
        }
    }

    #[test]
    fn each_request_has_one_of_few_verbs() {
        for (method, uri, verb) in [
            (http::Method::GET, "/apis/apps/v1/namespaces/ns/statefulsets/web", "get"),
            (http::Method::GET, "/apis/admissionregistration.k8s.io/v1", "get"),
            (http::Method::GET, "/version", "get"),
            (http::Method::GET, "/apis/apps/v1/namespaces/ns/statefulsets?&limit=500", "list"),
            (http::Method::GET, "/api/v1/pods", "list"),
            (http::Method::GET, "/api/v1/pods?&watch=true&timeoutSeconds=120", "watch"),
            (http::Method::PATCH, "/apis/apps/v1/namespaces/ns/statefulsets/web?&dryRun=All", "dry-run"),
            (http::Method::PATCH, "/apis/apps/v1/namespaces/ns/statefulsets/web?&fieldManager=x", "patch"),
            (http::Method::PUT, "/apis/apps/v1/namespaces/ns/statefulsets/web", "update"),
            (http::Method::DELETE, "/api/v1/namespaces/ns/pods/web-0?", "delete"),
            (http::Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events?", "create"),
        ] {
            assert_eq!(verb_of_request(&method, &uri.parse().unwrap()), verb, "{method} {uri}");
        }
    }

    #[test]
    fn counts_of_what_is_gone_are_dropped() {
        let metrics = Metrics::default();
        metrics.stepped("ns", "a");
        metrics.stepped("ns", "b");
        metrics.checked("ns", "a", Verdict::Data);
        metrics.drifted("ns", "a");
        let left = metrics.rollouts(|(_, name)| name == "a");
        let counts = Counts { steps: 1, drifts: 1, checks: BTreeMap::from([("Data", 1)]), errors: BTreeMap::new() };
        assert_eq!(left.into_values().collect::<Vec<_>>(), [counts]);
        assert_eq!(metrics.rollouts(|_| true).len(), 1, "for good");
        metrics.forget("ns", "a");
        assert!(lock(&metrics.rollouts).is_empty(), "also if nobody ever asks for the numbers");
    }

    #[test]
    fn results_are_few() {
        let words = [None, Some(200), Some(201), Some(409), Some(422), Some(403), Some(404), Some(429), Some(500)]
            .map(result_of);
        let expected = ["unanswered", "ok", "ok", "conflict", "conflict", "forbidden", "refused", "refused", "failed"];
        assert_eq!(words, expected);
    }
}
