//! A namespace on one of four control planes, and what is seen in it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_e2e::objects;
use testcluster::{Cluster, Minor, SharedCluster};

/// The feature gate that changes the rolling update.
const GATE: &str = "MaxUnavailableStatefulSet";
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long nothing has to happen for it to count as staying: the controller answers within milliseconds.
const STAYS: Duration = Duration::from_secs(4);
/// The full hold.
pub const HOLD: i32 = 2_147_483_647;

static V1_36_OFF: SharedCluster = SharedCluster::new(|| described(Minor::V1_36, false));
static V1_36_ON: SharedCluster = SharedCluster::new(|| described(Minor::V1_36, true));
static V1_37_OFF: SharedCluster = SharedCluster::new(|| described(Minor::V1_37, false));
static V1_37_ON: SharedCluster = SharedCluster::new(|| described(Minor::V1_37, true));
static NAMESPACES: AtomicU32 = AtomicU32::new(0);

fn described(minor: Minor, gate: bool) -> testcluster::Builder {
    Cluster::builder().kubernetes(minor).feature_gate(GATE, gate)
}

/// A namespace of its own, with at most one set `web`.
pub struct Place {
    /// The minor of the control plane.
    pub minor: Minor,
    /// Whether `MaxUnavailableStatefulSet` is on.
    pub gate: bool,
    /// The control plane.
    pub cluster: &'static Cluster,
    /// Its name.
    pub namespace: String,
    /// The sets of the namespace.
    pub sets: Api<StatefulSet>,
    /// The pods of the namespace.
    pub pods: Api<Pod>,
    /// The revisions of the namespace.
    pub revisions: Api<ControllerRevision>,
}

/// Holds a fact against all four control planes at once.
pub async fn everywhere(fact: impl AsyncFn(&Place)) {
    let planes = [
        (&V1_36_OFF, Minor::V1_36, false),
        (&V1_36_ON, Minor::V1_36, true),
        (&V1_37_OFF, Minor::V1_37, false),
        (&V1_37_ON, Minor::V1_37, true),
    ];
    let facts = planes.map(async |(cluster, minor, gate)| {
        let place = Place::new(cluster.get().await.expect("the control plane starts"), minor, gate).await;
        fact(&place).await;
        place.end().await;
    });
    join_all(facts).await;
}

impl Place {
    async fn new(cluster: &'static Cluster, minor: Minor, gate: bool) -> Self {
        let namespace = format!("fact-{}", NAMESPACES.fetch_add(1, Ordering::Relaxed));
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig can be read");
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("it can be used");
        let client = Client::try_from(config).expect("a client");
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let made = cluster.request(testcluster::Method::POST, "/api/v1/namespaces", Some(&body)).await;
        made.expect("a namespace can be made");
        Self {
            minor,
            gate,
            cluster,
            sets: Api::namespaced(client.clone(), &namespace),
            pods: Api::namespaced(client.clone(), &namespace),
            revisions: Api::namespaced(client, &namespace),
            namespace,
        }
    }

    async fn end(&self) {
        let args = ["delete", "namespace", &self.namespace, "--wait=false"];
        self.cluster.kubectl_ok(&args).await.expect("the namespace can be deleted");
    }

    /// Makes a set of `replicas` pods of image `app:1` with this policy and partition, and waits until all are Ready.
    pub async fn start(&self, policy: &str, replicas: i32, partition: i32) -> State {
        self.start_with(&set(policy, replicas, partition)).await
    }

    /// Makes this set and waits until all pods are Ready.
    pub async fn start_with(&self, set: &Value) -> State {
        self.create(set).await;
        self.until("all pods are Ready", |state| {
            let replicas = state.spec().replicas.unwrap_or(1);
            state.pods.len() == usize::try_from(replicas).unwrap_or(0)
                && state.pods.iter().all(|pod| pod.ready && !pod.going)
        })
        .await
    }

    pub async fn create(&self, set: &Value) {
        let set = serde_json::from_value(set.clone()).expect("it is a StatefulSet");
        self.sets.create(&PostParams::default(), &set).await.expect("the set can be made");
    }

    /// A merge patch of the set that must succeed.
    pub async fn patch(&self, body: Value) {
        self.try_patch(body).await.expect("the set can be patched");
    }

    pub async fn try_patch(&self, body: Value) -> Result<StatefulSet, kube::Error> {
        self.sets.patch("web", &PatchParams::default(), &Patch::Merge(body)).await
    }

    pub async fn json_patch(&self, operations: Value) -> Result<StatefulSet, kube::Error> {
        let patch: json_patch::Patch = serde_json::from_value(operations).expect("a JSON patch");
        self.sets.patch("web", &PatchParams::default(), &Patch::Json::<()>(patch)).await
    }

