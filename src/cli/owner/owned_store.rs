//! The store, opened by this process as its owner: control server, signals and crash history belong to it.

use std::{path::PathBuf, sync::Arc};

use hermod_actors::port::{Clock, Journal};

use super::{probation, signals::Signals};
use crate::{
    backup::BackupMaker,
    cli::{
        exit::{CliError, Exit},
        output::print_note,
        store_client,
    },
    clock::SystemClock,
    control::{CommandReceiver, ControlServer, RequestHandler, StoreReader},
    crash_loop::CrashHistoryFile,
    maintenance::StateDirMaintenance,
    store::redb::Durability,
};

/// The store owned by this process, with its control server, signals and crash history.
pub(crate) struct OwnedStore {
    pub(crate) journal: Arc<dyn Journal>,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// The commands of other processes.
    pub(crate) commands: CommandReceiver,
    pub(crate) signals: Signals,
    pub(crate) crash_history: CrashHistoryFile,
    server: Option<ControlServer>,
}

impl OwnedStore {
    /// Opens the store and starts the control server. From here on, an end without [`OwnedStore::release`] counts as
    /// a crash.
    pub(crate) async fn acquire(state: PathBuf, durability: Durability) -> Result<Self, CliError> {
        let journal = store_client::open(&state, durability).await?;
        let (copier, upkeep) =
            (BackupMaker::new(&journal, &state), Arc::new(StateDirMaintenance::new(&state, &journal)));
        let journal: Arc<dyn Journal> = journal;
        let (desk, orders) = RequestHandler::new(StoreReader::new(Arc::clone(&journal)));
        let desk = desk.with_backup_service(copier).with_maintenance(upkeep);
        let server =
            ControlServer::start(&state, desk).map_err(|error| print_note(format!("control   {error}"))).ok();
        let mut deaths = CrashHistoryFile::read(&state);
        let step = match deaths.last_tried_run() {
            Some(run) => probation::last_progress(&StoreReader::new(journal.clone()), run).await,
            None => None,
        };
        // Until here a signal ends the process at once, which counts as no crash.
        let signals = Signals::listen()?;
        deaths.take_over(SystemClock::default().at(), step);
        Ok(Self { journal, state, commands: orders, signals, crash_history: deaths, server })
    }

    /// A reader of the store.
    pub(crate) fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.journal))
    }

    /// Closes the store and the control server, and records the end of the process.
    pub(crate) async fn release<T>(self, done: Result<T, CliError>) -> Result<T, CliError> {
        let Self { journal, commands: orders, crash_history: deaths, server, .. } = self;
        // A failed runtime counts as a crash: the run in progress may be the cause.
        if !matches!(&done, Err(CliError { exit: Exit::Internal, .. })) {
            deaths.end(SystemClock::default().at());
        }
        // No command is executed any more; clients that still wait for one query the store themselves.
        drop(orders);
        if let Some(server) = server {
            server.stop().await;
        }
        drop(journal);
        done
    }
}
