//! Read-only queries of the store: what an id names, rows, records, current counts. Starts nothing. Further queries are
//! in `approvals.rs`, `budget.rs`, `conversations.rs`, `id_part.rs`, `lineage.rs`, `run_filter.rs` and `run_records.rs`.

use std::{collections::BTreeSet, convert::Infallible, ops::ControlFlow, sync::Arc};

use hermod_actors::{
    RunError, WaitTracker,
    model::{Body, Record, RunAccepted, RunCounts, RunId, RunRow, RunState, Seq, SessionId, SessionRow},
    port::{Journal, ReadError, ReadFuture, RowReader, StoredRecord},
};

use super::error::RequestError;
use crate::view::EventView;

/// Records per read.
pub const PAGE_RECORDS: usize = 512;
/// Alias of the last run that a person or a client started.
const LAST: &str = "last";
/// Rows of the first read in search of the last run.
const LAST_ROWS: usize = 16;
/// Read-only access to a store.
#[derive(Debug, Clone)]
pub struct StoreReader(Arc<dyn Journal>);

/// The row that an id names.
#[derive(Debug, Clone)]
pub enum ResolvedId {
    /// A session, named by its id, the end or the beginning of it, its key or a lineage.
    Session(SessionRow),
    /// A run, named by its id, the end or the beginning of it, or `last`.
    Run(Box<RunRow>),
}

