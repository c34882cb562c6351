//! TLS towards a server with certificates made for the test. The server is a mock because the faults are in the handshake.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use common::{ONE, ask, json, query, secret, vector};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rstest::rstest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use sts_plus_api::{Query, Reason, SuccessWhen, Tls, Verdict};
use sts_plus_gates::{Answer, Secrets};

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key for `name`, in PEM.
    fn sign(&self, name: &str, expired: bool) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Serves a few connections with a good answer; returns the port. With `client_ca`, a client certificate is wanted.
fn serve((certificate, key): (String, String), client_ca: Option<&Ca>) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = Arc::new(builder.with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(4).flatten() {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            let _ = stream.read(&mut [0; 8192]);
            let _ = stream.write_all(&json(&vector(ONE)));
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    port
}

async fn ask_tls(port: u16, tls: Option<Tls>, secrets: &Secrets) -> Answer {
    let asked = query("up", &format!("https://localhost:{port}"));
    ask(Query { tls, success_when: SuccessWhen::Data, ..asked }, secrets).await
}

fn with_ca(ca: &Ca) -> Secrets {
    Secrets { ca: Some(secret("ca", &[("ca.crt", &ca.pem)])), ..Secrets::default() }
}

fn trusting() -> Tls {
    Tls { ca_secret_ref: Some("ca".into()), ..Tls::default() }
}

#[tokio::test]
async fn own_ca() {
    let ca = Ca::new();
    let port = serve(ca.sign("localhost", false), None);
    let answer = ask_tls(port, Some(trusting()), &with_ca(&ca)).await;
    assert!(answer.record.passed, "{}", answer.record.message);
    assert_eq!(answer.record.endpoint, format!("https://localhost:{port}"));
}

#[tokio::test]
async fn unknown_ca() {
    let ca = Ca::new();
    let port = serve(ca.sign("localhost", false), None);
    for answer in
        [ask_tls(port, None, &Secrets::default()).await, ask_tls(port, Some(trusting()), &with_ca(&Ca::new())).await]
    {
        assert_eq!((answer.record.verdict, answer.record.passed), (Verdict::Error, false));
        assert!(answer.record.message.contains("tls.caSecretRef"), "{}", answer.record.message);
    }
}

#[tokio::test]
async fn wrong_name_and_its_cure() {
    let ca = Ca::new();
    let port = serve(ca.sign("prom.example.com", false), None);
    let answer = ask_tls(port, Some(trusting()), &with_ca(&ca)).await;
    assert!(answer.record.message.contains("set tls.serverName"), "{}", answer.record.message);
    let tls = Tls { server_name: Some("prom.example.com".into()), ..trusting() };
    let answer = ask_tls(port, Some(tls), &with_ca(&ca)).await;
    assert!(answer.record.passed, "{}", answer.record.message);
}

#[tokio::test]
async fn expired() {
    let ca = Ca::new();
    let port = serve(ca.sign("localhost", true), None);
    let answer = ask_tls(port, Some(trusting()), &with_ca(&ca)).await;
    assert_eq!(answer.record.verdict, Verdict::Error);
    assert!(answer.record.message.to_lowercase().contains("expired"), "{}", answer.record.message);
}

#[tokio::test]
async fn skipped_verification() {
    let port = serve(Ca::new().sign("elsewhere", true), None);
    let tls = Tls { insecure_skip_verify: true, ..Tls::default() };
    let answer = ask_tls(port, Some(tls), &Secrets::default()).await;
    assert!(answer.record.passed, "{}", answer.record.message);
}

#[tokio::test]
async fn client_certificate() {
    let ca = Ca::new();
    let port = serve(ca.sign("localhost", false), Some(&ca));
    let answer = ask_tls(port, Some(trusting()), &with_ca(&ca)).await;
    assert_eq!((answer.record.verdict, answer.record.passed), (Verdict::Error, false));
    assert!(answer.record.message.contains("tls.certSecretRef"), "{}", answer.record.message);
    let (certificate, key) = ca.sign("operator", false);
    let client_certificate = Some(secret("me", &[("tls.crt", &certificate), ("tls.key", &key)]));
    let secrets = Secrets { client_certificate, ..with_ca(&ca) };
    let tls = Tls { cert_secret_ref: Some("me".into()), ..trusting() };
    let answer = ask_tls(port, Some(tls), &secrets).await;
    assert!(answer.record.passed, "{}", answer.record.message);
    assert!(!format!("{secrets:?}").contains("PRIVATE KEY"));
}

/// The other end speaks plain HTTP.
#[tokio::test]
async fn no_tls_at_the_other_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&common::http(400, &[], "Bad Request"));
    });
    let answer = ask_tls(port, Some(Tls { insecure_skip_verify: true, ..Tls::default() }), &Secrets::default()).await;
    assert_eq!(answer.record.verdict, Verdict::Error);
    assert!(answer.record.message.contains("may not speak TLS"), "{}", answer.record.message);
}

fn pair(certificate: &str, key: &str) -> Secrets {
    let pairs = [("tls.crt", certificate), ("tls.key", key)];
    Secrets { client_certificate: Some(secret("me", &pairs)), ..Secrets::default() }
}

#[rstest]
#[case::no_ca_secret(trusting(), Secrets::default(), "tls.caSecretRef names Secret ca, which does not exist")]
#[case::no_ca_key(trusting(), Secrets { ca: Some(secret("ca", &[])), ..Secrets::default() }, "tls.caSecretRef names Secret ca, which has no key ca.crt")]
#[case::empty_ca(trusting(), Secrets { ca: Some(secret("ca", &[("ca.crt", "")])), ..Secrets::default() }, "key ca.crt of Secret ca holds no usable certificate in PEM")]
#[case::bad_ca(trusting(), Secrets { ca: Some(secret("ca", &[("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")])), ..Secrets::default() }, "key ca.crt of Secret ca holds no usable certificate in PEM")]
#[case::no_pair(Tls { cert_secret_ref: Some("me".into()), ..Tls::default() }, Secrets::default(), "tls.certSecretRef names Secret me, which does not exist")]
#[case::bad_pair(Tls { cert_secret_ref: Some("me".into()), ..Tls::default() }, pair("x", "y"), "key tls.crt of Secret me holds no usable certificate")]
#[tokio::test]
async fn problems(#[case] tls: Tls, #[case] secrets: Secrets, #[case] want: &str) {
    let answer = ask_tls(9, Some(tls), &secrets).await;
    let problem = answer.problem.unwrap();
    assert_eq!(problem.reason, Reason::InvalidCredentials);
    assert!(
        problem.message.starts_with("spec.check.query.tls.") && problem.message.contains(want),
        "{}",
        problem.message
    );
}

#[tokio::test]
async fn a_key_that_does_not_belong_to_its_certificate() {
    let ca = Ca::new();
    let ((certificate, _), (_, key)) = (ca.sign("a", false), ca.sign("b", false));
    let tls = Tls { cert_secret_ref: Some("me".into()), ..Tls::default() };
    let answer = ask_tls(9, Some(tls), &pair(&certificate, &key)).await;
    assert!(answer.problem.unwrap().message.contains("certificate and key of Secret me do not belong together"));
}
