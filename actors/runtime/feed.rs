//! The feed of all sessions: first what is stored, then what becomes durable. Without deltas.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    port::{FeedCursor, ReadError, RowReader},
    runtime::{Runtime, shared_events::SharedEntry},
    supervisor::RuntimeParts,
};

/// Entries per read.
const PAGE_ENTRIES: usize = 256;

/// Most entries that are kept for readers at the end of the feed: a page, so that all of them find what one has read.
const TAIL_ENTRIES: usize = PAGE_ENTRIES;
/// Bytes of encoded entries with which older ones are no longer kept.
const TAIL_BYTES: usize = 4 << 20;
/// How long entries are shared. Later their session may have been removed, and with it its entries.
const TAIL_TIME: Duration = Duration::from_secs(5);

/// The last entries that were read at the end of the feed. Readers there share them: one reads the store, and decodes.
#[derive(Debug, Default)]
pub(crate) struct FeedTail(Mutex<TailEntries>);

#[derive(Debug, Default)]
struct TailEntries {
    /// The place before the first entry.
    after: FeedCursor,
    entries: VecDeque<SharedEntry>,
    /// When the last of them was read.
    read_at: Option<Instant>,
}

impl TailEntries {
    fn end(&self) -> FeedCursor {
        self.entries.back().map_or(self.after, SharedEntry::cursor)
    }

    /// The entries behind `cursor`; none if it is not a place in the tail.
    fn behind(&self, cursor: FeedCursor) -> VecDeque<SharedEntry> {
        if self.read_at.is_none_or(|at| at.elapsed() > TAIL_TIME) {
            return VecDeque::new();
        }
        let first = if cursor == self.after {
            0
        } else {
            match self.entries.binary_search_by_key(&cursor, SharedEntry::cursor) {
                Ok(at) => at + 1,
                Err(_) => return VecDeque::new(),
            }
        };
        self.entries.range(first..).take(PAGE_ENTRIES).cloned().collect()
    }

    /// Keeps the last entries of a page that was read behind `cursor`, at the end or behind it.
    fn push(&mut self, cursor: FeedCursor, page: &VecDeque<SharedEntry>) {
        if cursor != self.end() {
            (self.after, self.entries) = (cursor, VecDeque::new());
        }
        self.read_at = Some(Instant::now());
        self.entries.extend(page.iter().cloned());
        let mut bytes: usize = self.entries.iter().map(SharedEntry::encoded_size).sum();
        while self.entries.len() > TAIL_ENTRIES || bytes > TAIL_BYTES {
            let Some(first) = self.entries.pop_front() else { return };
            bytes -= first.encoded_size();
            self.after = first.cursor();
        }
    }
}

impl FeedTail {
    /// The next page behind `cursor`; empty at the end of the feed.
    async fn page(
        &self,
        cursor: FeedCursor,
        rows: &dyn RowReader,
    ) -> Result<VecDeque<SharedEntry>, ReadError> {
        let mut tail = self.0.lock().await;
        let shared = tail.behind(cursor);
        if !shared.is_empty() {
            return Ok(shared);
        }
        if cursor < tail.end() {
            drop(tail);
            return read_page(cursor, rows).await;
        }
        // Others at the end wait for this page.
        let page = read_page(cursor, rows).await?;
        if !page.is_empty() {
            tail.push(cursor, &page);
        }
        Ok(page)
    }
}

async fn read_page(cursor: FeedCursor, rows: &dyn RowReader) -> Result<VecDeque<SharedEntry>, ReadError> {
    let page = rows.feed(cursor, PAGE_ENTRIES).await?;
    Ok(page.into_iter().map(SharedEntry::from).collect())
}

/// Reads the feed from a place on.
#[derive(Debug)]
pub struct RecordFeed {
    parts: Arc<RuntimeParts>,
    cursor: FeedCursor,
    ready: VecDeque<SharedEntry>,
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
    pub async fn next_page(&mut self) -> Result<Vec<SharedEntry>, ReadError> {
        if self.ready.is_empty() {
            self.commits.mark_unchanged();
            self.ready = read_page(self.cursor, self.parts.journal.rows()).await?;
        }
        let entries: Vec<SharedEntry> = self.ready.drain(..).collect();
        self.cursor = entries.last().map_or(self.cursor, SharedEntry::cursor);
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
    pub async fn next(&mut self) -> Result<SharedEntry, ReadError> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                self.cursor = entry.cursor();
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
    use bytes::Bytes;

    use super::*;
    use crate::{model::SessionId, port::FeedEntry};

    fn place(position: u64) -> FeedCursor {
        FeedCursor { position, records: 1 }
    }

    fn entries(positions: impl Iterator<Item = u64>) -> VecDeque<SharedEntry> {
        let (session, record) = (SessionId::from_bits(1), Err("not needed".to_owned()));
        let entry = |position| FeedEntry { cursor: place(position), session, seq: 1, record: record.clone() };
        positions.map(|position| entry(position).into()).collect()
    }

    fn positions(entries: &VecDeque<SharedEntry>) -> Vec<u64> {
        entries.iter().map(|entry| entry.cursor().position).collect()
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
        tail.push(place(5), &entries(6..=264));
        assert_eq!(positions(&tail.behind(place(8))), (9..=264).collect::<Vec<_>>(), "the last ones");
        assert!(tail.behind(place(7)).is_empty(), "what went out is read again");
        // No reader was at the end meanwhile.
        tail.push(place(350), &entries(351..=351));
        assert!(tail.behind(place(264)).is_empty());
        assert_eq!(positions(&tail.behind(place(350))), [351]);
        tokio::time::advance(TAIL_TIME * 2).await;
        assert!(tail.behind(place(350)).is_empty(), "its session may have been removed");
    }

    #[tokio::test(start_paused = true)]
    async fn the_bytes_of_the_tail_are_bounded() {
        let mut tail = TailEntries::default();
        tail.push(place(0), &entries(1..=8));
        for entry in tail.behind(place(0)) {
            entry.encoded(|_| Ok::<_, ()>(Bytes::from(vec![0; TAIL_BYTES / 4]))).unwrap();
        }
        tail.push(place(8), &entries(9..=9));
        assert!(tail.behind(place(3)).is_empty());
        assert_eq!(positions(&tail.behind(place(4))), (5..=9).collect::<Vec<_>>());
    }
}
