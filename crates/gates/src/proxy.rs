//! Proxies between us and Prometheus: none, unless whoever runs the operator wants those of the environment. A variable that
//! cannot be used is an error at the start, never a way around the proxy. The user and password of a proxy must not show.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

use crate::resolve::{BoxError, Resolver};

/// The variables that name a proxy; both spellings of each.
const VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// A proxy variable that cannot be used; a sentence without its value, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the variable {variable} names no proxy that can be used: write http://host:port")]
pub struct ProxyError {
    variable: String,
}

/// Which proxy leads to which Prometheus. The default is none to any.
#[derive(Clone, Default)]
pub struct Proxies(Option<Arc<Matcher>>);

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Proxies(of the environment)" } else { "Proxies(none)" })
    }
}

/// One proxy.
#[derive(Clone)]
pub(crate) struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl Proxies {
    /// Those of `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, or the same in lower case.
    ///
    /// # Errors
    /// A variable is set and names no proxy over http.
    pub fn from_environment() -> Result<Self, ProxyError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`Proxies::from_environment`], with `get` in place of the environment.
    ///
    /// # Errors
    /// A variable is set and names no proxy over http.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let value = |name: &str| {
            let spellings = [name.to_owned(), name.to_ascii_lowercase()];
            let set = spellings.into_iter().filter_map(|name| get(&name).map(|value| (name, value.trim().to_owned())));
            set.into_iter().find(|(_, value)| !value.is_empty())
        };
        let mut found = [String::new(), String::new(), String::new()];
        for (name, place) in VARIABLES.into_iter().zip(&mut found) {
            let Some((variable, text)) = value(name) else { continue };
            *place = usable(&text).ok_or(ProxyError { variable })?;
        }
        let [http, https, all] = found;
        let no = value("NO_PROXY").map(|(_, text)| text).unwrap_or_default();
        Ok(Self(Some(Arc::new(Matcher::builder().http(http).https(https).all(all).no(no).build()))))
    }

    /// The proxy on the way to `url`.
    pub(crate) fn to(&self, url: &Url) -> Option<Proxy> {
        let intercepted = self.0.as_ref()?.intercept(&url.as_str().parse().ok()?)?;
        Some(Proxy { uri: intercepted.uri().clone(), authorization: intercepted.basic_auth().cloned() })
    }
}

/// `text` with a scheme, if it is the URL of a proxy over http.
fn usable(text: &str) -> Option<String> {
    let written = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&written).ok()?;
    let is_usable = url.scheme() == "http" && url.has_host() && written.parse::<Uri>().is_ok();
    is_usable.then_some(written)
}

impl Proxy {
    /// For people: scheme, host and port.
    fn shown(&self) -> String {
        format!("http://{}", self.uri.authority().map_or("", |authority| authority.as_str()))
    }

    /// What the proxy wants to see beside a request over plain http.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

/// The proxy is the obstacle; a clause.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} does not lead there: {why}")]
pub(crate) struct ProxyFailed {
    proxy: String,
    why: String,
}

/// Connects directly, or through a proxy: a tunnel for https, and for http a connection on which the proxy is told the whole URL.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) http: HttpConnector<Resolver>,
    pub(crate) proxy: Option<Proxy>,
}

impl Service<Uri> for Route {
    type Response = Hop;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Hop, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.http.call(target);
            return Box::pin(async move { Ok(Hop { io: connecting.await?, told_whole_url: false }) });
        };
        let shown = proxy.shown();
        let failed = move |error: BoxError| ProxyFailed { proxy: shown, why: innermost(&*error) };
        if target.scheme() == Some(&http::uri::Scheme::HTTPS) {
            let tunnel = Tunnel::new(proxy.uri, self.http.clone());
            let mut tunnel = match proxy.authorization {
                Some(authorization) => tunnel.with_auth(authorization),
                None => tunnel,
            };
            let connecting = tunnel.call(target);
            return Box::pin(async move {
                let io = connecting.await.map_err(|e| failed(e.into()))?;
                Ok(Hop { io, told_whole_url: false })
            });
        }
        let connecting = self.http.call(proxy.uri);
        Box::pin(async move {
            let io = connecting.await.map_err(|e| failed(e.into()))?;
            Ok(Hop { io, told_whole_url: true })
        })
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// A connection to Prometheus or to a proxy.
pub(crate) struct Hop {
    io: TokioIo<TcpStream>,
    told_whole_url: bool,
}

