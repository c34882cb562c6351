//! Running the kubectl of the cluster with a deadline: without one a `kubectl delete` can hang for minutes.

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::Cluster;

const DEADLINE: Duration = Duration::from_mins(1);

impl Cluster {
    /// Where kubectl is.
    #[must_use]
    pub fn kubectl_path(&self) -> std::path::PathBuf {
        self.layout().kubectl()
    }

    /// Runs kubectl as admin and returns what it printed and how it ended.
    ///
    /// # Errors
    /// When it has not ended within a minute; it is killed then.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.kubectl_as(self.kubeconfig(), args, "").await
    }

    /// Runs kubectl as admin, which must succeed, and returns its stdout.
    ///
    /// # Errors
    /// When it fails, with its stderr, or takes longer than a minute.
    pub async fn kubectl_ok(&self, args: &[&str]) -> anyhow::Result<String> {
        success(args, &self.kubectl(args).await?)
    }

    /// `kubectl apply -f -` as admin, which must succeed.
    ///
    /// # Errors
    /// When it fails, with its stderr, or takes longer than a minute.
    pub async fn apply(&self, manifests: &str) -> anyhow::Result<String> {
        let args = ["apply", "-f", "-"];
        success(&args, &self.kubectl_as(self.kubeconfig(), &args, manifests).await?)
    }

    /// Runs kubectl with another kubeconfig and something to read.
    ///
    /// # Errors
    /// When it has not ended within a minute; it is killed then.
    pub async fn kubectl_as(&self, kubeconfig: &Path, args: &[&str], stdin: &str) -> anyhow::Result<Output> {
        let mut child = Command::new(self.kubectl_path())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--cache-dir")
            .arg(self.dir().join("kubectl-cache"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run kubectl")?;
        let pipe = child.stdin.take();
        let whole = async {
            if let Some(mut pipe) = pipe {
                // It may end without reading; how it ended tells more than the broken pipe.
                let _ = pipe.write_all(stdin.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(DEADLINE, whole)
            .await
            .with_context(|| format!("kubectl {}: not within {} s", args.join(" "), DEADLINE.as_secs()))?;
        Ok(output?)
    }
}

fn success(args: &[&str], output: &Output) -> anyhow::Result<String> {
    if !output.status.success() {
        bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
