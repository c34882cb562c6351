//! TLS in front of a server without it: own certificates, client certificates if wanted, both changed while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Server;

/// A certificate authority of a test.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM texts.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    /// Its certificate, to be trusted.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for `name` that is good for centuries.
    ///
    /// # Errors
    /// When `name` is no name of a host.
    pub fn sign(&self, name: &str) -> anyhow::Result<Identity> {
        self.sign_between(name, 1975, 4096)
    }

    /// A certificate for `name` that is good from the first day of a year to the first day of another.
    ///
    /// # Errors
    /// When `name` is no name of a host.
    pub fn sign_between(&self, name: &str, from: i32, to: i32) -> anyhow::Result<Identity> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// The proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct TlsProxy {
    config: Arc<Mutex<Arc<ServerConfig>>>,
    server: Server,
}

impl TlsProxy {
    /// Forwards what comes in over TLS to `upstream` (`http://127.0.0.1:<port>`), as `identity`. With `clients`, a client must have a
    /// certificate of that authority.
    ///
    /// # Errors
    /// When it cannot listen, or the certificate cannot be used.
    pub async fn start(upstream: &str, identity: &Identity, clients: Option<&Authority>) -> anyhow::Result<Self> {
        let upstream = upstream.trim_start_matches("http://").to_owned();
        let config = Arc::new(Mutex::new(server_config(identity, clients)?));
        let current = Arc::clone(&config);
        let server = Server::spawn(|listener| async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
                let upstream = upstream.clone();
                tokio::spawn(async move { carry(stream, config, &upstream).await });
            }
        })
        .await?;
        Ok(Self { config, server })
    }

    /// The port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.address.port()
    }

    /// Is somebody else from the next connection on.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub fn rotate(&self, identity: &Identity, clients: Option<&Authority>) -> anyhow::Result<()> {
        let config = server_config(identity, clients)?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

async fn carry(stream: TcpStream, config: Arc<ServerConfig>, upstream: &str) -> std::io::Result<()> {
    let mut client = TlsAcceptor::from(config).accept(stream).await?;
    let mut server = TcpStream::connect(upstream).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

fn server_config(identity: &Identity, clients: Option<&Authority>) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes())?)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    Ok(Arc::new(builder.with_single_cert(chain, key).context("the certificate cannot be used")?))
}
