//! What all scenarios of a test binary stand on, started by the first one that needs it: a control plane of the minor that
//! `STS_PLUS_E2E_KUBERNETES` names (1.37 without it) or of 1.34, everything that `sts-plus manifests` prints, a Prometheus that scrapes one
//! exporter, and the binary of the operator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::names;
use testcluster::{Builder, Cluster, Exporter, Minor, Prometheus, PrometheusConfig, SharedCluster};
use tokio::sync::OnceCell;

use crate::objects;

/// Names another minor of Kubernetes, such as `1.36`.
const KUBERNETES: &str = "STS_PLUS_E2E_KUBERNETES";
/// Feature gates of the control plane, such as `MaxUnavailableStatefulSet=false`.
const FEATURE_GATES: &str = "STS_PLUS_E2E_FEATURE_GATES";
/// Names a built operator, so that none is built here.
const OPERATOR: &str = "STS_PLUS_E2E_OPERATOR";
/// Namespace and name of the operator's service account, as installed.
const ACCOUNT: (&str, &str) = ("sts-plus-system", "sts-plus");
/// What is installed where `MutatingAdmissionPolicy` is not served.
const BEFORE_1_36: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/before-1.36");
const PATIENCE: Duration = Duration::from_secs(30);

/// Names the minors that may be built, such as `1.36 1.37`; without it all of them.
const MINORS: &str = "STS_PLUS_E2E_MINORS";
/// A minor without `MutatingAdmissionPolicy` as v1.
const REFUSING: Minor = Minor::new(1, 34);

/// Whether the admission policies are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policies {
    /// As `sts-plus manifests` prints them.
    Installed,
    /// Left out: the cluster knows the operator and its CRD, and nothing keeps the hold but the operator.
    Missing,
    /// On Kubernetes 1.34, by `kubectl apply -k config/before-1.36`.
    Refusing,
    /// On Kubernetes 1.34, left out.
    RefusingMissing,
}

/// The shared parts.
#[derive(Debug)]
pub struct Ground {
    /// The control plane.
    pub cluster: &'static Cluster,
    /// Scrapes the exporter four times a second.
    pub prometheus: Prometheus,
    /// Its gauges belong to scenarios by their label `namespace`.
    pub exporter: Exporter,
    /// Whether the policies were installed at the start.
    pub policies: Policies,
    kubeconfig: PathBuf,
    program: PathBuf,
    manifests: String,
}

static HELD: SharedCluster = SharedCluster::new(|| gated(Cluster::builder().kubernetes(minor())));
static BARE: SharedCluster = SharedCluster::new(|| gated(Cluster::builder().kubernetes(minor())));
static OLD: SharedCluster = SharedCluster::new(|| Cluster::builder().kubernetes(REFUSING));
static OLD_BARE: SharedCluster = SharedCluster::new(|| Cluster::builder().kubernetes(REFUSING));
static OLD_GROUND: OnceCell<Ground> = OnceCell::const_new();
static OLD_BARE_GROUND: OnceCell<Ground> = OnceCell::const_new();
static GROUND: OnceCell<Ground> = OnceCell::const_new();
static BARE_GROUND: OnceCell<Ground> = OnceCell::const_new();

/// The minor that this run is about.
pub fn minor() -> Minor {
    std::env::var(KUBERNETES).map_or(Minor::V1_37, |minor| minor.parse().expect("STS_PLUS_E2E_KUBERNETES is a minor"))
}

/// With the feature gates that the environment names.
fn gated(builder: Builder) -> Builder {
    let gates = std::env::var(FEATURE_GATES).unwrap_or_default();
    gates.split(',').filter_map(|gate| gate.split_once('=')).fold(builder, |builder, (gate, on)| {
        builder.feature_gate(gate, on.parse().expect("a feature gate is true or false"))
    })
}

/// True where 1.34 is not among the minors that may be built; that is said.
pub fn is_refusing_left_out() -> bool {
    let left_out = |minors: &String| !minors.split_whitespace().any(|minor| minor == REFUSING.to_string());
    let left_out = std::env::var(MINORS).ok().filter(left_out);
    if let Some(minors) = &left_out {
        eprintln!("skipped: {MINORS} is {minors:?}, without {REFUSING}");
    }
    left_out.is_some()
}

