use std::{path::PathBuf, sync::Arc};

use hermod_actors::port::{Clock, Journal};

use super::{signals::Signals, trial};
use crate::{
    backup::Copier,
    care::Upkeep,
    cli::{
        exit::{Exit, Failure},
        inquiry,
        output::say,
    },
    clock::SystemClock,
    control::{Desk, Orders, Reader, Server},
    deaths::Keeper,
    store::redb::Durability,
};

/// The store that this process holds, and what belongs to that.
pub(crate) struct Holding {
    pub(crate) journal: Arc<dyn Journal>,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// What others want done.
    pub(crate) orders: Orders,
    pub(crate) signals: Signals,
    pub(crate) deaths: Keeper,
    server: Option<Server>,
}

impl Holding {
    /// Opens the store and listens to others. From here on, an end without [`Holding::release`] is a death.
    pub(crate) async fn take(state: PathBuf, durability: Durability) -> Result<Self, Failure> {
        let journal = inquiry::open(&state, durability).await?;
        let (copier, upkeep) = (Copier::new(&journal, &state), Arc::new(Upkeep::new(&state, &journal)));
        let journal: Arc<dyn Journal> = journal;
        let (desk, orders) = Desk::new(Reader::new(Arc::clone(&journal)));
        let desk = desk.with_copier(copier).cared_for_by(upkeep);
        let server = Server::start(&state, desk).map_err(|error| say(format!("control   {error}"))).ok();
        let mut deaths = Keeper::read(&state);
        let step = match deaths.tried() {
            Some(run) => trial::step(&Reader::new(journal.clone()), run).await,
            None => None,
        };
        // Until here a signal ends the process at once, and that is no death.
        let signals = Signals::listen()?;
        deaths.take_over(SystemClock::default().at(), step);
        Ok(Self { journal, state, orders, signals, deaths, server })
    }

    /// Reads the store.
    pub(crate) fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.journal))
    }

    /// Lets go of the store, with what it was held for.
    pub(crate) async fn release<T>(self, done: Result<T, Failure>) -> Result<T, Failure> {
        let Self { journal, orders, deaths, server, .. } = self;
        // A runtime that could not go on is as good as a crash: what it was at may be to blame.
        if !matches!(&done, Err(Failure { exit: Exit::Internal, .. })) {
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
