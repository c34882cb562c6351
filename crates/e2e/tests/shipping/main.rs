//! Installed by `kubectl apply -k deploy/` and taken away again, in every order: the Pod Security level of the namespace admits the
//! operator, StatefulSets are let go first, those of an ExtendedStatefulSet stay, nothing rolls, nothing hangs.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

mod namespaces;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Operator, eventually, minor, objects, operator_binary, unlike_a_test};
use testcluster::{Cluster, Component, Method};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const SETS: &str = "/apis/apps/v1/namespaces/work/statefulsets";
const SERVICES: &str = "/api/v1/namespaces/work/services";
const OWNERS: &str = "/apis/fissile.cloudfoundry.org/v1alpha1/namespaces/work/extendedstatefulsets";
const ROLLOUTS: &str = "/apis/sts.plus/v1alpha1/namespaces/work/phasedrollouts";

/// A cluster of its own, since definitions and policies are taken away.
struct Site {
    cluster: Cluster,
    program: PathBuf,
}

impl Site {
    async fn start() -> Self {
        let program = tokio::task::spawn_blocking(operator_binary).await.expect("the operator is built");
        let cluster = Cluster::builder().kubernetes(minor()).start().await.expect("the control plane starts");
        Self { cluster, program }
    }

    /// Installs everything; a set `rest` at rest, and a set `middle` of which one pod is on the new release. The operator runs.
    async fn install(&self) -> Operator {
        self.kubectl(&["apply", "-k", DEPLOY]).await;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd/phasedrollouts.sts.plus"]).await;
        let kubeconfig =
            self.cluster.kubeconfig_for_service_account("sts-plus-system", "sts-plus").await.expect("there is a token");
        let operator = Operator::start_as(&self.program, &kubeconfig, "work", &self.log(), &[]);
        let _ = self.cluster.kubectl(&["create", "namespace", "work"]).await;
        for name in ["rest", "middle"] {
            let rollout = objects::with(objects::rollout("http://127.0.0.1:9"), "/metadata/name", name);
            let check = json!({ "check": { "initialDelaySeconds": 3600, "preflight": false,
                "query": { "expr": "up", "url": "http://127.0.0.1:9" } }, "targetRef": name });
            self.post(ROLLOUTS, &objects::with(rollout, "/spec", check)).await;
            self.post(SETS, &objects::named(objects::set(3), name)).await;
            eventually("at rest", async || self.partition(name).await == 3 && self.pods(name).await.len() == 3).await;
        }
        self.kubectl(&["-n", "work", "set", "image", "statefulset/middle", "app=app:2"]).await;
        eventually("one pod is on the new release", async || {
            self.pods("middle").await.iter().filter(|pod| pod.image == "app:2" && pod.ready).count() == 1
        })
        .await;
        self.install_versions().await;
        operator
    }

    /// `db` in mid-upgrade, beside a Service that follows it, and `still` at rest with one.
    async fn install_versions(&self) {
        for (name, service) in [("db", "live"), ("still", "calm")] {
            let selecting = objects::with(objects::service(service), "/spec/selector", json!({ "app": name }));
            self.post(SERVICES, &selecting).await;
            let owner = objects::with(objects::extended(name), "/spec/updateStrategy/activeService", service);
            self.post(OWNERS, &owner).await;
            eventually("it is there, and the Service follows", async || {
                let pods = self.pods(name).await;
                pods.len() == 3 && pods.iter().all(|pod| pod.ready) && self.selected(service).await == "1"
            })
            .await;
        }
        let next = json!([{ "op": "replace", "path": "/spec/template/spec/template/spec/containers/0/image", "value": "app:2-never-ready" }]);
        self.kubectl(&["-n", "work", "patch", "ests", "db", "--type=json", "-p", &next.to_string()]).await;
        eventually("a canary is there", async || self.pods("db").await.iter().any(|pod| !pod.ready)).await;
    }

    /// The version that a Service selects; empty if none.
    async fn selected(&self, service: &str) -> String {
        let service = self.cluster.request(Method::GET, &format!("{SERVICES}/{service}"), None).await;
        service.unwrap_or_default()["spec"]["selector"][names::VERSION].as_str().unwrap_or_default().to_owned()
    }

    fn log(&self) -> PathBuf {
        self.cluster.logs_dir().join("operator.log")
    }

