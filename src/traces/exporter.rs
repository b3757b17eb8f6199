//! Exports the spans of each leg of a run when its end comes in the feed. Stateless but for the place in the feed: the spans
//! of a leg are made of the journal then, whichever processes wrote it. A span is exported at least once.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RecordFeed, SharedEntry,
    model::{Body, ParentRef, RunEnded, RunId, RunRow, Seq, SessionId},
    port::{FeedCursor, Journal, ReadError},
};
use tokio::time::sleep;

use super::{
    fold::{LegSpans, TracedLeg},
    sender::SpanSender,
    span::{Span, TraceId},
};
use crate::feed_cursor::CursorFile;

/// Pause after a commit before the ends since then are looked for, so that several are exported together.
const PAUSE: Duration = Duration::from_secs(1);
/// Spans of one request, except for what one record adds.
const MAX_BATCH: usize = 512;
/// Records per read of a journal.
const PAGE_RECORDS: usize = 256;
/// Most ancestors of a run that are looked for; damaged rows could lead in a circle.
const MAX_DEPTH: usize = 64;
/// Pages of the feed without an end after which the place is kept all the same.
const MAX_PAGES_UNKEPT: u32 = 64;

/// Reads the feed, and exports.
#[derive(Debug)]
pub(super) struct Exporter {
    pub(super) feed: RecordFeed,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) cursor: CursorFile,
    pub(super) sender: SpanSender,
    /// Spans that are not sent yet.
    pub(super) batch: Vec<Span>,
}

/// The end of a leg, as the feed has it.
#[derive(Debug, Clone, Copy)]
struct LegEnd {
    run: RunId,
    session: SessionId,
    seq: Seq,
}

impl Exporter {
    /// Exports until the store cannot be read.
    pub(super) async fn run(mut self) {
        let mut unkept = 0;
        loop {
            self.feed.next_commit().await;
            sleep(PAUSE).await;
            loop {
                match self.export_page(&mut unkept).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        tracing::error!(%error, "no more traces are exported");
                        return;
                    }
                }
            }
        }
    }

    /// Exports what ended in the next page of the feed; false if there is none.
    async fn export_page(&mut self, unkept: &mut u32) -> Result<bool, ReadError> {
        let page = self.feed.next_page().await?;
        let Some(last) = page.last().map(|shared| shared.entry().cursor) else { return Ok(false) };
        let mut has_end = false;
        for entry in page.iter().map(SharedEntry::entry) {
            if let Ok(record) = &entry.record
                && let Body::RunEnded(RunEnded { run, .. }) = &record.body
            {
                self.export_leg(LegEnd { run: *run, session: entry.session, seq: entry.seq }).await?;
                has_end = true;
            }
        }
        self.flush().await;
        *unkept += 1;
        if has_end || *unkept >= MAX_PAGES_UNKEPT {
            self.keep(last);
            *unkept = 0;
        }
        Ok(true)
    }

    fn keep(&self, cursor: FeedCursor) {
        self.cursor.write(cursor);
    }

    /// Exports a leg. A run that cannot be read, or that was removed meanwhile, is left out.
    async fn export_leg(&mut self, end: LegEnd) -> Result<(), ReadError> {
        match self.export_records(end).await {
            Err(error @ (ReadError::Record { .. } | ReadError::Row { .. })) => {
                let LegEnd { run, session, .. } = end;
                tracing::warn!(%run, %session, %error, "the trace of a run cannot be exported");
                Ok(())
            }
            exported => exported,
        }
    }

    async fn export_records(&mut self, end: LegEnd) -> Result<(), ReadError> {
        let Some(row) = self.journal.rows().run(end.run).await? else { return Ok(()) };
        let acceptance = self.journal.records(end.session, row.first, 1).await?;
        let (mut from, leg) = self.beginning(&row, end).await?;
        let leg = TracedLeg { trace: self.trace_of(&row).await?, session: end.session, leg };
        let acceptance = acceptance.first().filter(|stored| stored.seq == row.first);
        let Some(mut spans) = acceptance.and_then(|stored| LegSpans::new(leg, &stored.record)) else {
            return Ok(());
        };
        while from <= end.seq {
            let page = self.journal.records(end.session, from, PAGE_RECORDS).await?;
            let Some(last) = page.last() else { break };
            from = last.seq + 1;
            for stored in page.iter().filter(|stored| stored.seq <= end.seq) {
                spans.take(&stored.record);
                if self.batch.len() + spans.ended() >= MAX_BATCH {
                    self.batch.append(&mut spans.drain());
                    self.flush().await;
                }
            }
        }
        self.batch.append(&mut spans.drain());
        Ok(())
    }

    /// The first record of a leg after that of the acceptance, and the leg's number.
    async fn beginning(&self, row: &RunRow, end: LegEnd) -> Result<(Seq, u32), ReadError> {
        let (mut from, mut beginning) = (row.first + 1, (row.first + 1, 1));
        // Only a run of several legs has to be searched for the beginning of one.
        while row.leg > 1 && from < end.seq {
            let page = self.journal.records(end.session, from, PAGE_RECORDS).await?;
            let Some(last) = page.last() else { break };
            from = last.seq + 1;
            for stored in page.iter().filter(|stored| stored.seq < end.seq) {
                if let Body::RunReopened(reopened) = &stored.record.body
                    && reopened.run == row.id
                {
                    beginning = (stored.seq, reopened.leg);
                }
            }
        }
        Ok(beginning)
    }

    /// The trace of the run that the others work for. A removed ancestor ends the way to it.
    async fn trace_of(&self, row: &RunRow) -> Result<TraceId, ReadError> {
        let (mut root, mut parent) = (row.id, row.parent);
        for _ in 0..MAX_DEPTH {
            let Some(ParentRef { call, .. }) = parent else { break };
            root = call.run;
            parent = self.journal.rows().run(root).await?.and_then(|row| row.parent);
        }
        Ok(TraceId::of_root(root))
    }

    async fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.sender.send(batch).await;
        }
    }
}
