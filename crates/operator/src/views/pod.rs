//! A pod, projected.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::Deserialize;
use sts_plus_api::names;
use sts_plus_decide::{PodView, Problem};

use super::set::controller;

const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
const REVISION: &str = "controller-revision-hash";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The reasons for which a container waits that do not go away by themselves (phased-rollout.md §6).
const STUCK: [&str; 7] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// What is read of a pod.
#[derive(Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
pub struct PodObject {
    /// Metadata; after [`PodObject::shrunk`] without what is large and not needed.
    #[serde(default, deserialize_with = "super::or_default")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "super::or_default")]
    spec: PodSpec,
    #[serde(default, deserialize_with = "super::or_default")]
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    conditions: Option<Vec<PodCondition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type", default, deserialize_with = "super::or_default")]
    kind: String,
    #[serde(default, deserialize_with = "super::or_default")]
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ContainerStatus {
    #[serde(default, deserialize_with = "super::or_default")]
    name: String,
    state: Option<ContainerState>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Waiting {
    reason: Option<String>,
    message: Option<String>,
}

impl PodObject {
    /// Without managed fields and annotations.
    #[must_use]
    pub fn shrunk(mut self) -> Self {
        self.metadata.managed_fields = None;
        self.metadata.annotations = None;
        self
    }

    /// The StatefulSet that controls it.
    #[must_use]
    pub fn owner_set(&self) -> Option<&OwnerReference> {
        controller(&self.metadata).filter(|owner| owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/"))
    }

    /// True if the StatefulSet with this UID controls it.
    #[must_use]
    pub fn belongs_to(&self, set_uid: &str) -> bool {
        self.owner_set().is_some_and(|owner| owner.uid == set_uid)
    }

    /// Whatever controls it.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller(&self.metadata)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.kind == kind)
    }

    /// From the label, which pods have that were made by Kubernetes 1.28 or later, else from the name.
    fn ordinal(&self) -> Option<i32> {
        let ordinal = |text: &str| text.parse().ok().filter(|ordinal| *ordinal >= 0);
        let from_name = || self.metadata.name.as_deref()?.rsplit_once('-').and_then(|(_, end)| ordinal(end));
        self.label(POD_INDEX).and_then(ordinal).or_else(from_name)
    }

    fn problem(&self) -> Option<Problem> {
        let containers = self.status.init_container_statuses.iter().chain(&self.status.container_statuses).flatten();
        let stuck = containers.filter_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))?;
            Some(Problem {
                container: container.name.clone(),
                reason: reason.to_owned(),
                message: waiting.message.clone().unwrap_or_default(),
            })
        });
        stuck.chain(self.unschedulable()).next()
    }

    fn unschedulable(&self) -> Option<Problem> {
        let scheduled = self.condition("PodScheduled")?;
        (scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable")).then(|| Problem {
            container: String::new(),
            reason: "Unschedulable".to_owned(),
            message: scheduled.message.clone().unwrap_or_default(),
        })
    }

    /// What a decision looks at. Missing if the pod has no ordinal: then it takes no place of the set.
    #[must_use]
    pub fn view(&self) -> Option<PodView> {
        let meta = &self.metadata;
        let ready = self.condition("Ready");
        Some(PodView {
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            ordinal: self.ordinal()?,
            revision: self.label(REVISION).filter(|revision| !revision.is_empty()).map(str::to_owned),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            gone_by: meta.deletion_timestamp.as_ref().map(|time| time.0),
            finished: matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded")),
            ready: ready.is_some_and(|ready| ready.status == "True"),
            ready_since: ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0),
            problem: self.problem(),
            node: self.spec.node_name.clone().filter(|node| !node.is_empty()),
            zone: self.label(ZONE).map(str::to_owned),
            version: self.label(names::VERSION).and_then(|version| version.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> PodObject {
        serde_json::from_value::<PodObject>(value).unwrap().shrunk()
    }

    fn owned(owner: &Value) -> PodObject {
        pod(json!({"metadata": {"name": "web-0", "ownerReferences": [owner]}}))
    }

    #[test]
    fn a_running_pod_becomes_a_view() {
        let view = pod(json!({
            "metadata": {"name": "web-2", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {REVISION: "web-b", POD_INDEX: "2", ZONE: "z1"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}],
                "containerStatuses": [{"name": "c", "state": {"running": {}}, "ready": true}]},
        }))
        .view()
        .unwrap();
        assert_eq!((view.ordinal, view.ready, view.finished, view.deleting), (2, true, false, false));
        assert_eq!(view.ready_since.map(|time| time.to_string()).as_deref(), Some("2026-01-01T00:00:09Z"));
        assert_eq!(
            (view.revision.as_deref(), view.node.as_deref(), view.zone.as_deref()),
            (Some("web-b"), Some("n1"), Some("z1"))
        );
        assert_eq!(view.problem, None);
    }

    #[test]
    fn null_is_what_an_absent_field_is() {
        let nulls = json!([{"type": null, "status": null, "name": null, "state": null}]);
        let null = pod(json!({"metadata": {"name": "web-0", "labels": null}, "spec": null,
            "status": {"conditions": nulls, "containerStatuses": nulls, "initContainerStatuses": null}}));
        assert_eq!(null.view(), pod(json!({"metadata": {"name": "web-0"}})).view());
    }

    #[test]
    fn the_ordinal_comes_from_the_label_else_from_the_name() {
        let ordinal = |value: Value| pod(value).view().map(|view| view.ordinal);
        assert_eq!(ordinal(json!({"metadata": {"name": "a-b-12"}})), Some(12));
        assert_eq!(ordinal(json!({"metadata": {"name": "a-b-12", "labels": {POD_INDEX: "3"}}})), Some(3));
        assert_eq!(ordinal(json!({"metadata": {"name": "a-b-12", "labels": {POD_INDEX: "x"}}})), Some(12));
        assert_eq!(ordinal(json!({"metadata": {"name": "a-b-12", "labels": {POD_INDEX: "-3"}}})), Some(12));
        assert_eq!(ordinal(json!({"metadata": {"name": "stray"}})), None);
    }

    // spec: pr§6
    #[test]
    fn each_stuck_reason_is_a_problem_in_containers_and_init_containers() {
        for reason in STUCK {
            for field in ["containerStatuses", "initContainerStatuses"] {
                let waiting = json!([{"name": "c", "state": {"waiting": {"reason": reason, "message": "m"}}}]);
                let view = pod(json!({"metadata": {"name": "web-0"}, "status": {field: waiting}})).view().unwrap();
                let expected =
                    Problem { container: "c".to_owned(), reason: reason.to_owned(), message: "m".to_owned() };
                assert_eq!(view.problem, Some(expected), "{field}");
            }
        }
    }

    #[test]
    fn a_container_that_is_being_created_is_no_problem() {
        let waiting = json!([{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
        let view =
            pod(json!({"metadata": {"name": "web-0"}, "status": {"containerStatuses": waiting}})).view().unwrap();
        assert_eq!(view.problem, None);
    }

    #[test]
    fn an_unschedulable_pod_is_a_problem_without_a_container() {
        let condition = |reason: &str| json!([{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"}]);
        let problem = |reason: &str| {
            pod(json!({"metadata": {"name": "web-0"}, "status": {"conditions": condition(reason)}}))
                .view()
                .unwrap()
                .problem
        };
        assert_eq!(problem("Unschedulable").unwrap().message, "0/3 nodes");
        assert_eq!(problem("SchedulingGated"), None);
    }

    #[test]
    fn only_a_controlling_statefulset_owns_a_pod() {
        let owner = |kind: &str, api: &str, controller: bool| json!({"apiVersion": api, "kind": kind, "name": "web", "uid": "u1", "controller": controller});
        assert!(owned(&owner("StatefulSet", "apps/v1", true)).belongs_to("u1"));
        assert!(!owned(&owner("StatefulSet", "apps/v1", true)).belongs_to("u2"));
        assert!(!owned(&owner("StatefulSet", "apps/v1", false)).belongs_to("u1"));
        assert!(!owned(&owner("StatefulSet", "apps.kruise.io/v1beta1", true)).belongs_to("u1"));
        assert!(!owned(&owner("ReplicaSet", "apps/v1", true)).belongs_to("u1"));
    }

    #[test]
    fn finished_and_terminating_pods_are_seen() {
        let view = pod(json!({"metadata": {"name": "web-0", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Failed"}}))
        .view()
        .unwrap();
        assert!(view.finished && view.deleting && !view.ready);
    }
}
