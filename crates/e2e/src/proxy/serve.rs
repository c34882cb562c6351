//! The two ends of a proxy: a server on loopback whose connections can be cut, and a client that sends on what came.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Anything that ends a connection.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body that may be a stream.
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A whole body.
pub(super) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Answers with `handle` until what is returned is dropped. An error of `handle` resets the connection without an answer.
pub(super) async fn listen<H, F>(handle: H) -> (SocketAddr, JoinSet<()>)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port of loopback is free");
    let address = listener.local_addr().expect("a listener has an address");
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok((socket, _)) = listener.accept().await else { continue };
            // What is closed is reset: nobody takes it for the end of a body.
            let _ = socket.set_zero_linger();
            let _ = socket.set_nodelay(true);
            let service = service_fn(handle.clone());
            connections.spawn(async move {
                let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    (address, server)
}

/// A server to send requests on to.
#[derive(Clone)]
pub(super) struct Upstream {
    base: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Upstream {
    /// A server at `base` (`http(s)://host:port`); its certificate, if it has one, is signed by `ca` (PEM).
    pub(super) fn new(base: &str, ca: Option<&str>) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        if let Some(ca) = ca {
            let ca = CertificateDer::from_pem_slice(ca.as_bytes()).expect("the authority is PEM");
            roots.add(ca).expect("the authority is a certificate");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { base: base.trim_end_matches('/').to_owned(), client }
    }

    /// Sends a request as it came and gives back the answer, whose body may be a stream.
    pub(super) async fn send(
        &self,
        mut parts: http::request::Parts,
        body: Bytes,
    ) -> Result<Response<Incoming>, BoxError> {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        parts.uri = format!("{}{target}", self.base).parse()?;
        parts.headers.remove(header::HOST);
        Ok(self.client.request(Request::from_parts(parts, Full::new(body))).await?)
    }
}

/// The whole answer.
pub(super) async fn collected(answer: Response<Incoming>) -> Result<(http::response::Parts, Bytes), BoxError> {
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(header::TRANSFER_ENCODING);
    Ok((parts, body.collect().await?.to_bytes()))
}
