//! The write queue: the order of waiting writes, and the size of a batch. Stops come first.

use std::collections::VecDeque;

use super::OutcomeReply;
use crate::{
    model::{Body, OutcomeCause, RunEnded, SessionId},
    port::WriteOp,
};

/// Most writes of a batch, so that no commit delays the next one for long.
const MAX_BATCH_WRITES: usize = 32;
/// With more waiting writes than this, as when thousands of runs are revived, all of them wait long anyway. Fewer
/// commits are the only help then.
const BACKLOG_THRESHOLD: usize = 1_024;
/// Most writes of a batch in that case.
const MAX_BACKLOG_BATCH_WRITES: usize = 256;
/// Most bytes of records and inbox messages in a batch.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The waiting writes. The committing task takes the next batch from here itself, without a message to the actor.
#[derive(Default)]
pub(super) struct WriteQueue {
    pub(super) waiting: VecDeque<(WriteOp, OutcomeReply)>,
    /// Whether a committing task runs. It runs as long as writes wait.
    pub(super) is_committing: bool,
}

pub(super) type WriteBatch = (Vec<WriteOp>, Vec<OutcomeReply>);

impl WriteQueue {
    /// Moves the append of a session to the front; a session has at most one, so its order is kept.
    pub(super) fn expedite(&mut self, session: SessionId) {
        let of_session = |(write, _): &(WriteOp, OutcomeReply)| matches!(write, WriteOp::Append(append) if append.session == session);
        if let Some(append) = self.waiting.iter().position(of_session).and_then(|at| self.waiting.remove(at))
        {
            self.waiting.push_front(append);
        }
    }

    /// The next batch, as large as a commit should be; `None` ends the committing task.
    pub(super) fn next_batch(&mut self) -> Option<WriteBatch> {
        let max_writes =
            if self.waiting.len() > BACKLOG_THRESHOLD { MAX_BACKLOG_BATCH_WRITES } else { MAX_BATCH_WRITES };
        let (mut batch, mut replies, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((write, _)) = self.waiting.front() {
            bytes += write_bytes(write);
            if !batch.is_empty() && (batch.len() >= max_writes || bytes > MAX_BATCH_BYTES) {
                break;
            }
            if let Some((write, reply)) = self.waiting.pop_front() {
                batch.push(write);
                replies.push(reply);
            }
        }
        self.is_committing = !batch.is_empty();
        self.is_committing.then_some((batch, replies))
    }
}

/// Whether the write stops a run: a stop does not queue behind the work of other sessions.
pub(super) fn is_stop_write(write: &WriteOp) -> bool {
    let WriteOp::Append(append) = write else { return false };
    let is_stop = |ended: &RunEnded| matches!(ended.ended.cause, Some(OutcomeCause::Stop { .. }));
    append.records.iter().any(|record| {
        matches!(&record.body, Body::RunStopping(_))
            || matches!(&record.body, Body::RunEnded(ended) if is_stop(ended))
    })
}

/// Approximate bytes that a write adds to its batch.
fn write_bytes(write: &WriteOp) -> usize {
    let WriteOp::Append(append) = write else { return 0 };
    let spawned = append.spawned.iter().flat_map(|spawned| &spawned.records);
    let records: usize =
        append.records.iter().chain(spawned).map(|record| 256 + record.body.text_bytes()).sum();
    records + append.deliver.iter().map(|(_, item)| item.len()).sum::<usize>()
}
