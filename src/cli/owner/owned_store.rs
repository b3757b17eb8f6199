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

/// The store that this process holds, and what belongs to that.
pub(crate) struct OwnedStore {
    pub(crate) journal: Arc<dyn Journal>,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// What others want done.
    pub(crate) commands: CommandReceiver,
    pub(crate) signals: Signals,
    pub(crate) crash_history: CrashHistoryFile,
    server: Option<ControlServer>,
}

impl OwnedStore {
    /// Opens the store and listens to others. From here on, an end without [`OwnedStore::release`] is a death.
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
        // Until here a signal ends the process at once, and that is no death.
        let signals = Signals::listen()?;
        deaths.take_over(SystemClock::default().at(), step);
        Ok(Self { journal, state, commands: orders, signals, crash_history: deaths, server })
    }

    /// Reads the store.
    pub(crate) fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.journal))
    }

    /// Lets go of the store, with what it was held for.
    pub(crate) async fn release<T>(self, done: Result<T, CliError>) -> Result<T, CliError> {
        let Self { journal, commands: orders, crash_history: deaths, server, .. } = self;
        // A runtime that could not go on is as good as a crash: what it was at may be to blame.
        if !matches!(&done, Err(CliError { exit: Exit::Internal, .. })) {
            deaths.end(SystemClock::default().at());
        }
        // Nobody carries anything out any more; whoever still waits for that looks for himself.
        drop(orders);
        if let Some(server) = server {
            server.stop().await;
        }
        drop(journal);
        done
    }
}
