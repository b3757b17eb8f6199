//! Handshakes with the certificate of the service, which follows its files.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        atomic::{AtomicI64, Ordering},
    },
};

use hermod_actors::model::Timestamp;
use tokio::task::spawn_blocking;
use tokio_rustls::server::TlsStream;

use super::{
    certificate::LoadedCertificate,
    files::{PairStamp, TlsFile, TlsFiles},
    renewal::Renewal,
};
use crate::{
    clock::{self, rfc3339},
    control::RequestError,
    host::{Exchangeable, HostError, NoteSink},
    service::connection::ClientStream,
};

/// Least time between two looks at the files, in microseconds.
const MIN_LOOK_INTERVAL_US: i64 = 1_000_000;

/// Speaks TLS with clients, with the certificate of these files as it was when the client came.
#[derive(Debug)]
pub(crate) struct TlsAcceptor {
    files: TlsFiles,
    pub(super) current: Arc<Exchangeable<LoadedCertificate>>,
    /// Held while the files are read: one reader at a time.
    renewal: Mutex<Renewal<PairStamp>>,
    /// When the files were last looked at, by the monotonic clock.
    looked_at_us: AtomicI64,
    notes: Arc<dyn NoteSink>,
}

/// A certificate that was read, with the stamp of its files.
#[derive(Debug)]
pub(crate) struct ReadCertificate {
    certificate: LoadedCertificate,
    stamp: PairStamp,
}

impl TlsAcceptor {
    /// Reads the files. A pair that cannot be used is an error; what a person should know of a usable one is noted.
    pub(crate) fn start(files: TlsFiles, notes: Arc<dyn NoteSink>) -> Result<Arc<Self>, HostError> {
        let ReadCertificate { certificate, stamp } = read(&files)?;
        let acceptor = Self {
            current: Exchangeable::new(certificate),
            renewal: Mutex::new(Renewal::new(stamp)),
            looked_at_us: AtomicI64::new(clock::monotonic_us()),
            files,
            notes,
        };
        acceptor.note_flaws();
        Ok(Arc::new(acceptor))
    }

    /// The handshake with a client. Without a limit of time: that is the caller's.
    pub(in crate::service) async fn accept(
        self: &Arc<Self>,
        stream: ClientStream,
    ) -> io::Result<TlsStream<ClientStream>> {
        if self.is_look_due() {
            let acceptor = Arc::clone(self);
            // A file system may not answer. If the look fails, the present certificate serves.
            let (Ok(()) | Err(_)) = spawn_blocking(move || acceptor.follow_files()).await;
        }
        let config = Arc::clone(&self.current.get().config);
        tokio_rustls::TlsAcceptor::from(config).accept(stream).await
    }

    /// Reads the files for an exchange that may follow.
    pub(crate) async fn read_files(self: &Arc<Self>) -> Result<ReadCertificate, HostError> {
        let acceptor = Arc::clone(self);
        let read = spawn_blocking(move || read(&acceptor.files)).await;
        let stopped = |_| RequestError::internal("the files of the certificate were not read");
        Ok(read.map_err(stopped)??)
    }

    /// Uses this certificate for all clients that come from now on.
    pub(crate) fn exchange(&self, read: ReadCertificate) {
        let mut renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        self.exchange_in(&mut renewal, read);
    }

    /// True if a client may name the service so, because the certificate does. `host` has no port and is in lower case.
    pub(crate) fn has_name(&self, host: &str) -> bool {
        self.current.get().has_name(host)
    }

    /// When the certificate expires.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        self.current.get().expires_at
    }

    /// True for one caller in each interval.
    fn is_look_due(&self) -> bool {
        let (now, last) = (clock::monotonic_us(), self.looked_at_us.load(Ordering::Relaxed));
        let is_due = now.saturating_sub(last) >= MIN_LOOK_INTERVAL_US;
        let claim =
            |last| self.looked_at_us.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        is_due && claim(last).is_ok()
    }

    /// Reads the files if they have changed, and uses what they have. A bad pair changes nothing.
    pub(super) fn follow_files(&self) {
        let mut renewal = match self.renewal.try_lock() {
            Ok(renewal) => renewal,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A read that does not return must not make each client wait.
            Err(TryLockError::WouldBlock) => return,
        };
        let found = self.files.stamp();
        if !renewal.needs_load(&found) {
            return;
        }
        match read(&self.files) {
            Ok(read) => self.exchange_in(&mut renewal, read),
            Err(error) if renewal.on_refused(found) => {
                tracing::error!(%error, "the changed certificate is not used, the present one stays");
                self.notes.note(&format!("tls       the present certificate stays: {error}"));
            }
            Err(error) => tracing::debug!(%error, "the changed certificate cannot be used yet"),
        }
    }

    fn exchange_in(&self, renewal: &mut Renewal<PairStamp>, read: ReadCertificate) {
        let ReadCertificate { certificate, stamp } = read;
        renewal.on_used(stamp);
        if certificate.leaf == self.current.get().leaf {
            // The key or the intermediate certificates may differ.
            self.current.exchange(certificate);
            return;
        }
        let until = certificate.expires_at.map(|at| format!(", until {}", rfc3339(at))).unwrap_or_default();
        let path = self.files.certificate.display();
        tracing::info!(certificate = %path, "the certificate is exchanged");
        self.current.exchange(certificate);
        self.notes.note(&format!("tls       new connections get the new certificate of {path}{until}"));
        self.note_flaws();
    }

    /// Notes what does not keep the certificate from being used.
    fn note_flaws(&self) {
        if let Some(exposed) = self.files.exposed_key() {
            self.notes.note(&format!("tls       {exposed}"));
        }
        if let Some(at) = self.expires_at().filter(|at| *at <= clock::now()) {
            let certificate = self.files.named(TlsFile::Certificate);
            let text =
                format!("{certificate}: has expired at {}, and clients refuse it; renew it", rfc3339(at));
            self.notes.note(&format!("tls       {text}"));
        }
    }
}

/// Reads both files. The stamp is older than the content, so that no change is missed.
fn read(files: &TlsFiles) -> Result<ReadCertificate, RequestError> {
    let stamp = files.stamp();
    let (certificate, key) = (files.read(TlsFile::Certificate)?, files.read(TlsFile::Key)?);
    Ok(ReadCertificate { certificate: LoadedCertificate::parse(files, &certificate, &key)?, stamp })
}
