//! The command lines of the components. Holds every flag that is passed to them and nothing else.

use std::{collections::BTreeMap, ffi::OsString, fmt, path::Path};

use super::{builder::Settings, layout::Layout};
use crate::{assets::Assets, process::Launch};

/// A part of the control plane, or kwok.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// Nodes, pods and volumes.
    Kwok,
}

impl Component {
    /// All of them, in the order in which they are started.
    pub const ALL: [Self; 5] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The name of its binary.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who listens where on loopback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kwok: u16,
}

impl Ports {
    pub(crate) fn choose() -> anyhow::Result<Self> {
        let ports = crate::ports::free(6)?;
        let [etcd, etcd_peer, api_server, controller_manager, scheduler, kwok] = ports.as_slice() else {
            anyhow::bail!("six ports were asked for");
        };
        Ok(Self {
            etcd: *etcd,
            etcd_peer: *etcd_peer,
            api_server: *api_server,
            controller_manager: *controller_manager,
            scheduler: *scheduler,
            kwok: *kwok,
        })
    }
}

/// What the command lines are made from.
pub(crate) struct Plan<'a> {
    pub(crate) assets: &'a Assets,
    pub(crate) layout: &'a Layout,
    pub(crate) settings: &'a Settings,
    pub(crate) ports: Ports,
    /// Makes sure that it is our own etcd that answers.
    pub(crate) etcd_name: &'a str,
}

impl Plan<'_> {
    pub(crate) fn launches(&self) -> BTreeMap<Component, Launch> {
        Component::ALL.into_iter().map(|component| (component, self.launch(component))).collect()
    }

    fn launch(&self, component: Component) -> Launch {
        let (bin, mut args) = match component {
            Component::Etcd => (&self.assets.etcd, self.etcd()),
            Component::ApiServer => (&self.assets.kube, self.api_server()),
            Component::ControllerManager => (&self.assets.kube, self.controller_manager()),
            Component::Scheduler => (&self.assets.kube, self.scheduler()),
            Component::Kwok => (&self.assets.kwok, self.kwok()),
        };
        let extra = self.settings.args.iter().filter(|(of, _)| *of == component);
        args.extend(extra.map(|(_, arg)| OsString::from(arg)));
        Launch {
            name: component.name().to_owned(),
            program: bin.join(component.name()),
            args,
            log: self.layout.logs().join(format!("{component}.log")),
            dir: Some(self.layout.root().to_owned()),
            inherit_env: false,
        }
    }

    fn etcd(&self) -> Vec<OsString> {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        vec![
            flag("--name", self.etcd_name),
            path("--data-dir", &self.layout.data("etcd")),
            flag("--listen-client-urls", &client),
            flag("--advertise-client-urls", &client),
            flag("--listen-peer-urls", &peer),
            flag("--initial-advertise-peer-urls", &peer),
            flag("--initial-cluster", &format!("{}={peer}", self.etcd_name)),
            "--unsafe-no-fsync".into(),
            // In milliseconds: how soon a single member elects itself. Shorter ones would cost more at rest than they save.
            flag("--heartbeat-interval", "50"),
            flag("--election-timeout", "250"),
            flag("--log-level", "warn"),
        ]
    }

    fn api_server(&self) -> Vec<OsString> {
        let pki = |name| self.layout.pki(name);
        let mut args = vec![
            flag("--etcd-servers", &format!("http://127.0.0.1:{}", self.ports.etcd)),
            flag("--bind-address", "127.0.0.1"),
            flag("--advertise-address", "127.0.0.1"),
            flag("--secure-port", &self.ports.api_server.to_string()),
            path("--cert-dir", &self.layout.data("kube-apiserver")),
            path("--tls-cert-file", &pki("server.crt")),
            path("--tls-private-key-file", &pki("server.key")),
            path("--client-ca-file", &pki("ca.crt")),
            path("--token-auth-file", &self.layout.config("tokens.csv")),
            flag("--authorization-mode", "RBAC"),
            flag("--service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            path("--service-account-key-file", &pki("sa.pub")),
            path("--service-account-signing-key-file", &pki("sa.key")),
            flag("--service-cluster-ip-range", "10.0.0.0/24"),
            // Nothing serves endpoints of this cluster, and the loopback address is none that may be published.
            flag("--endpoint-reconciler-type", "none"),
            path("--audit-policy-file", &self.layout.config("audit-policy.json")),
            path("--audit-log-path", &self.layout.audit_log()),
            flag("--audit-log-maxsize", "4096"),
            flag("--max-requests-inflight", "2000"),
            flag("--max-mutating-requests-inflight", "1000"),
        ];
        if !self.settings.runtime_config.is_empty() {
            args.push(flag("--runtime-config", &self.settings.runtime_config.join(",")));
        }
        args.extend(self.feature_gates());
        args
    }

    fn controller_manager(&self) -> Vec<OsString> {
        let mut args = self.client_of_the_api_server(Component::ControllerManager, self.ports.controller_manager);
        args.extend([
            path("--service-account-private-key-file", &self.layout.pki("sa.key")),
            path("--root-ca-file", &self.layout.pki("ca.crt")),
            "--use-service-account-credentials".into(),
            flag("--controllers", "*,-node-ipam-controller"),
            flag("--kube-api-qps", "200"),
            flag("--kube-api-burst", "400"),
        ]);
        args
    }

    fn scheduler(&self) -> Vec<OsString> {
        let mut args = self.client_of_the_api_server(Component::Scheduler, self.ports.scheduler);
        args.extend([flag("--kube-api-qps", "200"), flag("--kube-api-burst", "400")]);
        args
    }

    fn client_of_the_api_server(&self, component: Component, port: u16) -> Vec<OsString> {
        let kubeconfig = self.layout.user(&format!("system:{component}"));
        let mut args = vec![
            path("--kubeconfig", &kubeconfig),
            path("--authentication-kubeconfig", &kubeconfig),
            path("--authorization-kubeconfig", &kubeconfig),
            flag("--bind-address", "127.0.0.1"),
            flag("--secure-port", &port.to_string()),
            path("--tls-cert-file", &self.layout.pki("server.crt")),
            path("--tls-private-key-file", &self.layout.pki("server.key")),
            flag("--leader-elect", "false"),
        ];
        args.extend(self.feature_gates());
        args
    }

    fn kwok(&self) -> Vec<OsString> {
        vec![
            path("--kubeconfig", &self.layout.user("kwok")),
            path("--config", &self.layout.config("stages.yaml")),
            "--manage-all-nodes".into(),
            flag("--node-lease-duration-seconds", "40"),
            flag("--server-address", &format!("127.0.0.1:{}", self.ports.kwok)),
        ]
    }

    fn feature_gates(&self) -> Option<OsString> {
        let gates: Vec<String> = self.settings.feature_gates.iter().map(|(gate, on)| format!("{gate}={on}")).collect();
        (!gates.is_empty()).then(|| flag("--feature-gates", &gates.join(",")))
    }
}

fn flag(name: &str, value: &str) -> OsString {
    OsString::from(format!("{name}={value}"))
}

fn path(name: &str, value: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push("=");
    flag.push(value);
    flag
}
