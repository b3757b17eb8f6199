//! The store, opened by this process as its owner, with what belongs to that: control server, signals and crash
//! history. Opening and release are recorded, so that another end counts as a crash.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize},
};

use hermod_actors::{Runtime, port::Journal};

use super::{
    crash_trials, error::HostError, handover::remove_old_submissions, notes::NoteSink, signals::Signals,
    store_client::open_as_owner,
};
use crate::{
    backup::BackupMaker,
    clock,
    control::{ControlServer, OwnerKind, RequestHandler, RuntimeSlot, StoreReader, SubmissionService},
    crash_loop::CrashHistoryFile,
    maintenance::StateDirMaintenance,
    policy::ApprovedRules,
    store::redb::Durability,
    watchdog::HandlerWatchdog,
};

/// The store owned by this process, with its control server, signals and crash history.
#[derive(Debug)]
pub struct OwnedStore {
    /// The open store.
    pub journal: Arc<dyn Journal>,
    /// The state directory.
    pub state: PathBuf,
    /// Where the runtime is attached that executes the commands of other processes.
    pub runtime: Arc<RuntimeSlot>,
    /// The signals that end this process.
    pub signals: Signals,
    /// The crashes of earlier processes.
    pub crash_history: CrashHistoryFile,
    /// Where lines for people go.
    pub notes: Arc<dyn NoteSink>,
    /// Answers the requests of clients.
    pub handler: RequestHandler,
    server: Option<ControlServer>,
}

impl OwnedStore {
    /// Opens the store and starts the control server, which takes submissions for as long as `kind` says. From here on,
    /// an end without [`OwnedStore::release`] counts as a crash.
    pub async fn acquire(
        state: PathBuf,
        durability: Durability,
        (kind, notes): (OwnerKind, Arc<dyn NoteSink>),
    ) -> Result<Self, HostError> {
        let journal = open_as_owner(&state, durability).await?;
        let (backups, maintenance) =
            (BackupMaker::new(&journal, &state), Arc::new(StateDirMaintenance::new(&state, &journal)));
        let journal: Arc<dyn Journal> = journal;
        let runtime = Arc::new(RuntimeSlot::new(kind));
        let handler = RequestHandler::new(StoreReader::new(Arc::clone(&journal)), maintenance).of_owner(
            Arc::clone(&runtime),
            backups,
            ApprovedRules::new(&state),
        );
        let server = ControlServer::start(&state, handler.clone())
            .map_err(|error| {
                notes.note(&format!("control   {error}; other processes can neither ask nor stop this one"));
            })
            .ok();
        remove_old_submissions(&state);
        let mut crash_history = CrashHistoryFile::read(&state);
        let step = match crash_history.last_trial() {
            Some(trial) => crash_trials::last_progress(&StoreReader::new(journal.clone()), trial.run).await,
            None => None,
        };
        // Until here a signal ends the process at once, which counts as no crash.
        let signals = Signals::listen()?;
        crash_history.begin_process(clock::now(), step);
        Ok(Self { journal, state, runtime, signals, crash_history, notes, handler, server })
    }

    /// The number of open connections of the control socket.
    pub fn clients(&self) -> Arc<AtomicUsize> {
        self.server.as_ref().map(ControlServer::clients).unwrap_or_default()
    }

    /// A reader of the store.
    pub fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.journal))
    }

    /// Closes the store and the control server, and records the end of the process. A failed runtime counts as a crash:
    /// the run in progress may be the cause.
    pub async fn release(self, has_failed: bool) {
        let Self { journal, runtime, crash_history, server, .. } = self;
        if !has_failed {
            crash_history.end(clock::now());
        }
        // No command is executed any more; clients that still wait for one query the store themselves.
        runtime.close();
        if let Some(server) = server {
            server.stop().await;
        }
        drop(journal);
    }
}

/// Lets other processes stop and steer the runs of `runtime` and submit new ones during `work`, and reports message
/// handlers that do not return meanwhile.
pub async fn serve_commands<T>(
    (slot, runtime): (&RuntimeSlot, &Arc<Runtime>),
    submissions: Arc<dyn SubmissionService>,
    notes: &Arc<dyn NoteSink>,
    work: impl Future<Output = T>,
) -> T {
    slot.attach(runtime, &submissions);
    let watchdog_notes = Arc::clone(notes);
    let _watchdog = HandlerWatchdog::start(runtime.health_probe(), move |line| watchdog_notes.note(&line));
    let result = work.await;
    slot.drain().await;
    result
}
