//! `hermod backup`: backs up the whole store into a folder, verifies a backup, and restores it.

mod create;
mod report;
mod restore;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::exit::{CliError, Exit};
use crate::{
    backup::{BackupError, ExistingStore},
    control::RequestError,
    discovery::Variables,
    host,
    host::StoreClient,
};

/// Back up the store while runs go on, look through a backup, make it the store again
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Make a backup of the store, and of the files that it refers to
    ///
    /// Runs go on meanwhile. Not in it: configuration, credentials, and what commands that are under way have said so far.
    Create {
        /// A folder that is not there
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Look through all of a backup: hashes, pages, records, and what they refer to. Writes nothing
    Verify {
        /// Its folder
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a backup the store of this state directory, which no process may hold
    ///
    /// It is verified first. What its commands were at counts as in doubt, for they may have gone on since it was made.
    Restore {
        /// Its folder
        dir: PathBuf,
        /// Move the store that is there aside, into a folder of the state directory; commands of its runs are ended
        #[arg(long)]
        replace: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Creates, verifies or restores a backup.
pub(crate) async fn execute(args: BackupArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        BackupCommand::Create { dir, json } => {
            create::execute(dir, json, &StoreClient::new(variables)?).await
        }
        BackupCommand::Verify { dir, json } => verify::execute(dir, json).await,
        BackupCommand::Restore { dir, replace, json } => {
            let state = host::configured_state_dir(variables)?;
            let existing = if replace { ExistingStore::Replace } else { ExistingStore::Keep };
            restore::execute(dir, state, existing, json).await
        }
    }
}

/// Runs blocking work on a thread of its own.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, CliError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result.map_err(RequestError::from)?),
        Err(error) => Err(CliError::internal(format!("the backup's thread died: {error}"))),
    }
}
