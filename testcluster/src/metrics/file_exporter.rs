//! A metrics endpoint over a folder: what a shell script writes into `NAME.prom` (Prometheus text format) is what is scraped.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::net::TcpListener;

/// Serves all `*.prom` files of `dir`, one after the other, for as long as it is polled.
///
/// # Errors
/// When it cannot listen.
pub async fn serve_files(listen: SocketAddr, dir: &Path) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let routes = Router::new().route("/metrics", get(metrics)).with_state(Arc::new(dir.to_owned()));
    axum::serve(listener, routes).await.context("the exporter has ended")
}

async fn metrics(State(dir): State<Arc<PathBuf>>) -> Result<String, StatusCode> {
    concatenated(&dir).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn concatenated(dir: &Path) -> anyhow::Result<String> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)?.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "prom"));
    paths.sort();
    let mut text = String::new();
    for path in paths {
        text.push_str(&fs::read_to_string(path)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}
