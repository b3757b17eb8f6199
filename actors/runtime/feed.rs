//! The feed of all sessions: first what is stored, then what becomes durable. Without deltas.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    port::{FeedCursor, FeedEntry, ReadError, RowReader},
    runtime::Runtime,
    supervisor::RuntimeParts,
};

/// Entries per read.
const PAGE_ENTRIES: usize = 256;

/// Most entries that are kept for readers at the end of the feed.
const TAIL_ENTRIES: usize = 32;
/// How long entries are shared. Later their session may have been removed, and with it its entries.
const TAIL_TIME: Duration = Duration::from_secs(5);

/// The last entries that were read at the end of the feed. Readers there share them: one reads the store, and decodes.
#[derive(Debug, Default)]
pub(crate) struct FeedTail(Mutex<TailEntries>);

#[derive(Debug, Default)]
struct TailEntries {
    /// The place before the first entry.
    after: FeedCursor,
    entries: VecDeque<FeedEntry>,
    /// When the last of them was read.
    read_at: Option<Instant>,
}

impl TailEntries {
    fn end(&self) -> FeedCursor {
        self.entries.back().map_or(self.after, |entry| entry.cursor)
    }

    /// The entries behind `cursor`; none if it is not a place in the tail.
    fn behind(&self, cursor: FeedCursor) -> VecDeque<FeedEntry> {
        if self.read_at.is_none_or(|at| at.elapsed() > TAIL_TIME) {
            return VecDeque::new();
        }
        let first = if cursor == self.after {
            0
        } else {
            match self.entries.binary_search_by_key(&cursor, |entry| entry.cursor) {
                Ok(at) => at + 1,
                Err(_) => return VecDeque::new(),
            }
        };
        self.entries.range(first..).cloned().collect()
    }

    /// Keeps the last entries of a page that was read behind `cursor`, at the end or behind it.
    fn push(&mut self, cursor: FeedCursor, page: &[FeedEntry]) {
        if cursor != self.end() {
            (self.after, self.entries) = (cursor, VecDeque::new());
        }
        self.read_at = Some(Instant::now());
        self.entries.extend(page.iter().cloned());
        while self.entries.len() > TAIL_ENTRIES {
            if let Some(first) = self.entries.pop_front() {
                self.after = first.cursor;
            }
        }
    }
}

impl FeedTail {
    /// The next page behind `cursor`; empty at the end of the feed.
    async fn page(&self, cursor: FeedCursor, rows: &dyn RowReader) -> Result<VecDeque<FeedEntry>, ReadError> {
        let mut tail = self.0.lock().await;
        let shared = tail.behind(cursor);
        if !shared.is_empty() {
            return Ok(shared);
        }
        if cursor < tail.end() {
            drop(tail);
            return Ok(rows.feed(cursor, PAGE_ENTRIES).await?.into());
        }
        // Others at the end wait for this page.
        let page = rows.feed(cursor, PAGE_ENTRIES).await?;
        if !page.is_empty() {
            tail.push(cursor, &page);
        }
        Ok(page.into())
    }
}

/// Reads the feed from a place on.
#[derive(Debug)]
pub struct RecordFeed {
    parts: Arc<RuntimeParts>,
    cursor: FeedCursor,
    ready: VecDeque<FeedEntry>,
    commits: watch::Receiver<u64>,
}

impl Runtime {
    /// The feed after a place: each entry comes once, in order.
    pub fn feed(&self, after: FeedCursor) -> RecordFeed {
        let parts = Arc::clone(&self.parts);
        let mut commits = parts.hub.watch_commits();
        // What is stored already is read first.
        commits.mark_changed();
        RecordFeed { parts, cursor: after, ready: VecDeque::new(), commits }
    }

    /// The place behind all records that are durable now.
    pub async fn feed_end(&self) -> Result<FeedCursor, ReadError> {
        self.parts.journal.rows().feed_end().await
    }
}

impl RecordFeed {
    /// The next entries that are durable already, at most a page of them; empty if there are none. May be cancelled at
    /// any time.
    pub async fn next_page(&mut self) -> Result<Vec<FeedEntry>, ReadError> {
        if self.ready.is_empty() {
            self.commits.mark_unchanged();
            let page = self.parts.journal.rows().feed(self.cursor, PAGE_ENTRIES).await?;
            self.ready.extend(page);
        }
        let entries: Vec<FeedEntry> = self.ready.drain(..).collect();
        self.cursor = entries.last().map_or(self.cursor, |last| last.cursor);
        Ok(entries)
    }

    /// Resolves once something became durable after the last page was read; never if the runtime has ended.
    pub fn next_commit(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut commits = self.commits.clone();
        async move {
            if commits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next entry. Never ends by itself, and may be cancelled at any time.
    pub async fn next(&mut self) -> Result<FeedEntry, ReadError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                self.cursor = entry.cursor;
                return Ok(entry);
            }
            self.commits.mark_unchanged();
            self.ready = self.parts.feed_tail.page(self.cursor, self.parts.journal.rows()).await?;
            if self.ready.is_empty() && self.commits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    fn place(position: u64) -> FeedCursor {
        FeedCursor { position, records: 1 }
    }

    fn entries(positions: impl Iterator<Item = u64>) -> Vec<FeedEntry> {
        let (session, record) = (SessionId::from_bits(1), Err("not needed".to_owned()));
        let entry = |position| FeedEntry { cursor: place(position), session, seq: 1, record: record.clone() };
        positions.map(entry).collect()
    }

    fn positions(entries: &VecDeque<FeedEntry>) -> Vec<u64> {
        entries.iter().map(|entry| entry.cursor.position).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn readers_at_the_end_share_the_last_entries_for_a_while() {
        let mut tail = TailEntries::default();
        assert!(tail.behind(FeedCursor::default()).is_empty());
        tail.push(place(3), &entries(4..=5));
        assert_eq!(positions(&tail.behind(place(3))), [4, 5]);
        assert_eq!(positions(&tail.behind(place(4))), [5]);
        for elsewhere in [FeedCursor::default(), place(2), place(5), place(6)] {
            assert!(tail.behind(elsewhere).is_empty(), "{elsewhere}");
        }
        tail.push(place(5), &entries(6..=40));
        assert_eq!(positions(&tail.behind(place(8))), (9..=40).collect::<Vec<_>>(), "the last ones");
        assert!(tail.behind(place(7)).is_empty(), "what went out is read again");
        // No reader was at the end meanwhile.
        tail.push(place(50), &entries(51..=51));
        assert!(tail.behind(place(40)).is_empty());
        assert_eq!(positions(&tail.behind(place(50))), [51]);
        tokio::time::advance(TAIL_TIME * 2).await;
        assert!(tail.behind(place(50)).is_empty(), "its session may have been removed");
    }
}
