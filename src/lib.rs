//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod artifacts;
pub mod cli;
pub mod clock;
pub mod daemon;
pub mod environment;
pub mod ollama;
pub mod process;
pub mod provider;
pub mod rehearsal;
pub mod secret;
pub mod store;
pub mod tool;
