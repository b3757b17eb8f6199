//! `hermod backup create`: the owner of the store makes the backup; without an owner, this process does. Prints the
//! report.

use std::path::{Path, PathBuf};

use tokio::time::sleep;

use super::{off_thread, report::format_backup};
use crate::{
    backup::{self, BackupError, BackupView, Manifest},
    cli::{
        exit::{CliError, Exit},
        output::{print_as, print_note},
    },
    control::{ControlRequest, ControlResponse},
    host::{OwnerReply, RETRY_DELAY, StoreClient, unexpected_response},
};

pub(super) async fn execute(dir: PathBuf, json: bool, client: &StoreClient) -> Result<Exit, CliError> {
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

/// Limit of retries while the former owner is still removing its unfinished backup; after these the error is
/// reported.
const MAX_RETRIES: u32 = 100;

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
