//! The engine's file, each page of which is verified when it is read.
//!
//! The engine keeps a checksum of each page in the page above it, and compares them only when it repairs a file. It would decode
//! a damaged page: a panic, or rows that were never written. Here each page is compared with the checksum in the page above it,
//! or with what this process has written there. A page that differs is handed to the engine as zeros, which it takes for no
//! page: the operation that needs it fails, and no other one does.

mod file;
mod layout;
mod newest;

pub(super) use file::{DamagedPages, VerifiedFile};
