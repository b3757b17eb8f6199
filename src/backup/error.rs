//! Errors of backups, verifications and restores, and the callback that slows or stops them.

use std::{io, path::PathBuf};

use crate::{
    files::PathError,
    process::runner::SpoolName,
    store::redb::{Damage, StoppedError, StoreError, ThrottleFn},
};

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target folder exists.
    #[error("{}: it is there already, and a backup overwrites nothing; give a folder that does not exist", .0.display())]
    Exists(PathBuf),
    /// The folder cannot be the target of a backup.
    #[error("{}: {reason}", path.display())]
    BadTarget {
        /// The folder.
        path: PathBuf,
        /// The problem and its remedy.
        reason: String,
    },
    /// Another process makes a backup of this name.
    #[error("{}: another process makes this backup right now; wait for it, or give another folder", .0.display())]
    BeingMade(PathBuf),
    /// The process is stopping, or the client of the backup is gone.
    #[error("the backup was stopped before it was whole; what there was of it is removed")]
    Stopped,
    /// A file system error.
    #[error("{0}; the disk must have room, and the folder belong to this user")]
    Io(#[from] PathError),
    /// The folder is no backup, or one of a newer version.
    #[error("{}: {reason}", path.display())]
    NotABackup {
        /// The file that shows it.
        path: PathBuf,
        /// The problem and its remedy.
        reason: String,
    },
    /// The backup's content differs from its manifest.
    #[error("{}: the backup is damaged; use another one. {}", dir.display(), list(damage))]
    Damaged {
        /// The backup's folder.
        dir: PathBuf,
        /// Each damaged part.
        damage: Vec<Damage>,
    },
    /// The target of the restore has a store.
    #[error(
        "{}: there is a store already; --replace moves it aside into a folder in there, or set HERMOD_HOME to another \
         directory", .0.display()
    )]
    HasStore(PathBuf),
    /// Commands of the store that would be replaced are under way.
    #[error(
        "{}: {} of the commands that the store's runs have started are under way: {}; wait for their ends, or end them with \
         --replace", dir.display(), commands.len(), runners(commands)
    )]
    CommandsRunning {
        /// The state directory.
        dir: PathBuf,
        /// Each command, and the pid of its runner, if it is known.
        commands: Vec<(SpoolName, Option<i32>)>,
    },
    /// The restore is committed, but some files are not in their place yet.
    #[error(
        "{}: the backup is restored, but not all of it is in its place: {source}; the next hermod that opens the store does the \
         rest. Do not restore it again", dir.display()
    )]
    RestoreIncomplete {
        /// The state directory.
        dir: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The store is busy, cannot be opened or read, or its copy cannot be written.
    #[error(transparent)]
    Store(StoreError),
}

/// Damaged places as text, one per line.
fn list(damage: &[Damage]) -> String {
    let lines = damage.iter().map(|damage| format!("\n  {damage}"));
    lines.collect()
}

/// Commands under way, as text.
fn runners(commands: &[(SpoolName, Option<i32>)]) -> String {
    let runner = |(name, pid): &(SpoolName, Option<i32>)| {
        pid.map_or_else(|| name.to_string(), |pid| format!("{name} (process {pid})"))
    };
    commands.iter().map(runner).collect::<Vec<_>>().join(", ")
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Stopped(_)) { Self::Stopped } else { Self::Store(error) }
    }
}

impl From<StoppedError> for BackupError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

/// Called with the bytes of each batch; may wait, and returns an error to stop.
pub type StopFn<'s> = ThrottleFn<'s>;
