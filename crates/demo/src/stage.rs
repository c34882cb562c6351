//! What the story needs around it: a control plane (its own or the user's), a Prometheus, the application's metrics endpoint, and the
//! operator. Whatever was started is stopped by [`Stage::clean_up`], or when this program ends in any other way.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};
use testcluster::{AuditEntries, Cluster, Exporter, Process, Prometheus, PrometheusConfig};

use crate::{
    commands::{Commands, NAMESPACE},
    install::{self, Installed},
    tell::{Teller, Tone},
};

/// Everything around the story.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The user's own cluster, if it is to be used.
    own: Option<PathBuf>,
    // Before the rest: an operator that outlives its API server would only complain.
    operator: Mutex<Option<Process>>,
    commands: Option<Commands>,
    installed: Installed,
    has_namespace: bool,
    prometheus: Option<Prometheus>,
    exporter: Option<Exporter>,
    cluster: Option<Cluster>,
    dir: tempfile::TempDir,
}

impl Stage {
    /// Nothing runs yet.
    pub(crate) fn empty(own: Option<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self {
            own,
            operator: Mutex::new(None),
            commands: None,
            installed: Installed::default(),
            has_namespace: false,
            prometheus: None,
            exporter: None,
            cluster: None,
            dir: tempfile::Builder::new().prefix("sts-plus-demo-").tempdir()?,
        })
    }

    /// Starts the control plane, the metrics endpoint and Prometheus.
    pub(crate) async fn set_up(&mut self, tell: &Teller) -> anyhow::Result<()> {
        let exporter = Exporter::start().await?;
        let config = PrometheusConfig::scraping(&[exporter.target()]);
        self.exporter = Some(exporter);
        let dir = self.dir.path().join("prometheus");
        let (cluster, prometheus) = tokio::join!(
            async {
                match &self.own {
                    Some(_) => Ok(None),
                    None => Cluster::builder().start().await.map(Some),
                }
            },
            Prometheus::start(&dir, &config)
        );
        (self.cluster, self.prometheus) = (cluster?, Some(prometheus?));
        let kubectl = self.cluster.as_ref().map(Cluster::kubectl_path);
        let commands = Commands::new(&self.kubeconfig()?, kubectl, self.dir.path().join("kubectl-cache"))?;
        self.commands = Some(commands.clone());
        let version = commands.kubectl(&["get", "--raw", "/version"]).await?;
        let version: serde_json::Value = serde_json::from_str(&version).context("the API server told no version")?;
        let version = version.get("gitVersion").and_then(serde_json::Value::as_str).unwrap_or("?");
        let what = if self.own.is_some() {
            "your cluster"
        } else {
            "etcd, API server, controller-manager, scheduler; nodes by kwok"
        };
        tell.event(Tone::Plain, "cluster", &format!("Kubernetes {version}: {what}"));
        tell.event(Tone::Plain, "metrics", &format!("Prometheus at {}", self.prometheus()?.url()));
        Ok(())
    }

    /// Installs what is missing, makes the namespace, and starts the operator as `make install run` does.
    pub(crate) async fn start_operator(&mut self, tell: &Teller) -> anyhow::Result<()> {
        let commands = self.commands()?.clone();
        install::refuse_a_second_operator(&commands).await?;
        let (installed, all) = Installed::ensure(&commands).await?;
        self.installed = installed;
        let policies = all.iter().filter(|name| name.contains("admissionpolicy.")).count();
        tell.event(
            Tone::Plain,
            "install",
            &format!("the CRD, the operator's account and role, {policies} admission policies"),
        );
        let exists =
            commands.kubectl(&["get", "namespace", NAMESPACE, "--ignore-not-found", "--output", "name"]).await?;
        if !exists.is_empty() {
            bail!("namespace {NAMESPACE} exists already: `kubectl delete namespace {NAMESPACE}`, then try again");
        }
        self.has_namespace = true;
        commands.kubectl(&["create", "namespace", NAMESPACE]).await?;
        *self.lock() = Some(commands.run_operator(&self.log())?);
        tell.event(Tone::Plain, "operator", "sts-plus run, outside the cluster, as its service account");
        Ok(())
    }

    /// The kubeconfig of the cluster.
    pub(crate) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        let rig = || self.cluster.as_ref().map(|cluster| cluster.kubeconfig().to_owned());
        self.own.clone().or_else(rig).context("there is no cluster yet")
    }

    pub(crate) fn commands(&self) -> anyhow::Result<&Commands> {
        self.commands.as_ref().context("there is no cluster yet")
    }

    pub(crate) fn prometheus(&self) -> anyhow::Result<&Prometheus> {
        self.prometheus.as_ref().context("there is no Prometheus yet")
    }

    pub(crate) fn exporter(&self) -> anyhow::Result<&Exporter> {
        self.exporter.as_ref().context("there is no metrics endpoint yet")
    }

    /// True if the nodes are simulated.
    pub(crate) fn is_rig(&self) -> bool {
        self.own.is_none()
    }

    /// What the operator wrote so far, from the API server's audit log; `None` on a cluster of the user's own.
    pub(crate) fn writes_of_the_operator(&self) -> anyhow::Result<Option<AuditEntries>> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let mut entries = cluster.audit_log().entries()?;
        entries.retain(|entry| entry.is_write() && entry.user_agent.starts_with("sts-plus/"));
        Ok(Some(entries))
    }

    /// Fails when the operator has ended by itself.
    pub(crate) fn check_operator(&self) -> anyhow::Result<()> {
        if let Some(status) = self.lock().as_mut().and_then(Process::exit_status) {
            bail!("the operator has ended ({status})");
        }
        Ok(())
    }

    /// The last lines of the operator, for a demo that failed.
    pub(crate) fn tell_log(&self, tell: &Teller) {
        if let Some(process) = self.lock().as_ref() {
            tell.note("The last lines of the operator:");
            tell.line(&process.log_tail());
        }
    }

    /// Stops and removes all of it, in an order in which nothing hangs: the operator is the one who lets go of the StatefulSet.
    pub(crate) async fn clean_up(&mut self, tell: &Teller) -> anyhow::Result<()> {
        if let Some(commands) = self.commands.clone() {
            let operator = self.lock().take();
            if self.has_namespace {
                if operator.is_some() {
                    let args = ["delete", "phasedrollouts", "--all", "--namespace", NAMESPACE, "--timeout=60s"];
                    commands.kubectl(&args).await?;
                }
                if !self.is_rig() {
                    commands.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=120s"]).await?;
                }
                self.has_namespace = false;
            }
            if let Some(process) = operator {
                tokio::task::spawn_blocking(move || process.stop(Duration::from_secs(12))).await?;
            }
            if !self.is_rig() {
                self.installed.remove(&commands).await?;
            }
        }
        (self.prometheus, self.exporter, self.cluster) = (None, None, None);
        tell.event(
            Tone::Plain,
            "clean",
            "the PhasedRollout was released; everything that was started or installed is gone",
        );
        Ok(())
    }

    /// What a clean-up that was cut short has left.
    pub(crate) fn left_over(&self) -> String {
        if self.is_rig() {
            return "the control plane ends with this program".to_owned();
        }
        format!(
            "namespace {NAMESPACE} and what was installed may be left: `kubectl delete namespace {NAMESPACE}`, `make uninstall`"
        )
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("operator.log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.operator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
