//! Errors inside the store. `open.rs` explains them to users.

use std::path::PathBuf;

use super::open::OpenError;
use crate::files::PathError;

/// The result of an operation on the store.
pub(super) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why an operation on the store failed. The text is the engine's or the system's, with the path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of the engine.
    #[error(transparent)]
    Engine(redb::Error),
    /// A file system error.
    #[error(transparent)]
    File(#[from] PathError),
    /// The engine's file is damaged.
    #[error(
        "{}: {what}; `hermod store check` says what is lost, `hermod store repair` sets a damaged session aside, and `hermod \
         backup restore --replace` takes a backup", path.display()
    )]
    Damaged {
        /// The engine's file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The file is no store, or one that this operation cannot use.
    #[error(transparent)]
    Unusable(#[from] OpenError),
    /// A gc or another copy of the store is under way.
    #[error("a gc or another backup of this store is under way; try again when it has ended")]
    Busy,
    /// The store has a table of a newer program.
    #[error("the store has a table `{0}`, which no copy knows")]
    UnknownTable(String),
    /// The throttle callback stopped a long operation.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self::Engine(error.into())
    }
}

/// The throttle callback asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it was stopped")]
pub struct StoppedError;

/// Called with the bytes processed since the last call; may wait, and returns an error to stop.
pub type ThrottleFn<'p> = dyn FnMut(usize) -> Result<(), StoppedError> + 'p;
