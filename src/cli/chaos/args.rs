//! The arguments of `hermod chaos`; their doc comments are its help text.

use std::path::PathBuf;

use clap::{Args, value_parser};

use crate::cli::run::DurabilityArg;

/// Test this installation: kill it at random instants while it works, and count what was lost or done twice
///
/// In a fresh folder with a store of its own, this program runs scripted tasks whose commands append lines to files. It
/// is killed (SIGKILL) and started again, until in the end all runs go on to their outcome.
#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// How often it is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    pub(super) kills: u32,
    /// Unfinished runs at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=1_000))]
    pub(super) runs: u32,
    /// Commands of each run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(1..=10_000))]
    pub(super) commands: u32,
    /// Chance for the instants, which are shares of the time that a start takes here [default: any]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u32>,
    /// What an acknowledged write survives; `relaxed` may lose what it has acknowledged, and that is no failure then
    #[arg(long, value_enum, default_value = "strict")]
    pub(super) durability: DurabilityArg,
    /// Where the fresh folder is made [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Leave the folder there also if all is well
    #[arg(long)]
    pub(super) keep: bool,
    /// Kill nothing: judge the folder that an earlier test has left once more
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kills", "runs", "commands", "seed", "durability", "dir", "keep"])]
    pub(super) again: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}
