//! A running control plane: who it is, how to talk to it, and how to stop and start its parts. It ends when it is dropped, and with this
//! process in any case.

mod audit;
mod builder;
mod components;
mod health;
mod home;
mod kubectl;
mod layout;
mod shared;
mod start;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use http::Method;
use serde_json::{Value, json};

pub use self::{
    audit::{AuditEntries, AuditEntry, AuditLog},
    builder::Builder,
    components::Component,
    home::State,
    shared::SharedCluster,
};
use self::{
    builder::{Settings, User},
    health::{Probes, Running},
    home::Home,
    layout::Layout,
};
use crate::{
    Minor,
    kubeconfig::{self, Caller, Server},
    process::{Launch, Process},
};

/// How long a component may take to end before it is killed, and to get well again.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const START_PATIENCE: Duration = Duration::from_mins(1);

/// What a successful start hands over.
#[derive(Debug)]
struct Parts {
    running: Running,
    launches: BTreeMap<Component, Launch>,
    probes: Probes,
    server: Server,
}

/// A real control plane with simulated nodes.
#[derive(Debug)]
pub struct Cluster {
    // Dropped first: nothing may write into the folder while it is removed.
    running: Mutex<Running>,
    home: Home,
    launches: BTreeMap<Component, Launch>,
    probes: Probes,
    server: Server,
    settings: Settings,
    users: Vec<User>,
    took: Duration,
    kubeconfig: PathBuf,
    audit_log: AuditLog,
}

impl Cluster {
    /// Describes a cluster: 1.37, no feature gates, three nodes, a temporary folder.
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn assemble(parts: Parts, home: Home, settings: Settings, users: Vec<User>, took: Duration) -> Self {
        let layout = Layout::new(home.dir());
        Self {
            kubeconfig: layout.kubeconfig(),
            audit_log: AuditLog::new(layout.audit_log()),
            running: Mutex::new(parts.running),
            home,
            launches: parts.launches,
            probes: parts.probes,
            server: parts.server,
            settings,
            users,
            took,
        }
    }

    fn layout(&self) -> Layout {
        Layout::new(self.home.dir())
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.home.dir()
    }

    /// The kubeconfig of an admin (user `admin`, group `system:masters`).
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig of another user. One that was declared on the builder comes with a token of its own, and `groups` is not looked at; any other
    /// is the admin who impersonates that user with those groups, which admission and RBAC see as the user, and the audit log too
    /// ([`AuditEntry::user`]).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        let layout = self.layout();
        if self.users.iter().any(|known| known.name == user) {
            return Ok(layout.user(user));
        }
        let path = layout.user(&format!("{user} {}", groups.join(" ")));
        let caller = Caller { token: self.admin_token(), acts_as: Some((user, groups)) };
        kubeconfig::write(&path, &self.server, &caller)?;
        Ok(path)
    }

    /// A kubeconfig of a service account that exists, with a token of one hour.
    ///
    /// # Errors
    /// When the API server gives no token.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token = self.service_account_token(namespace, name).await?;
        let path = self.layout().user(&format!("sa {namespace} {name}"));
        let caller = Caller { token: &token, acts_as: None };
        kubeconfig::write(&path, &self.server, &caller)?;
        Ok(path)
    }

    /// A token of a service account, good for one hour.
    ///
    /// # Errors
    /// When the API server gives none.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600 },
        });
        let answer = self.request(Method::POST, &path, Some(&request)).await?;
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        Ok(token.context("the answer holds no token")?.to_owned())
    }

    /// `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn server_url(&self) -> &str {
        &self.server.url
    }

    /// The certificate authority of the API server, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.server.ca
    }

    /// The bearer token of the admin.
    #[must_use]
    pub fn admin_token(&self) -> &str {
        self.token_of("admin").unwrap_or_default()
    }

    /// The bearer token of a user that was declared on the builder.
    #[must_use]
    pub fn token_of(&self, user: &str) -> Option<&str> {
        let known = self.users.iter().find(|known| known.name == user)?;
        Some(&known.token)
    }

    /// Which minor it is.
    #[must_use]
    pub fn minor(&self) -> Minor {
        self.settings.minor
    }

    /// How long it took from built binaries to ready.
    #[must_use]
    pub fn start_time(&self) -> Duration {
        self.took
    }

    /// The folder with one log file per component and the audit log.
    #[must_use]
    pub fn logs_dir(&self) -> PathBuf {
        self.layout().logs()
    }

    /// Who asked the API server for what.
    #[must_use]
    pub fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }

    /// A request as admin, answered with JSON; for what kubectl would be too slow for.
    ///
    /// # Errors
    /// When there is no answer within ten seconds or its status is not 2xx; the message holds status and body.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        self.probes.api.json(&method, path, body).await
    }

    /// A part of it, to be stopped, started, paused or resumed.
    #[must_use]
    pub fn component(&self, component: Component) -> ComponentHandle<'_> {
        ComponentHandle { cluster: self, component }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everything run on after this process has ended; `down` finds it by the folder.
    ///
    /// # Errors
    /// When a component has ended meanwhile; then all are stopped.
    pub fn detach(self) -> anyhow::Result<PathBuf> {
        self.detach_with(Vec::new())
    }

    /// Like [`Cluster::detach`], together with other processes that belong to the cluster.
    pub(crate) fn detach_with(self, others: Vec<Process>) -> anyhow::Result<PathBuf> {
        let dir = self.home.dir().to_owned();
        let mut state = State::read(&dir)?;
        let running = self.running.into_inner().unwrap_or_else(PoisonError::into_inner);
        for process in running.into_values().chain(others) {
            match process.release() {
                Ok(identity) => state.components.push(identity),
                Err(error) => {
                    state.components.iter().for_each(crate::process::Identity::kill);
                    return Err(error);
                }
            }
        }
        state.write(&dir)?;
        self.home.keep();
        Ok(dir)
    }
}

