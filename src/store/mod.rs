//! Where the journal is kept: one folder per engine, each behind the same port.

pub mod redb;
