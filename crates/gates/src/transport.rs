//! The one file that touches the network. One exchange: a POST, or a GET where no POST is taken, its answer read to the end, within one
//! deadline. It must never follow a redirect to another origin, never send credentials there, never use a proxy that nobody wants, never
//! read more than the limit, and never reuse a connection: checks are rare, and a fresh connection is neither dead nor on an address that
//! the Service has left.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AGE, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, PROXY_AUTHORIZATION};
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout_at;
use tower_service::Service;
use url::Url;

use crate::decode::{DecodedReply, MAX_BODY, Reply};
use crate::endpoint::origin;
use crate::listener::Listener;
use crate::places::{Busy, Place, SMALL};
use crate::policy::{Policy, address};
use crate::proxy::{Proxy, ProxyFailed, Route};
use crate::request::QueryRequest;
use crate::resolve::{RefusedAddress, Resolver, Unresolved};
use crate::tls::TlsSettings;

const MAX_REDIRECTS: usize = 3;
/// Beyond so many origins each is found out anew.
const MOST_KNOWN: usize = 1024;

/// A gateway does not take this method, or not from us.
fn is_method_refused(reply: &Reply) -> bool {
    matches!(reply.status, 403 | 405 | 501)
}

/// Why there is no answer; a clause for people, without the endpoint. The text of an answer is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("no complete answer within {} s (timeoutSeconds){}", .timeout.as_secs(), after_waiting(*.waited))]
    TimedOut { timeout: Duration, waited: Duration },
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("the host is {0}, which must not be asked")]
    Refused(&'static str),
    #[error("the host name cannot be resolved: {0}")]
    Resolve(String),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("{0}")]
    Proxy(String),
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("there are no certificates to trust on this system: name a CA in tls.caSecretRef")]
    NoRoots,
    #[error("the connection broke before the answer was complete: {0}")]
    Broken(String),
    #[error("the answer is not HTTP ({0}); the server may want TLS: try https:// in the url")]
    NotHttp(String),
    #[error("the answer is larger than 4 MiB: aggregate in the expression")]
    TooLarge,
    #[error("the answer is a redirect (HTTP {status}) to {target}: give the final address as the url")]
    Redirected { status: u16, target: String },
    #[error("the answer is a redirect (HTTP {0}) that names no usable address")]
    BadRedirect(u16),
    #[error("more than 3 redirects")]
    TooManyRedirects,
    #[error("the request cannot be written: {0}")]
    Request(String),
}

impl TransportError {
    /// There is no answer, and nothing else is known.
    pub(crate) fn timed_out(timeout: Duration) -> Self {
        Self::TimedOut { timeout, waited: Duration::ZERO }
    }
}

/// It is not the fault of Prometheus alone if the time was spent before it was asked.
fn after_waiting(waited: Duration) -> String {
    match waited.as_secs() {
        0 => String::new(),
        seconds => format!(", for {seconds} s of which this operator had too many queries under way"),
    }
}

/// Carries requests.
#[derive(Debug)]
pub(crate) struct Transport {
    policy: Policy,
    system_roots: OnceLock<Arc<RootCertStore>>,
    /// Origins where a GET was answered and a POST was not.
    read_only: Mutex<HashSet<String>>,
    /// URLs of `VictoriaMetrics`.
    victoria: Mutex<HashSet<String>>,
    listener: Listener,
}

type HttpClient = Client<HttpsConnector<Route>, Full<Bytes>>;

