//! What the tests share: waiting on a condition, and looking for processes that were left behind.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::Value;
use testcluster::{Cluster, Method};

/// How long anything may take that a test waits for: long, since the machine may be busy.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// The command under test.
pub fn testcluster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testcluster"));
    command.args(args);
    command
}

/// Runs the command and returns how it ended.
pub fn run(args: &[&str]) -> Output {
    testcluster(args).output().unwrap()
}

/// The command lines of all live processes that name `dir`; zombies have none.
pub fn processes_of(dir: &Path) -> Vec<String> {
    let needle = dir.display().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .filter(|line| line.contains(&needle) && !line.contains("testcluster up") && !line.contains("testcluster run"))
        .collect()
}

/// Waits until nothing runs for `dir` and it is gone.
pub fn assert_nothing_is_left(dir: &Path) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = processes_of(dir);
        if left.is_empty() && !dir.exists() {
            return;
        }
        assert!(Instant::now() < until, "left behind of {} (folder there: {}): {left:#?}", dir.display(), dir.exists());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `wanted` holds for the object at `path`, and returns it.
pub async fn wait_for(cluster: &Cluster, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = cluster.request(Method::GET, path, None).await;
        if let Ok(object) = &answer
            && wanted(object)
        {
            return object.clone();
        }
        assert!(Instant::now() < until, "{path}: not in time: {what}; last answer: {answer:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the request fails with `status`.
pub async fn wait_for_status(cluster: &Cluster, path: &str, status: u16) {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = cluster.request(Method::GET, path, None).await;
        if answer.as_ref().is_err_and(|error| error.to_string().contains(&status.to_string())) {
            return;
        }
        assert!(Instant::now() < until, "{path}: no {status} in time; last answer: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The status of the condition Ready.
pub fn ready(pod: &Value) -> Option<&str> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?.get("status")?.as_str()
}
