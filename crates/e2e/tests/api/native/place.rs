//! A namespace on one of four control planes, and what is seen in it.

use futures::future::join_all;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Ground, Policies, Scene, Seen, SharedGround, World, image_of, objects, uid_of};
use testcluster::{Cluster, Minor};

use crate::rig;

/// The feature gate that changes the rolling update: off by default on 1.36, and on from 1.37 on.
const GATE: &str = "MaxUnavailableStatefulSet";
/// The full hold.
pub const HOLD: i32 = names::HOLD;

// With the gate as it is not by default; without our policies, so that what is seen here cannot come from them.
static V1_36_ON: SharedGround = SharedGround::new(|| gated(Minor::V1_36, true), Policies::Missing, &[]);
static V1_37_OFF: SharedGround = SharedGround::new(|| gated(Minor::V1_37, false), Policies::Missing, &[]);

fn gated(minor: Minor, gate: bool) -> testcluster::Builder {
    Cluster::builder().kubernetes(minor).feature_gate(GATE, gate)
}

/// A namespace of its own, with at most one set `web`.
pub struct Place {
    /// The minor of the control plane.
    pub minor: Minor,
    /// Whether `MaxUnavailableStatefulSet` is on.
    pub gate: bool,
    /// The scene.
    pub scene: Scene,
    /// The sets of the namespace.
    pub sets: Api<StatefulSet>,
    /// The pods of the namespace.
    pub pods: Api<Pod>,
    /// The revisions of the namespace.
    pub revisions: Api<ControllerRevision>,
}

/// Holds a fact against all four control planes at once.
pub async fn everywhere(fact: impl AsyncFn(&Place)) {
    let grounds = [(&rig::V1_36, false), (&V1_36_ON, true), (&V1_37_OFF, false), (&rig::V1_37, true)];
    join_all(grounds.map(async |(ground, gate)| fact(&Place::on(ground.get().await, gate).await).await)).await;
}

impl Place {
    async fn on(ground: &'static Ground, gate: bool) -> Self {
        let scene = Scene::on(ground, "fact").await;
        Self {
            minor: ground.cluster.minor(),
            gate,
            sets: Api::namespaced(scene.client.clone(), &scene.namespace),
            pods: Api::namespaced(scene.client.clone(), &scene.namespace),
            revisions: Api::namespaced(scene.client.clone(), &scene.namespace),
            scene,
        }
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
        self.scene.create(set).await;
    }

    /// A merge patch of the set that must succeed.
    pub async fn patch(&self, body: Value) {
        self.scene.patch("statefulset/web", &body).await;
    }

    pub async fn try_patch(&self, body: Value) -> Result<StatefulSet, kube::Error> {
        let patched = self.sets.patch("web", &PatchParams::default(), &Patch::Merge(body)).await;
        self.scene.catch_up().await;
        patched
    }

    pub async fn json_patch(&self, operations: Value) -> Result<StatefulSet, kube::Error> {
        let patch: json_patch::Patch = serde_json::from_value(operations).expect("a JSON patch");
        let patched = self.sets.patch("web", &PatchParams::default(), &Patch::Json::<()>(patch)).await;
        self.scene.catch_up().await;
        patched
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
        self.scene.catch_up().await;
    }

    /// Makes a pod Ready or not, as its application would. The controller has seen it then: it counts the pods that are Ready.
    pub async fn set_ready(&self, pod: &str, ready: bool) {
        let value = if ready { Value::Null } else { "false".into() };
        let body = json!({ "metadata": { "annotations": { "sts-plus.test/ready": value } } });
        self.scene.patch(&format!("pod/{pod}"), &body).await;
        let is_so = |one: &OnePod| pod.ends_with(&format!("-{}", one.ordinal)) && one.ready == ready;
        let count = |state: &State| state.pods.iter().filter(|pod| pod.ready).count();
        let is_counted =
            |state: &State| usize::try_from(state.status().ready_replicas.unwrap_or(0)) == Ok(count(state));
        self.until("readiness is counted", |state| state.pods.iter().any(is_so) && is_counted(state)).await;
    }

    /// How it looks now.
    pub async fn state(&self) -> State {
        self.scene.catch_up().await;
        State::of(&self.scene.world()).expect("the set is there")
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) -> State {
        let place = format!("{} with the gate {}: {what}", self.minor, if self.gate { "on" } else { "off" });
        let world = self.scene.until(&place, |world| State::of(world).is_some_and(|state| is_so(&state))).await;
        State::of(&world).expect("the set is there")
    }

    /// Waits for this layout (see [`State::layout`]), seen by the controller.
    pub async fn until_layout(&self, layout: &str) -> State {
        self.until(layout, |state| state.layout() == layout && state.is_seen()).await
    }

    /// The controller has seen the last write, looks at the set several times more, and no pod moves.
    pub async fn stays(&self, layout: &str) -> State {
        let first = self.until_layout(layout).await;
        self.scene.until_looked_at_again().await;
        self.still(&first).await
    }

    /// Since `first` no pod has moved: none was made, deleted, or made Ready or unready. How it looks now.
    pub async fn still(&self, first: &State) -> State {
        let now = self.state().await;
        assert_eq!(now.pods, first.pods, "{} with the gate {}", self.minor, self.gate);
        for entry in self.scene.tape.entries().iter().filter(|entry| entry.version > first.version) {
            if let Seen::Pod(pod) = &entry.seen {
                let is_still = !entry.gone && first.pods.contains(&OnePod::new(pod));
                assert!(is_still, "{} with the gate {}: a pod has moved: {pod:?}", self.minor, self.gate);
            }
        }
        now
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
    pub pods: Vec<OnePod>,
    version: u64,
}

/// A pod.
#[derive(Debug, PartialEq)]
pub struct OnePod {
    pub ordinal: i32,
    pub image: String,
    pub revision: String,
    pub uid: String,
    pub ready: bool,
    pub going: bool,
}

impl OnePod {
    fn new(pod: &Pod) -> Self {
        let name = pod.name_any();
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        Self {
            ordinal: name.rsplit('-').next().and_then(|ordinal| ordinal.parse().ok()).expect("an ordinal"),
            image: image_of(pod).to_owned(),
            revision: pod.labels().get("controller-revision-hash").cloned().unwrap_or_default(),
            uid: uid_of(pod),
            ready: conditions
                .into_iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            going: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl State {
    fn of(world: &World) -> Option<Self> {
        let mut pods: Vec<_> = world.pods.values().map(OnePod::new).collect();
        pods.sort_by_key(|pod| pod.ordinal);
        Some(Self { set: world.sets.get("web")?.clone(), pods, version: world.latest_version() })
    }

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

    pub fn pod(&self, ordinal: i32) -> &OnePod {
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
