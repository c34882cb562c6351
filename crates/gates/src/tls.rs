//! TLS towards Prometheus, from the `tls` field and its Secrets to a rustls configuration. It must never show a private key, and
//! never fall back to something weaker than what was asked for.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sts_plus_api::Tls;

use crate::credentials::{SecretData, Secrets};

/// What a `tls` field asks for, with the certificates it names.
pub(crate) struct TlsSettings {
    /// None: the system's certificates.
    roots: Option<RootCertStore>,
    client: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    server_name: Option<ServerName<'static>>,
    verify: bool,
    /// What it was read from: authorities, certificate, key, server name, and whether the server is verified.
    read_from: [Option<Vec<u8>>; 5],
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").field("verify", &self.verify).finish_non_exhaustive()
    }
}

/// Why TLS cannot be set up; a sentence that starts with the name of the field below `tls`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{field} names Secret {secret}, which does not exist: create it or correct the name")]
    NoSecret { field: &'static str, secret: String },
    #[error("{field} names Secret {secret}, which has no key {key}: add it, in PEM")]
    NoKey { field: &'static str, secret: String, key: &'static str },
    #[error("{field}: key {key} of Secret {secret} holds no usable {what} in PEM: correct it")]
    BadPem { field: &'static str, secret: String, key: &'static str, what: &'static str },
    #[error(
        "certSecretRef: certificate and key of Secret {secret} do not belong together or cannot be used: correct them"
    )]
    BadPair { secret: String },
    #[error("serverName is no valid host name: correct it")]
    BadServerName,
    #[error("insecureSkipVerify is true, and {with} has no meaning then: remove one of the two")]
    Contradiction { with: &'static str },
}

/// What can be said about a `tls` field without its Secrets.
pub(crate) fn check(tls: &Tls) -> Result<(), TlsError> {
    server_name(tls)?;
    if tls.insecure_skip_verify && tls.ca_secret_ref.is_some() {
        return Err(TlsError::Contradiction { with: "caSecretRef" });
    }
    Ok(())
}

impl TlsSettings {
    /// The settings when there is no `tls` field: the system's certificates, the host of the URL.
    pub(crate) fn system() -> Self {
        Self { roots: None, client: None, server_name: None, verify: true, read_from: Default::default() }
    }

    /// Reads the certificates that `tls` names.
    pub(crate) fn read(tls: &Tls, secrets: &Secrets) -> Result<Self, TlsError> {
        check(tls)?;
        let roots = match &tls.ca_secret_ref {
            Some(name) => Some(read_roots(name, secrets.ca.as_ref())?),
            None => None,
        };
        let client = match &tls.cert_secret_ref {
            Some(name) => Some(read_pair(name, secrets.client_certificate.as_ref())?),
            None => None,
        };
        let bytes = |secret: Option<&SecretData>, key| secret.and_then(|secret| secret.data.get(key)).cloned();
        let ca = secrets.ca.as_ref().filter(|_| roots.is_some());
        let pair = secrets.client_certificate.as_ref().filter(|_| client.is_some());
        let name = tls.server_name.as_ref().map(|name| name.as_bytes().to_vec());
        let verify = tls.insecure_skip_verify.then(Vec::new);
        let read_from = [bytes(ca, "ca.crt"), bytes(pair, "tls.crt"), bytes(pair, "tls.key"), name, verify];
        Ok(Self { roots, client, server_name: server_name(tls)?, verify: !tls.insecure_skip_verify, read_from })
    }

    /// All that makes these settings these and no others.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.read_from.iter().map(Option::as_deref)
    }

    /// The name to verify against and to send, if it is not the host of the URL.
    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.server_name.as_ref()
    }

    /// True if the system's certificates decide.
    pub(crate) fn needs_system_roots(&self) -> bool {
        self.verify && self.roots.is_none()
    }

    /// The rustls configuration; `system` are the system's certificates.
    pub(crate) fn config(self, system: &Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = if self.verify {
            builder.with_root_certificates(self.roots.map_or_else(|| Arc::clone(system), Arc::new))
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(NoVerification { provider }))
        };
        match self.client {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key),
            None => Ok(builder.with_no_client_auth()),
        }
    }
}

fn server_name(tls: &Tls) -> Result<Option<ServerName<'static>>, TlsError> {
    let parse = |name: &String| ServerName::try_from(name.clone()).map_err(|_| TlsError::BadServerName);
    tls.server_name.as_ref().map(parse).transpose()
}

fn read_roots(name: &str, secret: Option<&SecretData>) -> Result<RootCertStore, TlsError> {
    const FIELD: &str = "caSecretRef";
    let bytes = entry(FIELD, name, secret, "ca.crt")?;
    let bad = || TlsError::BadPem { field: FIELD, secret: name.to_owned(), key: "ca.crt", what: "certificate" };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        roots.add(certificate.map_err(|_| bad())?).map_err(|_| bad())?;
    }
    if roots.is_empty() { Err(bad()) } else { Ok(roots) }
}

fn read_pair(
    name: &str,
    secret: Option<&SecretData>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    const FIELD: &str = "certSecretRef";
    let bad = |key, what| TlsError::BadPem { field: FIELD, secret: name.to_owned(), key, what };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(entry(FIELD, name, secret, "tls.crt")?)
        .collect::<Result<_, _>>()
        .map_err(|_| bad("tls.crt", "certificate"))?;
    if chain.is_empty() {
        return Err(bad("tls.crt", "certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(entry(FIELD, name, secret, "tls.key")?)
        .map_err(|_| bad("tls.key", "private key"))?;
    let provider = rustls::crypto::ring::default_provider();
    rustls::sign::CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider)
        .map_err(|_| TlsError::BadPair { secret: name.to_owned() })?;
    Ok((chain, key))
}

fn entry<'a>(
    field: &'static str,
    name: &str,
    secret: Option<&'a SecretData>,
    key: &'static str,
) -> Result<&'a [u8], TlsError> {
    let secret = secret.ok_or_else(|| TlsError::NoSecret { field, secret: name.to_owned() })?;
    let found = secret.data.get(key).map(Vec::as_slice);
    found.ok_or_else(|| TlsError::NoKey { field, secret: name.to_owned(), key })
}

/// insecureSkipVerify: any certificate is taken, but the peer must still hold its key.
#[derive(Debug)]
struct NoVerification {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
