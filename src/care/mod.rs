//! Care for the state directory: what is in it, and what of that can go. Files go after the rows that named them.
//!
//! Files that are made before a row names them (scripts, pictures of a task) are only removed when nobody has touched them
//! for a day; all others are looked for first, and only then in the store.

mod files;
mod footprint;
mod gc;
pub(crate) mod scripts;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::task::spawn_blocking;

use crate::{
    control::{Caretaker, Fault, FaultKind, Footprint, Sweep, Swept},
    store::redb::{Care, CareError, RedbJournal},
};

/// Cares for the state directory whose store is open in this process, for as long as it is.
#[derive(Debug, Clone)]
pub struct Upkeep {
    state: PathBuf,
    store: Care,
}

impl Upkeep {
    /// Of this state directory, whose store this is.
    pub fn new(state: &Path, store: &Arc<RedbJournal>) -> Self {
        Self { state: state.to_owned(), store: store.care() }
    }
}

impl Caretaker for Upkeep {
    fn sweep(&self, sweep: Sweep) -> BoxFuture<'static, Result<Swept, Fault>> {
        let this = self.clone();
        off_thread(move || gc::sweep(&this, sweep))
    }

    fn footprint(&self) -> BoxFuture<'static, Result<Footprint, Fault>> {
        let this = self.clone();
        off_thread(move || footprint::measure(&this))
    }
}

fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Undone> + Send + 'static,
) -> BoxFuture<'static, Result<T, Fault>> {
    let work = spawn_blocking(work);
    async move {
        match work.await {
            Ok(done) => done.map_err(Fault::from),
            Err(error) => Err(Fault::new(FaultKind::Internal, format!("the care ended early: {error}"))),
        }
    }
    .boxed()
}

/// Why it is not done.
#[derive(Debug)]
enum Undone {
    Store(CareError),
    Files { path: PathBuf, source: io::Error },
}

impl Undone {
    fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Files { path, source }
    }
}

impl From<CareError> for Undone {
    fn from(error: CareError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Files { path, source } => {
                write!(f, "{}: {source}; the state directory must belong to this user", path.display())
            }
        }
    }
}

impl From<Undone> for Fault {
    fn from(undone: Undone) -> Self {
        let kind = match undone {
            Undone::Store(CareError::Busy | CareError::Closed) => FaultKind::Busy,
            Undone::Store(CareError::Failed(_)) | Undone::Files { .. } => FaultKind::Store,
        };
        Self::new(kind, undone.to_string())
    }
}
