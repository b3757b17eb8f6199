//! The metrics of the service. `totals.rs` folds the feed of records into counters, which begin at 0 with the process;
//! everything else is read when it is scraped. Without a scrape, nothing is folded and no timer runs.

mod exposition;
mod live_count;
mod measured_journal;
mod message_counts;
mod messages_and_hooks;
mod open_waits;
mod outbox_counts;
mod process;
mod run_states;
mod schedule_counts;
mod scrape;
mod totals;

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RecordFeed, RunError, Runtime,
    model::Timestamp,
    port::{ReadError, RowReader},
};
use tokio::{
    sync::{Mutex, OnceCell},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{clock, traces::ExportCounts};
pub(crate) use live_count::{Counted, LiveCount};
use measured_journal::CommitDurations;
pub(crate) use measured_journal::MeasuredJournal;
use message_counts::MessageCounts;
use outbox_counts::OutboxCounts;
use run_states::RunStates;
use schedule_counts::ScheduleCounts;
pub(super) use scrape::scrape;
use totals::RecordTotals;

/// Pause after a commit before the records since then are folded.
const FOLD_PAUSE: Duration = Duration::from_secs(1);
/// Most pages that a scrape folds itself, so that it is answered soon; the counters are then behind by what is left.
const MAX_SCRAPED_PAGES: usize = 16;

/// What is measured of a running service.
#[derive(Debug)]
pub(crate) struct Metrics {
    folded: Arc<Mutex<FoldedFeed>>,
    /// Set once the feed is folded in the background.
    background: OnceCell<()>,
    commits: CommitDurations,
    run_states: RunStates,
    /// Messages to sessions.
    messages: MessageCounts,
    /// Messages to targets.
    outbox: OutboxCounts,
    /// Occurrences of schedules.
    schedules: ScheduleCounts,
    /// The export of traces.
    spans: ExportCounts,
    /// Open HTTP connections.
    pub(super) connections: LiveCount,
    /// Open streams of events.
    pub(super) streams: LiveCount,
    /// When the process began to serve.
    pub(super) started_at: Timestamp,
    /// Unfinished runs of earlier processes.
    revived_runs: usize,
}

/// What a [`MeasuredJournal`] counts. A clone has the same counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct JournalCounts {
    commits: CommitDurations,
    run_states: RunStates,
    messages: MessageCounts,
    outbox: OutboxCounts,
    schedules: ScheduleCounts,
}

impl JournalCounts {
    /// Takes over what is open at the start. No commit of this process has changed it yet.
    pub(crate) async fn read(&self, rows: &dyn RowReader) -> Result<(), ReadError> {
        self.run_states.read(rows).await?;
        self.outbox.read(rows).await
    }
}

/// The feed, as far as it is folded.
#[derive(Debug)]
struct FoldedFeed {
    feed: RecordFeed,
    totals: RecordTotals,
}

impl Metrics {
    /// Begins to count with the next record. `counts` are kept by the journal, `spans` has the counts of the export of
    /// traces, and `revived_runs` is the number of the unfinished runs of earlier processes.
    pub(super) async fn start(
        runtime: &Runtime,
        (counts, spans): (JournalCounts, ExportCounts),
        revived_runs: usize,
    ) -> Result<Self, RunError> {
        let feed = runtime.feed(runtime.feed_end().await?);
        Ok(Self {
            folded: Arc::new(Mutex::new(FoldedFeed { feed, totals: RecordTotals::default() })),
            background: OnceCell::new(),
            commits: counts.commits,
            run_states: counts.run_states,
            messages: counts.messages,
            outbox: counts.outbox,
            schedules: counts.schedules,
            spans,
            connections: LiveCount::default(),
            streams: LiveCount::default(),
            started_at: clock::now(),
            revived_runs,
        })
    }

    /// What `read` makes of the totals of all records until now, or of those that can be folded in a moment. From the first
    /// call on, the feed is folded in the background, so that no later call has much to do.
    async fn with_totals<T>(
        &self,
        closing: &CancellationToken,
        read: impl FnOnce(&RecordTotals) -> T,
    ) -> Result<T, ReadError> {
        self.background
            .get_or_init(async || {
                let (folded, closing) = (Arc::clone(&self.folded), closing.clone());
                tokio::spawn(async move { closing.run_until_cancelled(fold_in_background(folded)).await });
            })
            .await;
        let mut folded = self.folded.lock().await;
        for _ in 0..MAX_SCRAPED_PAGES {
            if folded.fold_page().await? == 0 {
                break;
            }
        }
        Ok(read(&folded.totals))
    }
}

impl FoldedFeed {
    /// Folds the next page, and returns the number of its entries.
    async fn fold_page(&mut self) -> Result<usize, ReadError> {
        let page = self.feed.next_page().await?;
        for entry in &page {
            match &entry.entry().record {
                Ok(record) => self.totals.take(record),
                Err(_) => self.totals.unreadable += 1,
            }
        }
        Ok(page.len())
    }
}

/// Folds the feed from time to time, as long as there is something new.
async fn fold_in_background(folded: Arc<Mutex<FoldedFeed>>) {
    loop {
        let commit = folded.lock().await.feed.next_commit();
        commit.await;
        sleep(FOLD_PAUSE).await;
        loop {
            // A scrape may come between two pages.
            let page = folded.lock().await.fold_page().await;
            match page {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "the metrics are no longer up to date");
                    return;
                }
            }
        }
    }
}
