//! The store, opened by this process as its owner, with what belongs to that: control server, signals and crash
//! history. Opening and release are recorded, so that another end counts as a crash.

use std::{path::PathBuf, sync::Arc};

use hermod_actors::port::Journal;

use super::{crash_trials, error::HostError, notes::NoteSink, signals::Signals, store_client::open_as_owner};
use crate::{
    backup::BackupMaker,
    clock,
    control::{CommandReceiver, ControlServer, RequestHandler, StoreReader},
    crash_loop::CrashHistoryFile,
    maintenance::StateDirMaintenance,
    store::redb::Durability,
};

/// The store owned by this process, with its control server, signals and crash history.
#[derive(Debug)]
pub struct OwnedStore {
    /// The open store.
    pub journal: Arc<dyn Journal>,
    /// The state directory.
    pub state: PathBuf,
    /// The commands of other processes.
    pub commands: CommandReceiver,
    /// The signals that end this process.
    pub signals: Signals,
    /// The crashes of earlier processes.
    pub crash_history: CrashHistoryFile,
    /// Where lines for people go.
    pub notes: Arc<dyn NoteSink>,
    server: Option<ControlServer>,
}

impl OwnedStore {
    /// Opens the store and starts the control server. From here on, an end without [`OwnedStore::release`] counts as
    /// a crash.
    pub async fn acquire(
        state: PathBuf,
        durability: Durability,
        notes: Arc<dyn NoteSink>,
    ) -> Result<Self, HostError> {
        let journal = open_as_owner(&state, durability).await?;
        let (backups, maintenance) =
            (BackupMaker::new(&journal, &state), Arc::new(StateDirMaintenance::new(&state, &journal)));
        let journal: Arc<dyn Journal> = journal;
        let (handler, commands) = RequestHandler::new(StoreReader::new(Arc::clone(&journal)));
        let handler = handler.with_backup_service(backups).with_maintenance(maintenance);
        let server = ControlServer::start(&state, handler)
            .map_err(|error| notes.note(&format!("control   {error}")))
            .ok();
        let mut crash_history = CrashHistoryFile::read(&state);
        let step = match crash_history.last_trial() {
            Some(trial) => crash_trials::last_progress(&StoreReader::new(journal.clone()), trial.run).await,
            None => None,
        };
        // Until here a signal ends the process at once, which counts as no crash.
        let signals = Signals::listen()?;
        crash_history.begin_process(clock::now(), step);
        Ok(Self { journal, state, commands, signals, crash_history, notes, server })
    }

    /// A reader of the store.
    pub fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.journal))
    }

    /// Closes the store and the control server, and records the end of the process. A failed runtime counts as a crash:
    /// the run in progress may be the cause.
    pub async fn release(self, has_failed: bool) {
        let Self { journal, commands, crash_history, server, .. } = self;
        if !has_failed {
            crash_history.end(clock::now());
        }
        // No command is executed any more; clients that still wait for one query the store themselves.
        drop(commands);
        if let Some(server) = server {
            server.stop().await;
        }
        drop(journal);
    }
}