    async fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.kubectl_ok(args).await.unwrap_or_else(|error| panic!("kubectl {args:?}: {error:#}"))
    }

    async fn post(&self, path: &str, object: &Value) {
        self.cluster.request(Method::POST, path, Some(object)).await.expect("it can be made");
    }

    async fn set(&self, name: &str) -> Value {
        self.cluster.request(Method::GET, &format!("{SETS}/{name}"), None).await.unwrap_or_default()
    }

    async fn partition(&self, name: &str) -> i64 {
        self.set(name)
            .await
            .pointer("/spec/updateStrategy/rollingUpdate/partition")
            .and_then(Value::as_i64)
            .unwrap_or(0)
    }

    async fn pods(&self, set: &str) -> Vec<Pod> {
        let path = format!("/api/v1/namespaces/work/pods?labelSelector=app%3D{set}");
        let list = self.cluster.request(Method::GET, &path, None).await.expect("pods can be listed");
        list["items"].as_array().into_iter().flatten().map(Pod::new).collect()
    }

    /// Those of every set, by its label.
    async fn all_pods(&self) -> Vec<Vec<Pod>> {
        let mut all = Vec::new();
        for set in ["rest", "middle", "db", "still"] {
            all.push(self.pods(set).await);
        }
        all
    }

    /// The released binary with `args`, as an administrator, from outside the cluster; what it said to people.
    async fn sts_plus(&self, args: &[&str]) -> String {
        String::from_utf8_lossy(&self.output_of(args).await.stderr).into_owned()
    }

    /// What it printed for kubectl.
    async fn printed(&self, args: &[&str]) -> String {
        String::from_utf8(self.output_of(args).await.stdout).expect("manifests are text")
    }

    async fn output_of(&self, args: &[&str]) -> Output {
        let child = Command::new(&self.program)
            .args(args)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let output =
            tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("it ends").expect("it ends");
        assert!(output.status.success(), "sts-plus {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// True if nothing of what was installed is left.
    async fn is_empty(&self) -> bool {
        let kinds = "namespaces,crds,clusterroles,clusterrolebindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings,\
                     validatingadmissionpolicies,validatingadmissionpolicybindings,roles,rolebindings";
        let left = self.kubectl(&["get", kinds, "-A", "-l", "app.kubernetes.io/part-of=sts-plus", "-o", "name"]).await;
        left.trim().is_empty()
    }
}

#[derive(Debug, PartialEq)]
struct Pod {
    uid: String,
    image: String,
    ready: bool,
    going: bool,
}

impl Pod {
    fn new(pod: &Value) -> Self {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array();
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        Self {
            uid: text("/metadata/uid"),
            image: text("/spec/containers/0/image"),
            ready: conditions.into_iter().flatten().any(is_ready),
            going: pod["metadata"]["deletionTimestamp"].is_string(),
        }
    }
}

/// How a user may take it away.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// `sts-plus uninstall` beside a running operator, then `kubectl delete -k`.
    UninstallWhileItRuns,
    /// `sts-plus uninstall` after the operator was killed; twice.
    UninstallWithoutOperator,
    /// `kubectl delete -k` takes the operator and its rights away first, `sts-plus uninstall` comes after.
    DeleteFirst,
    /// The definition alone is deleted while the operator runs, then `kubectl delete -k`.
    DefinitionFirst,
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the operator\n{}", std::fs::read_to_string(self.log()).unwrap_or_default());
        }
    }
}

impl Site {
    async fn take_away(&self, order: Order, operator: Operator) {
        match order {
            Order::UninstallWhileItRuns => {
                let said = self.sts_plus(&["uninstall"]).await;
                assert!(said.contains("StatefulSet work/middle was in mid-rollout: it keeps partition 2"), "{said}");
                assert!(!said.contains("work/rest was"), "{said}");
                assert!(
                    said.contains("StatefulSet work/db-v1 was that of a version: it keeps partition 2147483647"),
                    "{said}"
                );
                self.kubectl(&["delete", "-k", DEPLOY, "--ignore-not-found", "--timeout=180s"]).await;
            }
            Order::UninstallWithoutOperator => {
                operator.kill();
                self.sts_plus(&["uninstall"]).await;
                self.sts_plus(&["uninstall"]).await;
            }
            Order::DeleteFirst => {
                operator.kill();
                self.kubectl(&["delete", "-k", DEPLOY, "--wait=false"]).await;
                self.sts_plus(&["uninstall"]).await;
            }
            Order::DefinitionFirst => {
                let kinds = ["phasedrollouts.sts.plus", "extendedstatefulsets.fissile.cloudfoundry.org"];
                self.kubectl(&["delete", "crd", kinds[0], kinds[1], "--timeout=180s"]).await;
                self.kubectl(&["delete", "-k", DEPLOY, "--ignore-not-found", "--timeout=180s"]).await;
            }
        }
    }

