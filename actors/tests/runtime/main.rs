//! The whole tree of actors on virtual time: a scripted model, scripted tools, a journal in memory.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod accounts;
mod at_rest;
mod calls;
mod compressor;
mod conversation;
mod delegation;
mod doubt;
mod gathering;
mod hooks;
mod judging;
mod ladder;
mod lanes;
mod learned;
mod mutations;
mod mutations_found;
mod not_made;
mod passivation;
mod prompts;
mod providers;
mod records;
mod reopen;
mod requests;
mod runs;
mod shared_events;
mod shown;
mod simulation;
mod steer;
mod subagents;
mod supervision;
mod tools;
mod unreadable;
mod waits;
mod watching;
