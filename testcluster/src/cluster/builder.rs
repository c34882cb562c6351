//! What a cluster can be asked to be.

use std::{collections::BTreeMap, path::PathBuf};

use super::{Cluster, components::Component, start};
use crate::Minor;

/// A user that the API server knows by a token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) token: String,
}

/// The choices of a [`Builder`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) minor: Minor,
    pub(crate) feature_gates: BTreeMap<String, bool>,
    pub(crate) runtime_config: Vec<String>,
    pub(crate) nodes: usize,
    pub(crate) users: Vec<(String, Vec<String>)>,
    pub(crate) args: Vec<(Component, String)>,
    pub(crate) dir: Option<PathBuf>,
}

/// Describes a cluster and starts it.
#[derive(Clone, Debug)]
#[must_use = "nothing runs before start()"]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { settings: Settings { nodes: 3, ..Settings::default() } }
    }

    /// Which minor of Kubernetes; 1.37 without it.
    pub fn kubernetes(mut self, minor: Minor) -> Self {
        self.settings.minor = minor;
        self
    }

    /// A feature gate of API server, controller-manager and scheduler.
    pub fn feature_gate(mut self, name: &str, on: bool) -> Self {
        self.settings.feature_gates.insert(name.to_owned(), on);
        self
    }

    /// An entry of `--runtime-config`, such as `resource.k8s.io/v1alpha3=true`.
    pub fn runtime_config(mut self, entry: &str) -> Self {
        self.settings.runtime_config.push(entry.to_owned());
        self
    }

    /// How many nodes there are, 3 without it. They are called `node-0`, … and lie in `zone-a`, `zone-b` and `zone-c` in turn.
    pub fn nodes(mut self, count: usize) -> Self {
        self.settings.nodes = count;
        self
    }

    /// A user with a token of its own; [`Cluster::kubeconfig_for`] then finds it by name.
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.settings.users.push((name.to_owned(), groups));
        self
    }

    /// One more flag of a component, in the form `--name=value`.
    pub fn arg(mut self, component: Component, flag: &str) -> Self {
        self.settings.args.push((component, flag.to_owned()));
        self
    }

    /// The folder for data and logs, which must be empty or absent; a temporary one without it. It is removed at the end in either case.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.dir = Some(dir.into());
        self
    }

    /// Builds what is missing, starts everything and returns when it is ready.
    ///
    /// # Errors
    /// When something cannot be built or does not get ready; the message holds the last lines of its log. Nothing is left running.
    pub async fn start(self) -> anyhow::Result<Cluster> {
        start::start(self.settings).await
    }
}