    async fn end(&self) {
        self.kubectl(&["delete", "namespace", "work", "--timeout=180s"]).await;
    }
}

#[tokio::test]
async fn uninstalled_with_and_without_an_operator_sets_are_let_go_first_and_nothing_rolls() {
    check([Order::UninstallWhileItRuns, Order::UninstallWithoutOperator]).await;
}

#[tokio::test]
async fn deleted_before_it_is_uninstalled_nothing_rolls_and_nothing_hangs() {
    check([Order::DeleteFirst, Order::DefinitionFirst]).await;
}

async fn check(orders: [Order; 2]) {
    let site = Site::start().await;
    for order in orders {
        let operator = site.install().await;
        let before = site.all_pods().await;
        site.take_away(order, operator).await;
        eventually("everything is gone", async || site.is_empty().await).await;
        for (name, partition) in [("rest", 0), ("middle", 2)] {
            // The controller has acted on the last change by the time it says that it has seen it.
            eventually("the controller has seen it", async || {
                let set = site.set(name).await;
                set["metadata"]["generation"] == set["status"]["observedGeneration"]
            })
            .await;
            assert_eq!(site.partition(name).await, partition, "{order:?} {name}");
            let annotations = site.set(name).await["metadata"]["annotations"].to_string();
            assert!(
                !annotations.contains(names::CLAIM) && !annotations.contains("sts.plus/"),
                "{order:?}: {annotations}"
            );
        }
        assert_eq!(site.all_pods().await, before, "{order:?}: pods have moved");
        for name in ["db-v1", "db-v2", "still-v1"] {
            let owners = site.set(name).await["metadata"]["ownerReferences"].clone();
            assert!(owners.is_null(), "{order:?}: {name} is kept for its own sake: {owners}");
        }
        // It would reach the canary; nothing of ours is needed where there is one version only.
        let selected = (site.selected("live").await, site.selected("calm").await);
        assert_eq!(selected, ("1".to_owned(), String::new()), "{order:?}");
        site.end().await;
    }
}

impl Site {
    /// Everything installed, no operator, and a set `web` of two pods that the policies hold for a PhasedRollout.
    async fn install_policies(&self) {
        self.kubectl(&["apply", "-k", DEPLOY]).await;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]).await;
        self.kubectl(&["create", "namespace", "work"]).await;
        self.post(ROLLOUTS, &objects::rollout("http://127.0.0.1:9")).await;
        let (dry, set) = (format!("{SETS}?dryRun=All"), objects::set(2));
        eventually("the policies are in force", async || {
            let made = self.cluster.request(Method::POST, &dry, Some(&set)).await;
            made.is_ok_and(|made| made["metadata"]["annotations"][names::CLAIM] == "gate")
        })
        .await;
        self.post(SETS, &set).await;
        self.until_pods("web", 2, "app:1").await;
    }

    async fn until_pods(&self, set: &str, count: usize, image: &str) {
        eventually(&format!("{count} pods of {set} on {image}"), async || {
            let pods = self.pods(set).await;
            pods.len() == count && pods.iter().all(|pod| pod.ready && !pod.going && pod.image == image)
        })
        .await;
    }

    /// A set that has nothing to do with us is made, changed, scaled and deleted, all at the first try.
    async fn live_and_let_die(&self, name: &str) {
        let (object, image) = (format!("statefulset/{name}"), "app=app:2");
        self.post(SETS, &objects::named(objects::set(1), name)).await;
        self.until_pods(name, 1, "app:1").await;
        self.kubectl(&["-n", "work", "set", "image", &object, image]).await;
        self.until_pods(name, 1, "app:2").await;
        self.kubectl(&["-n", "work", "scale", &object, "--replicas=2"]).await;
        self.until_pods(name, 2, "app:2").await;
        self.kubectl(&["-n", "work", "delete", &object, "--wait=false"]).await;
        eventually("it is gone", async || self.set(name).await.is_null() && self.pods(name).await.is_empty()).await;
    }

    /// A set that was claimed is still held, scaled as before, and free after it is released.
    async fn release_the_claimed_one(&self) {
        self.kubectl(&["-n", "work", "set", "image", "statefulset/web", "app=app:2"]).await;
        self.kubectl(&["-n", "work", "scale", "statefulset/web", "--replicas=3"]).await;
        self.until_pods("web", 3, "app:1").await;
        assert_eq!(self.partition("web").await, i64::from(names::HOLD), "the claim is a claim");
        let release = json!({
            "metadata": { "annotations": { names::RELEASE: "true", names::CLAIM: null } },
            "spec": { "updateStrategy": { "rollingUpdate": { "partition": 0 } } },
        });
        self.kubectl(&["-n", "work", "patch", "statefulset", "web", "--type=merge", "-p", &release.to_string()]).await;
        self.until_pods("web", 3, "app:2").await;
    }
}

