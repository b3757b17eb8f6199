//! TLS of the HTTP service: the certificate of its files, which is exchanged when they change, and handshakes.
//!
//! `files.rs` reads the files and says what is wrong with one, `certificate.rs` makes a certificate of them, `renewal.rs`
//! decides when they are read again and is pure, `acceptor.rs` joins these. There is no timer: files are looked at when a
//! client comes.

mod acceptor;
mod certificate;
mod files;
mod renewal;

pub(crate) use acceptor::TlsAcceptor;
pub use files::{TlsFiles, TlsSource};

#[cfg(test)]
mod tests;
