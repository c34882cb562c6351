//! A namespace, and what the API server and kubectl say there.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testcluster::{Cluster, Method};

use crate::rig::{Rig, eventually};
use crate::schema::answer;

const API: &str = "fissile.cloudfoundry.org/v1alpha1";

/// An ExtendedStatefulSet `web` with these fields in its spec, and these in the spec of its template.
pub fn set(spec: &Value, template: &Value) -> Value {
    let mut object = json!({
        "apiVersion": API, "kind": "ExtendedStatefulSet", "metadata": { "name": "web" },
        "spec": {
            "template": {
                "metadata": { "labels": { "team": "shop" } },
                "spec": {
                    "selector": { "matchLabels": { "app": "web" } },
                    "serviceName": "web",
                    "template": {
                        "metadata": { "labels": { "app": "web" } },
                        "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
                    },
                },
            },
        },
    });
    for (place, fields) in [("/spec", spec), ("/spec/template/spec", template)] {
        for (name, value) in fields.as_object().into_iter().flatten() {
            object.pointer_mut(place).unwrap_or(&mut Value::Null)[name] = value.clone();
        }
    }
    object
}

/// The count in an object.
pub fn count(object: &Value) -> Option<i64> {
    object.pointer("/spec/template/spec/replicas").and_then(Value::as_i64)
}

/// A namespace on a control plane where the policy works.
pub struct Scene {
    /// The control plane.
    pub cluster: &'static Cluster,
    /// The namespace.
    pub namespace: String,
}

impl Scene {
    /// An empty namespace.
    pub async fn new(rig: &'static Rig) -> anyhow::Result<Self> {
        let (cluster, namespace) = rig.namespace().await?;
        let scene = Self { cluster, namespace };
        eventually("a count is filled in", async || {
            let answer = scene.tried(&set(&json!({}), &json!({}))).await?.map_err(anyhow::Error::msg)?;
            ensure!(count(&answer) == Some(1), "{answer}");
            Ok(())
        })
        .await?;
        Ok(scene)
    }

    /// The path of all sets, or of the one with this name and of its subresource.
    fn path(&self, rest: &str) -> String {
        format!("/apis/{API}/namespaces/{}/extendedstatefulsets{rest}", self.namespace)
    }

    /// A dry run of creating it.
    pub async fn tried(&self, object: &Value) -> anyhow::Result<Result<Value, String>> {
        answer(self.cluster, Method::POST, &self.path("?dryRun=All&fieldValidation=Strict&fieldManager=test"), object)
            .await
    }

    /// It is refused, and the answer holds each of these.
    pub async fn refused(&self, object: &Value, sentences: &[&str]) -> anyhow::Result<()> {
        let error = self.tried(object).await?.err().unwrap_or_default();
        ensure!(!error.is_empty(), "it is accepted: {object}");
        for sentence in sentences {
            ensure!(error.contains(sentence), "it is refused without {sentence:?}:\n{error}");
        }
        Ok(())
    }

    /// It is accepted; as it would be stored.
    pub async fn accepted(&self, object: &Value) -> anyhow::Result<Value> {
        self.tried(object).await?.map_err(anyhow::Error::msg).with_context(|| object.to_string())
    }

    /// Creates it.
    pub async fn create(&self, object: &Value) -> anyhow::Result<Value> {
        self.cluster.request(Method::POST, &self.path("?fieldValidation=Strict"), Some(object)).await
    }

    /// A set as it is stored.
    pub async fn get(&self, name: &str) -> anyhow::Result<Value> {
        self.cluster.request(Method::GET, &self.path(&format!("/{name}")), None).await
    }

    /// The count of `web` as it is stored.
    pub async fn count(&self) -> anyhow::Result<Option<i64>> {
        Ok(count(&self.get("web").await?))
    }

    /// What GET of `/scale` says.
    pub async fn scale(&self, name: &str) -> anyhow::Result<Value> {
        self.cluster.request(Method::GET, &self.path(&format!("/{name}/scale")), None).await
    }

    /// A dry run of writing a count to `/scale`.
    pub async fn scaled(&self, name: &str, replicas: i32) -> anyhow::Result<Result<Value, String>> {
        let body = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": { "name": name, "namespace": self.namespace }, "spec": { "replicas": replicas },
        });
        answer(self.cluster, Method::PUT, &self.path(&format!("/{name}/scale?dryRun=All")), &body).await
    }

    /// Runs kubectl in the namespace: what it said, on stdout or on stderr.
    pub async fn kubectl(&self, args: &[&str], stdin: &str) -> anyhow::Result<Result<String, String>> {
        let args = [&["--namespace", &self.namespace], args].concat();
        let output = self.cluster.kubectl_as(self.cluster.kubeconfig(), &args, stdin).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) })
    }

    /// As [`Scene::kubectl`], and it must succeed.
    pub async fn must(&self, args: &[&str], stdin: &str) -> anyhow::Result<String> {
        self.kubectl(args, stdin)
            .await?
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// A merge patch of `web` by kubectl.
    pub async fn merge(&self, body: &Value) -> anyhow::Result<Result<String, String>> {
        self.kubectl(&["patch", "ests", "web", "--type=merge", "-p", &body.to_string()], "").await
    }
}
