//! The real Prometheus behind TLS, and the Secrets for it.

use rstest::rstest;
use sts_plus_api::{Query, Reason, Tls};
use sts_plus_gates::{Answer, Secrets};
use testcluster::{Authority, Identity, TlsProxy};

use crate::{Data, Error, Fail, Pass, Problem, Want, ask, assertion, judge, query, rig, secret};

/// What the server shows.
#[derive(Clone, Copy)]
enum Shows {
    /// A certificate for this name.
    For(&'static str),
    /// One for localhost that is good between these years.
    Between(i32, i32),
}

/// What we have of the two authorities: the server's own and a foreign one.
#[derive(Clone, Copy)]
enum Trust {
    System,
    Own,
    Foreign,
    Both,
    Nobody,
}

/// Which client certificate we have, signed by whom.
#[derive(Clone, Copy)]
enum Client {
    None,
    Own,
    Foreign,
}

/// No client certificate is wanted.
#[rstest]
#[case::own_authority("localhost", Shows::For("localhost"), Trust::Own, None, Pass(Data), "passed")]
#[case::two_authorities("localhost", Shows::For("localhost"), Trust::Both, None, Pass(Data), "passed")]
#[case::address("127.0.0.1", Shows::For("127.0.0.1"), Trust::Own, None, Pass(Data), "passed")]
#[case::unknown_authority(
    "localhost",
    Shows::For("localhost"),
    Trust::Foreign,
    None,
    Fail(Error),
    "name its CA in tls.caSecretRef"
)]
#[case::system_only("localhost", Shows::For("localhost"), Trust::System, None, Fail(Error), "tls.caSecretRef")]
#[case::wrong_name(
    "localhost",
    Shows::For("prom.example"),
    Trust::Own,
    None,
    Fail(Error),
    "it is for another name: correct the url or set tls.serverName"
)]
#[case::wrong_name_and_its_cure(
    "localhost",
    Shows::For("prom.example"),
    Trust::Own,
    Some("prom.example"),
    Pass(Data),
    "passed"
)]
#[case::wrong_cure(
    "localhost",
    Shows::For("prom.example"),
    Trust::Own,
    Some("other.example"),
    Fail(Error),
    "another name"
)]
#[case::name_for_an_address("127.0.0.1", Shows::For("localhost"), Trust::Own, None, Fail(Error), "another name")]
#[case::name_over_an_address("127.0.0.1", Shows::For("localhost"), Trust::Own, Some("localhost"), Pass(Data), "passed")]
#[case::expired("localhost", Shows::Between(2000, 2001), Trust::Own, None, Fail(Error), "expired")]
#[case::not_yet_valid("localhost", Shows::Between(2900, 3000), Trust::Own, None, Fail(Error), "not valid yet")]
#[case::unverified("localhost", Shows::Between(2000, 2001), Trust::Nobody, None, Pass(Data), "passed")]
#[case::unverified_name("localhost", Shows::For("prom.example"), Trust::Nobody, None, Pass(Data), "passed")]
#[tokio::test]
async fn a_server(
    #[case] host: &str,
    #[case] shows: Shows,
    #[case] trust: Trust,
    #[case] server_name: Option<&str>,
    #[case] want: Want,
    #[case] words: &str,
) {
    let (own, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let identity = match shows {
        Shows::For(name) => own.sign(name),
        Shows::Between(from, to) => own.sign_between("localhost", from, to),
    };
    let proxy = TlsProxy::start(rig::main().await.url(), &identity.unwrap(), None).await.unwrap();
    let pem = match trust {
        Trust::System | Trust::Nobody => None,
        Trust::Own => Some(own.pem().to_owned()),
        Trust::Foreign => Some(foreign.pem().to_owned()),
        Trust::Both => Some(format!("# the old one\n{}\n# the new one\n{}", foreign.pem(), own.pem())),
    };
    let tls = Tls {
        ca_secret_ref: pem.as_ref().map(|_| "ca".to_owned()),
        server_name: server_name.map(str::to_owned),
        insecure_skip_verify: matches!(trust, Trust::Nobody),
        ..Tls::default()
    };
    let secrets = Secrets { ca: pem.map(|pem| secret("ca", &[("ca.crt", &pem)])), ..Secrets::default() };
    let answer = ask_tls(&proxy, host, tls, &secrets).await;
    judge(&answer, want, words);
    assert_eq!(answer.record.endpoint, format!("https://{host}:{}", proxy.port()));
}

/// A client certificate of the server's authority is wanted.
#[rstest]
#[case::right(Client::Own, Pass(Data), "passed")]
#[case::missing(Client::None, Fail(Error), "may want a client certificate, tls.certSecretRef")]
#[case::wrong(Client::Foreign, Fail(Error), "tls.certSecretRef")]
#[tokio::test]
async fn a_client(#[case] client: Client, #[case] want: Want, #[case] words: &str) {
    let (own, foreign) = (Authority::new().unwrap(), Authority::new().unwrap());
    let proxy = TlsProxy::start(rig::main().await.url(), &own.sign("localhost").unwrap(), Some(&own)).await.unwrap();
    let identity = match client {
        Client::None => None,
        Client::Own => Some(own.sign("operator").unwrap()),
        Client::Foreign => Some(foreign.sign("operator").unwrap()),
    };
    let (tls, secrets) = trusting(&own, identity.as_ref());
    judge(&ask_tls(&proxy, "localhost", tls, &secrets).await, want, words);
    assert!(!format!("{secrets:?}").contains("PRIVATE KEY"));
}

/// Both ends change their certificates and authorities; the Secrets follow.
#[tokio::test]
async fn rotated() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let url = rig::main().await.url();
    let proxy = TlsProxy::start(url, &old.sign("localhost").unwrap(), Some(&old)).await.unwrap();
    let (tls, before) = trusting(&old, Some(&old.sign("operator").unwrap()));
    judge(&ask_tls(&proxy, "localhost", tls.clone(), &before).await, Pass(Data), "passed");
    proxy.rotate(&new.sign("localhost").unwrap(), Some(&new)).unwrap();
    judge(&ask_tls(&proxy, "localhost", tls.clone(), &before).await, Fail(Error), "tls.caSecretRef");
    let (_, after) = trusting(&new, Some(&new.sign("operator").unwrap()));
    judge(&ask_tls(&proxy, "localhost", tls, &after).await, Pass(Data), "passed");
}

