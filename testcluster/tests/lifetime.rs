//! Nothing outlives its owner, nothing is started twice, and what goes wrong is said.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{assert_nothing_is_left, processes_of, run, testcluster};
use testcluster::{Cluster, SharedCluster};

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
    let until = Instant::now() + Duration::from_mins(1);
    while !done() {
        assert!(Instant::now() < until, "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn up_leaves_it_running_and_down_removes_it() {
    let (_parent, dir) = new_dir();
    let name = dir.to_str().unwrap();
    let since = Instant::now();
    let up = run(&["up", "--dir", name]);
    println!("up took {:.1?}: {}", since.elapsed(), text(&up.stderr));
    assert!(up.status.success(), "{}", text(&up.stderr));
    let kubeconfig = dir.join("kubeconfig");
    assert_eq!(text(&up.stdout).trim(), format!("export KUBECONFIG={}", kubeconfig.display()));

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
        .args(["--exact", "child_that_panics", "--ignored"])
        .env(CHILD_DIR, &dir)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(fs::exists(format!("{}.ready", dir.display())).unwrap(), "it had started: {}", text(&output.stdout));
    assert_nothing_is_left(&dir);
}

#[tokio::test]
async fn two_beside_each_other_know_nothing_of_each_other_and_end_with_their_drop() {
    let start = || Cluster::builder().nodes(1).start();
    let (one, two) = tokio::join!(start(), start());
    let (one, two) = (one.unwrap(), two.unwrap());
    one.kubectl_ok(&["create", "namespace", "only-here"]).await.unwrap();
    let missing = two.kubectl(&["get", "namespace", "only-here"]).await.unwrap();
    assert!(text(&missing.stderr).contains("NotFound"), "{missing:?}");
    let (first, second) = (one.dir().to_owned(), two.dir().to_owned());
    drop(one);
    assert_nothing_is_left(&first);
    assert!(two.kubectl_ok(&["get", "nodes"]).await.unwrap().contains("Ready"));
    drop(two);
    assert_nothing_is_left(&second);
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
