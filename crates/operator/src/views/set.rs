//! A StatefulSet, projected.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::Selector;
use serde::Deserialize;
use sts_plus_api::names;
use sts_plus_decide::{ChildView, PodView, SetView, Strategy};

/// Annotations that anything of ours reads begin with one of these.
const OURS: [&str; 2] = ["sts.plus/", "fissile.cloudfoundry.org/"];

/// What is read of a StatefulSet.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = StatefulSet)]
#[serde(rename_all = "camelCase")]
pub struct SetObject {
    /// Metadata; after [`SetObject::shrunk`] without what is large and not needed.
    #[serde(default, deserialize_with = "super::or_default")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "super::or_default")]
    spec: SetSpec,
    #[serde(default, deserialize_with = "super::or_default")]
    status: SetStatus,
    #[serde(skip)]
    partition_manager: Option<String>,
    #[serde(skip)]
    changed: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSpec {
    replicas: Option<i32>,
    ordinals: Option<Ordinals>,
    selector: Option<LabelSelector>,
    update_strategy: Option<UpdateStrategy>,
    pod_management_policy: Option<String>,
    min_ready_seconds: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Ordinals {
    start: Option<i32>,
}

/// The type is text: a strategy of a newer API server must not break the view.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateStrategy {
    #[serde(rename = "type")]
    kind: Option<String>,
    rolling_update: Option<RollingUpdate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RollingUpdate {
    partition: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetStatus {
    observed_generation: Option<i64>,
    current_revision: Option<String>,
    update_revision: Option<String>,
}

impl SetObject {
    /// Without managed fields, of which only the owner of the partition is kept, and without what kubectl keeps in an annotation.
    #[must_use]
    pub fn shrunk(mut self) -> Self {
        let entries = self.metadata.managed_fields.as_deref().unwrap_or_default();
        self.partition_manager = partition_manager(entries);
        self.changed = changed(entries);
        self.metadata.managed_fields = None;
        if let Some(annotations) = self.metadata.annotations.as_mut() {
            annotations.retain(|key, _| OURS.iter().any(|ours| key.starts_with(ours)));
        }
        self
    }

    /// Name, or nothing.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace, or nothing.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// UID, or nothing.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// True if its controller has seen what is written there.
    #[must_use]
    pub fn controller_has_seen(&self) -> bool {
        self.status.observed_generation >= self.metadata.generation
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// True if the object with this UID controls it.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controlled_by() == Some(uid)
    }

    /// The UID of what controls it.
    #[must_use]
    pub fn controlled_by(&self) -> Option<&str> {
        controller(&self.metadata).map(|owner| owner.uid.as_str())
    }

    /// True if any object controls it.
    #[must_use]
    pub fn is_controlled(&self) -> bool {
        self.controlled_by().is_some()
    }

    /// What a decision about versions looks at. Missing if it carries no version: then it is none.
    #[must_use]
    pub fn child_view(&self, pods: Vec<PodView>) -> Option<ChildView> {
        let text = |key| self.annotation(key).unwrap_or_default().to_owned();
        let is_stale = self.annotation(names::STALE) == Some("true");
        Some(ChildView {
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
            zone: self.label(names::ZONE).map(str::to_owned),
            version: self.annotation(names::VERSION)?.parse().ok().filter(|version| *version > 0)?,
            hash: text(names::HASH),
            settings: text(names::SETTINGS),
            generation: self.metadata.generation.unwrap_or_default(),
            deleting: self.metadata.deletion_timestamp.is_some(),
            replicas: self.spec.replicas.unwrap_or(1),
            min_ready_seconds: self.spec.min_ready_seconds.unwrap_or(0),
            selector: self.pod_selector().unwrap_or_default(),
            stale: is_stale.then(|| text(names::STALE_REASON)),
            pods,
            refused: None,
            changed: self.changed,
            in_the_way: None,
            mislabelled: None,
            set: None,
        })
    }

    /// The PhasedRollout that claims the set.
    #[must_use]
    pub fn claimed_by(&self) -> Option<&str> {
        self.annotation(names::CLAIM)
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> Option<i32> {
        self.spec.update_strategy.as_ref()?.rolling_update.as_ref()?.partition
    }

    /// True if a partition has an effect.
    #[must_use]
    pub fn is_rolling_update(&self) -> bool {
        self.strategy() == Strategy::RollingUpdate
    }

    /// The selector of its pods, as a query wants it. Missing if the set has none, which the API server never lets happen.
    #[must_use]
    pub fn pod_selector(&self) -> Option<String> {
        let selector = Selector::try_from(self.spec.selector.clone()?).ok()?;
        (!selector.selects_all()).then(|| selector.to_string())
    }

    /// The labels that its pods must have.
    #[must_use]
    pub fn selected_labels(&self) -> BTreeMap<String, String> {
        self.spec.selector.as_ref().and_then(|selector| selector.match_labels.clone()).unwrap_or_default()
    }

    fn strategy(&self) -> Strategy {
        match self.spec.update_strategy.as_ref().and_then(|strategy| strategy.kind.as_deref()) {
            None | Some("" | "RollingUpdate") => Strategy::RollingUpdate,
            Some(other) => Strategy::Other(other.to_owned()),
        }
    }

    /// What a decision looks at.
    #[must_use]
    pub fn view(&self) -> SetView {
        let meta = &self.metadata;
        let controller = controller(meta).map(|owner| (owner.kind.clone(), owner.name.clone()));
        SetView {
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
            generation: meta.generation.unwrap_or_default(),
            observed_generation: self.status.observed_generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            replicas: self.spec.replicas.unwrap_or(1),
            start: self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0),
            strategy: self.strategy(),
            has_rolling_update: self.spec.update_strategy.as_ref().is_some_and(|s| s.rolling_update.is_some()),
            partition: self.partition(),
            parallel: self.spec.pod_management_policy.as_deref() == Some("Parallel"),
            min_ready_seconds: self.spec.min_ready_seconds.unwrap_or(0),
            current_revision: some_text(self.status.current_revision.as_ref()),
            update_revision: some_text(self.status.update_revision.as_ref()),
            controller,
            partition_manager: self.partition_manager.clone(),
            changed: self.changed,
            refused_pods: Vec::new(),
            in_the_way: None,
        }
    }
}

/// The owner that controls an object.
pub(super) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn some_text(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// The manager that owns the partition and is not ours; of several the one that wrote last.
fn partition_manager(entries: &[ManagedFieldsEntry]) -> Option<String> {
    const PARTITION: [&str; 4] = ["f:spec", "f:updateStrategy", "f:rollingUpdate", "f:partition"];
    entries
        .iter()
        .filter(|entry| !matches!(entry.manager.as_deref(), Some(names::MANAGER_HOLD | names::MANAGER_VERSIONS)))
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            PARTITION.iter().try_fold(fields, |at, key| at.map(|fields| fields.get(key))).flatten().is_some()
        })
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
        .and_then(|entry| entry.manager.clone())
}

/// When the spec or the metadata was written last.
fn changed(entries: &[ManagedFieldsEntry]) -> Option<Timestamp> {
    let main = entries.iter().filter(|entry| entry.subresource.as_deref().is_none_or(str::is_empty));
    main.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(value: Value) -> SetObject {
        serde_json::from_value::<SetObject>(value).unwrap().shrunk()
    }

    #[test]
    fn a_whole_set_becomes_a_view() {
        let view = set(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 5,
                "annotations": {names::CLAIM: "pr", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
                    {"apiVersion": "sts.plus/v1alpha1", "kind": "ExtendedStatefulSet", "name": "db", "uid": "2", "controller": true}]},
            "spec": {"replicas": 3, "ordinals": {"start": 5}, "podManagementPolicy": "Parallel", "minReadySeconds": 7,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"spec": {"containers": []}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2, "maxUnavailable": "10%"}}},
            "status": {"observedGeneration": 4, "currentRevision": "web-a", "updateRevision": "web-b", "replicas": 3},
        }))
        .view();
        assert_eq!((view.replicas, view.start, view.parallel, view.min_ready_seconds), (3, 5, true, 7));
        assert_eq!((view.generation, view.observed_generation), (5, 4));
        assert_eq!((view.has_rolling_update, view.partition), (true, Some(2)));
        assert_eq!(view.update_revision.as_deref(), Some("web-b"));
        assert_eq!(view.controller, Some(("ExtendedStatefulSet".to_owned(), "db".to_owned())));
        assert_eq!(view.annotations.len(), 1, "{:?}", view.annotations);
    }

    #[test]
    fn absent_fields_have_the_defaults_of_the_api() {
        let view = set(json!({"metadata": {"name": "web"}})).view();
        assert_eq!((view.replicas, view.start, view.observed_generation), (1, 0, 0));
        assert_eq!((view.strategy, view.partition, view.has_rolling_update), (Strategy::RollingUpdate, None, false));
        assert_eq!((view.current_revision, view.update_revision), (None, None));
    }

    #[test]
    fn null_is_what_an_absent_field_is() {
        let null = set(json!({"metadata": null, "spec": null, "status": null})).view();
        assert_eq!(null, set(json!({"metadata": {}})).view());
    }

    #[test]
    fn an_unknown_strategy_is_read_as_it_is_written() {
        let recreate =
            set(json!({"metadata": {}, "spec": {"updateStrategy": {"type": "Recreate", "recreate": {"x": 1}}}}));
        assert_eq!(recreate.view().strategy, Strategy::Other("Recreate".to_owned()));
        assert!(!recreate.is_rolling_update());
    }

    #[test]
    fn a_strategy_without_its_block_has_no_rolling_update() {
        let view = set(json!({"metadata": {}, "spec": {"updateStrategy": {"type": "RollingUpdate"}}})).view();
        assert!(!view.has_rolling_update);
    }

    fn entry(manager: &str, time: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn the_partition_manager_is_the_last_one_that_is_not_ours() {
        let owns = json!({"f:spec": {"f:updateStrategy": {"f:rollingUpdate": {".": {}, "f:partition": {}}}}});
        let owns_not = json!({"f:spec": {"f:replicas": {}, "f:updateStrategy": {"f:type": {}}}});
        let managed = |entries: Value| set(json!({"metadata": {"managedFields": entries}})).view().partition_manager;
        assert_eq!(
            managed(json!([
                entry("kubectl", "2026-01-01T00:00:00Z", &owns),
                entry("helm", "2026-01-02T00:00:00Z", &owns),
                entry(names::MANAGER_HOLD, "2026-01-03T00:00:00Z", &owns),
                entry("argocd", "2026-01-04T00:00:00Z", &owns_not),
            ])),
            Some("helm".to_owned())
        );
        assert_eq!(managed(json!([entry(names::MANAGER_HOLD, "2026-01-03T00:00:00Z", &owns)])), None);
        assert_eq!(managed(json!([])), None);
    }

    #[test]
    fn the_selector_is_written_as_a_query() {
        let selector = |selector: Value| set(json!({"metadata": {}, "spec": {"selector": selector}})).pod_selector();
        assert_eq!(selector(json!({"matchLabels": {"app": "web"}})).as_deref(), Some("app=web"));
        assert_eq!(
            selector(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]})).as_deref(),
            Some("app in (a,b)")
        );
        assert_eq!(selector(json!({})), None, "a selector of everything is no selector");
    }
}
