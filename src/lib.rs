//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod process;
pub mod rehearsal;
pub mod store;
pub mod tool;
