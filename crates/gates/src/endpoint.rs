//! The URL of a Prometheus as people write it. It must never accept a URL whose host is not the one that a person reads in it,
//! and never keep credentials.

use std::fmt;

use url::{Host, Url};

const API: &str = "/api/v1/query";

/// Where a Prometheus is: scheme, host, port and path, without `/api/v1/query`, without credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its path ends without a slash unless it is `/`.
    base: Url,
    query: Url,
}

/// Why a URL is refused; a sentence without the field name in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing is there.
    #[error("is empty: write host:port, for example prometheus:9090")]
    Empty,
    /// Another scheme than http and https, or a malformed one.
    #[error(
        "has a scheme other than http and https: write http://host:port/path, https://host:port/path, or host:port/path"
    )]
    Scheme,
    /// `user@` or `user:password@`.
    #[error("contains credentials: put them into a Secret and name it in secretRef")]
    Credentials,
    /// No host.
    #[error("has no host: write host:port/path, for example prometheus:9090")]
    NoHost,
    /// `?…`.
    #[error("has a query string: leave it out, the expression goes into expr")]
    QueryString,
    /// `#…`.
    #[error("has a fragment: leave out the # and what follows")]
    Fragment,
    /// A space, a control character or a backslash.
    #[error("contains a space, a control character or a backslash: leave it out")]
    Character,
    /// The host is another one than a person reads: `010.0.0.1` is `8.0.0.1`, `%70rom` is `prom`.
    #[error(
        "has a host that is not what it looks like: write it in letters of ASCII, an IPv4 address as four numbers without leading zeros"
    )]
    Disguised,
    /// The host or the port cannot be used.
    #[error("cannot be used: {0}")]
    Invalid(String),
}

impl Endpoint {
    /// Reads what a user wrote: `prom:9000/xx`, `http://…`, `https://…`, `[::1]:9090`. White space at the ends, a slash at the
    /// end, and `/api/v1/query` are left out.
    ///
    /// # Errors
    /// See [`EndpointError`]; none of them repeats what was written, which may hold a password.
    pub fn parse(written: &str) -> Result<Self, EndpointError> {
        let written = written.trim();
        if written.is_empty() {
            return Err(EndpointError::Empty);
        }
        if written.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
            return Err(EndpointError::Character);
        }
        let (scheme, rest) = split_scheme(written)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(EndpointError::Credentials);
        }
        if authority.is_empty() || authority.starts_with(':') {
            return Err(EndpointError::NoHost);
        }
        if rest.contains('#') {
            return Err(EndpointError::Fragment);
        }
        if rest.contains('?') {
            return Err(EndpointError::QueryString);
        }
        if authority.ends_with(':') {
            return Err(EndpointError::Invalid("no port after the colon".to_owned()));
        }
        let invalid = |e: url::ParseError| EndpointError::Invalid(e.to_string());
        let mut base = Url::parse(&format!("{scheme}://{rest}")).map_err(invalid)?;
        if base.port() == Some(0) {
            return Err(EndpointError::Invalid("port 0".to_owned()));
        }
        if !is_as_written(&base, authority) {
            return Err(EndpointError::Disguised);
        }
        let path = base.path().trim_end_matches('/');
        let path = path.strip_suffix(API).unwrap_or(path).trim_end_matches('/').to_owned();
        base.set_path(&path);
        let mut query = base.clone();
        query.set_path(&format!("{path}{API}"));
        query.as_str().parse::<http::Uri>().map_err(|e| EndpointError::Invalid(e.to_string()))?;
        Ok(Self { base, query })
    }

    /// The URL to which queries are posted.
    #[must_use]
    pub fn query_url(&self) -> &Url {
        &self.query
    }

    /// Scheme, host and port.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin(origin(&self.base))
    }

    /// True for https.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.base.scheme() == "https"
    }
}