/// One component of a running cluster.
#[derive(Clone, Copy, Debug)]
pub struct ComponentHandle<'a> {
    cluster: &'a Cluster,
    component: Component,
}

impl ComponentHandle<'_> {
    /// Ends it: SIGTERM, and SIGKILL after five seconds. Does nothing when it does not run.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let process = self.cluster.running().remove(&self.component);
        if let Some(process) = process {
            tokio::task::spawn_blocking(move || process.stop(STOP_PATIENCE)).await?;
        }
        Ok(())
    }

    /// Kills it (SIGKILL).
    pub fn kill(&self) {
        drop(self.cluster.running().remove(&self.component));
    }

    /// Starts it again, on the same port and data, and returns when it is well.
    ///
    /// # Errors
    /// When it runs already, or is not well within a minute.
    pub async fn start(&self) -> anyhow::Result<()> {
        let launch = self.cluster.launches.get(&self.component).context("unknown component")?;
        if self.component == Component::Kwok {
            self.drop_node_leases().await?;
        }
        {
            let mut running = self.cluster.running();
            if running.contains_key(&self.component) {
                bail!("{} runs already", self.component);
            }
            running.insert(self.component, Process::spawn(launch)?);
        }
        self.wait_until_well().await
    }

    /// A new kwok acts on a node only when the lease of the old one has run out; without a lease it acts at once.
    async fn drop_node_leases(&self) -> anyhow::Result<()> {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        self.cluster.request(Method::DELETE, path, None).await?;
        Ok(())
    }

    async fn wait_until_well(&self) -> anyhow::Result<()> {
        let until = Instant::now() + START_PATIENCE;
        loop {
            let answer = self.cluster.probes.check(self.component).await;
            if let Some(process) = self.cluster.running().get_mut(&self.component)
                && let Some(status) = process.exit_status()
            {
                bail!("{} has ended ({status}):\n{}", self.component, process.log_tail());
            }
            match answer {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= until => {
                    return Err(error.context(format!("{} does not get well", self.component)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Freezes it: its connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.with(Process::pause)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.with(Process::resume)
    }

    /// Whether its process is there; a paused one is.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut running = self.cluster.running();
        running.get_mut(&self.component).is_some_and(|process| process.exit_status().is_none())
    }

    fn with(&self, act: impl FnOnce(&mut Process) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut running = self.cluster.running();
        let process = running.get_mut(&self.component).with_context(|| format!("{} does not run", self.component))?;
        act(process)
    }
}
