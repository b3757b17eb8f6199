//! The trait through which the owner copies its open store, and the answer to a client's request for a backup, with its
//! progress lines. `backup/create.rs` makes the copy.

use std::{
    fmt::Debug,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::{sync::mpsc, time::interval};
use tokio_util::sync::CancellationToken;

use super::{error::RequestError, handler::with_progress, protocol::ControlResponse};

/// Interval of the progress lines. It must stay below the 30 s that a client waits for a line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Copies the open store into a backup folder.
pub trait BackupService: Debug + Send + Sync + 'static {
    /// Makes a backup in a folder that does not exist yet, off the calling thread, and returns its manifest. `done`
    /// holds the bytes done so far. The backup ends soon after `stop` is cancelled.
    fn create(
        &self,
        dir: PathBuf,
        stop: CancellationToken,
        done: Arc<AtomicU64>,
    ) -> BoxFuture<'static, Result<Value, RequestError>>;
}

/// Makes a backup and reports its progress to `to`. Returns `None` if the client is gone.
pub(super) async fn back_up(
    backups: Option<&dyn BackupService>,
    dir: PathBuf,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    if !dir.is_absolute() {
        return Err(RequestError::usage(format!(
            "dir: `{}` is not absolute; say where it lies",
            dir.display()
        )));
    }
    let backups = backups.ok_or_else(|| RequestError::internal("this process makes no backups"))?;
    let (stop, done) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
    // Cancels the backup when this future is dropped.
    let _guard = stop.clone().drop_guard();
    let backup = backups.create(dir, stop, Arc::clone(&done));
    let progress = || ControlResponse::BackingUp { bytes: done.load(Ordering::Relaxed) };
    let manifest = with_progress(backup, interval(PROGRESS_INTERVAL), progress, to).await?;
    Ok(manifest.map(ControlResponse::BackedUp))
}
