//! What is refused, which names count, what a change of the files does, and a client
//! that does not read.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::{TlsAcceptor, TlsFiles, TlsSource, certificate::LoadedCertificate};
use crate::{
    clock::rfc3339,
    control::RequestError,
    host::NoteSink,
    service::{connection::ClientStream, metrics::LiveCount},
};

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, Copy)]
struct Pair {
    certificate: &'static str,
    key: &'static str,
}

macro_rules! pair {
    ($name:literal) => {
        Pair {
            certificate: include_str!(concat!("../../../tests/fixtures/tls/", $name, ".pem")),
            key: include_str!(concat!("../../../tests/fixtures/tls/", $name, ".key.pem")),
        }
    };
}

const FIRST: Pair = pair!("first");
const SECOND: Pair = pair!("second");
const EXPIRED: Pair = pair!("expired");
const RSA: Pair = pair!("rsa");
const ENCRYPTED_KEY: &str = include_str!("../../../tests/fixtures/tls/encrypted.key.pem");

fn files(folder: &Path) -> TlsFiles {
    let (certificate, key) = (folder.join("c.pem"), folder.join("k.pem"));
    TlsFiles { certificate, key, source: TlsSource::Config }
}

/// Replaces both files, as a tool that renews certificates does.
fn write(folder: &Path, pair: Pair) {
    let files = files(folder);
    for (path, text, mode) in [(files.certificate, pair.certificate, 0o644), (files.key, pair.key, 0o600)] {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(new, path).unwrap();
    }
}

