//! `hermod backup`: backs up the whole store into a folder, verifies a backup, and restores it. `crate::backup` does the
//! work; the owner of the store makes a backup, and without an owner this process does.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tokio::{task::spawn_blocking, time::sleep};

use super::{CliError, Exit, print, print_as, print_json, print_note};
use crate::{
    backup::{
        self, BackupError, BackupView, ExistingStore, FileClass, Manifest, RestoredBackupView,
        VerifiedBackupView,
    },
    control::{ControlRequest, ControlResponse, RequestError},
    discovery::Variables,
    host::{self, OwnerReply, RETRY_DELAY, StoreClient, unexpected_response},
};

/// Limit of retries while the former owner is still removing its unfinished backup; after these the error is
/// reported.
const MAX_RETRIES: u32 = 100;

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
        BackupCommand::Create { dir, json } => create(dir, json, &StoreClient::new(variables)?).await,
        BackupCommand::Verify { dir, json } => verify(dir, json).await,
        BackupCommand::Restore { dir, replace, json } => {
            let state = host::configured_state_dir(variables)?;
            let existing = if replace { ExistingStore::Replace } else { ExistingStore::Keep };
            restore(dir, state, existing, json).await
        }
    }
}

async fn create(dir: PathBuf, json: bool, client: &StoreClient) -> Result<Exit, CliError> {
    let dir_error =
        |error| CliError::usage(format!("{}: {error}; give a folder that is not there", dir.display()));
    let dir = std::path::absolute(&dir).map_err(dir_error)?;
    let backup = BackupView::new(&dir, create_by_owner(&dir, client).await?);
    for damage in &backup.store_damage {
        print_note(format!("damaged   in the store itself, and so in its backup: {damage}"));
    }
    if !backup.store_damage.is_empty() {
        print_note(
            "warning   the backup is a true copy of a damaged store; `hermod store repair --all` sets damaged sessions aside",
        );
    }
    print_as(json, &backup, |backup| format!("backup    {}: {}", backup.dir, format_backup(backup)))?;
    if !json {
        print_note("not in it configuration and credentials: keep them elsewhere");
    }
    Ok(Exit::Ok)
}

/// Lets the owner of the store make the backup; without an owner, makes it here.
async fn create_by_owner(dir: &Path, client: &StoreClient) -> Result<Manifest, CliError> {
    if dir.to_str().is_none() {
        return Err(CliError::usage(format!(
            "{}: its path is not UTF-8; give another folder",
            dir.display()
        )));
    }
    let mut retries = 0;
    loop {
        match client.ask_owner(&ControlRequest::BackupCreate { dir: dir.to_owned() }).await? {
            OwnerReply::Response(ControlResponse::BackedUp(manifest)) => {
                return serde_json::from_value(manifest).map_err(|_| unexpected_response().into());
            }
            OwnerReply::Response(_) => return Err(unexpected_response().into()),
            // The owner has ended. It may still be removing an unfinished backup, so the request is repeated. A
            // complete backup is reported as already there.
            OwnerReply::Disconnected => {
                retries = MAX_RETRIES;
                sleep(RETRY_DELAY).await;
            }
            OwnerReply::NoOwner(journal) => {
                let (dir, state) = (dir.to_owned(), client.state().clone());
                let work = move || loop {
                    match backup::create(journal.snapshot()?, &state, &dir, &mut |_| Ok(())) {
                        // The owner that has just ended is still removing its unfinished backup.
                        Err(BackupError::BeingMade(_)) if retries > 0 => retries -= 1,
                        result => return result,
                    }
                    std::thread::sleep(RETRY_DELAY);
                };
                return off_thread(work).await;
            }
        }
    }
}

async fn verify(dir: PathBuf, json: bool) -> Result<Exit, CliError> {
    let path = dir.clone();
    let report = off_thread(move || backup::verify(&path, &mut |_| Ok(()))).await?;
    let verified = VerifiedBackupView::new(&dir, report);
    let backup = &verified.backup;
    for damage in &verified.damage {
        print_note(format!("damaged   {damage}"));
    }
    for damage in &backup.store_damage {
        print_note(format!("damaged   in the store itself, when this was made: {damage}"));
    }
    print_as(json, &verified, |VerifiedBackupView { ok, backup, .. }| {
        let word = if *ok { "whole    " } else { "damaged  " };
        format!("{word} {} of {}: {}", backup.dir, backup.info.created_at, format_backup(backup))
    })?;
    Ok(if verified.ok { Exit::Ok } else { Exit::Store })
}

async fn restore(
    dir: PathBuf,
    state: PathBuf,
    existing: ExistingStore,
    json: bool,
) -> Result<Exit, CliError> {
    let restored = off_thread(move || backup::restore(&state, &dir, existing, &mut |_| Ok(()))).await?;
    if json {
        print_json(&restored)?;
        return Ok(Exit::Ok);
    }
    let RestoredBackupView { backup, state, ended, replaced } = restored;
    if ended > 0 {
        print_note(format!("ended     {ended} commands of the store that was there"));
    }
    if let Some(replaced) = replaced {
        print_note(format!("replaced  the store that was there lies in {replaced}"));
    }
    print(&format!("restored  {state} of {}: {}", backup.info.created_at, format_backup(&backup)))?;
    if backup.info.counts.open_runs > 0 {
        print_note(
            "unfinished runs go on with `hermod runs resume --all --wait`; what their commands were at is in doubt",
        );
    }
    Ok(Exit::Ok)
}

/// The content of a backup in one line.
fn format_backup(backup: &BackupView) -> String {
    let counts = &backup.info.counts;
    let size = |class| backup.info.sizes.get(&class).copied().unwrap_or_default();
    let files = |class, name: &str| format!("{} {name} ({} bytes)", size(class).files, size(class).bytes);
    format!(
        "{} sessions, {} runs ({} unfinished), {} records; store {} bytes, {}, {}, {}, {}",
        counts.sessions,
        counts.runs,
        counts.open_runs,
        counts.records,
        size(FileClass::Store).bytes,
        files(FileClass::Blobs, "blobs"),
        files(FileClass::Artifacts, "artifacts"),
        files(FileClass::Scripts, "scripts"),
        files(FileClass::Memories, "memories"),
    )
}

/// Runs blocking work on a thread of its own.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, CliError> {
    match spawn_blocking(work).await {
        Ok(result) => Ok(result.map_err(RequestError::from)?),
        Err(error) => Err(CliError::internal(format!("the backup's thread died: {error}"))),
    }
}
