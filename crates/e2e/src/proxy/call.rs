//! What a request to the API server is about.

use http::{Method, Uri};
use serde_json::{Value, json};
use sts_plus_api::names;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// As in a role: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// Plural name with the subresource, such as `pods` or `phasedrollouts/status`; empty for a path that is no resource.
    pub resource: String,
    /// Empty if it has none.
    pub namespace: String,
    /// Empty for lists and creations.
    pub name: String,
    /// Whether nothing is to be persisted.
    pub dry_run: bool,
    /// The body, if it is JSON.
    pub body: Value,
}

impl Call {
    pub(super) fn parse(method: &Method, uri: &Uri, body: &[u8]) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |pair: &str| query.split('&').any(|parameter| parameter == pair);
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        // `/api/VERSION/…` and `/apis/GROUP/VERSION/…`.
        let prefix = match path.next() {
            Some("api") => 1,
            Some("apis") => 2,
            _ => usize::MAX,
        };
        let mut rest: Vec<&str> = path.skip(prefix).collect();
        let mut namespace = "";
        if let [first, name, _, ..] = rest.as_slice()
            && *first == "namespaces"
        {
            namespace = name;
            rest.drain(..2);
        }
        let mut rest = rest.into_iter();
        let (resource, name, subresource) = (rest.next(), rest.next(), rest.next());
        let verb = match *method {
            Method::GET if has("watch=true") || has("watch=1") => "watch",
            Method::GET if name.is_some() => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        Self {
            verb,
            resource: [resource, subresource].into_iter().flatten().collect::<Vec<_>>().join("/"),
            namespace: namespace.to_owned(),
            name: name.unwrap_or_default().to_owned(),
            dry_run: has("dryRun=All"),
            body: serde_json::from_slice(body).unwrap_or_default(),
        }
    }

    /// Whether it asks for a change that is to be persisted.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch" | "") && !self.dry_run
    }

    /// Whether it is this verb on this resource.
    #[must_use]
    pub fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource && !self.dry_run
    }

    /// What is written, in words that are the same in each run of the same story: a write that is tried again has the same words,
    /// another one has others.
    #[must_use]
    pub fn words(&self) -> String {
        let detail = match self.resource.as_str() {
            "statefulsets" => set_words(&self.body),
            "phasedrollouts" => rollout_words(&self.body),
            "phasedrollouts/status" => status_words(&self.body),
            "extendedstatefulsets/status" => versions_words(&self.body),
            "events" => event_words(&self.body),
            _ => String::new(),
        };
        [self.verb, &self.resource, &self.name, &detail]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The UID without which it is refused: of a deletion, of a JSON patch, or of a merge patch.
    #[must_use]
    pub fn precondition(&self) -> Option<&str> {
        let is_tested = |operation: &&Value| operation["op"] == "test" && operation["path"] == "/metadata/uid";
        let tested = || self.body.as_array()?.iter().find(is_tested)?.get("value");
        let preconditions = self.body.pointer("/preconditions/uid").or_else(tested);
        preconditions.or_else(|| self.body.pointer("/metadata/uid"))?.as_str()
    }
}

/// The operations of a JSON patch that change something, as path and value.
fn changes(operations: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    operations.as_array().into_iter().flatten().filter_map(|operation| {
        let kind = operation.get("op")?.as_str()?;
        let path = operation.get("path")?.as_str()?;
        (kind != "test").then(|| (kind, path, operation.get("value").unwrap_or(&Value::Null)))
    })
}