fn leaf(pair: Pair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl NoteSink for Notes {
    fn note(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn progress(&self, line: &str) {
        panic!("{line}");
    }
}

/// What is made of a pair of files.
fn parse(certificate: &str, key: &str) -> Result<LoadedCertificate, RequestError> {
    let files = TlsFiles { certificate: "/c.pem".into(), key: "/k.pem".into(), source: TlsSource::Config };
    LoadedCertificate::parse(&files, certificate.as_bytes(), key.as_bytes())
}

#[test]
fn a_pair_that_cannot_be_used_is_refused_with_its_file_and_a_remedy() {
    let check = |certificate: &str, key: &str, parts: &[&str]| {
        let refused = parse(certificate, key).unwrap_err();
        for part in parts {
            assert!(refused.text.contains(part), "{part}: {refused}");
        }
        assert!(!refused.text.contains("BEGIN"), "{refused}");
    };
    let Pair { certificate, key } = FIRST;
    let mismatch = "is not the key of the certificate in /c.pem; give the two files of one certificate";
    check(certificate, SECOND.key, &["service.tls_key = \"/k.pem\": ", mismatch]);
    check(certificate, EXPIRED.key, &["service.tls_key = \"/k.pem\": ", mismatch]);
    check("", key, &["service.tls_certificate = \"/c.pem\": has no certificate; "]);
    check(key, certificate, &["service.tls_certificate = \"/c.pem\": has no certificate; "]);
    check(certificate, certificate, &["service.tls_key = \"/k.pem\": has no private key; "]);
    check(certificate, ENCRYPTED_KEY, &["service.tls_key", "is encrypted", "openssl pkey"]);
    let cut = &certificate[..certificate.len() / 2];
    check(cut, key, &["service.tls_certificate", "cannot be used: "]);
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check(garbage, key, &["service.tls_certificate", "cannot be used: "]);
    let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    check(certificate, garbage, &["service.tls_key", "cannot be used: "]);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = TempDir::new().unwrap();
    let check = |files: TlsFiles, part: &str| {
        let refused = TlsAcceptor::start(files, Arc::new(Notes::default())).unwrap_err().to_string();
        assert!(refused.contains(part), "{part}: {refused}");
    };
    check(files(folder.path()), "c.pem\": cannot be read: No such file or directory");
    let files = files(folder.path());
    write(folder.path(), Pair { key: "", ..FIRST });
    check(
        TlsFiles { key: "/dev/zero".into(), ..files.clone() },
        "service.tls_key = \"/dev/zero\": is no regular file",
    );
    check(
        TlsFiles { key: "/dev/zero".into(), source: TlsSource::Options, ..files.clone() },
        "--tls-key /dev/zero: ",
    );
    fs::write(&files.key, vec![b'x'; 2 << 20]).unwrap();
    check(files, "k.pem\": is longer than 1 MiB");
}

#[test]
fn names_of_a_certificate_are_names_of_the_service() {
    let loaded = parse(FIRST.certificate, FIRST.key).unwrap();
    for (host, expect) in [
        ("localhost", true),
        ("hermod.test", true),
        ("192.0.2.7", true),
        ("[2001:db8::7]", true),
        ("192.0.2.8", false),
        ("a.pages.test", false),
        ("*.pages.test", false),
        ("test", false),
        ("", false),
    ] {
        assert_eq!(loaded.has_name(host), expect, "{host}");
    }
}

#[test]
fn common_keys_are_taken_and_the_expiry_is_known() {
    let check = |pair: Pair, expires_at: &str| {
        let loaded = parse(pair.certificate, pair.key).unwrap();
        assert_eq!(loaded.expires_at.map(rfc3339).as_deref(), Some(expires_at), "{pair:?}");
    };
    check(FIRST, "2126-01-01T00:00:00.000Z");
    check(SECOND, "2126-01-01T00:00:00.000Z");
    check(pair!("ed25519"), "2126-01-01T00:00:00.000Z");
    check(RSA, "2031-01-02T00:00:00.000Z");
    check(EXPIRED, "2001-01-02T00:00:00.000Z");
}

#[test]
fn a_changed_pair_is_used_and_a_bad_one_is_noted_once() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), FIRST);
    let notes = Arc::new(Notes::default());
    let acceptor = TlsAcceptor::start(files(folder.path()), Arc::clone(&notes) as _).unwrap();
    let is_in_use = |pair: Pair| acceptor.current.get().leaf == leaf(pair);
    acceptor.follow_files();
    assert!(is_in_use(FIRST));
    assert_eq!(notes.take(), Vec::<String>::new());

    // A pair of two renewals is refused: in silence at first, because the second file may come.
    write(folder.path(), Pair { key: FIRST.key, ..SECOND });
    acceptor.follow_files();
    assert_eq!(notes.take(), Vec::<String>::new());
    acceptor.follow_files();
    let [note] = notes.take().try_into().unwrap();
    assert!(note.starts_with("tls       the present certificate stays: service.tls_key = "), "{note}");
    acceptor.follow_files();
    assert_eq!(notes.take(), Vec::<String>::new());
    assert!(is_in_use(FIRST));

    write(folder.path(), SECOND);
    acceptor.follow_files();
    let [note] = notes.take().try_into().unwrap();
    assert!(note.contains("new connections get the new certificate of"), "{note}");
    assert!(is_in_use(SECOND));

    fs::remove_file(folder.path().join("k.pem")).unwrap();
    acceptor.follow_files();
    acceptor.follow_files();
    let [note] = notes.take().try_into().unwrap();
    assert!(note.contains("k.pem\": cannot be read"), "{note}");
    assert!(is_in_use(SECOND));
}

#[test]
fn what_does_not_keep_a_pair_from_being_used_is_noted() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), EXPIRED);
    let key = files(folder.path()).key;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let notes = Arc::new(Notes::default());
    TlsAcceptor::start(files(folder.path()), Arc::clone(&notes) as _).unwrap();
    let [exposed, expired] = notes.take().try_into().unwrap();
    assert!(exposed.contains("other users can use it (mode 644); `chmod 600 /"), "{exposed}");
    assert!(expired.contains("has expired at 2001-01-02T00:00:00"), "{expired}");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off_under_tls_too() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), FIRST);
    let acceptor = TlsAcceptor::start(files(folder.path()), Arc::new(Notes::default())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
    let stream =
        ClientStream::new(stream, Duration::from_millis(200), (permit, LiveCount::default().enter()));
    let mut roots = RootCertStore::empty();
    roots.add(leaf(FIRST)).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let (client, server) = tokio::join!(connector.connect(name, client), acceptor.accept(stream));
    let (_client, mut server) = (client.unwrap(), server.unwrap());
    let bytes = vec![0; 64 << 10];
    let error = loop {
        if let Err(error) = server.write_all(&bytes).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}
