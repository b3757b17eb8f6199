use std::path::{Path, PathBuf};

use tokio::time::sleep;

use super::{
    off_thread,
    told::{Form, line, object},
};
use crate::{
    backup::{self, BackupError, Manifest},
    cli::{
        exit::{Exit, Failure},
        inquiry::{Inquiry, PAUSE, Reached, other_answer},
        output::{print, print_json, say},
    },
    control::{Answer, Lost, Request},
};

pub(super) async fn execute(dir: PathBuf, form: Form, inquiry: &Inquiry) -> Result<Exit, Failure> {
    let place =
        |error| Failure::usage(format!("{}: {error}; give a folder that is not there", dir.display()));
    let dir = std::path::absolute(&dir).map_err(place)?;
    let manifest = made(&dir, inquiry).await?;
    for damage in &manifest.damage {
        say(format!("damaged   in the store itself, and so in its backup: {damage}"));
    }
    if !manifest.damage.is_empty() {
        say(
            "warning   the backup is a true copy of a damaged store; `hermod store repair --all` sets damaged sessions aside",
        );
    }
    match form {
        Form::Json => print_json(&object(&dir, &manifest))?,
        Form::Text => {
            print(&format!("backup    {}: {}", dir.display(), line(&manifest)))?;
            say("not in it configuration and credentials: keep them elsewhere");
        }
    }
    Ok(Exit::Ok)
}

/// How often a backup that a holder was making is found to be made still, before that is told.
const AGAIN: u32 = 100;

/// Has it made by whoever holds the store.
async fn made(dir: &Path, inquiry: &Inquiry) -> Result<Manifest, Failure> {
    if dir.to_str().is_none() {
        return Err(Failure::usage(format!("{}: its path is not UTF-8; give another folder", dir.display())));
    }
    let mut again = 0;
    loop {
        match inquiry.reach().await? {
            Reached::Holder(mut client) => {
                match client.ask(&Request::BackupCreate { dir: dir.to_owned() }, |_| Ok(())).await {
                    Ok(Answer::BackedUp(manifest)) => {
                        return serde_json::from_value(manifest).map_err(|_| other_answer().into());
                    }
                    Ok(_) => return Err(other_answer().into()),
                    // It has ended, and has left nothing, or all of it.
                    Err(Lost::Gone) => {
                        again = AGAIN;
                        sleep(PAUSE).await;
                    }
                    Err(Lost::Fault(fault)) => return Err(fault.into()),
                }
            }
            Reached::Store(journal) => {
                let (dir, state) = (dir.to_owned(), inquiry.state().clone());
                let work = move || loop {
                    match backup::create((journal.snapshot()?, &state), &dir, &mut |_| Ok(())) {
                        // By the holder that has gone: it removes what it has made.
                        Err(BackupError::BeingMade(_)) if again > 0 => again -= 1,
                        made => return made,
                    }
                    std::thread::sleep(PAUSE);
                };
                return off_thread(work).await;
            }
        }
    }
}
