//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod process;
pub mod provider;
pub mod rehearsal;
pub mod secret;
pub mod store;
pub mod tool;
