//! Backups of the store that the holder has open, for whoever asks.

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
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    error::{RequestError, RequestErrorKind},
    protocol::ControlResponse,
};

/// How often it is told how far a backup is; a client waits 30 s for a line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Makes backups.
pub trait BackupService: Debug + Send + Sync + 'static {
    /// Makes one in a folder that is not there, off the calling thread, and gives its manifest. Counts the bytes that are
    /// done, and ends soon after it is cancelled.
    fn create(
        &self,
        dir: PathBuf,
        so_far: (CancellationToken, Arc<AtomicU64>),
    ) -> BoxFuture<'static, Result<Value, RequestError>>;
}

/// Makes one, and tells `to` how far it is; nothing, if nobody listens any more.
pub(super) async fn back_up(
    copier: Option<&dyn BackupService>,
    dir: PathBuf,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    if !dir.is_absolute() {
        return Err(RequestError::usage(format!(
            "dir: `{}` is not absolute; say where it lies",
            dir.display()
        )));
    }
    let copier = copier
        .ok_or_else(|| RequestError::new(RequestErrorKind::Internal, "this process makes no backups"))?;
    let (stop, done) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
    // Whoever drops this has nobody left who waits for it.
    let _guard = stop.clone().drop_guard();
    let mut made = copier.create(dir, (stop, Arc::clone(&done)));
    let mut tick = interval(PROGRESS_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            made = &mut made => return made.map(|manifest| Some(ControlResponse::BackedUp(manifest))),
            _ = tick.tick() => {
                if to.send(ControlResponse::BackingUp { bytes: done.load(Ordering::Relaxed) }).await.is_err() {
                    return Ok(None);
                }
            }
        }
    }
}
