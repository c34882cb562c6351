//! The real Prometheus behind a forward proxy, which alone can resolve its name.

use std::sync::{Arc, Mutex};

use rstest::rstest;
use sts_plus_api::{Query, Reason, Tls};
use sts_plus_gates::{AddressPolicy, Answer, Freshness, Origin, Policy, Proxies, Secrets};
use testcluster::{Authority, TlsProxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::credentials::CANARY;
use crate::{Data, Error, Fail, Pass, Problem, Want, ask_by, assertion, judge, prober, query, rig, secret};

/// A name that nobody but the proxy knows.
const NAME: &str = "prom.internal.invalid";

/// A proxy for http and https. Every name leads to loopback.
struct Forward {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Forward {
    /// With `authorization`, requests without that Proxy-Authorization are refused.
    async fn start(authorization: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, Arc::clone(&log), authorization));
            }
        });
        Self { port, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn carry(mut client: TcpStream, log: Arc<Mutex<Vec<String>>>, authorization: Option<&str>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = client.read(&mut buffer).await.unwrap_or(0);
        if n == 0 {
            return;
        }
        bytes.extend_from_slice(&buffer[..n]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (line, rest) = text.split_once("\r\n").unwrap();
    log.lock().unwrap().push(text.clone());
    let allowed = authorization.is_none_or(|wanted| {
        let lines = rest.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().any(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization") && value == wanted)
    });
    if !allowed {
        let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await;
        return;
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let url = if method == "CONNECT" { format!("http://{target}") } else { target.to_owned() };
    let url = url::Url::parse(&url).unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", url.port_or_known_default().unwrap())).await.unwrap();
    if method == "CONNECT" {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    } else {
        server.write_all(format!("{method} {} HTTP/1.1\r\n{rest}", url.path()).as_bytes()).await.unwrap();
    }
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

fn through(variables: &[(&str, String)]) -> Policy {
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    let addresses = AddressPolicy { allow_loopback: true };
    Policy { addresses, proxies: Proxies::from_variables(get).unwrap(), ..Policy::default() }
}

async fn ask(policy: Policy, url: &str, tls: Option<Tls>, secrets: &Secrets) -> Answer {
    let secret_ref = secrets.credentials.as_ref().map(|secret| secret.name.clone());
    let asked = Query { tls, secret_ref, ..assertion(query("probe", url)) };
    ask_by(&prober(policy), asked, secrets, Freshness::now()).await
}

async fn port() -> String {
    rig::main().await.url().rsplit(':').next().unwrap().to_owned()
}

#[tokio::test]
async fn http_tells_the_proxy_the_whole_url() {
    let proxy = Forward::start(None).await;
    let url = format!("http://{NAME}:{}", port().await);
    let policy = through(&[("HTTP_PROXY", format!("http://127.0.0.1:{}", proxy.port))]);
    judge(&ask(policy, &url, None, &Secrets::default()).await, Pass(Data), "passed");
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with(&format!("POST {url}/api/v1/query HTTP/1.1\r\n")), "{}", heads[0]);
}

/// The proxy sees a name and bytes; what is in them, credentials too, is between Prometheus and us.
#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let (proxy, own) = (Forward::start(None).await, Authority::new().unwrap());
    let server = TlsProxy::start(rig::main().await.url(), &own.sign(NAME).unwrap(), None).await.unwrap();
    let policy = through(&[("https_proxy", format!("127.0.0.1:{}", proxy.port))]);
    let secrets = Secrets {
        ca: Some(secret("ca", &[("ca.crt", own.pem())])),
        credentials: Some(secret("prom-secret", &[("token", CANARY)])),
        ..Secrets::default()
    };
    let tls = Tls { ca_secret_ref: Some("ca".into()), ..Tls::default() };
    let url = format!("https://{NAME}:{}", server.port());
    judge(&ask(policy, &url, Some(tls), &secrets).await, Pass(Data), "passed");
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].starts_with(&format!("CONNECT {NAME}:{} HTTP/1.1\r\n", server.port())), "{}", heads[0]);
    assert!(!heads[0].contains(CANARY));
}

/// Nobody is asked through a proxy that is excepted, or that nobody wants.
#[rstest]
#[case::excepted(Some("127.0.0.0/8"))]
#[case::not_wanted(None)]
#[tokio::test]
async fn directly(#[case] no_proxy: Option<&str>) {
    let proxy = Forward::start(None).await;
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let policy = match no_proxy {
        Some(no_proxy) => through(&[("ALL_PROXY", address), ("NO_PROXY", no_proxy.to_owned())]),
        None => AddressPolicy { allow_loopback: true }.into(),
    };
    judge(&ask(policy, rig::main().await.url(), None, &Secrets::default()).await, Pass(Data), "passed");
    assert!(proxy.heads().is_empty());
}

#[rstest]
#[case::right("http", "me:canary-7f3a9c1d5e@", Pass(Data), "passed")]
#[case::missing("http", "", Fail(Error), "HTTP 407")]
#[case::wrong("http", "me:canary-7f3a9c1d5f@", Fail(Error), "HTTP 407")]
#[case::missing_for_a_tunnel(
    "https",
    "",
    Fail(Error),
    "does not lead there: tunnel error: proxy authorization required"
)]
#[tokio::test]
async fn a_proxy_with_a_password(#[case] scheme: &str, #[case] user: &str, #[case] want: Want, #[case] words: &str) {
    let proxy = Forward::start(Some("Basic bWU6Y2FuYXJ5LTdmM2E5YzFkNWU=")).await;
    let policy = through(&[("ALL_PROXY", format!("http://{user}127.0.0.1:{}", proxy.port))]);
    let url = format!("{scheme}://{NAME}:{}", port().await);
    let answer = ask(policy, &url, None, &Secrets::default()).await;
    judge(&answer, want, words);
    assert_eq!(proxy.heads().len(), 1);
}

