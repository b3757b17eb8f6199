//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod provider;
pub mod secret;
