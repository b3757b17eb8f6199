//! Disk usage and gc of the state directory, as the service of the process that has the store open. Files are removed
//! after the rows that named them.
//!
//! Files that are written before a row names them (scripts, images of a task) stay until they are untouched for a day.
//! All other files are listed first, and looked up in the store afterwards.

mod files;
mod footprint;
mod gc;
pub(crate) mod scripts;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::model::SessionId;
use tokio::task::spawn_blocking;

use crate::{
    control::{
        Footprint, GcReport, GcRequest, MaintenanceService, RequestError, RequestErrorKind, SessionRemoval,
    },
    files::PathError,
    store::redb::{GarbageCollector, GcError, RedbJournal},
};

/// Maintains a state directory while its store is open in this process.
#[derive(Debug, Clone)]
pub struct StateDirMaintenance {
    state: PathBuf,
    store: GarbageCollector,
}

impl StateDirMaintenance {
    /// `store` is the store of the state directory `state`.
    pub fn new(state: &Path, store: &Arc<RedbJournal>) -> Self {
        Self { state: state.to_owned(), store: store.garbage_collector() }
    }
}

impl MaintenanceService for StateDirMaintenance {
    fn gc(&self, request: GcRequest) -> BoxFuture<'static, Result<GcReport, RequestError>> {
        let maintenance = self.clone();
        off_thread(move || gc::sweep(&maintenance, request))
    }

    fn remove_session(&self, session: SessionId) -> BoxFuture<'static, Result<SessionRemoval, RequestError>> {
        let maintenance = self.clone();
        off_thread(move || gc::remove_session(&maintenance, session))
    }

    fn footprint(&self) -> BoxFuture<'static, Result<Footprint, RequestError>> {
        let maintenance = self.clone();
        off_thread(move || footprint::measure(&maintenance))
    }
}

fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MaintenanceError> + Send + 'static,
) -> BoxFuture<'static, Result<T, RequestError>> {
    let work = spawn_blocking(work);
    async move {
        match work.await {
            Ok(result) => result.map_err(RequestError::from),
            Err(error) => Err(RequestError::internal(format!("the care ended early: {error}"))),
        }
    }
    .boxed()
}

/// Why maintenance failed.
#[derive(Debug, thiserror::Error)]
enum MaintenanceError {
    #[error(transparent)]
    Store(#[from] GcError),
    #[error("{0}; the state directory must belong to this user")]
    Files(#[from] PathError),
}

impl From<MaintenanceError> for RequestError {
    fn from(error: MaintenanceError) -> Self {
        let kind = match error {
            MaintenanceError::Store(GcError::Busy | GcError::Closed) => RequestErrorKind::Busy,
            MaintenanceError::Store(GcError::Failed(_)) | MaintenanceError::Files(_) => {
                RequestErrorKind::Store
            }
        };
        Self::new(kind, error.to_string())
    }
}
