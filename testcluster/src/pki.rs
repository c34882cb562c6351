//! Keys, certificates and tokens of one cluster. All of them are made anew at each start and are worth nothing anywhere else.

use std::{fmt::Write as _, fs, io::Read as _, path::Path};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// The certificate authority and what it has signed, as PEM texts.
#[derive(Clone, Debug)]
pub struct Pki {
    /// The certificate that everything else is checked against.
    pub ca: String,
}

impl Pki {
    /// Makes all of it and writes it into `dir`: `ca.crt`, `server.crt`, `server.key`, `sa.key`, `sa.pub`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn create(dir: &Path) -> anyhow::Result<Self> {
        let ca = authority()?;
        let key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"];
        let mut server = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        server.distinguished_name.push(DnType::CommonName, "testcluster server");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        let certificate = server.signed_by(&key, &ca)?;
        let accounts = KeyPair::generate()?;
        let files = [
            ("ca.crt", ca.pem()),
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
            ("sa.key", accounts.serialize_pem()),
            ("sa.pub", accounts.public_key_pem()),
        ];
        for (name, text) in &files {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self { ca: ca.pem() })
    }
}

fn authority() -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, format!("testcluster {}", random_hex(4)?));
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// `bytes` random bytes of the system as hex digits.
///
/// # Errors
/// When the system gives none.
pub fn random_hex(bytes: usize) -> anyhow::Result<String> {
    let mut raw = vec![0; bytes];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut raw))
        .context("cannot read /dev/urandom")?;
    let mut text = String::new();
    for byte in raw {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}