/// Scheme, host and port, the port also if it is the default one: `http://prom:9090`, `https://prom.example.com:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// Why a text is no origin; a sentence without the text in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It is no URL that could be asked.
    #[error(transparent)]
    Url(#[from] EndpointError),
    /// `http://host/path`.
    #[error("has a path: write only scheme, host and port, for example https://prometheus.example.com")]
    Path,
    /// `https://*.example.com`.
    #[error("has a *: there are no patterns here, write each origin by itself")]
    Pattern,
}

impl Origin {
    /// Reads `http://host:port` or `https://host:port`; no scheme means http, as in a URL of a query.
    ///
    /// # Errors
    /// It is no URL, or has more than scheme, host and port.
    pub fn parse(written: &str) -> Result<Self, OriginError> {
        let endpoint = Endpoint::parse(written)?;
        if written.contains('*') {
            return Err(OriginError::Pattern);
        }
        let rest = written.split_once("://").map_or(written, |(_, rest)| rest).trim();
        if rest.trim_end_matches('/').contains('/') {
            return Err(OriginError::Path);
        }
        Ok(endpoint.origin())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True if the host of `url` is what stands in `authority`. A URL parser also decodes `%70`, maps letters that look alike, and takes
/// numbers of all kinds for an IPv4 address.
fn is_as_written(url: &Url, authority: &str) -> bool {
    let written = authority.split(':').next().unwrap_or_default();
    match url.host() {
        Some(Host::Domain(host)) => host == written.to_ascii_lowercase(),
        Some(Host::Ipv4(address)) => address.to_string() == written,
        Some(Host::Ipv6(_)) => true,
        None => false,
    }
}

fn split_scheme(written: &str) -> Result<(&'static str, &str), EndpointError> {
    let lower = written.to_ascii_lowercase();
    match written.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => Ok(("http", rest)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => Ok(("https", rest)),
        Some(_) => Err(EndpointError::Scheme),
        // `http:/host` and `https:host` would otherwise be a host called http.
        None if lower.starts_with("http:/") || lower.starts_with("https:/") => Err(EndpointError::Scheme),
        None => Ok(("http", written)),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", origin(&self.base))?;
        match self.base.path() {
            "/" => Ok(()),
            path => f.write_str(path),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Scheme, host and port of `url`, the port also if it is the default one. Nothing else of it, so that no credentials show.
pub(crate) fn origin(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("prom:9000/xx", "http://prom:9000/xx")]
    #[case("prom", "http://prom:80")]
    #[case("http://prom:9090", "http://prom:9090")]
    #[case("http://prom:9090/", "http://prom:9090")]
    #[case("HTTPS://Prom.Example.COM/a/b/", "https://prom.example.com:443/a/b")]
    #[case("[::1]:9090", "http://[::1]:9090")]
    #[case("http://[fd00::1]/x", "http://[fd00::1]:80/x")]
    #[case("10.0.0.1:9090", "http://10.0.0.1:9090")]
    #[case("prom:9090/api/v1/query", "http://prom:9090")]
    #[case("prom:9090/api/v1/query/", "http://prom:9090")]
    #[case("https://prom/x/api/v1/query", "https://prom:443/x")]
    #[case(" prom:9090\n", "http://prom:9090")]
    #[case("localhost:9090", "http://localhost:9090")]
    #[case(
        "prom.monitoring.svc.cluster.local:9090/select/0/prometheus",
        "http://prom.monitoring.svc.cluster.local:9090/select/0/prometheus"
    )]
    #[case("xn--bcher-kva.example", "http://xn--bcher-kva.example:80")]
    #[case("http-proxy:9090", "http://http-proxy:9090")]
    #[case("http:9090", "http://http:9090")]
    fn accepts(#[case] written: &str, #[case] shown: &str) {
        let endpoint = Endpoint::parse(written).unwrap();
        assert_eq!(endpoint.to_string(), shown);
        assert!(endpoint.query_url().path().ends_with("/api/v1/query"));
        assert_eq!(endpoint.query_url().path().matches("query").count(), 1);
    }

    #[rstest]
    #[case("", EndpointError::Empty)]
    #[case("  ", EndpointError::Empty)]
    #[case("ftp://prom", EndpointError::Scheme)]
    #[case("file:///etc/passwd", EndpointError::Scheme)]
    #[case("://prom", EndpointError::Scheme)]
    #[case("http:/prom:9090", EndpointError::Scheme)]
    #[case("https:/prom", EndpointError::Scheme)]
    #[case("user@prom:9090", EndpointError::Credentials)]
    #[case("http://user:pass@prom", EndpointError::Credentials)]
    #[case("http://@prom", EndpointError::Credentials)]
    #[case("http://", EndpointError::NoHost)]
    #[case("http:///prom", EndpointError::NoHost)]
    #[case("/prom", EndpointError::NoHost)]
    #[case("//prom/x", EndpointError::NoHost)]
    #[case(":9090", EndpointError::NoHost)]
    #[case("http://:9090", EndpointError::NoHost)]
    #[case("prom:9090/?a=b", EndpointError::QueryString)]
    #[case("prom?a=b", EndpointError::QueryString)]
    #[case("prom/#x", EndpointError::Fragment)]
    #[case("prom :9090", EndpointError::Character)]
    #[case("prom\t:9090", EndpointError::Character)]
    #[case("http:\\\\prom", EndpointError::Character)]
    #[case("prom\\x", EndpointError::Character)]
    #[case("010.0.0.1:9090", EndpointError::Disguised)]
    #[case("0x7f.1", EndpointError::Disguised)]
    #[case("http://2130706433/x", EndpointError::Disguised)]
    #[case("10.0.0.1.", EndpointError::Disguised)]
    #[case("%70rom", EndpointError::Disguised)]
    #[case("\u{ff50}rom", EndpointError::Disguised)]
    #[case("b\u{fc}cher.example", EndpointError::Disguised)]
    fn refuses(#[case] written: &str, #[case] want: EndpointError) {
        assert_eq!(Endpoint::parse(written), Err(want));
    }

    #[rstest]
    #[case("prom:notaport")]
    #[case("prom:99999")]
    #[case("prom:0")]
    #[case("prom:")]
    #[case("[::1")]
    #[case("http://exa%mple")]
    #[case("1.2.3.4.5:9090")]
    #[case("mailto:me")]
    fn refuses_hosts_and_ports(#[case] written: &str) {
        assert!(matches!(Endpoint::parse(written), Err(EndpointError::Invalid(_))));
    }

    #[rstest]
    #[case("http://prom:9090", Ok("http://prom:9090"))]
    #[case("https://Prom.example.com/", Ok("https://prom.example.com:443"))]
    #[case(" prom:9090 ", Ok("http://prom:9090"))]
    #[case("[fd00::1]:9090", Ok("http://[fd00::1]:9090"))]
    #[case("http://prom/x", Err("has a path"))]
    #[case("http://prom/api/v1/query", Err("has a path"))]
    #[case("ftp://prom", Err("has a scheme other than"))]
    #[case("https://*.example.com", Err("has a *"))]
    #[case("*", Err("has a *"))]
    #[case("https://me:secret@prom", Err("contains credentials"))]
    #[case("", Err("is empty"))]
    fn origins(#[case] written: &str, #[case] want: Result<&str, &str>) {
        match (Origin::parse(written), want) {
            (Ok(origin), Ok(want)) => assert_eq!(origin.to_string(), want),
            (Err(e), Err(want)) => {
                assert!(e.to_string().starts_with(want) && !e.to_string().contains("secret@"), "{e}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    proptest! {
        #[test]
        fn never_panics(written in any::<String>()) {
            let _ = Endpoint::parse(&written);
        }

        #[test]
        fn what_is_accepted_is_shown_as_it_is_used(written in r"(https?://)?[a-z\[\]:.@/?#%0-9\\]{0,24}") {
            if let Ok(endpoint) = Endpoint::parse(&written) {
                prop_assert_eq!(endpoint.query_url().username(), "");
                prop_assert_eq!(endpoint.query_url().query(), None);
                prop_assert!(endpoint.query_url().has_host());
                let again = Endpoint::parse(&endpoint.to_string()).unwrap();
                prop_assert_eq!(&again, &endpoint);
            }
        }
    }
}
