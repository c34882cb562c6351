//! One control plane per minor for all tests of a file, with the whole installation on it.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sts_plus::manifests::{Options, render, to_yaml};
use testcluster::{Cluster, Method, Minor, SharedCluster};
use tokio::sync::OnceCell;

/// The user name of an operator outside the cluster, which the installation is told.
pub const OUTSIDE: &str = "outside-operator";

/// Kubernetes 1.36.
pub static V1_36: Rig = Rig::new(|| Cluster::builder().kubernetes(Minor::V1_36));
/// Kubernetes 1.37.
pub static V1_37: Rig = Rig::new(|| Cluster::builder().kubernetes(Minor::V1_37));

/// A control plane that the first test starts and installs on.
pub struct Rig {
    cluster: SharedCluster,
    installed: OnceCell<()>,
    namespaces: AtomicU32,
}

impl Rig {
    const fn new(describe: fn() -> testcluster::Builder) -> Self {
        Self { cluster: SharedCluster::new(describe), installed: OnceCell::const_new(), namespaces: AtomicU32::new(0) }
    }

    /// The control plane, and the name of a namespace that nobody else has.
    pub async fn namespace(&'static self) -> anyhow::Result<(&'static Cluster, String)> {
        let cluster = self.cluster.get().await?;
        self.installed.get_or_try_init(|| install(cluster)).await?;
        let name = format!("ns-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        make_namespace(cluster, &name).await?;
        Ok((cluster, name))
    }
}

async fn make_namespace(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    cluster.request(Method::POST, "/api/v1/namespaces", Some(&body)).await?;
    Ok(())
}

/// One `kubectl apply` of everything, which must warn of nothing; then until the API server acts on it.
async fn install(cluster: &Cluster) -> anyhow::Result<()> {
    let version = cluster.request(Method::GET, "/version", None).await?;
    let minor = version["minor"].as_str().and_then(|minor| minor.parse().ok());
    ensure!(minor == Some(cluster.minor().minor()), "this is no Kubernetes {}: {version}", cluster.minor());

    let options = Options { identities: vec![OUTSIDE.to_owned()], ..Options::default() };
    let manifests = to_yaml(&render(&options)?)?;
    let reply = cluster.kubectl_as(cluster.kubeconfig(), &["apply", "-f", "-"], &manifests).await?;
    let errors = String::from_utf8_lossy(&reply.stderr).into_owned();
    ensure!(reply.status.success() && errors.is_empty(), "kubectl apply of the installation: {errors}");

    make_namespace(cluster, "installed").await?;
    let rollout = json!({
        "apiVersion": "sts.plus/v1alpha1", "kind": "PhasedRollout", "metadata": { "name": "first" },
        "spec": { "targetRef": "first", "check": { "query": { "expr": "up{}", "url": "prom:9090" } } },
    });
    eventually("the CRD is served", async || {
        let path = "/apis/sts.plus/v1alpha1/namespaces/installed/phasedrollouts";
        cluster.request(Method::POST, path, Some(&rollout)).await.map(|_| ())
    })
    .await?;
    eventually("a set is held from birth", async || is_born_held(cluster, "installed", "first").await).await
}

/// Whether the API server would claim a set of this name, which means that it has read its PhasedRollout and all before that.
pub async fn is_born_held(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "replicas": 0, "serviceName": name, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
        },
    });
    let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets?dryRun=All");
    let answer = cluster.request(Method::POST, &path, Some(&set)).await?;
    let partition = answer.pointer("/spec/updateStrategy/rollingUpdate/partition").and_then(Value::as_i64);
    ensure!(partition == Some(i64::from(sts_plus_api::names::HOLD)), "born with partition {partition:?}");
    Ok(())
}

/// Tries until it works, for 30 s at most.
pub async fn eventually(what: &str, attempt: impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() >= until => {
                return Err(error).context(format!("not within 30 s: {what}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Makes a test on 1.36 and one on 1.37 of each `async fn(&'static Rig) -> anyhow::Result<()>`.
macro_rules! on_both_minors {
    ($($test:ident),* $(,)?) => {
        mod kubernetes_1_36 {
            $(#[tokio::test] async fn $test() -> anyhow::Result<()> { super::$test(&crate::rig::V1_36).await })*
        }
        mod kubernetes_1_37 {
            $(#[tokio::test] async fn $test() -> anyhow::Result<()> { super::$test(&crate::rig::V1_37).await })*
        }
    };
}
pub(crate) use on_both_minors;
