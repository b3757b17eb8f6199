//! A certificate as it is presented to clients, made of the bytes of its files. Does no I/O.

use std::{net::IpAddr, sync::Arc, time::Duration};

use hermod_actors::model::Timestamp;
use rustls::{
    Error, InconsistentKeys, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use webpki::{EndEntityCert, KeyUsage};

use super::files::{TlsFile, TlsFiles};
use crate::control::RequestError;

/// The only protocol that is spoken over TLS.
const ALPN_HTTP: &[u8] = b"http/1.1";

/// A certificate whose key fits, ready for handshakes.
#[derive(Debug)]
pub(super) struct LoadedCertificate {
    /// How handshakes are done with it.
    pub(super) config: Arc<ServerConfig>,
    /// The certificate of the server itself.
    pub(super) leaf: CertificateDer<'static>,
    /// When it expires, if that can be read.
    pub(super) expires_at: Option<Timestamp>,
    /// Its names of hosts in lower case, without patterns.
    names: Vec<String>,
}

impl LoadedCertificate {
    /// Makes a certificate of the content of its files; `files` names them in errors.
    pub(super) fn parse(files: &TlsFiles, certificate: &[u8], key: &[u8]) -> Result<Self, RequestError> {
        let chain = parse_chain(files, certificate)?;
        let key = parse_key(files, key)?;
        let provider = Arc::new(ring::default_provider());
        let key = provider.key_provider.load_private_key(key).map_err(|error| {
            let problem = format!("cannot be used: {error}; RSA, ECDSA (P-256, P-384) and Ed25519 keys can");
            files.error(TlsFile::Key, &problem)
        })?;
        let certified = CertifiedKey::new(chain, key);
        check_match(files, &certified)?;
        let leaf = certified.cert.first().cloned().ok_or_else(|| no_certificate(files))?;
        let unusable = |error: Error| unusable_certificate(files, &error.to_string());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        let (names, expires_at) = {
            let parsed = EndEntityCert::try_from(&leaf);
            let parsed = parsed.map_err(|error| unusable_certificate(files, &error.to_string()))?;
            (host_names(&parsed), expiry(&parsed))
        };
        Ok(Self { config: Arc::new(config), leaf, expires_at, names })
    }

    /// True if this is a name of the certificate, or an IP address of it, in brackets if it has colons. Names that only a
    /// pattern covers do not count: they may belong to other services.
    pub(super) fn has_name(&self, host: &str) -> bool {
        if self.names.iter().any(|name| name == host) {
            return true;
        }
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let Ok(address) = address.parse::<IpAddr>() else { return false };
        let parsed = EndEntityCert::try_from(&self.leaf);
        parsed.is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(&ServerName::from(address)).is_ok())
    }
}

fn parse_chain(files: &TlsFiles, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, RequestError> {
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(bytes).collect();
    let chain = chain.map_err(|error| unusable_certificate(files, &error.to_string()))?;
    if chain.is_empty() { Err(no_certificate(files)) } else { Ok(chain) }
}

fn parse_key(files: &TlsFiles, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, RequestError> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        let problem = if !matches!(error, pem::Error::NoItemsFound) {
            &format!("cannot be used: {error}; give a PEM file with a private key")
        } else if memchr::memmem::find(bytes, b"ENCRYPTED").is_some() {
            "is encrypted; write it without a passphrase, with `openssl pkey -in FILE -out NEW_FILE`"
        } else {
            "has no private key; give the PEM file that belongs to the certificate"
        };
        files.error(TlsFile::Key, problem)
    })
}

/// Refuses a key that is not the certificate's.
fn check_match(files: &TlsFiles, certified: &CertifiedKey) -> Result<(), RequestError> {
    match certified.keys_match() {
        // The library cannot tell for some kinds of keys; it takes those too.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        Err(Error::InconsistentKeys(_)) => {
            let certificate = files.certificate.display();
            let problem = format!(
                "is not the key of the certificate in {certificate}; give the two files of one certificate"
            );
            Err(files.error(TlsFile::Key, &problem))
        }
        Err(error) => Err(unusable_certificate(files, &error.to_string())),
    }
}

fn no_certificate(files: &TlsFiles) -> RequestError {
    let problem =
        "has no certificate; give a PEM file with that of the server, and then the intermediate ones";
    files.error(TlsFile::Certificate, problem)
}

fn unusable_certificate(files: &TlsFiles, reason: &str) -> RequestError {
    let problem = format!("cannot be used: {reason}; give a PEM file with an X.509 certificate of version 3");
    files.error(TlsFile::Certificate, &problem)
}

fn host_names(leaf: &EndEntityCert<'_>) -> Vec<String> {
    let names = leaf.valid_dns_names().filter(|name| !name.contains('*'));
    names.map(str::to_ascii_lowercase).collect()
}

/// When a certificate expires. The library tells that only as the reason why one is refused, so it is asked about the end
/// of time: it checks the period of validity before it looks for an issuer.
fn expiry(leaf: &EndEntityCert<'_>) -> Option<Timestamp> {
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let usage = KeyUsage::server_auth();
    match leaf.verify_for_usage(&[], &[], &[], end_of_time, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => {
            let seconds = i64::try_from(not_after.as_secs()).ok()?;
            Some(Timestamp(seconds.checked_mul(1_000)?))
        }
        Ok(_) | Err(_) => None,
    }
}
