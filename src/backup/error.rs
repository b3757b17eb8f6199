use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    process::runner::SpoolName,
    store::redb::{CopyError, Damage, OpenError, StoppedError, ThrottleFn},
};

/// Why there is no backup, or no store out of one.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder is there already.
    #[error("{}: it is there already, and a backup overwrites nothing; give a folder that does not exist", .0.display())]
    Exists(PathBuf),
    /// The folder cannot be one of a backup.
    #[error("{}: {reason}", path.display())]
    BadTarget {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// Somebody else makes a backup of this name.
    #[error("{}: another process makes this backup right now; wait for it, or give another folder", .0.display())]
    BeingMade(PathBuf),
    /// Something else is done with the store that must not be done at once.
    #[error("{0}")]
    Busy(String),
    /// The process that does it was told to end, or nobody waits for it any more.
    #[error("the backup was stopped before it was whole; what there was of it is removed")]
    Stopped,
    /// The file system refuses.
    #[error("{}: {source}; the disk must have room, and the folder belong to this user", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// The store cannot be read or the copy not be written.
    #[error("{0}")]
    Copy(String),
    /// It is no backup, or of a newer version.
    #[error("{}: {reason}", path.display())]
    NotABackup {
        /// The file that says so.
        path: PathBuf,
        /// Why, and the remedy.
        reason: String,
    },
    /// It is not what it was.
    #[error("{}: the backup is damaged; use another one. {}", dir.display(), list(damage))]
    Damaged {
        /// Its folder.
        dir: PathBuf,
        /// Each part that is.
        damage: Vec<Damage>,
    },
    /// There is a store where it is to be restored.
    #[error(
        "{}: there is a store already; --replace moves it aside into a folder in there, or set HERMOD_HOME to another \
         directory", .0.display()
    )]
    HasStore(PathBuf),
    /// Commands of the store that is to be replaced are under way.
    #[error(
        "{}: {} of the commands that the store's runs have started are under way: {}; wait for their ends, or end them with \
         --replace", dir.display(), commands.len(), runners(commands)
    )]
    CommandsRunning {
        /// The state directory.
        dir: PathBuf,
        /// Each, and the pid of what runs it, if that is known.
        commands: Vec<(SpoolName, Option<i32>)>,
    },
    /// The restored store is the store, and not all of it is where it is to be.
    #[error(
        "{}: the backup is restored, but not all of it is in its place: {source}; the next hermod that opens the store does the \
         rest. Do not restore it again", dir.display()
    )]
    RestoreIncomplete {
        /// The state directory.
        dir: PathBuf,
        /// What the file system says.
        source: io::Error,
    },
    /// The store cannot be taken.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Damages as text, one a line.
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

impl BackupError {
    /// For `map_err` at an operation on `path`.
    pub(super) fn at(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }
}

impl From<CopyError> for BackupError {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Busy => Self::Busy(error.to_string()),
            CopyError::Stopped(stopped) => stopped.into(),
            CopyError::Open(error) => Self::Store(error),
            CopyError::Failed(text) => Self::Copy(text),
        }
    }
}

impl From<StoppedError> for BackupError {
    fn from(_: StoppedError) -> Self {
        Self::Stopped
    }
}

/// Says of each batch of bytes whether to go on, and may wait before it does.
pub type StopFn<'s> = ThrottleFn<'s>;
