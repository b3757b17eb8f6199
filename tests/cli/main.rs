//! The real binary, as a person or a program calls it: commands, configuration, terminal, control socket.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod acp;
mod acp_faults;
mod acp_transcript;
mod agents;
mod bad_files;
mod bad_input;
mod budget;
mod compression;
mod config;
mod config_command;
mod control;
mod doctor;
mod editor;
mod hooks;
mod installations;
mod json_fields;
mod library;
mod manners;
mod model_lists;
mod models;
#[path = "../common/pictures.rs"]
mod pictures;
mod policy;
mod prompt;
mod providers;
mod report;
mod run;
#[path = "../common/running.rs"]
mod running;
mod schedules;
mod server;
mod session_workspace;
mod show;
mod suspended;
mod terminal;
mod tokens;
mod tree;
mod waits;
#[path = "../common/world.rs"]
mod world;