impl Ground {
    /// The ground with or without policies; started by the first call.
    pub async fn get(policies: Policies) -> &'static Self {
        match policies {
            Policies::Installed => GROUND.get_or_init(|| Self::start(&HELD, policies)).await,
            Policies::Missing => BARE_GROUND.get_or_init(|| Self::start(&BARE, policies)).await,
            Policies::Refusing => OLD_GROUND.get_or_init(|| Self::start(&OLD, policies)).await,
            Policies::RefusingMissing => OLD_BARE_GROUND.get_or_init(|| Self::start(&OLD_BARE, policies)).await,
        }
    }

    async fn start(cluster: &'static SharedCluster, policies: Policies) -> Self {
        let program = tokio::task::spawn_blocking(operator_binary).await.expect("the operator is built");
        let cluster = cluster.get().await.expect("the control plane starts");
        let manifests = output_of(&program, &["manifests"]);
        let applied = match policies {
            Policies::Installed => cluster.apply(&manifests).await,
            Policies::Missing | Policies::RefusingMissing => cluster.apply(&without_policies(&manifests)).await,
            Policies::Refusing => cluster.kubectl_ok(&["apply", "-k", BEFORE_1_36]).await,
        };
        applied.expect("the manifests can be applied");
        let exporter = Exporter::start().await.expect("the exporter starts");
        // The metric exists; a scenario whose application is well has no series of it.
        exporter.set("app_errors", &[("namespace", "none")], 0.0);
        let config = PrometheusConfig::scraping(&[exporter.target()]);
        let prometheus =
            Prometheus::start(&cluster.dir().join("prometheus"), &config).await.expect("Prometheus starts");
        prometheus.wait_for("app_errors", true).await.expect("Prometheus scrapes the exporter");
        let (namespace, name) = ACCOUNT;
        let kubeconfig =
            cluster.kubeconfig_for_service_account(namespace, name).await.expect("the operator gets a token");
        let ground = Self { cluster, prometheus, exporter, policies, kubeconfig, program, manifests };
        ground.settle().await;
        ground
    }

    /// The kubeconfig of the operator's service account.
    pub fn operator_kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new token of the operator's service account, good for one hour.
    pub async fn operator_token(&self) -> String {
        let (namespace, name) = ACCOUNT;
        self.cluster.service_account_token(namespace, name).await.expect("the operator gets a token")
    }

    /// The operator's binary.
    pub fn operator_program(&self) -> &Path {
        &self.program
    }

    /// What `sts-plus --version` says after the name.
    pub fn operator_version(&self) -> String {
        output_of(&self.program, &["--version"]).trim().rsplit(' ').next().unwrap_or_default().to_owned()
    }

    /// What `sts-plus manifests` prints.
    pub fn manifests(&self) -> &str {
        &self.manifests
    }

    /// Waits until the API server serves the CRD and, if they are installed, acts on the policies.
    async fn settle(&self) {
        let namespace = "settled";
        self.cluster.kubectl_ok(&["create", "namespace", namespace]).await.expect("a namespace can be made");
        let rollout = objects::with(objects::rollout("http://127.0.0.1:9"), "/metadata/namespace", namespace);
        eventually("PhasedRollouts are served", async || self.cluster.apply(&rollout.to_string()).await.is_ok()).await;
        match self.policies {
            Policies::Installed => self.until_born_held(namespace).await,
            Policies::Refusing => self.until_refused(namespace).await,
            Policies::Missing | Policies::RefusingMissing => {}
        }
    }

    /// Waits until a lower partition of a claimed set is refused.
    async fn until_refused(&self, namespace: &str) {
        let set = objects::with(objects::set(0), "/metadata/namespace", namespace);
        let set = objects::with(set, "/metadata/annotations", json!({ names::CLAIM: "gate" }));
        let set = objects::with(set, "/spec/updateStrategy/type", "RollingUpdate");
        let at = |partition: i32| {
            objects::with(set.clone(), "/spec/updateStrategy/rollingUpdate/partition", partition).to_string()
        };
        self.cluster.apply(&at(3)).await.expect("a set can be made");
        let args = ["apply", "--dry-run=server", "-f", "-"];
        eventually("a lower partition is refused", async || {
            let reply = self.cluster.kubectl_as(self.cluster.kubeconfig(), &args, &at(0)).await;
            reply.is_ok_and(|reply| !reply.status.success())
        })
        .await;
    }

    /// Waits until a set that a PhasedRollout of `namespace` targets would be held from birth.
    pub async fn until_born_held(&self, namespace: &str) {
        let set = objects::with(objects::set(0), "/metadata/namespace", namespace);
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets?dryRun=All");
        eventually("a set is held from birth", async || {
            let answer = self.cluster.request(testcluster::Method::POST, &path, Some(&set)).await;
            let partition = "/spec/updateStrategy/rollingUpdate/partition";
            answer.is_ok_and(|set| set.pointer(partition) == Some(&json!(names::HOLD)))
        })
        .await;
    }
}

/// Asks again and again until it is so, for half a minute at most.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, asked).await.is_ok(), "not within {} s: {what}", PATIENCE.as_secs());
}

/// The binary beside the tests, after cargo has made sure that it is up to date.
pub fn operator_binary() -> PathBuf {
    if let Some(program) = std::env::var_os(OPERATOR) {
        return program.into();
    }
    let tests = std::env::current_exe().expect("this program has a path");
    let profile = tests.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = unlike_a_test(&mut Command::new(cargo))
        // Together with the tests' own package: with the same features of what both use, nothing is compiled twice.
        .args(["build", "--quiet", "--package", "sts-plus", "--package", "sts-plus-e2e", "--bin", "sts-plus"])
        .args(["--profile", name])
        .output()
        .expect("cargo can be run");
    assert!(built.status.success(), "cargo build: {}", String::from_utf8_lossy(&built.stderr));
    profile.join("sts-plus")
}

/// Without what cargo tells a test about itself: another cargo would take that for a change, and compile much anew.
pub fn unlike_a_test(command: &mut Command) -> &mut Command {
    let told = |name: &str| name == "CARGO" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(told) {
            command.env_remove(name);
        }
    }
    command
}

fn output_of(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("the operator can be run");
    assert!(output.status.success(), "sts-plus {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("manifests are text")
}

/// The documents of `manifests` that are no admission policy and no binding of one.
fn without_policies(manifests: &str) -> String {
    let documents = manifests.split("\n---\n").filter(|document| !is_policy(document));
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// True for a policy or a binding.
pub(crate) fn is_policy(document: &str) -> bool {
    document.lines().any(|line| line.starts_with("apiVersion: admissionregistration.k8s.io/"))
}

/// A namespace.
pub(crate) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}
