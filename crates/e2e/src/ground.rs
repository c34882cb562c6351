//! What all scenarios of a test binary stand on, started by the first one that needs it: a control plane with what is installed on it, an
//! exporter, the binary of the operator, and, for who asks for it, a Prometheus that scrapes the exporter. The operator's scenarios are on
//! the minor that `STS_PLUS_E2E_KUBERNETES` names (1.37 without it), or on 1.34.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::names;
use testcluster::{
    AuthProxy, Builder, Cluster, Component, Exporter, Method, Minor, Prometheus, PrometheusConfig, SharedCluster,
};
use tokio::sync::OnceCell;

use crate::{PATIENCE, objects};

/// Names another minor of Kubernetes, such as `1.36`.
const KUBERNETES: &str = "STS_PLUS_E2E_KUBERNETES";
/// Feature gates of the control plane, such as `MaxUnavailableStatefulSet=false`.
const FEATURE_GATES: &str = "STS_PLUS_E2E_FEATURE_GATES";
/// Names a built operator, so that none is built here.
const OPERATOR: &str = "STS_PLUS_E2E_OPERATOR";
/// A user with a token of its own and no rights: a scenario gives it what the owner of an application has in its namespace.
pub const OWNER: &str = "olga";
/// Namespace and name of the operator's service account, as installed.
const ACCOUNT: (&str, &str) = ("sts-plus-system", "sts-plus");
/// What is installed where `MutatingAdmissionPolicy` is not served.
const BEFORE_1_36: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/before-1.36");

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
    /// Its gauges belong to scenarios by their label `namespace`.
    pub exporter: Exporter,
    /// Whether the policies were installed at the start.
    pub policies: Policies,
    /// With the tap in front of it.
    prometheus: OnceCell<(Prometheus, AuthProxy)>,
    kubeconfig: PathBuf,
    program: PathBuf,
    manifests: String,
}

/// A ground that is started by the first test that needs it.
#[derive(Debug)]
pub struct SharedGround {
    cluster: SharedCluster,
    policies: Policies,
    identities: &'static [&'static str],
    cell: OnceCell<Ground>,
}

impl SharedGround {
    /// Notes how to start it; nothing runs yet. `identities` are user names under which operators outside of the cluster write.
    #[must_use]
    pub const fn new(describe: fn() -> Builder, policies: Policies, identities: &'static [&'static str]) -> Self {
        Self { cluster: SharedCluster::new(describe), policies, identities, cell: OnceCell::const_new() }
    }

    /// The ground, started by the first call.
    pub async fn get(&'static self) -> &'static Ground {
        self.cell.get_or_init(|| Ground::start(self)).await
    }
}

static HELD: SharedGround = SharedGround::new(described, Policies::Installed, &[]);
static BARE: SharedGround = SharedGround::new(described, Policies::Missing, &[]);
static OLD: SharedGround = SharedGround::new(|| Cluster::builder().kubernetes(REFUSING), Policies::Refusing, &[]);
static OLD_BARE: SharedGround =
    SharedGround::new(|| Cluster::builder().kubernetes(REFUSING), Policies::RefusingMissing, &[]);

/// The minor that this run is about.
pub fn minor() -> Minor {
    std::env::var(KUBERNETES).map_or(Minor::V1_37, |minor| minor.parse().expect("STS_PLUS_E2E_KUBERNETES is a minor"))
}

/// With the feature gates that the environment names, and autoscalers that look again each second.
fn described() -> Builder {
    let builder = Cluster::builder()
        .kubernetes(minor())
        .user(OWNER, &[])
        .arg(Component::ControllerManager, "--horizontal-pod-autoscaler-sync-period=1s");
    let gates = std::env::var(FEATURE_GATES).unwrap_or_default();
    gates.split(',').filter_map(|gate| gate.split_once('=')).fold(builder, |builder, (gate, on)| {
        builder.feature_gate(gate, on.parse().expect("a feature gate is true or false"))
    })
}

