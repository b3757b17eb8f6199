//! The engine's file, whose pages are verified when they are read.
//!
//! The engine keeps a checksum of each page in its parent page, and compares them only when it repairs a file.
//! Otherwise it decodes damaged pages, which causes panics, or rows that were never written.
//!
//! This module compares each page with the checksum in its parent page, or with what this process has written. A page
//! for which it knows neither is not verified.
//!
//! The engine gets a damaged page as zeros, which it does not accept as a page: only the operation that needs the page
//! fails.

mod file;
mod layout;

pub(super) use file::{DamagedPages, VerifiedFile};
