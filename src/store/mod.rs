//! Storage of the journal: one folder per engine, all behind the same port.

pub mod redb;
