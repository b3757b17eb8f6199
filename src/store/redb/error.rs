//! Errors inside the store. `open.rs` explains them to users.

use std::{io, path::PathBuf};

use super::throttle::StoppedError;

/// Why the store does not work. The text is the engine's or the system's, with the path.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Engine(redb::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The engine's file is damaged.
    #[error(
        "{}: {what}; `hermod store check` says what is lost, `hermod store repair` sets a damaged session aside, and `hermod \
         backup restore --replace` takes a backup", path.display()
    )]
    Damaged { path: PathBuf, what: String },
    /// The throttle callback stopped a long operation.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
}

impl StoreError {
    /// For `map_err` at an operation on `path`.
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }

    /// The epoch has no numbers left for incarnations.
    pub(super) fn opened_too_often() -> Self {
        Self::Engine(redb::Error::Io(io::Error::other(
            "sessions were opened too often; start the process again",
        )))
    }
}

macro_rules! engine_errors {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                Self::Engine(error.into())
            }
        }
    )*};
}

engine_errors!(
    CommitError,
    CompactionError,
    DatabaseError,
    SetDurabilityError,
    StorageError,
    TableError,
    TransactionError
);