impl Transport {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            system_roots: OnceLock::new(),
            read_only: Mutex::default(),
            victoria: Mutex::default(),
            listener: Listener::default(),
        }
    }

    pub(crate) fn set_listener(&mut self, listener: Listener) {
        self.listener = listener;
    }

    /// Sends `request` and reads the answer, including redirects within the origin. Its bytes are gone before the place is.
    pub(crate) async fn exchange(
        &self,
        request: &QueryRequest,
        tls: TlsSettings,
        place: &mut Place<'_>,
    ) -> Result<DecodedReply, TransportError> {
        let (deadline, waited, timeout) = (place.deadline, place.waited, request.timeout());
        let proxy = self.policy.proxies.to(&request.url);
        let client = self.client(request.url.scheme() == "https", tls, proxy.clone())?;
        let begun = Instant::now();
        let exchange = self.for_now(&client, request, proxy.as_ref(), place);
        let result = timeout_at(deadline, exchange).await.unwrap_or(Err(TransportError::TimedOut { timeout, waited }));
        // Who must not be asked was not.
        if !matches!(result, Err(TransportError::Refused(_))) {
            self.listener.tell(&origin(&request.url), begun.elapsed());
        }
        result
    }

    /// An answer about a time before the question is none. It is asked for again, and at once so the next time.
    async fn for_now(
        &self,
        client: &HttpClient,
        request: &QueryRequest,
        proxy: Option<&Proxy>,
        place: &mut Place<'_>,
    ) -> Result<DecodedReply, TransportError> {
        let url = request.url.as_str();
        if !locked(&self.victoria).contains(url) {
            let reply = DecodedReply::of(&self.either_way(client, request, proxy, place).await?);
            if !reply.is_victoria() {
                return Ok(reply);
            }
            note(&self.victoria, url.to_owned());
        }
        Ok(DecodedReply::of(&self.either_way(client, &request.for_now(), proxy, place).await?))
    }

    /// By POST, which takes a query of any length. A gateway that lets nothing be written refuses that, as all clients of Prometheus know: then by
    /// GET, and there at once the next time.
    async fn either_way(
        &self,
        client: &HttpClient,
        request: &QueryRequest,
        proxy: Option<&Proxy>,
        place: &mut Place<'_>,
    ) -> Result<Reply, TransportError> {
        let origin = origin(&request.url);
        let (first, second) = if locked(&self.read_only).contains(&origin) {
            (Method::GET, Method::POST)
        } else {
            (Method::POST, Method::GET)
        };
        let reply = self.follow(client, request, first, proxy, place).await?;
        if !is_method_refused(&reply) {
            return Ok(reply);
        }
        match self.follow(client, request, second.clone(), proxy, place).await {
            Ok(other) if !is_method_refused(&other) => {
                if second == Method::POST {
                    locked(&self.read_only).remove(&origin);
                } else {
                    note(&self.read_only, origin);
                }
                Ok(other)
            }
            _ => Ok(reply),
        }
    }

    async fn follow(
        &self,
        client: &HttpClient,
        request: &QueryRequest,
        method: Method,
        proxy: Option<&Proxy>,
        place: &mut Place<'_>,
    ) -> Result<Reply, TransportError> {
        let mut url = request.url.clone();
        if proxy.is_some() {
            self.check_name(&url).await?;
        }
        for _ in 0..=MAX_REDIRECTS {
            self.check_literal(&url)?;
            let mut written = request.to_http(&method, &url).map_err(|e| TransportError::Request(e.to_string()))?;
            // Inside a tunnel it would be Prometheus that is told.
            if let Some(authorization) = proxy.and_then(Proxy::authorization).filter(|_| url.scheme() == "http") {
                written.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
            }
            let response = client.request(written).await.map_err(|e| explain(&e, e.is_connect()))?;
            match redirect(&url, &response)? {
                Some(next) => url = next,
                None => return read(response, place).await,
            }
        }
        Err(TransportError::TooManyRedirects)
    }

    /// A host that is an address is not resolved, so it is checked here.
    fn check_literal(&self, url: &Url) -> Result<(), TransportError> {
        let refused = address(url).and_then(|address| self.policy.addresses.refuses(address));
        refused.map_or(Ok(()), |what| Err(TransportError::Refused(what)))
    }

    /// A proxy resolves the name by itself. If we can resolve it too, what we find must be allowed; more cannot be known here.
    async fn check_name(&self, url: &Url) -> Result<(), TransportError> {
        let Some(name) = url.domain().and_then(|name| name.parse::<Name>().ok()) else { return Ok(()) };
        match Resolver::system(Some(self.policy.addresses)).call(name).await {
            Err(e) => match e.downcast_ref::<RefusedAddress>() {
                Some(RefusedAddress(what)) => Err(TransportError::Refused(what)),
                None => Ok(()),
            },
            Ok(_) => Ok(()),
        }
    }

    fn client(&self, https: bool, tls: TlsSettings, proxy: Option<Proxy>) -> Result<HttpClient, TransportError> {
        // Where the proxy is, whoever runs the operator has said.
        let addresses = proxy.is_none().then_some(self.policy.addresses);
        let mut http = HttpConnector::new_with_resolver(Resolver::system(addresses));
        http.enforce_http(false);
        http.set_nodelay(true);
        let server_name = tls.server_name().cloned();
        let system =
            if https && tls.needs_system_roots() { self.system_roots()? } else { Arc::new(RootCertStore::empty()) };
        let config = tls.config(&system).map_err(|e| TransportError::Tls(e.to_string()))?;
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let connector = match server_name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let connector = connector.enable_http1().wrap_connector(Route { http, proxy });
        Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
    }

    /// The system's certificates, read once. `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured.
    fn system_roots(&self) -> Result<Arc<RootCertStore>, TransportError> {
        let roots = self.system_roots.get_or_init(|| {
            let is_chosen = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
            Arc::new(trusted(rustls_native_certs::load_native_certs().certs, is_chosen))
        });
        if roots.is_empty() { Err(TransportError::NoRoots) } else { Ok(Arc::clone(roots)) }
    }
}

