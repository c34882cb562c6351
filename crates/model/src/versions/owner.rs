//! The ExtendedStatefulSet as people write it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sts_plus_api::{
    ExtendedStatefulSetSpec, ExtendedStatefulSetStatus, Query, VersionCheck, VersionStrategyType, names,
};
use sts_plus_decide::{OwnerView, TemplateView};

/// What people have written.
#[derive(Clone, Debug)]
pub struct Owner {
    /// `metadata.generation`.
    pub generation: i64,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Spec.
    pub spec: ExtendedStatefulSetSpec,
    /// Which pod template `spec.template` is: 1, 2 and so on.
    pub template: u32,
    /// What the rest of the template comes to, which restarts no pod.
    pub settings: u32,
}

impl Owner {
    /// Template 1 with so many replicas, and no checks.
    #[must_use]
    pub fn new(kind: VersionStrategyType, replicas: i32) -> Self {
        let mut spec = ExtendedStatefulSetSpec {
            az: Vec::new(),
            zones: Vec::new(),
            zone_node_label: "zone".into(),
            zone_replicas: sts_plus_api::ZoneReplicas::default(),
            scaling: sts_plus_api::Scaling::default(),
            update_on_env_change: None,
            update_on_config_change: None,
            update_strategy: sts_plus_api::VersionStrategy { kind, ..sts_plus_api::VersionStrategy::default() },
            paused: false,
            template: Value::Null,
        };
        write_replicas(&mut spec, replicas);
        Self { generation: 1, annotations: BTreeMap::new(), spec, template: 1, settings: 1 }
    }

    /// The digest of a template.
    #[must_use]
    pub fn hash(template: u32) -> String {
        format!("h{template}")
    }

    /// The template of a digest.
    #[must_use]
    pub fn template_of_hash(hash: &str) -> u32 {
        hash.strip_prefix('h').and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// As the operator sees it.
    #[must_use]
    pub fn view(&self, status: &ExtendedStatefulSetStatus) -> OwnerView {
        OwnerView {
            name: super::world::OWNER.into(),
            namespace: "ns".into(),
            generation: self.generation,
            deleting: false,
            has_finalizer: true,
            annotations: self.annotations.clone(),
            spec: self.spec.clone(),
            status: status.clone(),
        }
    }

    /// What its template comes to.
    #[must_use]
    pub fn template_view(&self, problem: Option<String>) -> TemplateView {
        TemplateView {
            hash: Self::hash(self.template),
            written: Self::hash(self.template),
            settings: format!("s{}", self.settings),
            min_ready_seconds: 0,
            has_claims: false,
            problem,
        }
    }

    /// Pods of each zone as they are written.
    #[must_use]
    pub fn replicas(&self) -> i32 {
        self.spec.written_replicas().unwrap_or(1)
    }

    /// A change of the spec. One that changes nothing is no new generation.
    pub fn write(&mut self, change: impl FnOnce(&mut ExtendedStatefulSetSpec)) {
        let before = self.spec.clone();
        change(&mut self.spec);
        self.generation += i64::from(self.spec != before);
    }

    /// Another number of replicas.
    pub fn scale(&mut self, replicas: i32) {
        self.write(|spec| write_replicas(spec, replicas));
    }

    /// Another template.
    pub fn edit(&mut self, template: u32) {
        self.generation += i64::from(self.template != template);
        self.template = template;
    }

    /// The retry annotation, which is no new generation.
    pub fn retry(&mut self, token: &str) {
        self.annotations.insert(names::RETRY_VERSION.to_owned(), token.to_owned());
    }

    /// Short checks: delay 0 s, period 1 s, one pass, two tries.
    #[must_use]
    pub fn check() -> VersionCheck {
        VersionCheck {
            initial_delay_seconds: 0,
            period_seconds: 1,
            success_threshold: 1,
            max_tries: 2,
            query: Some(Query { name: Some("q".into()), expr: "errors > 0".into(), ..Query::default() }),
            queries: Vec::new(),
            url: Some("prom:9090".into()),
            secret_ref: None,
            on_failure: None,
            preflight: None,
            final_check: None,
        }
    }
}

fn write_replicas(spec: &mut ExtendedStatefulSetSpec, replicas: i32) {
    spec.template = json!({ "spec": { "replicas": replicas, "template": {} } });
}
