//! Asking the components how they are, and waiting until they are well.

use std::{
    collections::BTreeMap,
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::components::{Component, Ports};
use crate::{http_client::HttpClient, kubeconfig::Server, ports, process::Process};

const PAUSE: Duration = Duration::from_millis(25);

/// The components that run.
pub(crate) type Running = BTreeMap<Component, Process>;

/// How to ask each component.
#[derive(Clone, Debug)]
pub(crate) struct Probes {
    pub(crate) api: HttpClient,
    etcd: HttpClient,
    etcd_name: String,
    controller_manager: HttpClient,
    scheduler: HttpClient,
    kwok: HttpClient,
}

impl Probes {
    pub(crate) fn new(server: &Server, ports: Ports, etcd_name: &str, admin_token: &str) -> anyhow::Result<Self> {
        let secure = |port: u16| HttpClient::tls(&format!("https://127.0.0.1:{port}"), &server.ca, None);
        let plain = |port: u16| HttpClient::plain(&format!("http://127.0.0.1:{port}"));
        Ok(Self {
            api: HttpClient::tls(&server.url, &server.ca, Some(admin_token))?,
            etcd: plain(ports.etcd)?,
            etcd_name: etcd_name.to_owned(),
            controller_manager: secure(ports.controller_manager)?,
            scheduler: secure(ports.scheduler)?,
            kwok: plain(ports.kwok)?,
        })
    }

    /// Fails with the reason while the component is not well.
    pub(crate) async fn check(&self, component: Component) -> anyhow::Result<()> {
        let answer = match component {
            Component::Etcd => {
                let members = self.etcd.json(&Method::POST, "/v3/cluster/member/list", Some(&json!({}))).await?;
                if !members.to_string().contains(&self.etcd_name) {
                    bail!("another etcd answers");
                }
                return Ok(());
            }
            Component::ApiServer => self.api.get("/readyz").await?,
            Component::ControllerManager => self.controller_manager.get("/healthz").await?,
            Component::Scheduler => self.scheduler.get("/healthz").await?,
            Component::Kwok => self.kwok.get("/healthz").await?,
        };
        success(&answer)
    }

    /// Fails with the reason while the API server answers nobody; it may still be short of being ready.
    pub(crate) async fn check_serving(&self) -> anyhow::Result<()> {
        success(&self.api.get("/livez/ping").await?)
    }

    /// Creates an object, unless there is one with its name.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> anyhow::Result<()> {
        let (status, text) = self.api.call(&Method::POST, path, Some(object)).await?;
        if !status.is_success() && status != StatusCode::CONFLICT {
            bail!("{path}: {status}: {text}");
        }
        Ok(())
    }

    /// Fails with the reason while there is no default service account or a node is not Ready.
    pub(crate) async fn check_content(&self, nodes: usize) -> anyhow::Result<()> {
        self.api.json(&Method::GET, "/api/v1/namespaces/default/serviceaccounts/default", None).await?;
        let list = self.api.json(&Method::GET, "/api/v1/nodes", None).await?;
        let items = list.get("items").and_then(Value::as_array).context("no list of nodes")?;
        let usable = items.iter().filter(|node| is_usable(node)).count();
        if usable < nodes {
            bail!("{usable} of {nodes} nodes are Ready");
        }
        Ok(())
    }
}

fn success((status, text): &(StatusCode, String)) -> anyhow::Result<()> {
    if !status.is_success() {
        bail!("{status}: {text}");
    }
    Ok(())
}

/// Ready, and nothing keeps pods away.
fn is_usable(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    });
    ready && node.pointer("/spec/taints").is_none()
}

/// Why a start did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else has taken a port meanwhile: worth another try.
    PortTaken,
    /// Everything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Repeats `check` until it succeeds, for as long as all components run.
pub(crate) async fn wait<F>(
    what: &str,
    patience: Duration,
    running: &mut Running,
    check: impl Fn() -> F,
) -> Result<(), Failure>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let until = Instant::now() + patience;
    loop {
        let answer = check().await;
        // After the answer: a component that could not bind ends at once, and then somebody else has answered.
        look_for_the_dead(running)?;
        let Err(error) = answer else {
            return Ok(());
        };
        if Instant::now() >= until {
            let logs: Vec<String> =
                running.values().map(|process| format!("--- {}\n{}", process.name(), process.log_tail())).collect();
            let why = format!("{what}: not within {} s: {error:#}\n{}", patience.as_secs(), logs.join("\n"));
            return Err(Failure::Other(anyhow::anyhow!(why)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn look_for_the_dead(running: &mut Running) -> Result<(), Failure> {
    for process in running.values_mut() {
        let Some(status) = process.exit_status() else {
            continue;
        };
        let log = process.log_tail();
        if ports::was_taken(&log) {
            return Err(Failure::PortTaken);
        }
        let why = format!("{} has ended ({status}):\n{log}", process.name());
        return Err(Failure::Other(anyhow::anyhow!(why)));
    }
    Ok(())
}
