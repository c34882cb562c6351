//! A StatefulSet `web`, and those who write to it: a person with all rights, and the operator by its service account, with the rights of
//! its role and no more.

use http::header::{CONTENT_TYPE, WARNING};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Ground, Reply, Scene, World, client_of, image_of, objects, uid_of};
use tokio::sync::OnceCell;

use crate::rig::{OUTSIDE, PERSON};

/// The full hold.
pub const HOLD: i64 = names::HOLD as i64;

const MERGE: &str = "application/merge-patch+json";

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// A cluster admin called jane.
    Person,
    /// The operator, by a token of its service account.
    Operator,
    /// An operator outside the cluster, named at installation.
    Outside,
}

/// A scene with those who write.
pub struct Stage {
    /// The scene.
    pub scene: Scene,
    /// As [`Who`] has them.
    clients: [OnceCell<Client>; 3],
}

impl Stage {
    /// An empty namespace.
    pub async fn new(ground: &'static Ground) -> Self {
        Self { scene: Scene::on(ground, "hold").await, clients: Default::default() }
    }

    /// A set `web` without pods that the operator has claimed and that rests at `partition`.
    pub async fn claimed(ground: &'static Ground, partition: i64) -> Self {
        let stage = Self::new(ground).await;
        stage.create(&web(0, "app:1")).await;
        stage.claim(partition).await;
        stage
    }

    /// A set `web` with three Ready pods on `app:1` that the operator has claimed and that rests at partition 3.
    pub async fn with_pods(ground: &'static Ground) -> Self {
        let stage = Self::new(ground).await;
        stage.create(&web(3, "app:1")).await;
        stage.ready(3).await;
        stage.claim(3).await;
        stage
    }

    fn kubeconfig(&self, who: Who) -> std::path::PathBuf {
        let ground = self.scene.ground;
        let named = |name| ground.cluster.kubeconfig_for(name, &[]).expect("a user of the cluster");
        match who {
            Who::Person => named(PERSON),
            Who::Operator => ground.operator_kubeconfig().to_owned(),
            Who::Outside => named(OUTSIDE),
        }
    }

    /// Runs kubectl in the namespace.
    pub async fn kubectl(&self, who: Who, args: &[&str], stdin: &str) -> Reply {
        self.scene.kubectl_as(&self.kubeconfig(who), args, stdin).await
    }

    /// As [`Stage::kubectl`], and it must succeed.
    pub async fn must(&self, who: Who, args: &[&str], stdin: &str) -> Reply {
        let reply = self.kubectl(who, args, stdin).await;
        assert!(reply.ok, "kubectl {} by {who:?}: {}", args.join(" "), reply.stderr);
        reply
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) {
        self.scene.create(object).await;
    }

    /// Replaces `web` as a person, whatever has been written since.
    pub async fn replace(&self, set: &Value) -> Written {
        self.written(Who::Person, Method::PUT, "application/json", "", set).await.accepted()
    }

    /// The operator claims `web` and rests at `partition`, in one write.
    pub async fn claim(&self, partition: i64) {
        let body = json!({
            "metadata": { "annotations": { names::CLAIM: "gate", names::WRITTEN_PARTITION: format!("r/{partition}") } },
            "spec": rolling(partition),
        });
        self.merge(Who::Operator, &body).await;
    }

    /// A merge patch of `web`, which must be accepted.
    pub async fn merge(&self, who: Who, body: &Value) -> Written {
        self.try_merge(who, body).await.accepted()
    }

    /// A merge patch of `web`.
    pub async fn try_merge(&self, who: Who, body: &Value) -> Written {
        self.written(who, Method::PATCH, MERGE, "", body).await
    }

    /// What a merge patch of `web` would make of it.
    pub async fn dry_run(&self, who: Who, body: &Value) -> Value {
        self.written(who, Method::PATCH, MERGE, "&dryRun=All", body).await.accepted().object
    }

    /// A merge patch of the partition of `web` to `partition`, by a person.
    pub async fn ask(&self, partition: i64) -> Written {
        self.merge(Who::Person, &json!({ "spec": rolling(partition) })).await
    }

