//! Nothing outlives its owner, nothing is started twice, and what goes wrong is said.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use testcluster::{Cluster, SharedCluster};

use crate::CLUSTER;
use crate::common::{PATIENCE, assert_nothing_is_left, processes_of, run, testcluster};

const CHILD_DIR: &str = "TESTCLUSTER_CHILD_DIR";

fn new_dir() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("cluster");
    (parent, dir)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until the API server of `dir` has been started.
fn wait_until_it_starts(dir: &Path) {
    wait_until("the API server is started", || processes_of(dir).iter().any(|line| line.contains("kube-apiserver")));
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The answer to a GET; empty while there is none.
fn get(address: &str, path: &str) -> String {
    let mut answer = String::new();
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    asked.map_or_else(|_| String::new(), |_| answer)
}

#[test]
fn up_leaves_it_running_with_its_prometheus_and_down_removes_all_of_it() {
    let (_parent, dir) = new_dir();
    let name = dir.to_str().unwrap();
    let up = run(&["up", "--prometheus", "--dir", name]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    let (kubeconfig, metrics, exports) = (dir.join("kubeconfig"), dir.join("metrics"), text(&up.stdout));
    assert_eq!(exports.lines().next(), Some(&*format!("export KUBECONFIG={}", kubeconfig.display())));
    assert_eq!(exports.lines().nth(2), Some(&*format!("export METRICS_DIR={}", metrics.display())));
    let prometheus = exports.lines().nth(1).and_then(|line| line.strip_prefix("export PROMETHEUS_URL=http://"));
    fs::write(metrics.join("shop.prom"), "errors{pod=\"web-0\"} 2\n").unwrap();
    wait_until("the file is scraped", || get(prometheus.unwrap(), "/api/v1/query?query=errors").contains("\"2\""));

    let nodes = Command::new(dir.join("bin/kubectl"))
        .args(["--request-timeout=10s", "get", "nodes", "-o", "name"])
        .env("KUBECONFIG", &kubeconfig)
        .output()
        .unwrap();
    assert_eq!(text(&nodes.stdout).lines().count(), 3, "{}", text(&nodes.stderr));
    assert!(run(&["status", "--dir", name]).status.success());

    let again = run(&["up", "--dir", name]);
    assert!(!again.status.success());
    let why = text(&again.stderr);
    assert!(why.contains("a cluster runs in") && why.contains("down --dir"), "{why}");
    assert!(run(&["status", "--dir", name]).status.success(), "the first one is left alone");

    let down = run(&["down", "--dir", name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert_nothing_is_left(&dir);
    assert!(!run(&["down", "--dir", name]).status.success());
}

#[test]
fn an_interrupted_up_leaves_nothing() {
    for signal in ["-INT", "-TERM"] {
        let (_parent, dir) = new_dir();
        let mut up = testcluster(&["up", "--dir", dir.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap();
        wait_until_it_starts(&dir);
        assert!(Command::new("kill").args([signal, &up.id().to_string()]).status().unwrap().success());
        assert!(!up.wait().unwrap().success());
        assert_nothing_is_left(&dir);
    }
}

#[test]
fn an_up_that_fails_leaves_nothing_and_says_why() {
    let (_parent, dir) = new_dir();
    let up = run(&["up", "--dir", dir.to_str().unwrap(), "--feature-gates", "NoSuchGate=true"]);
    assert!(!up.status.success());
    let why = text(&up.stderr);
    assert!(why.contains("kube-apiserver has ended") && why.contains("NoSuchGate"), "{why}");
    assert_nothing_is_left(&dir);
}

#[test]
fn after_sigkill_of_the_owner_nothing_is_left() {
    let (_parent, dir) = new_dir();
    let mut owner = testcluster(&["run", "--dir", dir.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("all of it runs", || {
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
            .iter()
            .all(|name| processes_of(&dir).iter().any(|line| line.contains(name)))
    });
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_nothing_is_left(&dir);
}

static OF_THE_CHILD: SharedCluster = SharedCluster::new(|| Cluster::builder().dir(env::var(CHILD_DIR).unwrap()));

/// Not a test of its own: the process that [`after_a_panic_of_a_test_process_nothing_is_left`] starts.
#[tokio::test]
#[ignore = "started by another test"]
async fn child_that_panics() {
    let cluster = OF_THE_CHILD.get().await.unwrap();
    fs::write(format!("{}.ready", cluster.dir().display()), "").unwrap();
    panic!("on purpose");
}

#[test]
fn after_a_panic_of_a_test_process_nothing_is_left() {
    let (_parent, dir) = new_dir();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "lifetime::child_that_panics", "--ignored"])
        .env(CHILD_DIR, &dir)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(fs::exists(format!("{}.ready", dir.display())).unwrap(), "it had started: {}", text(&output.stdout));
    assert_nothing_is_left(&dir);
}

#[tokio::test]
async fn two_beside_each_other_know_nothing_of_each_other_and_end_with_their_drop() {
    let (one, two) = tokio::join!(Cluster::builder().nodes(1).start(), CLUSTER.get());
    let (one, two) = (one.unwrap(), two.unwrap());
    one.kubectl_ok(&["create", "namespace", "only-here"]).await.unwrap();
    let missing = two.kubectl(&["get", "namespace", "only-here"]).await.unwrap();
    assert!(text(&missing.stderr).contains("NotFound"), "{missing:?}");
    let first = one.dir().to_owned();
    drop(one);
    assert_nothing_is_left(&first);
    assert!(two.kubectl_ok(&["get", "nodes"]).await.unwrap().contains("Ready"));
}

#[test]
fn without_a_go_toolchain_it_says_which_and_how_to_get_it() {
    let cache = tempfile::tempdir().unwrap();
    let output = testcluster(&["build"])
        .env("PATH", "")
        .env("STS_PLUS_CACHE", cache.path())
        .env_remove("KUBE_ASSETS")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let why = text(&output.stderr);
    for part in ["Go toolchain is missing", "needs Go 1.26.0 or newer", "https://go.dev/dl/"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
}