fn locked(known: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(known: &Mutex<HashSet<String>>, name: String) {
    let mut known = locked(known);
    if known.len() < MOST_KNOWN {
        known.insert(name);
    }
}

/// The roots to trust: those of the system. Where it has none and nobody has chosen any, as in an image that holds the operator alone,
/// those that Mozilla trusts.
fn trusted(system: Vec<CertificateDer<'static>>, is_chosen: bool) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system);
    if roots.is_empty() && !is_chosen {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// The next URL if the answer is a redirect to follow: 307 or 308 within the origin, which keep method and body.
fn redirect(url: &Url, response: &http::Response<Incoming>) -> Result<Option<Url>, TransportError> {
    let status = response.status().as_u16();
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok()).ok_or(TransportError::BadRedirect(status))?;
    let plain = next.username().is_empty() && next.password().is_none();
    if matches!(status, 307 | 308) && plain && origin(&next) == origin(url) {
        return Ok(Some(next));
    }
    let path = if plain && origin(&next) == origin(url) { next.path() } else { "" };
    Err(TransportError::Redirected { status, target: format!("{}{path}", origin(&next)) })
}

/// Reads the answer; stops at the limit. What is no answer is read as far as it can be a sentence of an error.
async fn read(response: http::Response<Incoming>, place: &mut Place<'_>) -> Result<Reply, TransportError> {
    let (mut reply, is_answer) = (head(&response), response.status() == StatusCode::OK);
    let announced = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    if is_answer && announced > MAX_BODY {
        return Err(TransportError::TooLarge);
    }
    let mut incoming = response.into_body();
    let mut body = Vec::with_capacity(announced.min(SMALL));
    let mut limit = SMALL;
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(|e| explain(&e, false))?.into_data() else { continue };
        if body.len() + data.len() > limit {
            if !is_answer {
                return Ok(reply);
            }
            if limit == SMALL {
                place.enlarge().await?;
                limit = MAX_BODY;
                body.reserve_exact(limit - body.len());
            }
        }
        if body.len() + data.len() > MAX_BODY {
            return Err(TransportError::TooLarge);
        }
        body.extend_from_slice(&data);
    }
    reply.body = body.into();
    Ok(reply)
}

/// All but the body.
fn head(response: &http::Response<Incoming>) -> Reply {
    let header =
        |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    Reply {
        status: response.status().as_u16(),
        content_type: header(CONTENT_TYPE),
        content_encoding: header(CONTENT_ENCODING),
        // One that cannot be read is no promise that the answer is new.
        age: header(AGE).map(|age| age.trim().parse().unwrap_or(u64::MAX)),
        body: Bytes::new(),
    }
}

/// Finds the cause that helps a person in a chain of errors.
fn explain(error: &(dyn StdError + 'static), connecting: bool) -> TransportError {
    let mut last = error.to_string();
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(RefusedAddress(what)) = cause.downcast_ref() {
            return TransportError::Refused(what);
        }
        if let Some(Unresolved(why)) = cause.downcast_ref() {
            return TransportError::Resolve(why.clone());
        }
        if let Some(failed) = cause.downcast_ref::<ProxyFailed>() {
            return TransportError::Proxy(failed.to_string());
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return TransportError::Tls(explain_tls(tls));
        }
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return TransportError::NotHttp(cause.to_string());
        }
        last = cause.to_string();
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = inner.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| cause.source());
    }
    if connecting { TransportError::Connect(last) } else { TransportError::Broken(last) }
}

fn explain_tls(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    let hint = match error {
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "; nobody who is trusted has signed it: name its CA in tls.caSecretRef"
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "; it is for another name: correct the url or set tls.serverName"
        }
        rustls::Error::AlertReceived(_) => "; the server may want a client certificate, tls.certSecretRef",
        rustls::Error::InvalidMessage(_) => "; the server may not speak TLS: try http:// in the url",
        _ => "",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_roots_of_the_system_those_of_mozilla_are_trusted_unless_somebody_has_chosen() {
        let own = rcgen::generate_simple_self_signed(["prom".to_owned()]).unwrap().cert.der().clone();
        assert_eq!(trusted(vec![own], false).len(), 1);
        assert!(trusted(Vec::new(), false).len() > 50);
        assert!(trusted(Vec::new(), true).is_empty());
    }
}