    async fn written(&self, who: Who, method: Method, content: &str, query: &str, body: &Value) -> Written {
        let namespace = &self.scene.namespace;
        let manager = if matches!(who, Who::Person) { "test" } else { names::MANAGER_HOLD };
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/web?fieldManager={manager}{query}");
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, content);
        let request = request.body(body.to_string().into_bytes()).expect("a request");
        let client = self.clients[who as usize].get_or_init(async || client_of(&self.kubeconfig(who)).await).await;
        let answer = client.send(request.map(Into::into)).await.expect("the API server answers");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("an answer ends").to_bytes();
        let warnings = head.headers.get_all(WARNING).iter().filter_map(|warning| unquoted(warning.to_str().ok()?));
        let warnings = warnings.collect();
        let object: Value = serde_json::from_slice(&body).expect("an answer is JSON");
        let refusal = object["message"].as_str().unwrap_or_default().to_owned();
        self.scene.catch_up().await;
        Written { refusal: (!head.status.is_success()).then_some(refusal), object, told: warnings }
    }

    /// `web` as it is stored.
    pub async fn web(&self) -> Value {
        self.scene.get("statefulset/web").await
    }

    /// The stored partition of `web`.
    pub async fn partition(&self) -> Option<i64> {
        partition(&self.web().await)
    }

    /// The stored annotation of `web`.
    pub async fn annotation(&self, name: &str) -> Option<String> {
        annotation(&self.web().await, name).map(str::to_owned)
    }

    /// The name, UID and image of each pod that stays, in the order of their names.
    pub async fn pods(&self) -> Vec<(String, String, String)> {
        self.scene.catch_up().await;
        let world = self.scene.world();
        let staying = world.pods.iter().filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none());
        staying.map(|(name, pod)| (name.clone(), uid_of(pod), image_of(pod).to_owned())).collect()
    }

    /// Waits until `count` pods of `web` are Ready and the controller has seen the latest spec.
    pub async fn ready(&self, count: i32) {
        let ready = |world: &World| {
            let status = world.sets.get("web").and_then(|set| set.status.as_ref());
            status.and_then(|status| status.ready_replicas) == Some(count)
        };
        self.scene.until_settled("the pods are Ready", ready).await;
    }
}

/// What the API server said to a write.
#[derive(Debug)]
pub struct Written {
    /// Why it was refused.
    pub refusal: Option<String>,
    object: Value,
    told: Vec<String>,
}

impl Written {
    fn accepted(self) -> Self {
        assert!(self.refusal.is_none(), "{self:?}");
        self
    }

    /// The warnings of our policy, without what Kubernetes puts before them.
    pub fn warnings(&self) -> Vec<&str> {
        self.told.iter().filter_map(|line| ours(line)).collect()
    }
}

/// The warnings of our policy that kubectl has printed.
pub fn printed(reply: &Reply) -> Vec<&str> {
    reply.stderr.lines().filter_map(ours).collect()
}

fn ours(line: &str) -> Option<&str> {
    let head = "'sts-plus-hold-warning' with binding 'sts-plus-hold-warning': ";
    line.split_once(head).map(|(_, text)| text)
}

/// The text of a header `299 - "text"`.
fn unquoted(warning: &str) -> Option<String> {
    let quoted = warning.strip_prefix("299 - ")?;
    serde_json::from_str(quoted).ok()
}

/// A StatefulSet `web` whose pods all start at once.
pub fn web(replicas: i32, image: &str) -> Value {
    let set = objects::image(objects::set(replicas), image);
    objects::with(set, "/spec/podManagementPolicy", "Parallel")
}

/// A spec with only the partition.
pub fn rolling(partition: i64) -> Value {
    json!({ "updateStrategy": { "rollingUpdate": { "partition": partition } } })
}

/// A template with only another image, for a merge patch.
pub fn image(image: &str) -> Value {
    json!({ "spec": { "containers": [{ "name": "app", "image": image }] } })
}

/// The partition of a set.
pub fn partition(set: &Value) -> Option<i64> {
    set.pointer("/spec/updateStrategy/rollingUpdate/partition").and_then(Value::as_i64)
}

/// An annotation of a set.
pub fn annotation<'a>(set: &'a Value, name: &str) -> Option<&'a str> {
    set["metadata"]["annotations"][name].as_str()
}
