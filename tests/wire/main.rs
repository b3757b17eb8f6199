//! Wire formats: recorded exchanges, decoders, failures, credentials, and the rehearsal model that serves all formats.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod accounts;
mod cli;
mod cut;
mod failures;
mod played;
mod recorded;
mod recordings;
mod rehearsal;
mod rehearsal_anthropic;
mod rehearsal_endpoint;
mod rehearsal_formats;
mod rehearsal_refusals;
mod rehearsal_responses;
mod rehearsal_script;
mod rehearsal_stock;
mod rehearsal_streams;
mod socket;
mod tools;
#[path = "../common/world.rs"]
mod world;
