//! `hermod backup verify`: checks a whole backup, and prints what is damaged.

use std::path::PathBuf;

use super::{off_thread, report::format_backup};
use crate::{
    backup::{self, VerifiedBackupView},
    cli::{
        exit::{CliError, Exit},
        output::{print_as, print_note},
    },
};

pub(super) async fn execute(dir: PathBuf, json: bool) -> Result<Exit, CliError> {
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