/// True where 1.34 is not among the minors that may be built; that is reported as a skip.
pub fn is_refusing_left_out() -> bool {
    let left_out = |minors: &String| !minors.split_whitespace().any(|minor| minor == REFUSING.to_string());
    let left_out = std::env::var(MINORS).ok().filter(left_out);
    if let Some(minors) = &left_out {
        testcluster::report::skipped(&format!("{MINORS} is {minors:?}, without {REFUSING}"));
    }
    left_out.is_some()
}

impl Ground {
    /// The ground with or without policies; started by the first call.
    pub async fn get(policies: Policies) -> &'static Self {
        let shared = match policies {
            Policies::Installed => &HELD,
            Policies::Missing => &BARE,
            Policies::Refusing => &OLD,
            Policies::RefusingMissing => &OLD_BARE,
        };
        shared.get().await
    }

    async fn start(shared: &'static SharedGround) -> Self {
        let program = tokio::task::spawn_blocking(operator_binary).await.expect("the operator is built");
        let cluster = shared.cluster.get().await.expect("the control plane starts");
        Self::on(cluster, program, shared.policies, shared.identities).await
    }

    /// The ground on a control plane that was started by somebody else and is empty, with this binary of the operator. See
    /// [`SharedGround::new`] for `identities`.
    pub async fn on(cluster: &'static Cluster, program: PathBuf, policies: Policies, identities: &[&str]) -> Self {
        let named = identities.iter().flat_map(|name| ["--identity", name]);
        let manifests = output_of(&program, &["manifests"].into_iter().chain(named).collect::<Vec<_>>());
        install(cluster, policies, &manifests).await;
        let exporter = Exporter::start().await.expect("the exporter starts");
        // The metric exists; a scenario whose application is well has no series of it.
        exporter.set("app_errors", &[("namespace", "none")], 0.0);
        let (namespace, name) = ACCOUNT;
        let kubeconfig =
            cluster.kubeconfig_for_service_account(namespace, name).await.expect("the operator gets a token");
        let prometheus = OnceCell::new();
        let ground = Self { cluster, exporter, policies, prometheus, kubeconfig, program, manifests };
        ground.settle().await;
        ground
    }

    /// Scrapes the exporter four times a second; started by the first call.
    pub async fn prometheus(&self) -> &Prometheus {
        let start = async || {
            let config = PrometheusConfig::scraping(&[self.exporter.target()]);
            let prometheus = Prometheus::start(&self.cluster.dir().join("prometheus"), &config).await;
            let prometheus = prometheus.expect("Prometheus starts");
            prometheus.wait_for("app_errors", true).await.expect("Prometheus scrapes the exporter");
            let tap = AuthProxy::start(prometheus.url()).await.expect("the tap starts");
            (prometheus, tap)
        };
        &self.prometheus.get_or_init(start).await.0
    }

    /// The way to Prometheus on which every question and its answer is heard ([`crate::Scene::asked`]).
    pub async fn tap_url(&self) -> String {
        self.prometheus().await;
        self.tap().expect("the tap runs").url()
    }

    /// The tap, if anybody has wanted Prometheus so far.
    pub(crate) fn tap(&self) -> Option<&AuthProxy> {
        self.prometheus.get().map(|(_, tap)| tap)
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

    /// Waits until the API server serves the CRDs and acts on the policies, if they are installed: each kind of policy is looked at
    /// once a second, and the last one of a kind is acted on when the others are.
    async fn settle(&self) {
        let namespace = "settled";
        let body = crate::ground::namespace(namespace);
        self.cluster.request(Method::POST, "/api/v1/namespaces", Some(&body)).await.expect("a namespace can be made");
        let (rollout, extended) = (objects::rollout("http://127.0.0.1:9"), objects::extended("web"));
        let rollouts = format!("/apis/sts.plus/v1alpha1/namespaces/{namespace}/phasedrollouts");
        let is_served = async || self.cluster.request(Method::POST, &rollouts, Some(&rollout)).await.is_ok();
        eventually("PhasedRollouts are served", is_served).await;
        let path =
            format!("/apis/fissile.cloudfoundry.org/v1alpha1/namespaces/{namespace}/extendedstatefulsets?dryRun=All");
        let uncounted = objects::without(extended, "/spec/template/spec/replicas");
        let count = async || {
            let answer = self.cluster.request(Method::POST, &path, Some(&uncounted)).await.ok()?;
            Some(answer.pointer("/spec/template/spec/replicas").cloned())
        };
        eventually("ExtendedStatefulSets are served", async || count().await.is_some()).await;
        match self.policies {
            Policies::Installed => {
                self.until_born_held(namespace, "web").await;
                eventually("a count is filled in", async || count().await.flatten() == Some(json!(1))).await;
                let on_delete = json!({ "type": "OnDelete" });
                self.until_refused("another strategy", names::HOLD, &on_delete, namespace).await;
            }
            Policies::Refusing => {
                let lower = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
                self.until_refused("a lower partition", 3, &lower, namespace).await;
            }
            Policies::Missing | Policies::RefusingMissing => {}
        }
    }

    /// Waits until a claimed set at `partition` cannot be given this strategy.
    async fn until_refused(&self, what: &str, partition: i32, strategy: &Value, namespace: &str) {
        let set = objects::named(objects::set(0), "claimed");
        let set = objects::with(set, "/metadata/annotations", json!({ names::CLAIM: "gate" }));
        let set = objects::with(set, "/spec/updateStrategy/rollingUpdate/partition", partition);
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets");
        self.cluster.request(Method::POST, &path, Some(&set)).await.expect("a set can be made");
        let set = objects::with(set, "/spec/updateStrategy", strategy.clone());
        let path = format!("{path}/claimed?dryRun=All");
        let is_refused = async || {
            let answer = self.cluster.request(Method::PUT, &path, Some(&set)).await;
            answer.is_err_and(|error| format!("{error:#}").contains("ValidatingAdmissionPolicy"))
        };
        eventually(&format!("{what} is refused"), is_refused).await;
    }

    /// Waits until a set of this name, which a PhasedRollout of `namespace` targets, would be held from birth.
    pub async fn until_born_held(&self, namespace: &str, name: &str) {
        let set = objects::named(objects::set(0), name);
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets?dryRun=All");
        eventually("a set is held from birth", async || {
            let answer = self.cluster.request(testcluster::Method::POST, &path, Some(&set)).await;
            let partition = "/spec/updateStrategy/rollingUpdate/partition";
            answer.is_ok_and(|set| set.pointer(partition) == Some(&json!(names::HOLD)))
        })
        .await;
    }
}

/// One `kubectl apply` of everything, which must warn of nothing.
async fn install(cluster: &Cluster, policies: Policies, manifests: &str) {
    let version = cluster.request(Method::GET, "/version", None).await.expect("the API server tells its version");
    let minor = version.pointer("/minor").and_then(Value::as_str).and_then(|minor| minor.parse().ok());
    assert_eq!(minor, Some(cluster.minor().minor()), "this is no Kubernetes {}: {version}", cluster.minor());
    let (args, stdin) = match policies {
        Policies::Installed => (["apply", "-f", "-"], manifests.to_owned()),
        Policies::Missing | Policies::RefusingMissing => (["apply", "-f", "-"], without_policies(manifests)),
        Policies::Refusing => (["apply", "-k", BEFORE_1_36], String::new()),
    };
    let applied = cluster.kubectl_as(cluster.kubeconfig(), &args, &stdin).await.expect("kubectl ends");
    let errors = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success() && errors.is_empty(), "kubectl {}: {errors}", args.join(" "));
}

/// Asks again and again until it is so.
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
