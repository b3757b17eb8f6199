//! The feed of all sessions: first what is stored, then what becomes durable. Without deltas.

use std::{collections::VecDeque, sync::Arc};

use tokio::sync::watch;

use crate::{
    port::{FeedCursor, FeedEntry, ReadError},
    runtime::Runtime,
    supervisor::RuntimeParts,
};

/// Entries per read.
const PAGE_ENTRIES: usize = 256;

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
            let page = self.parts.journal.rows().feed(self.cursor, PAGE_ENTRIES).await?;
            self.ready.extend(page);
            if self.ready.is_empty() && self.commits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