fn set_words(operations: &Value) -> String {
    if operations.is_object() {
        return child_words(operations);
    }
    let words = changes(operations).map(|(kind, path, value)| match value.get("partition") {
        Some(partition) => format!("partition {partition}"),
        None if path.ends_with("/partition") => format!("partition {value}"),
        None if path.ends_with("/replicas") => format!("replicas {value}"),
        None if path == "/spec" => child_words(&json!({ "spec": value })),
        // Their values name revisions and say nothing more.
        None => format!("{kind} {}", path.rsplit('/').next().unwrap_or_default()),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A child of an ExtendedStatefulSet, as it is made, scaled or marked; nothing for the body of a deletion.
fn child_words(body: &Value) -> String {
    let stale = body.pointer("/metadata/annotations").and_then(|annotations| annotations.get(names::STALE));
    let words = [
        body.pointer("/spec/template").map(|_| "template".to_owned()),
        body.pointer("/spec/replicas").map(|replicas| format!("replicas {replicas}")),
        stale.map(|stale| format!("stale {stale}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn rollout_words(operations: &Value) -> String {
    changes(operations).map(|(kind, path, _)| format!("{kind} {path}")).collect::<Vec<_>>().join(", ")
}

fn status_words(body: &Value) -> String {
    let at = |pointer: &str| body.pointer(pointer).map(|value| value.to_string().replace('"', "")).unwrap_or_default();
    let current = ["step", "index", "tries", "consecutivePasses"].map(|field| at(&format!("/status/current/{field}")));
    format!("{} {}", at("/status/phase"), current.join(" "))
}

/// Not how many pods are Ready: how many of these statuses are written is left to the clock.
fn versions_words(body: &Value) -> String {
    let at = |pointer: &str| body.pointer(pointer).map(|value| value.to_string().replace('"', "")).unwrap_or_default();
    let fields = ["phase", "currentVersion", "lastVersion", "upgrade/step", "upgrade/failures"];
    fields
        .map(|field| at(&format!("/status/{field}")))
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn event_words(body: &Value) -> String {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let mut words = text("/note").split(|c: char| !c.is_alphanumeric() && c != '-');
    let pod = words.find(|word| is_pod(word)).unwrap_or_default();
    format!("{} {} {pod}", text("/reason"), text("/regarding/kind"))
}

fn is_pod(word: &str) -> bool {
    word.strip_prefix("web-").is_some_and(|index| index.len() == 1 && index.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &Method, uri: &'static str, body: &str) -> Call {
        Call::parse(method, &Uri::from_static(uri), body.as_bytes())
    }

    #[test]
    fn verbs_and_resources_are_those_of_a_role() {
        for (method, uri, verb, resource, namespace, name) in [
            (Method::GET, "/api/v1/namespaces/ns/pods?&watch=true&timeoutSeconds=1", "watch", "pods", "ns", ""),
            (Method::GET, "/api/v1/namespaces/ns/pods?&limit=500", "list", "pods", "ns", ""),
            (Method::DELETE, "/api/v1/namespaces/ns/pods/web-0?", "delete", "pods", "ns", "web-0"),
            (Method::GET, "/api/v1/namespaces/ns", "get", "namespaces", "", "ns"),
            (Method::GET, "/apis/apps/v1/statefulsets", "list", "statefulsets", "", ""),
            (
                Method::PATCH,
                "/apis/sts.plus/v1alpha1/namespaces/ns/phasedrollouts/gate/status?&force=true",
                "patch",
                "phasedrollouts/status",
                "ns",
                "gate",
            ),
            (Method::GET, "/version", "list", "", "", ""),
        ] {
            let call = call(&method, uri, "");
            assert_eq!(
                (call.verb, call.resource.as_str(), call.namespace.as_str(), call.name.as_str()),
                (verb, resource, namespace, name),
                "{uri}"
            );
            assert_eq!(call.is_write(), matches!(verb, "delete" | "patch"), "{uri}");
        }
        let dry = call(&Method::PATCH, "/apis/apps/v1/namespaces/ns/statefulsets/web?&dryRun=All", "[]");
        assert!(dry.dry_run && !dry.is_write() && !dry.is("patch", "statefulsets"));
    }

    #[test]
    fn a_write_is_told_by_what_it_changes() {
        let set = "/apis/apps/v1/namespaces/ns/statefulsets/web";
        let step = r#"[{"op":"test","path":"/metadata/uid","value":"u"},
            {"op":"add","path":"/spec/updateStrategy/rollingUpdate/partition","value":2}]"#;
        assert_eq!(call(&Method::PATCH, set, step).words(), "patch statefulsets web partition 2");
        let status =
            r#"{"status":{"phase":"Checking","current":{"step":"Pod","index":2,"tries":1,"consecutivePasses":1}}}"#;
        let path = "/apis/sts.plus/v1alpha1/namespaces/ns/phasedrollouts/gate/status";
        let words = "patch phasedrollouts/status gate Checking Pod 2 1 1";
        assert_eq!(call(&Method::PATCH, path, status).words(), words);
        let event =
            r#"{"reason":"PodRolling","regarding":{"kind":"PhasedRollout"},"note":"pod web-2 goes to web-5d4f"}"#;
        let words = call(&Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events", event).words();
        assert_eq!(words, "create events PodRolling PhasedRollout web-2");
        for (body, words) in [
            (r#"{"spec":{"replicas":3}}"#, "patch statefulsets web replicas 3"),
            (r#"{"spec":{"replicas":0,"template":{}}}"#, "patch statefulsets web template, replicas 0"),
            (
                r#"{"metadata":{"annotations":{"fissile.cloudfoundry.org/stale":"true"}}}"#,
                "patch statefulsets web stale \"true\"",
            ),
        ] {
            assert_eq!(call(&Method::PATCH, set, body).words(), words);
        }
        let status = r#"{"status":{"phase":"Canary","currentVersion":1,"lastVersion":2,"upgrade":{"step":"Canary","failures":0}}}"#;
        let path = "/apis/fissile.cloudfoundry.org/v1alpha1/namespaces/ns/extendedstatefulsets/db/status";
        let words = "patch extendedstatefulsets/status db Canary 1 2 Canary 0";
        assert_eq!(call(&Method::PATCH, path, status).words(), words);
        let delete = call(&Method::DELETE, "/api/v1/namespaces/ns/pods/web-0", r#"{"preconditions":{"uid":"u"}}"#);
        assert_eq!((delete.words().as_str(), delete.precondition()), ("delete pods web-0", Some("u")));
    }
}
