//! A journal that tells when a commit has put messages into the outbox, so that they are delivered without polling.

use std::sync::Arc;

use futures::future::BoxFuture;
use hermod_actors::{
    model::{DiskFull, Seq, SessionId},
    port::{IndexRow, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};
use tokio::sync::watch;

/// Changes when the outbox has new messages. A clone is of the same outbox.
#[derive(Debug, Clone, Default)]
pub struct OutboxSignal(Arc<watch::Sender<()>>);

impl OutboxSignal {
    fn notify(&self) {
        self.0.send_replace(());
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }
}

/// Another journal, whose new messages are signalled when they are durable.
#[derive(Debug)]
pub struct OutboxJournal {
    journal: Arc<dyn Journal>,
    signal: OutboxSignal,
}

impl OutboxJournal {
    /// Signals the new messages of `journal`.
    pub fn new(journal: Arc<dyn Journal>, signal: OutboxSignal) -> Self {
        Self { journal, signal }
    }
}

/// Whether a write may add a message that is to be delivered.
fn adds_message(write: &WriteOp) -> bool {
    match write {
        WriteOp::Append(append) => append.index.iter().any(|row| matches!(row, IndexRow::Outbox(_))),
        WriteOp::RetryDelivery(..) => true,
        WriteOp::Schedule(write) => !write.notices.is_empty(),
        WriteOp::Open(_)
        | WriteOp::Close(..)
        | WriteOp::Deliver(..)
        | WriteOp::UpdateDelivery(_)
        | WriteOp::RemoveSchedule(..) => false,
    }
}

impl Journal for OutboxJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let signal = batch.iter().any(adds_message).then(|| self.signal.clone());
        let committing = self.journal.commit(batch);
        Box::pin(async move {
            let committed = committing.await;
            if let Some(signal) = signal {
                signal.notify();
            }
            committed
        })
    }

    fn restore_generation(&self) -> u64 {
        self.journal.restore_generation()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.journal.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.journal.rows()
    }

    fn disk_full(&self) -> Option<DiskFull> {
        self.journal.disk_full()
    }
}
