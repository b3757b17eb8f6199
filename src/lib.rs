//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod store;
