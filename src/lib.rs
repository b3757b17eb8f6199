//! Hermod: a durable LLM agent runtime made of supervised actors. This crate has the adapters (store, providers,
//! tools), the host and the command line; the actors are the crate `hermod-actors`. [`Builder`] starts a runtime with a
//! caller's own tools and models.

pub mod access;
pub mod artifacts;
pub mod backup;
mod budget_limits;
mod builder;
pub mod channel;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
pub mod crash_loop;
pub mod credential;
pub mod delivery;
pub mod discovery;
pub mod disk_space;
mod excerpt;
mod feed_cursor;
mod files;
pub mod hooks;
pub mod host;
pub mod inbound;
pub mod maintenance;
pub mod memory;
pub mod model_catalogue;
pub mod ollama;
pub mod picture;
pub mod policy;
pub mod process;
pub mod prompt;
pub mod provider;
pub mod provider_account;
pub mod redaction;
pub mod rehearsal;
pub mod schedule;
pub mod secret;
pub mod service;
pub mod store;
mod text_template;
pub mod tool;
pub mod traces;
pub mod view;
mod watchdog;

pub use builder::{ApiMode, Builder};
pub use hermod_actors::{
    RunError, RunRequest, RunResult, Runtime,
    model::{CallEnd, EffectClass, Outcome, SessionEvent},
    port::Tool,
};