/// The CRDs were deleted and the policies forgotten: at once, and with an API server that has never seen the CRDs.
// spec: hold, L093
#[tokio::test]
async fn policies_without_their_crds_block_no_workload() {
    let site = Site::start().await;
    site.install_policies().await;
    site.kubectl(&["-n", "work", "delete", "phasedrollout", "gate", "--timeout=30s"]).await;
    let kinds = ["phasedrollouts.sts.plus", "extendedstatefulsets.fissile.cloudfoundry.org"];
    site.kubectl(&["delete", "crd", kinds[0], kinds[1], "--timeout=60s"]).await;
    site.live_and_let_die("first").await;
    let api_server = site.cluster.component(Component::ApiServer);
    api_server.stop().await.expect("it stops");
    api_server.start().await.expect("it starts again");
    let policies = "mutatingadmissionpolicies,validatingadmissionpolicies";
    let left = site.kubectl(&["get", policies, "-l", "app.kubernetes.io/part-of=sts-plus", "-o", "name"]).await;
    assert!(left.lines().count() >= 3, "they are still there: {left}");
    site.live_and_let_die("second").await;
    site.release_the_claimed_one().await;
}

#[tokio::test]
async fn the_namespace_admits_the_operator_under_the_restricted_level() {
    let site = Site::start().await;
    site.kubectl(&["apply", "-k", DEPLOY]).await;
    let args = ["-n", "sts-plus-system", "wait", "--for=condition=Available", "--timeout=180s", "deployment/sts-plus"];
    site.kubectl(&args).await;
    // The level is in force: another pod is refused.
    let refused =
        site.cluster.kubectl(&["-n", "sts-plus-system", "run", "root", "--image=app:1"]).await.expect("kubectl runs");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("violates PodSecurity \"restricted:latest\""), "{said}");
    // Set by kustomize as a user would, the image is that of the pods.
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("kustomization.yaml");
    std::fs::write(&own, kustomization(dir.path())).expect("it can be written");
    site.kubectl(&["apply", "-k", &dir.path().display().to_string()]).await;
    let image = ["-n", "sts-plus-system", "get", "deployment", "sts-plus", "-o", "jsonpath={..image}"];
    eventually("the image is taken", async || site.kubectl(&image).await == "registry.test/team/sts-plus:9").await;
    let args = ["-n", "sts-plus-system", "get", "deployment", "sts-plus", "-o", "jsonpath={..args}"];
    let args = site.kubectl(&args).await;
    assert_eq!(args, r#"["run","--leader-elect","--allowed-origin=https://prom:9090","--require-labelled-secrets"]"#);
}

/// What a first user waits for.
#[test]
fn to_install_and_to_run_it_the_operator_alone_is_built() {
    for target in ["install", "run", "deploy", "uninstall"] {
        let mut make = Command::new("make");
        let output = unlike_a_test(&mut make).args(["-C", ROOT, "-n", target, "IMG=x"]).output().expect("make runs");
        let would = String::from_utf8_lossy(&output.stdout).into_owned();
        let builds: Vec<_> = would.lines().filter(|line| line.contains("cargo ")).collect();
        assert_eq!(builds, ["cargo build --package sts-plus --bin sts-plus"], "make {target}: {would}");
    }
}

/// Somebody's own kustomization on top of ours, which is stricter.
fn kustomization(dir: &Path) -> String {
    let up = dir.components().skip(1).map(|_| "../").collect::<String>();
    let deploy = Path::new(DEPLOY).canonicalize().expect("deploy/ is there");
    let deploy = deploy.strip_prefix("/").expect("it is absolute").display().to_string();
    let adds = |flag: &str| format!("- {{op: add, path: /spec/template/spec/containers/0/args/-, value: {flag}}}");
    let adds = [adds("--allowed-origin=https://prom:9090"), adds("--require-labelled-secrets")].join("\n      ");
    format!(
        "resources: [{up}{deploy}]\nimages: [{{ name: sts-plus, newName: registry.test/team/sts-plus, newTag: \"9\" }}]\n\
         patches:\n  - target: {{ kind: Deployment, name: sts-plus }}\n    patch: |-\n      {adds}\n"
    )
}

