//! A small HTTP client for loopback: one connection per request, so that it belongs to no runtime and can be used by every test of a process;
//! a deadline on every request. For what the rig itself asks; it is no Kubernetes client.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(10);

/// Sends requests to one server.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    base: String,
    token: Option<String>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl HttpClient {
    /// For a server with a certificate of `ca` (PEM).
    pub(crate) fn tls(base: &str, ca: &str, token: Option<&str>) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        Self::with_roots(base, roots, token)
    }

    /// For a server without a certificate.
    pub(crate) fn plain(base: &str) -> anyhow::Result<Self> {
        Self::with_roots(base, rustls::RootCertStore::empty(), None)
    }

    fn with_roots(base: &str, roots: rustls::RootCertStore, token: Option<&str>) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Otherwise a request waits 40 ms after the handshake: for an acknowledgement that the other end delays.
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { base: base.trim_end_matches('/').to_owned(), token: token.map(str::to_owned), client })
    }

    /// Sends a request as it is and returns status, headers and body.
    pub(crate) async fn send(&self, mut request: Request<Full<Bytes>>) -> anyhow::Result<http::Response<Bytes>> {
        let target = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        *request.uri_mut() = format!("{}{target}", self.base).parse()?;
        let what = format!("{} {}", request.method(), request.uri());
        let answer = async {
            let (parts, body) = self.client.request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(http::Response::from_parts(parts, body))
        };
        tokio::time::timeout(DEADLINE, answer)
            .await
            .with_context(|| format!("{what}: no answer within {} s", DEADLINE.as_secs()))?
            .with_context(|| what)
    }

    /// A GET; the body as text.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, String)> {
        self.call(&Method::GET, path, None).await
    }

    /// A request with an optional JSON body; the body of the answer as text.
    pub(crate) async fn call(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, String)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.base.split_once("://").map_or("localhost", |(_, host)| host))
            .header(header::USER_AGENT, "testcluster")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = body.map_or_else(String::new, Value::to_string);
        let answer = self.send(request.body(Full::new(Bytes::from(body)))?).await?;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        Ok((answer.status(), text))
    }

    /// A request that must be answered with 2xx; the body as JSON.
    pub(crate) async fn json(&self, method: &Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (status, text) = self.call(method, path, body).await?;
        if !status.is_success() {
            bail!("{method} {path}: {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: not JSON"))
    }
}
