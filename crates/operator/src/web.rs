//! What others ask this process over HTTP: whether it is alive, whether it is ready, and its numbers. Nothing here can change
//! anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::{CONTENT_TYPE, Exposed};
use crate::pulse::Pulse;
use crate::watch::Caches;

/// What the answers are made of.
pub struct Web {
    pulse: Arc<Pulse>,
    exposed: Exposed,
    caches: Vec<Arc<Caches>>,
    stopping: AtomicBool,
}

impl Web {
    /// Of the process with these parts.
    #[must_use]
    pub fn new(pulse: Arc<Pulse>, exposed: Exposed, caches: Vec<Arc<Caches>>) -> Self {
        Self { pulse, exposed, caches, stopping: AtomicBool::new(false) }
    }

    /// Not ready any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// Listens, so that an address that cannot be had is told at the start.
///
/// # Errors
///
/// If the address cannot be had.
pub async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| anyhow::anyhow!("--web-address {address}: {error}"))
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, web: Arc<Web>) {
    let router = router(web);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::warn!("the web server has ended: {error}");
    }
}

fn router(web: Arc<Web>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(web)
}

async fn livez(State(web): State<Arc<Web>>) -> (StatusCode, String) {
    let objects = web.caches.iter().any(|caches| !caches.rollouts.is_empty());
    match web.pulse.check(objects) {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(text) => {
            tracing::error!("not alive: {text}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{text}\n"))
        }
    }
}

async fn readyz(State(web): State<Arc<Web>>) -> (StatusCode, &'static str) {
    if web.stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "it is being stopped\n")
    } else if web.caches.iter().all(|caches| caches.are_ready()) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not everything was listed yet\n")
    }
}

async fn metrics(State(web): State<Arc<Web>>) -> impl IntoResponse {
    match web.exposed.text() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, CONTENT_TYPE)], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}