/// The image, unpacked; nothing where it cannot be built, and that is reported as a skip.
async fn unpacked_image(dir: &Path) -> Option<PathBuf> {
    let has_buildah = Command::new("buildah").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_buildah || !rustix::process::geteuid().is_root() {
        testcluster::report::skipped("the image is built by root with buildah, which is not so here");
        return None;
    }
    let storage = dir.join("storage.conf");
    let (graph, run) = (dir.join("graph"), dir.join("run"));
    let conf =
        format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n", graph.display(), run.display());
    std::fs::write(&storage, conf).expect("it can be written");
    let script = format!(
        "set -e; cd {ROOT}; BUILDER=buildah PROFILE=dev scripts/image build localhost/sts-plus:test >&2; \
         buildah inspect --type image --format '{{{{.OCIv1.Config.User}}}} {{{{.OCIv1.Config.Entrypoint}}}} {{{{.OCIv1.Config.Cmd}}}}{{{{println}}}}' \
         localhost/sts-plus:test; buildah mount $(buildah from localhost/sts-plus:test)"
    );
    let mut command = Command::new("/bin/sh");
    unlike_a_test(&mut command)
        .args(["-c", &script])
        .env("CONTAINERS_STORAGE_CONF", &storage)
        .env("BUILDAH_ISOLATION", "chroot");
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = said.lines().collect();
    let [config, root] = lines[..] else { panic!("{said}") };
    assert_eq!(config, "65532:65532 [/sts-plus] [run]");
    Some(root.into())
}

#[tokio::test]
async fn the_image_is_one_static_binary_that_works_as_in_a_pod() {
    let dir = tempfile::tempdir().expect("a folder");
    let Some(root) = unpacked_image(dir.path()).await else { return };
    let files: Vec<_> =
        std::fs::read_dir(&root).expect("a folder").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(files, ["sts-plus"]);

    let site = Site::start().await;
    site.kubectl(&["apply", "-k", DEPLOY]).await;
    site.kubectl(&["create", "namespace", "work"]).await;
    // What a pod has besides its image.
    let account = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&account).expect("a folder can be made");
    let token = site.cluster.service_account_token("sts-plus-system", "sts-plus").await.expect("there is a token");
    for (file, content) in
        [("token", token.as_str()), ("ca.crt", site.cluster.ca_pem()), ("namespace", "sts-plus-system")]
    {
        std::fs::write(account.join(file), content).expect("it can be written");
    }
    std::fs::create_dir(root.join("etc")).expect("a folder can be made");
    std::fs::write(root.join("etc/hosts"), "127.0.0.1 prom\n").expect("it can be written");
    std::fs::create_dir(root.join("dev")).expect("a folder can be made");
    for (device, minor) in [("random", "8"), ("urandom", "9")] {
        let device = root.join("dev").join(device);
        let made = Command::new("mknod").args(["-m", "666"]).arg(&device).args(["c", "1", minor]).status();
        assert!(made.expect("mknod runs").success());
    }
    let port = site.cluster.server_url().rsplit(':').next().expect("a port").to_owned();
    let pod = dir.path().join("pod");
    let start = format!(
        "#!/bin/sh\nexec env -i PATH=\"$PATH\" KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT={port} POD_NAMESPACE=sts-plus-system \
         chroot --userspec=65532:65532 {} /sts-plus \"$@\"\n",
        root.display()
    );
    std::fs::write(&pod, start).expect("it can be written");
    std::fs::set_permissions(&pod, std::fs::Permissions::from_mode(0o755)).expect("it can be made a program");
    let args = ["--leader-elect", "--web-address=off"];
    let operator = Operator::start_as(&pod, site.cluster.kubeconfig(), "work", &site.log(), &args);
    // A name of Prometheus is looked up without the libraries that a dynamic program would load for it.
    let mut rollout = objects::rollout("http://prom:9");
    rollout["spec"]["check"]["query"]["timeoutSeconds"] = 1.into();
    site.post(SETS, &objects::set(1)).await;
    site.post(ROLLOUTS, &rollout).await;
    eventually("the set is claimed", async || site.partition("web").await == 1).await;
    site.kubectl(&["-n", "work", "set", "image", "statefulset/web", "app=app:2"]).await;
    let message = ["-n", "work", "get", "phasedrollout", "gate", "-o", "jsonpath={.status.message}"];
    eventually("it has asked", async || site.kubectl(&message).await.contains("cannot connect")).await;
    assert!(operator.stop().await.success());
}

#[tokio::test]
async fn a_cluster_without_anything_of_ours_is_uninstalled_at_once() {
    let site = Site::start().await;
    assert_eq!(site.sts_plus(&["uninstall"]).await, "sts-plus: uninstalled\n", "nothing is waited for");
}
