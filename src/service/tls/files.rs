//! The files of a certificate and its key, as they are on disk: their bytes, the stamps by which a change is seen, and who
//! else may read the key.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{
    config::Config,
    control::{RequestError, RequestErrorKind},
};

/// A chain of certificates has some kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The PEM files of a certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and then the intermediate ones.
    pub certificate: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
    /// Where the files are named.
    pub source: TlsSource,
}

/// Where the files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsSource {
    /// In the section `service` of the configuration.
    Config,
    /// In the options of the command.
    Options,
}

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TlsFile {
    Certificate,
    Key,
}

/// What tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The stamps of both files; `None` for a file that cannot be looked at.
pub(super) type PairStamp = [Option<FileStamp>; 2];

impl TlsFiles {
    /// The files that the configuration names.
    pub fn configured(config: &Config) -> Option<Self> {
        let certificate = config.service.tls_certificate.0.clone()?;
        let key = config.service.tls_key.0.clone()?;
        Some(Self { certificate, key, source: TlsSource::Config })
    }

    /// The stamps of the files at the moment. Follows symbolic links, which tools that renew certificates exchange.
    pub(super) fn stamp(&self) -> PairStamp {
        [&self.certificate, &self.key].map(|path| fs::metadata(path).ok().map(|found| FileStamp::of(&found)))
    }

    /// The content of a file.
    pub(super) fn read(&self, which: TlsFile) -> Result<Vec<u8>, RequestError> {
        let path = self.path(which);
        // Opening a pipe would wait for its writer.
        let metadata = fs::metadata(path).map_err(|error| self.unreadable(which, &error))?;
        if !metadata.is_file() {
            return Err(self.error(which, "is no regular file; give the path of a PEM file"));
        }
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| self.unreadable(which, &error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(self.error(which, "is longer than 1 MiB; give a PEM file with nothing else in it"));
        }
        Ok(bytes)
    }

    /// What to do about a key that other users can read or write; `None` for a key that is safe.
    pub(super) fn exposed_key(&self) -> Option<String> {
        let metadata = fs::metadata(&self.key).ok()?;
        let own = rustix::process::geteuid().as_raw();
        let exposed =
            is_exposed(metadata.mode(), metadata.uid() == own).then_some(metadata.mode() & 0o777)?;
        let path = self.key.display();
        Some(format!(
            "{}: other users can use it (mode {exposed:03o}); `chmod 600 {path}`",
            self.named(TlsFile::Key)
        ))
    }

    /// The error of a file: where it is named, its path, and what `problem` says about it.
    pub(super) fn error(&self, which: TlsFile, problem: &str) -> RequestError {
        let kind = match self.source {
            TlsSource::Config => RequestErrorKind::Config,
            TlsSource::Options => RequestErrorKind::Usage,
        };
        RequestError::new(kind, format!("{}: {problem}", self.named(which)))
    }

    /// The setting of a file with its value.
    pub(super) fn named(&self, which: TlsFile) -> String {
        let path = self.path(which).display();
        match (self.source, which) {
            (TlsSource::Config, TlsFile::Certificate) => format!("service.tls_certificate = \"{path}\""),
            (TlsSource::Config, TlsFile::Key) => format!("service.tls_key = \"{path}\""),
            (TlsSource::Options, TlsFile::Certificate) => format!("--tls-certificate {path}"),
            (TlsSource::Options, TlsFile::Key) => format!("--tls-key {path}"),
        }
    }

    fn path(&self, which: TlsFile) -> &Path {
        match which {
            TlsFile::Certificate => &self.certificate,
            TlsFile::Key => &self.key,
        }
    }

    fn unreadable(&self, which: TlsFile, error: &io::Error) -> RequestError {
        let remedy = "give a file that the user of the service can read";
        self.error(which, &format!("cannot be read: {error}; {remedy}"))
    }
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// True if users who should not can use a file of this mode. A key of another user, such as root, may be shared with a
/// group of the service.
const fn is_exposed(mode: u32, is_own: bool) -> bool {
    mode & if is_own { 0o077 } else { 0o007 } != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_others_may_be_shared_with_a_group() {
        let check = |mode: u32, is_own: bool, expect: bool| {
            assert_eq!(is_exposed(mode, is_own), expect, "{mode:o} {is_own}");
        };
        check(0o100_600, true, false);
        check(0o100_400, true, false);
        check(0o100_640, true, true);
        check(0o100_640, false, false);
        check(0o100_604, false, true);
        check(0o100_602, false, true);
    }
}
