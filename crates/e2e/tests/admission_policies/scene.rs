//! A namespace with one StatefulSet `web`, and those who write to it: a person with all rights, and the operator by its service
//! account, with the rights of its role and no more.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sts_plus_api::names;
use testcluster::{Cluster, Method, Minor};
use tokio::sync::OnceCell;

use crate::rig::{OUTSIDE, Rig, eventually};

/// The full hold.
pub const HOLD: i64 = names::HOLD as i64;

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

/// What kubectl said.
#[derive(Debug)]
pub struct Reply {
    /// Whether it succeeded.
    pub ok: bool,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr: warnings and errors.
    pub stderr: String,
}

impl Reply {
    /// The warnings of our policy, without what Kubernetes puts before them.
    pub fn warnings(&self) -> Vec<&str> {
        let head = "'sts-plus-hold-warning' with binding 'sts-plus-hold-warning': ";
        self.stderr.lines().filter_map(|line| line.split_once(head)).map(|(_, text)| text).collect()
    }
}

/// A namespace on a control plane with our policies.
pub struct Scene {
    /// The control plane.
    pub cluster: &'static Cluster,
    /// The namespace.
    pub namespace: String,
    access: &'static Access,
}

/// The kubeconfigs of those who write.
struct Access {
    person: PathBuf,
    operator: PathBuf,
    outside: PathBuf,
}

impl Access {
    /// Written once per control plane: kubectl must not read a file that another test is writing.
    async fn of(cluster: &Cluster) -> anyhow::Result<&'static Self> {
        static V1_36: OnceCell<Access> = OnceCell::const_new();
        static V1_37: OnceCell<Access> = OnceCell::const_new();
        let cell = if cluster.minor() == Minor::V1_36 { &V1_36 } else { &V1_37 };
        cell.get_or_try_init(|| async {
            Ok(Self {
                person: cluster.kubeconfig_for("jane", &["system:masters"])?,
                operator: cluster.kubeconfig_for_service_account("sts-plus-system", "sts-plus").await?,
                outside: cluster.kubeconfig_for(OUTSIDE, &[])?,
            })
        })
        .await
    }
}

impl Scene {
    /// An empty namespace.
    pub async fn new(rig: &'static Rig) -> anyhow::Result<Self> {
        let (cluster, namespace) = rig.namespace().await?;
        Ok(Self { cluster, namespace, access: Access::of(cluster).await? })
    }

    /// A set `web` without pods that the operator has claimed and that rests at `partition`.
    pub async fn claimed(rig: &'static Rig, partition: i64) -> anyhow::Result<Self> {
        let scene = Self::new(rig).await?;
        scene.create(&web(0, "app:1")).await?;
        scene.claim(partition).await?;
        Ok(scene)
    }

    /// A set `web` with three Ready pods on `app:1` that the operator has claimed and that rests at partition 3.
    pub async fn with_pods(rig: &'static Rig) -> anyhow::Result<Self> {
        let scene = Self::new(rig).await?;
        scene.create(&web(3, "app:1")).await?;
        scene.ready(3).await?;
        scene.claim(3).await?;
        Ok(scene)
    }

    /// Runs kubectl in the namespace.
    pub async fn kubectl(&self, who: Who, args: &[&str], stdin: &str) -> anyhow::Result<Reply> {
        let kubeconfig = match who {
            Who::Person => &self.access.person,
            Who::Operator => &self.access.operator,
            Who::Outside => &self.access.outside,
        };
        let args = [&["--namespace", &self.namespace], args].concat();
        let output = self.cluster.kubectl_as(kubeconfig, &args, stdin).await?;
        Ok(Reply {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// As [`Scene::kubectl`], and it must succeed.
    pub async fn must(&self, who: Who, args: &[&str], stdin: &str) -> anyhow::Result<Reply> {
        let reply = self.kubectl(who, args, stdin).await?;
        ensure!(reply.ok, "kubectl {} by {who:?}: {}", args.join(" "), reply.stderr);
        Ok(reply)
    }

    /// Creates an object as a person.
    pub async fn create(&self, object: &Value) -> anyhow::Result<Reply> {
        self.must(Who::Person, &["create", "-f", "-"], &object.to_string()).await
    }

    /// Replaces `web` as a person. kubectl reads a resourceVersion before it writes; a status written in between is no matter.
    pub async fn replace(&self, object: &Value) -> anyhow::Result<Reply> {
        let args = ["replace", "-f", "-"];
        for _ in 0..20 {
            let reply = self.kubectl(Who::Person, &args, &object.to_string()).await?;
            if reply.ok || !reply.stderr.contains("(Conflict)") {
                ensure!(reply.ok, "kubectl replace: {}", reply.stderr);
                return Ok(reply);
            }
        }
        bail!("kubectl replace: a conflict each time")
    }

    /// The operator claims `web` and rests at `partition`, in one write.
    pub async fn claim(&self, partition: i64) -> anyhow::Result<()> {
        let body = json!({
            "metadata": { "annotations": { names::CLAIM: "gate", names::WRITTEN_PARTITION: format!("r/{partition}") } },
            "spec": rolling(partition),
        });
        self.merge(Who::Operator, &body).await?;
        Ok(())
    }

    /// A merge patch of `web`, which must succeed.
    pub async fn merge(&self, who: Who, body: &Value) -> anyhow::Result<Reply> {
        self.must(who, &["patch", "statefulset", "web", "--type=merge", "-p", &body.to_string()], "").await
    }

    /// A merge patch of the partition of `web` to `partition`, by a person.
    pub async fn ask(&self, partition: i64) -> anyhow::Result<Reply> {
        self.merge(Who::Person, &json!({ "spec": rolling(partition) })).await
    }

    /// `web` as it is stored.
    pub async fn web(&self) -> anyhow::Result<Value> {
        let path = format!("/apis/apps/v1/namespaces/{}/statefulsets/web", self.namespace);
        self.cluster.request(Method::GET, &path, None).await
    }

    /// The stored partition of `web`.
    pub async fn partition(&self) -> anyhow::Result<Option<i64>> {
        Ok(partition(&self.web().await?))
    }

    /// The stored annotation of `web`.
    pub async fn annotation(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(annotation(&self.web().await?, name).map(str::to_owned))
    }

    /// The name, UID and image of each pod, in the order of their names.
    pub async fn pods(&self) -> anyhow::Result<Vec<(String, String, String)>> {
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let list = self.cluster.request(Method::GET, &path, None).await?;
        let text = |pod: &Value, at: &str| pod.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let pods = list["items"].as_array().context("no list of pods")?;
        let mut pods: Vec<_> = pods
            .iter()
            .map(|pod| (text(pod, "/metadata/name"), text(pod, "/metadata/uid"), text(pod, "/spec/containers/0/image")))
            .collect();
        pods.sort();
        Ok(pods)
    }

    /// Waits until `count` pods of `web` are Ready and the controller has seen the latest spec.
    pub async fn ready(&self, count: i64) -> anyhow::Result<()> {
        eventually("the pods are ready", async || {
            let web = self.web().await?;
            let status = &web["status"];
            ensure!(
                status["readyReplicas"] == count && status["observedGeneration"] == web["metadata"]["generation"],
                "status is {status}"
            );
            Ok(())
        })
        .await
    }
}

/// A StatefulSet `web`.
pub fn web(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
        },
    })
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
