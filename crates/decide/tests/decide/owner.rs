//! The ExtendedStatefulSet of a world, and what users write into it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSetSpec, ExtendedStatefulSetStatus, names};
use sts_plus_decide::{OwnerView, TemplateView};

#[derive(Clone)]
pub struct Owner {
    generation: i64,
    pub annotations: BTreeMap<String, String>,
    /// The spec as JSON, since that is how users change it.
    pub spec: Value,
    /// What the template comes to.
    pub hash: String,
    /// Why the API server refuses the template.
    pub problem: Option<String>,
    /// What the rest of it comes to, which restarts no pod.
    pub settings: String,
}

impl Owner {
    /// Three replicas of template h1, and the fields of `strategy` in `spec.updateStrategy`.
    pub fn new(strategy: &Value) -> Self {
        Self {
            generation: 1,
            annotations: BTreeMap::new(),
            spec: json!({ "updateStrategy": strategy, "template": { "spec": { "replicas": 3, "template": {} } } }),
            hash: "h1".into(),
            problem: None,
            settings: "s".into(),
        }
    }

    pub fn spec(&self) -> ExtendedStatefulSetSpec {
        serde_json::from_value(self.spec.clone()).unwrap()
    }

    pub fn view(&self, status: &ExtendedStatefulSetStatus) -> OwnerView {
        OwnerView {
            name: "web".into(),
            namespace: "shop".into(),
            generation: self.generation,
            deleting: false,
            has_finalizer: true,
            annotations: self.annotations.clone(),
            spec: self.spec(),
            status: status.clone(),
        }
    }

    pub fn template_view(&self) -> TemplateView {
        TemplateView {
            hash: self.hash.clone(),
            written: self.hash.clone(),
            settings: self.settings.clone(),
            min_ready_seconds: 0,
            has_claims: false,
            problem: self.problem.clone(),
        }
    }

    fn wrote(&mut self) {
        self.generation += 1;
    }

    /// Another template.
    pub fn template(&mut self, hash: &str) {
        hash.clone_into(&mut self.hash);
        self.wrote();
    }

    /// A template that the API server refuses.
    pub fn refused_template(&mut self, hash: &str) {
        self.problem = Some("no such field".to_owned());
        self.template(hash);
    }

    pub fn scale(&mut self, replicas: i32) {
        self.spec["template"]["spec"]["replicas"] = json!(replicas);
        self.wrote();
    }

    pub fn pause(&mut self, is_paused: bool) {
        self.spec["paused"] = json!(is_paused);
        self.wrote();
    }

    pub fn zones(&mut self, zones: &[&str]) {
        self.spec["az"] = json!(zones);
        self.wrote();
    }

    /// One field of `spec.updateStrategy`.
    pub fn strategy(&mut self, field: &str, value: &Value) {
        self.spec["updateStrategy"][field] = value.clone();
        self.wrote();
    }

    /// Annotations are no new generation.
    pub fn retry(&mut self, value: &str) {
        self.annotations.insert(names::RETRY_VERSION.to_owned(), value.to_owned());
    }
}

/// Checks that fail after four tries, and pass with two in a row.
pub fn check() -> Value {
    json!({
        "initialDelaySeconds": 2, "periodSeconds": 3, "successThreshold": 2, "maxTries": 4,
        "query": { "expr": "errors > 0" }, "url": "http://prom:9090",
    })
}