impl Connection for Hop {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.told_whole_url)
    }
}

impl Read for Hop {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Hop {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Proxies::from_variables(get)
    }

    #[rstest]
    #[case::none(&[], "http://prom:9090", None)]
    #[case::http(&[("HTTP_PROXY", "http://proxy:3128")], "http://prom:9090", Some("http://proxy:3128"))]
    #[case::http_is_not_for_https(&[("HTTP_PROXY", "http://proxy:3128")], "https://prom", None)]
    #[case::https(&[("https_proxy", "proxy:3128")], "https://prom", Some("http://proxy:3128"))]
    #[case::all(&[("ALL_PROXY", "http://proxy:3128/")], "https://prom", Some("http://proxy:3128"))]
    #[case::own_before_all(&[("ALL_PROXY", "http://a:1"), ("HTTPS_PROXY", "http://b:2")], "https://prom", Some("http://b:2"))]
    #[case::excepted(&[("ALL_PROXY", "http://a:1"), ("NO_PROXY", "10.0.0.0/8, .svc")], "http://prom.monitoring.svc:9090", None)]
    #[case::excepted_address(&[("ALL_PROXY", "http://a:1"), ("no_proxy", "10.0.0.0/8")], "http://10.1.2.3:9090", None)]
    #[case::excepted_v6(&[("ALL_PROXY", "http://a:1"), ("no_proxy", "fd00::/8")], "http://[fd00::1]:9090", None)]
    #[case::everything_excepted(&[("ALL_PROXY", "http://a:1"), ("NO_PROXY", "*")], "http://prom", None)]
    #[case::not_excepted(&[("ALL_PROXY", "http://a:1"), ("NO_PROXY", "rom")], "http://prom", Some("http://a:1"))]
    #[case::empty_is_unset(&[("HTTP_PROXY", ""), ("http_proxy", "http://a:1")], "http://prom", Some("http://a:1"))]
    fn leads(#[case] variables: &[(&str, &str)], #[case] url: &str, #[case] want: Option<&str>) {
        let found = proxies(variables).unwrap().to(&Url::parse(url).unwrap());
        assert_eq!(found.map(|proxy| proxy.shown()).as_deref(), want);
    }

    #[rstest]
    #[case("HTTP_PROXY", "socks5://proxy:1080")]
    #[case("https_proxy", "https://proxy:3128")]
    #[case("ALL_PROXY", "http://")]
    #[case("ALL_PROXY", "http://pro xy")]
    #[case("HTTPS_PROXY", "http://me:canary@proxy:port")]
    fn what_cannot_be_used_is_refused(#[case] variable: &str, #[case] value: &str) {
        let error = proxies(&[(variable, value)]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the variable {variable} names no proxy")), "{error}");
        assert!(!error.contains("canary"));
    }

    #[test]
    fn the_password_of_a_proxy_is_sent_and_not_shown() {
        let found = proxies(&[("HTTP_PROXY", "http://me:canary@proxy:3128")]).unwrap();
        let proxy = found.to(&Url::parse("http://prom").unwrap()).unwrap();
        assert_eq!(proxy.shown(), "http://proxy:3128");
        let authorization = proxy.authorization().unwrap();
        assert!(authorization.is_sensitive());
        assert_eq!(authorization, "Basic bWU6Y2FuYXJ5");
        assert!(!format!("{found:?}").contains("canary"));
    }
}
