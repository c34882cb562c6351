//! A real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler), simulated nodes (kwok) and a real Prometheus on
//! loopback: built once per machine from pinned Go modules, started in seconds, and gone when the process that started them is gone.

mod assets;
mod build;
mod cluster;
pub mod command;
mod http_client;
mod kubeconfig;
mod metrics;
mod minor;
mod pki;
mod ports;
mod process;
pub mod report;
mod stages;

pub use cluster::{
    AuditEntries, AuditEntry, AuditLog, Builder, Cluster, Component, ComponentHandle, SharedCluster, State,
};
pub use http::Method;
pub use metrics::{
    Access, AuthProxy, Authority, Exporter, Identity, Prometheus, PrometheusConfig, SeenRequest, TlsProxy,
};
pub use minor::Minor;
pub use process::{Launch, Process};