impl StoreReader {
    /// Wraps the journal of an open store.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self(journal)
    }

    /// Resolves `id`, in this order: `last`, a run, a session, a session's key, a lineage of a session, the end of a
    /// run's or a session's id, its beginning.
    pub async fn find(&self, id: &str) -> Result<ResolvedId, RequestError> {
        if id == LAST {
            return self.last().await.map(|last| ResolvedId::Run(Box::new(last)));
        }
        if let Ok(run) = id.parse::<RunId>()
            && let Some(row) = self.read(|rows| rows.run(run)).await?
        {
            return Ok(ResolvedId::Run(Box::new(row)));
        }
        if let Some(row) = self.session_of_id_or_key(id).await? {
            return Ok(ResolvedId::Session(row));
        }
        if let Ok(lineage) = id.parse::<SessionId>()
            && let Some(row) = self.of_lineage(lineage).await?
        {
            return Ok(ResolvedId::Session(row));
        }
        self.find_by_part(id).await?.ok_or_else(|| {
            RequestError::usage(format!(
                "there is no run or session `{id}`; see `hermod runs list` for what there is"
            ))
        })
    }

    /// The newest run that is no subagent's.
    async fn last(&self) -> Result<RunRow, RequestError> {
        let mut max = LAST_ROWS;
        loop {
            let rows = self.read(|rows| rows.runs(None, max)).await?;
            let has_all_rows = rows.len() < max;
            match rows.into_iter().rfind(|row| row.parent.is_none()) {
                Some(last) => return Ok(last),
                None if has_all_rows => {
                    let text = "there is no last run: no run in this store was begun by a person or a client";
                    return Err(RequestError::usage(text));
                }
                // A run may have had any number of subagents, one after the other.
                None => max = max.saturating_mul(4),
            }
        }
    }

    /// The ancestors of a subagent's run, its parent first. A removed ancestor ends the list.
    pub(super) async fn ancestors(&self, row: &RunRow) -> Result<Vec<RunRow>, RequestError> {
        let (mut ancestors, mut seen, mut parent) = (Vec::new(), BTreeSet::from([row.id]), row.parent);
        while let Some(parent_call) = parent
            && seen.insert(parent_call.call.run)
            && let Some(row) = self.read(|rows| rows.run(parent_call.call.run)).await?
        {
            parent = row.parent;
            ancestors.push(row);
        }
        Ok(ancestors)
    }

    /// The root of the tree that contains the run `id`.
    pub(super) async fn root(&self, id: &str) -> Result<RunRow, RequestError> {
        let row = self.run(id).await?;
        Ok(self.ancestors(&row).await?.pop().unwrap_or(row))
    }

    /// The runs to stop: the named one, with `tree` the root of its tree, or every unfinished run.
    pub async fn runs_to_stop(&self, run: Option<&str>, tree: bool) -> Result<Vec<RunRow>, RequestError> {
        match run {
            Some(run) if tree => Ok(vec![self.root(run).await?]),
            Some(run) => Ok(vec![self.run(run).await?]),
            None => self.read(|rows| rows.open_runs()).await,
        }
    }

    /// The session that `id` names, directly or by one of its runs.
    pub async fn session(&self, id: &str) -> Result<SessionRow, RequestError> {
        let session = match self.find(id).await? {
            ResolvedId::Session(row) => return Ok(row),
            ResolvedId::Run(row) => row.session,
        };
        let row = self.read(|rows| rows.session(session)).await?;
        row.ok_or_else(|| RunError::NoSession(session).into())
    }

    /// The session with this id or this key; `None` if there is none.
    pub async fn session_of_id_or_key(&self, name: &str) -> Result<Option<SessionRow>, RequestError> {
        if let Ok(id) = name.parse::<SessionId>()
            && let Some(row) = self.read(|rows| rows.session(id)).await?
        {
            return Ok(Some(row));
        }
        self.read(|rows| rows.session_of_key(name)).await
    }

    /// Reads rows.
    pub async fn read<T>(
        &self,
        read: impl FnOnce(&dyn RowReader) -> ReadFuture<T>,
    ) -> Result<T, RequestError> {
        // Short reads are ready at once: without yielding, many in a row would block other tasks.
        tokio::task::coop::consume_budget().await;
        Ok(read(self.0.rows()).await?)
    }

    /// The run that `id` names; the error of a session's id says how to list its runs.
    pub async fn run(&self, id: &str) -> Result<RunRow, RequestError> {
        match self.find(id).await? {
            ResolvedId::Run(row) => Ok(*row),
            ResolvedId::Session(_) => Err(RequestError::usage(format!(
                "`{id}` is a session; see `hermod sessions show {id}` for its runs"
            ))),
        }
    }

    /// At most `max` records of a session, from the record number `from` on.
    pub(super) async fn page(
        &self,
        session: SessionId,
        from: Seq,
        max: usize,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        // Short reads are ready at once: without yielding, many in a row would block other tasks.
        tokio::task::coop::consume_budget().await;
        self.0.records(session, from, max).await
    }

    /// Passes the records of a session to `each` in order, from the record number `from` on, until it breaks.
    pub(super) async fn visit<B>(
        &self,
        session: SessionId,
        from: Seq,
        mut each: impl FnMut(Seq, Arc<Record>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, ReadError> {
        let mut next = from;
        loop {
            let page = self.page(session, next, PAGE_RECORDS).await?;
            let is_last_page = page.len() < PAGE_RECORDS;
            for StoredRecord { seq, record, .. } in page {
                next = seq + 1;
                if let broken @ ControlFlow::Break(_) = each(seq, record) {
                    return Ok(broken);
                }
            }
            if is_last_page {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Passes the records of a session to `each` in order, from the record number `from` on.
    pub async fn records(
        &self,
        session: SessionId,
        from: Seq,
        mut each: impl FnMut(Seq, Arc<Record>),
    ) -> Result<(), RequestError> {
        let each = |seq, record| {
            each(seq, record);
            ControlFlow::<Infallible>::Continue(())
        };
        Ok(self.visit(session, from, each).await.map(drop)?)
    }

    /// Passes the records of one run to `each` in order.
    pub async fn records_of_run(
        &self,
        row: &RunRow,
        mut each: impl FnMut(&Record),
    ) -> Result<(), RequestError> {
        let last = if row.state == RunState::Ended { row.asides_until.unwrap_or(row.last) } else { Seq::MAX };
        let each = |seq: Seq, record: Arc<Record>| {
            if record.body.run() == Some(row.id) {
                each(&record);
            }
            if seq < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        Ok(self.visit(row.session, row.first, each).await.map(drop)?)
    }

    /// Why this version cannot read a session's journal; `None` if it can.
    pub async fn quarantine_reason(&self, session: SessionId) -> Result<Option<String>, RequestError> {
        self.readable_records(session, 1, |_, _| {}).await
    }

    /// Passes the records of a session to `each`, from the record number `from` on, until one cannot be read. Returns the
    /// reason; `None` if all can be read.
    pub async fn readable_records(
        &self,
        session: SessionId,
        from: Seq,
        mut each: impl FnMut(Seq, &Record),
    ) -> Result<Option<String>, RequestError> {
        let each = |seq, record: Arc<Record>| {
            each(seq, &record);
            ControlFlow::<Infallible>::Continue(())
        };
        match self.visit(session, from, each).await {
            Ok(_) => Ok(None),
            Err(error @ ReadError::Record { .. }) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes the records of a session with these numbers to `each`, until one cannot be read. Returns the reason;
    /// `None` if all can be read.
    pub(super) async fn readable_records_until(
        &self,
        session: SessionId,
        (first, last): (Seq, Seq),
        mut each: impl FnMut(Seq, &Record),
    ) -> Result<Option<String>, RequestError> {
        let each = |seq: Seq, record: Arc<Record>| {
            each(seq, &record);
            if seq < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match self.visit(session, first, each).await {
            Ok(_) => Ok(None),
            Err(error @ ReadError::Record { .. }) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The record that accepted a run.
    pub async fn acceptance(&self, row: &RunRow) -> Result<RunAccepted, RequestError> {
        let accepted_in = |record: &Record| {
            let Body::RunAccepted(accepted) = &record.body else { return None };
            (accepted.run == row.id).then(|| (**accepted).clone())
        };
        let first = self.page(row.session, row.first, 1).await?;
        if let Some(accepted) = first.first().and_then(|stored| accepted_in(&stored.record)) {
            return Ok(accepted);
        }
        // The row was rebuilt in place of a lost one and does not know its first record.
        let each = |_, record: Arc<Record>| match accepted_in(&record) {
            Some(accepted) => ControlFlow::Break(accepted),
            None => ControlFlow::Continue(()),
        };
        let found = self.visit(row.session, 1, each).await?;
        found.break_value().ok_or_else(|| not_accepted(row))
    }

    /// At most [`PAGE_RECORDS`] records of a session from `from` on, and the error of the next record if it cannot be
    /// read.
    pub async fn events(
        &self,
        session: SessionId,
        from: Seq,
    ) -> Result<(Vec<EventView>, Option<RequestError>), RequestError> {
        let (page, damage) = match self.page(session, from, PAGE_RECORDS).await {
            Ok(page) => (page, None),
            Err(error @ ReadError::Record { seq, .. }) => {
                let before = usize::try_from(seq.saturating_sub(from)).unwrap_or(usize::MAX);
                let page = match before {
                    0 => Vec::new(),
                    // If the index row that finds the earlier records is lost too, there are none.
                    _ => self.page(session, from, before).await.unwrap_or_default(),
                };
                (page, Some(error.into()))
            }
            Err(error) => return Err(error.into()),
        };
        let event = |stored: &StoredRecord| {
            EventView::new(stored.seq, &stored.record).map_err(|error| {
                let text = format!("record {} cannot be shown as JSON: {error}", stored.seq);
                RequestError::internal(text)
            })
        };
        Ok((page.iter().map(event).collect::<Result<_, _>>()?, damage))
    }

    /// A run's row with current counts: those of an unfinished run's row, and of the records since.
    pub async fn with_current_counts(&self, mut row: RunRow) -> Result<RunRow, RequestError> {
        if row.state == RunState::Ended {
            return Ok(row);
        }
        let run = Some(row.id);
        // Rows of earlier versions have no counts.
        let (mut counts, from) = match row.counts {
            Some(counts) => (counts, row.last + 1),
            None => (RunCounts::default(), row.first),
        };
        let count = |_, record: &Record| {
            if record.body.run() == run {
                counts.take(&record.body);
            }
        };
        // If a record cannot be read, only the counts of the row are used. An error here would hide the other runs of a
        // list.
        if self.readable_records(row.session, from, count).await?.is_some() {
            counts = row.counts.unwrap_or_default();
        }
        (row.iterations, row.usage) = (counts.iterations, counts.usage);
        Ok(row)
    }

    /// The waits of a session's runs, from its records. The inner error says why this version cannot read them.
    pub async fn waits(&self, session: SessionId) -> Result<Result<WaitTracker, String>, RequestError> {
        let mut waits = WaitTracker::new(session);
        let unreadable = self.readable_records(session, 1, |_, record| waits.take(record)).await?;
        Ok(unreadable.map_or(Ok(waits), Err))
    }
}

/// The error of a run whose session has no record of its acceptance.
pub(super) fn not_accepted(row: &RunRow) -> RequestError {
    let reason = format!("no record of session {} accepts run {}", row.session, row.id);
    ReadError::Unavailable(reason).into()
}
