//! What is measured on: a control plane without brakes, everything installed, a stand-in for the kubelet, a server that answers in place of
//! Prometheus and counts, and the operators that are started on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Api, Client};
use serde_json::{Value, json};
use sts_plus_api::PhasedRollout;
use sts_plus_e2e::{Ground, Operator, Policies, client_of};
use testcluster::{AuthProxy, Cluster, Component, Method};

use crate::kubelet::Kubelet;
use crate::mirror::{Mirror, RolloutSeen, SetSeen};
use crate::requests::Requests;

/// Who operators are to the API server: each has a token that does not run out, and the rights of the installed account.
pub const FIRST: &str = "first";
pub const SECOND: &str = "second";
/// Another operator may do everything.
pub const OTHER: &str = "other";
/// Who creates the load and plays the kubelet: the audit log keeps little of this user of the rig, whose work it takes over.
const LOADER: &str = "kwok";

/// Of the controller-manager: it is not to be what is measured. Its controllers that look after nodes and owners would delete pods whose node
/// or owner is none.
const WITHOUT_BRAKES: [&str; 4] = [
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--concurrent-statefulset-syncs=50",
    "--controllers=-node-lifecycle-controller,-pod-garbage-collector-controller,-garbage-collector-controller,-taint-eviction-controller",
];

/// For so long nothing was written where all is done.
const QUIET: SignedDuration = SignedDuration::from_secs(3);
/// Somebody who writes at rest is not waited for any longer.
const LONG: Duration = Duration::from_mins(5);

pub struct Plane {
    pub cluster: &'static Cluster,
    /// The client of the load.
    pub client: Client,
    pub kubelet: Kubelet,
    pub sets: Mirror<SetSeen>,
    pub rollouts: Mirror<RolloutSeen>,
    pub prometheus: AuthProxy,
    program: PathBuf,
    started: AtomicUsize,
}

impl Plane {
    pub async fn start(program: &Path) -> anyhow::Result<Self> {
        crate::say("a control plane without brakes");
        let builder = Cluster::builder().nodes(0).user(FIRST, &[]).user(SECOND, &[]).user(OTHER, &["system:masters"]);
        let builder =
            WITHOUT_BRAKES.iter().fold(builder, |builder, flag| builder.arg(Component::ControllerManager, flag));
        // It ends with this process, or by `end`.
        let cluster: &'static Cluster = Box::leak(Box::new(builder.start().await?));
        for component in [Component::Kwok, Component::Scheduler] {
            cluster.component(component).stop().await?;
        }
        Ground::on(cluster, program.to_owned(), Policies::Installed, &[FIRST, SECOND]).await;
        forget_the_trial(cluster).await?;
        let client = client_of(&cluster.kubeconfig_for(LOADER, &[])?).await;
        let prometheus = AuthProxy::start("http://127.0.0.1:9").await?;
        prometheus.answer_series(&json!([]));
        Ok(Self {
            cluster,
            kubelet: Kubelet::start(client.clone()),
            sets: Mirror::start(Api::<StatefulSet>::all(client.clone())),
            rollouts: Mirror::start(Api::<PhasedRollout>::all(client.clone())),
            client,
            prometheus,
            program: program.to_owned(),
            started: AtomicUsize::new(0),
        })
    }

    /// Such as `v1.37.2`.
    pub async fn version(&self) -> anyhow::Result<String> {
        let version = self.cluster.request(Method::GET, "/version", None).await?;
        let version = version.pointer("/gitVersion").and_then(Value::as_str);
        Ok(version.context("the API server tells no version")?.to_owned())
    }

    /// Starts the operator for all namespaces, as `user`.
    pub fn operator(&self, user: &str, more: &[&str]) -> anyhow::Result<Operator> {
        let args = [&["run", "--allow-loopback-prometheus", "--log-format", "text"], more].concat();
        let kubeconfig = self.cluster.kubeconfig_for(user, &[])?;
        Ok(Operator::spawn(&self.program, &kubeconfig, &self.new_log(user), &args, &[]))
    }

    /// Starts the command of another operator, which is that process itself in the end.
    pub fn other(&self, command: &str, variables: &[(&str, &str)]) -> anyhow::Result<Operator> {
        let command = format!("exec {command}");
        let kubeconfig = self.cluster.kubeconfig_for(OTHER, &[])?;
        let log = self.new_log(OTHER);
        Ok(Operator::spawn(Path::new("/bin/sh"), &kubeconfig, &log, &["-c", &command], variables))
    }

    /// Each start has a log of its own.
    fn new_log(&self, user: &str) -> PathBuf {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        self.cluster.logs_dir().join(format!("{user}-{number}.log"))
    }

    /// What a user has asked for since then.
    pub fn requests(&self, user: &str, from: Timestamp) -> anyhow::Result<Requests> {
        Ok(Requests::of(&self.cluster.audit_log().entries()?, user, from))
    }

    /// Waits until a user has written nothing for a while; somebody who never stops is not waited for.
    pub async fn until_quiet(&self, user: &str) -> anyhow::Result<()> {
        let from = Timestamp::now();
        loop {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = Timestamp::now();
            let last = self.requests(user, from)?.last_write().unwrap_or(from);
            if now.duration_since(last) >= QUIET || now.duration_since(from).unsigned_abs() >= LONG {
                return Ok(());
            }
        }
    }

    /// Stops it, so that the next one has the machine to itself.
    pub async fn end(self) -> anyhow::Result<()> {
        for component in Component::ALL.into_iter().rev() {
            self.cluster.component(component).stop().await?;
        }
        Ok(())
    }
}

/// By these objects the ground has found out that what is installed works. An operator for all namespaces would look after them.
async fn forget_the_trial(cluster: &Cluster) -> anyhow::Result<()> {
    for object in [
        "/apis/sts.plus/v1alpha1/namespaces/settled/phasedrollouts/gate",
        "/apis/apps/v1/namespaces/settled/statefulsets/claimed",
    ] {
        cluster.request(Method::DELETE, object, None).await?;
    }
    Ok(())
}
