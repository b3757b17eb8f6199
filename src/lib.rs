//! Hermod: a durable LLM agent runtime made of supervised actors.

pub mod account;
pub mod artifacts;
pub mod backup;
mod builder;
pub mod care;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod credential;
pub mod daemon;
pub mod deaths;
pub mod environment;
mod files;
pub mod memory;
pub mod models;
pub mod ollama;
pub mod process;
pub mod prompt;
pub mod provider;
pub mod rehearsal;
pub mod secret;
pub mod space;
pub mod spec;
pub mod store;
pub mod tool;
mod watchdog;

pub use builder::{ApiMode, Builder};
pub use hermod_actors::{
    RunError, RunRequest, RunResult, Runtime,
    model::{CallEnd, EffectClass, Event, Outcome},
    port::Tool,
};