#[rstest]
#[case("http")]
#[case("https")]
#[tokio::test]
async fn a_proxy_that_is_down(#[case] scheme: &str) {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let policy = through(&[("ALL_PROXY", format!("http://{gone}"))]);
    let answer = ask(policy, &format!("{scheme}://{NAME}"), None, &Secrets::default()).await;
    judge(&answer, Fail(Error), &format!("the proxy http://{gone} does not lead there: Connection refused"));
}

/// A proxy is no way around the addresses that must not be asked.
#[rstest]
#[case::metadata("http://169.254.169.254/latest")]
#[case::metadata_in_version_6("http://[::ffff:a9fe:a9fe]")]
#[case::tunnel("https://[fd00:ec2::254]")]
#[case::name_of_loopback("http://localhost:9090")]
#[tokio::test]
async fn addresses_that_must_not_be_asked(#[case] url: &str) {
    let proxy = Forward::start(None).await;
    let policy = through(&[("ALL_PROXY", format!("http://127.0.0.1:{}", proxy.port))]);
    let policy = Policy { addresses: AddressPolicy::default(), ..policy };
    let answer = ask(policy, url, None, &Secrets::default()).await;
    judge(&answer, Problem(Reason::InvalidUrl), "which this operator does not ask");
    assert!(proxy.heads().is_empty());
}

/// Nor is it one around the list of origins, in which it needs no place itself.
#[rstest]
#[case::plain("http")]
#[case::tunnel("https")]
#[tokio::test]
async fn origins_that_are_not_in_the_list(#[case] scheme: &str) {
    let proxy = Forward::start(None).await;
    let policy = through(&[("ALL_PROXY", format!("http://127.0.0.1:{}", proxy.port))]);
    let url = format!("http://{NAME}:{}", port().await);
    let policy = Policy { origins: vec![Origin::parse(&url).unwrap()], ..policy };
    let other = format!("{scheme}://other.internal.invalid:{}", port().await);
    let answer = ask(policy.clone(), &other, None, &Secrets::default()).await;
    judge(&answer, Problem(Reason::InvalidUrl), "--allowed-origin");
    assert!(proxy.heads().is_empty());
    judge(&ask(policy, &url, None, &Secrets::default()).await, Pass(Data), "passed");
}
