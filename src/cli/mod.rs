//! The command line: its parser, its start, and one file or folder per command, each a thin layer over `host`,
//! `control` and the store. Other files have what commands share: exit codes, output, display, formats.

mod acp;
mod agents;
mod answer_stream;
mod approvals;
mod background;
mod backup;
mod budgets;
mod chaos;
mod chat;
mod completions;
mod config;
mod deliveries;
mod display;
mod doctor;
mod examples;
mod exit;
mod format;
mod gc;
mod hooks;
mod init;
mod journal;
mod live;
mod models;
mod moment;
mod operate;
mod output;
mod policy;
mod program;
mod progress;
mod prompt;
mod providers;
mod rehearse;
mod report;
mod resume;
mod resume_at_service;
mod run;
mod runs;
mod schedules;
mod send;
mod serve;
mod service;
mod sessions;
mod shared_owner;
mod show;
mod steer;
mod stop;
mod store;
mod table;
mod telemetry;
mod terminal;
mod threads;
mod tokens;
mod tree;
mod usage;
mod variables;
mod waits;
mod watch;
mod wire;

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser as _};

use crate::process::helper_main;
// Most commands need these.
use exit::{CliError, Exit};
use output::{print, print_as, print_error, print_json, print_note, print_progress};
use program::Program;

#[derive(Debug, Args)]
struct ListArgs {
    /// At most so many, the youngest
    #[arg(long, default_value_t = 100)]
    max: usize,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// The parser of the command line, for what is made of it, such as man pages.
pub fn command() -> clap::Command {
    Program::command()
}

/// Runs the command line, and returns the exit code.
pub fn main() -> ExitCode {
    // The runner mode comes first: a command of the `shell` tool waits for the start of its runner.
    if let Some(ended) = helper_main() {
        return ended;
    }
    output::print_panics();
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => return output::print_clap(&error).into(),
    };
    if let Some(error) = program.missing_command() {
        return output::print_clap(&error).into();
    }
    if program.log_format == telemetry::LogFormat::Json {
        output::write_json_lines();
    }
    match program.execute() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            print_error(format!("hermod: {failure}"));
            failure.exit.into()
        }
    }
}