/// TLS at one end only.
#[rstest]
#[case::https_to_http("https", false, "the server may not speak TLS: try http:// in the url")]
#[case::http_to_https("http", true, "the server may want TLS: try https:// in the url")]
#[tokio::test]
async fn one_end_only(#[case] scheme: &str, #[case] server_has_tls: bool, #[case] words: &str) {
    let own = Authority::new().unwrap();
    let plain = rig::main().await.url();
    let proxy = TlsProxy::start(plain, &own.sign("localhost").unwrap(), None).await.unwrap();
    let port = if server_has_tls { proxy.port() } else { plain.rsplit(':').next().unwrap().parse().unwrap() };
    let answer = ask(assertion(query("probe", &format!("{scheme}://localhost:{port}"))), &Secrets::default()).await;
    judge(&answer, Fail(Error), words);
}

async fn ask_tls(proxy: &TlsProxy, host: &str, tls: Tls, secrets: &Secrets) -> Answer {
    let asked = query("probe", &format!("https://{host}:{}", proxy.port()));
    ask(assertion(Query { tls: Some(tls), ..asked }), secrets).await
}

/// Trusts `authority`, and has a client certificate if one is given.
fn trusting(authority: &Authority, client: Option<&Identity>) -> (Tls, Secrets) {
    let tls = Tls { cert_secret_ref: client.map(|_| "me".to_owned()), ..named_ca() };
    let given = client.map_or_else(Secrets::default, |me| pair(&me.certificate, &me.key));
    (tls, Secrets { client_certificate: given.client_certificate, ..ca(&[("ca.crt", authority.pem())]) })
}

fn pair(certificate: &str, key: &str) -> Secrets {
    let pairs = [("tls.crt", certificate), ("tls.key", key)];
    Secrets { client_certificate: Some(secret("me", &pairs)), ..Secrets::default() }
}

/// Nobody is asked with Secrets that cannot be used.
#[rstest]
#[case::no_ca_secret(named_ca(), Secrets::default(), "tls.caSecretRef names Secret ca, which does not exist")]
#[case::no_ca_key(named_ca(), ca(&[]), "tls.caSecretRef names Secret ca, which has no key ca.crt")]
#[case::empty_ca(named_ca(), ca(&[("ca.crt", "")]), "key ca.crt of Secret ca holds no usable certificate in PEM")]
#[case::bad_ca(
    named_ca(),
    ca(&[("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]),
    "key ca.crt of Secret ca holds no usable certificate in PEM"
)]
#[case::no_pair(named_pair(), Secrets::default(), "tls.certSecretRef names Secret me, which does not exist")]
#[case::bad_pair(named_pair(), pair("x", "y"), "key tls.crt of Secret me holds no usable certificate")]
#[tokio::test]
async fn a_secret_that_cannot_be_used(#[case] tls: Tls, #[case] secrets: Secrets, #[case] words: &str) {
    let asked = Query { tls: Some(tls), ..query("probe", "https://localhost:9") };
    let answer = ask(asked, &secrets).await;
    judge(&answer, Problem(Reason::InvalidCredentials), words);
    assert!(answer.record.message.starts_with("spec.check.query.tls."), "{}", answer.record.message);
}

#[tokio::test]
async fn a_key_that_does_not_belong_to_its_certificate() {
    let authority = Authority::new().unwrap();
    let (one, other) = (authority.sign("a").unwrap(), authority.sign("b").unwrap());
    let asked = Query { tls: Some(named_pair()), ..query("probe", "https://localhost:9") };
    let answer = ask(asked, &pair(&one.certificate, &other.key)).await;
    let words = "certificate and key of Secret me do not belong together";
    judge(&answer, Problem(Reason::InvalidCredentials), words);
}

fn named_ca() -> Tls {
    Tls { ca_secret_ref: Some("ca".into()), ..Tls::default() }
}

fn named_pair() -> Tls {
    Tls { cert_secret_ref: Some("me".into()), ..Tls::default() }
}

fn ca(pairs: &[(&str, &str)]) -> Secrets {
    Secrets { ca: Some(secret("ca", pairs)), ..Secrets::default() }
}
