//! Metrics for tests: the real Prometheus, an exporter whose values a test sets, and a proxy that demands credentials. The two servers run on a
//! runtime of their own, so that one test of a process can leave them to the next.

mod auth_proxy;
mod exporter;
mod file_exporter;
mod prometheus;
mod tls_proxy;

use std::{net::SocketAddr, sync::OnceLock};

use anyhow::Context as _;
use axum::Router;
use tokio::{net::TcpListener, runtime::Runtime, task::JoinHandle};

pub use self::{
    auth_proxy::{Access, AuthProxy, SeenRequest},
    exporter::Exporter,
    file_exporter::serve_files,
    prometheus::{Prometheus, PrometheusConfig},
    tls_proxy::{Authority, Identity, TlsProxy},
};

static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();

/// A server that ends when it is dropped.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves on a free loopback port.
    async fn start(routes: Router) -> anyhow::Result<Self> {
        Self::spawn(|listener| async move {
            let _ = axum::serve(listener, routes).await;
        })
        .await
    }

    /// Listens on a free loopback port and leaves the listener to `serve`.
    async fn spawn<F: Future<Output = ()> + Send>(
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> anyhow::Result<Self> {
        let build = || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let built = builder.worker_threads(1).thread_name("metrics").enable_all().build();
            built.map_err(|error| error.to_string())
        };
        let runtime = match RUNTIME.get_or_init(build) {
            Ok(runtime) => runtime,
            Err(error) => anyhow::bail!("cannot start a runtime: {error}"),
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let task = runtime.spawn(async move {
            let listener = match TcpListener::bind("127.0.0.1:0").await {
                Ok(listener) => listener,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return;
                }
            };
            let _ = tell.send(listener.local_addr());
            serve(listener).await;
        });
        let address = told.await.context("the server did not start")?.context("cannot listen on loopback")?;
        Ok(Self { address, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
