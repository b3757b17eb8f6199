//! From a session's id to its state: taking it over, and reading its journal.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::{
    model::{Incarnation, SessionId},
    persistence::{Stored, replay},
    port::{Journal, JournalError, ReadError},
    turn::Dormant,
};

/// Why a session is not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unopened {
    /// The store takes no writes. The runtime is about to end of that.
    #[error(transparent)]
    Write(#[from] JournalError),
    /// The store cannot be read. It says nothing of the session.
    #[error("{0}")]
    Read(ReadError),
    /// This program cannot read this session's journal.
    #[error("{0}")]
    Unreadable(String),
}

impl From<ReadError> for Unopened {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Record { .. } => Self::Unreadable(error.to_string()),
            ReadError::Unavailable(_) | ReadError::Row { .. } => Self::Read(error),
        }
    }
}

/// A session that can be woken up, as whom, and whether something waits in its inbox.
pub(crate) type Opened = (Dormant, Incarnation, bool);

/// Reads the journal of a session that `opening` takes over, behind whatever an earlier incarnation still has in the queue.
pub(super) async fn open(
    journal: &dyn Journal,
    session: SessionId,
    opening: impl Future<Output = Result<Stored, JournalError>> + Send,
) -> Result<Opened, Unopened> {
    let opened = match opening.await? {
        Stored::Opened(opened) => opened,
        Stored::Refused(refusal) => return Err(Unopened::Unreadable(refusal.to_string())),
        Stored::Appended(_) | Stored::Closed(_) | Stored::Delivered => return Err(other_question()),
    };
    let folded = AssertUnwindSafe(fold(journal, session)).catch_unwind().await;
    let dormant = folded.unwrap_or_else(|_| {
        Err(Unopened::Unreadable("reading its journal makes this program panic".into()))
    })?;
    if dormant.last() != opened.last {
        let (read, last) = (dormant.last(), opened.last);
        return Err(Unopened::Unreadable(format!("its journal has {read} records of {last}")));
    }
    Ok((dormant, opened.incarnation, !opened.inbox.is_empty()))
}

async fn fold(journal: &dyn Journal, session: SessionId) -> Result<Dormant, Unopened> {
    let mut dormant = Dormant::empty(session);
    replay(journal, session, 1, |_, record| dormant.fold(&record)).await?;
    Ok(dormant)
}

pub(super) fn other_question() -> Unopened {
    Unopened::Unreadable("the store answered another question".into())
}