    /// Another image, and in the same write whatever `more` says about the spec.
    pub async fn release(&self, image: &str, more: Value) {
        let template =
            json!({ "spec": { "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } } });
        let mut body = template;
        json_patch::merge(&mut body["spec"], &more);
        self.patch(body).await;
    }

    pub async fn set_partition(&self, partition: i32) {
        self.patch(json!({ "spec": spec_of_partition(partition) })).await;
    }

    pub async fn scale(&self, replicas: i32) {
        self.patch(json!({ "spec": { "replicas": replicas } })).await;
    }

    pub async fn delete_pod(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default()).await.expect("the pod can be deleted");
    }

    /// Makes a pod Ready or not, as its application would.
    pub async fn set_ready(&self, pod: &str, ready: bool) {
        let value = if ready { Value::Null } else { "false".into() };
        let body = json!({ "metadata": { "annotations": { "sts-plus.test/ready": value } } });
        self.pods.patch(pod, &PatchParams::default(), &Patch::Merge(body)).await.expect("the pod can be patched");
    }

    pub async fn state(&self) -> State {
        let set = self.sets.get("web").await.expect("the set can be read");
        let list = self.pods.list(&ListParams::default()).await.expect("pods can be listed");
        let mut pods: Vec<_> = list.items.iter().map(Seen::new).collect();
        pods.sort_by_key(|pod| pod.ordinal);
        State { set, pods }
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) -> State {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            let state = self.state().await;
            if is_so(&state) {
                return state;
            }
            let place = format!("{} with the gate {}", self.minor, if self.gate { "on" } else { "off" });
            assert!(
                tokio::time::Instant::now() < end,
                "{place}: not so: {what}; pods {}; {:?}",
                state.layout(),
                state.set.status
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for this layout (see [`State::layout`]), seen by the controller.
    pub async fn until_layout(&self, layout: &str) -> State {
        self.until(layout, |state| state.layout() == layout && state.is_seen()).await
    }

    /// The controller has seen the last write, and then no pod moves.
    pub async fn stays(&self, layout: &str) -> State {
        self.stays_for(layout, STAYS).await
    }

    pub async fn stays_for(&self, layout: &str, time: Duration) -> State {
        let first = self.until_layout(layout).await;
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = self.state().await;
            assert_eq!(
                (now.layout(), now.uids()),
                (first.layout(), first.uids()),
                "{} with the gate {}: a pod has moved",
                self.minor,
                self.gate
            );
        }
        self.state().await
    }
}

/// A set `web` of image `app:1`.
pub fn set(policy: &str, replicas: i32, partition: i32) -> Value {
    let set = objects::with(objects::set(replicas), "/spec/podManagementPolicy", policy);
    objects::with(set, "/spec/updateStrategy", spec_of_partition(partition)["updateStrategy"].clone())
}

/// The part of a spec that says the partition.
pub fn spec_of_partition(partition: i32) -> Value {
    json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } })
}

/// The set and its pods at one moment.
#[derive(Debug)]
pub struct State {
    pub set: StatefulSet,
    pub pods: Vec<Seen>,
}

/// A pod.
#[derive(Debug)]
pub struct Seen {
    pub ordinal: i32,
    pub image: String,
    pub revision: String,
    pub uid: String,
    pub ready: bool,
    pub going: bool,
}

impl Seen {
    fn new(pod: &Pod) -> Self {
        let name = pod.name_any();
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let containers = pod.spec.as_ref().map(|spec| &spec.containers);
        Self {
            ordinal: name.rsplit('-').next().and_then(|ordinal| ordinal.parse().ok()).expect("an ordinal"),
            image: containers.and_then(|all| all.first()?.image.clone()).unwrap_or_default(),
            revision: pod.labels().get("controller-revision-hash").cloned().unwrap_or_default(),
            uid: pod.uid().unwrap_or_default(),
            ready: conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            going: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl State {
    pub fn spec(&self) -> &k8s_openapi::api::apps::v1::StatefulSetSpec {
        self.set.spec.as_ref().expect("a set has a spec")
    }

    pub fn status(&self) -> &k8s_openapi::api::apps::v1::StatefulSetStatus {
        self.set.status.as_ref().expect("a set has a status")
    }

    /// True if the controller has seen the last write.
    pub fn is_seen(&self) -> bool {
        self.set.status.as_ref().and_then(|status| status.observed_generation) == self.set.metadata.generation
    }

    /// True if current and update revision are the same.
    pub fn has_flipped(&self) -> bool {
        self.status().current_revision == self.status().update_revision
    }

    pub fn partition(&self) -> Option<i32> {
        self.spec().update_strategy.as_ref()?.rolling_update.as_ref()?.partition
    }

    pub fn pod(&self, ordinal: i32) -> &Seen {
        self.pods.iter().find(|pod| pod.ordinal == ordinal).expect("the pod is there")
    }

    pub fn is_ready_on(&self, ordinal: i32, image: &str) -> bool {
        self.pods.iter().any(|pod| pod.ordinal == ordinal && pod.image == image && pod.ready && !pod.going)
    }

    pub fn uids(&self) -> Vec<&str> {
        self.pods.iter().map(|pod| pod.uid.as_str()).collect()
    }

    /// Each pod as ordinal and image tag, with `!` if it is not Ready and `~` if it is terminating: `0:1 1:1 2:2-broken!`.
    pub fn layout(&self) -> String {
        let words = self.pods.iter().map(|pod| {
            let tag = pod.image.trim_start_matches("app:");
            let ready = if pod.ready { "" } else { "!" };
            format!("{}:{tag}{ready}{}", pod.ordinal, if pod.going { "~" } else { "" })
        });
        words.collect::<Vec<_>>().join(" ")
    }
}
