//! Reads the store without starting anything.

use std::{collections::BTreeSet, sync::Arc};

use hermod_actors::{
    Bill, RunError, WaitTracker,
    model::{
        Account, AccountId, Body, ModelRow, Record, RunAccepted, RunId, RunRow, RunState, Seq, SessionId,
        SessionRow,
    },
    port::{Journal, Read, ReadError, Rows, StoredRecord},
};

use super::{fault::Fault, told::Told};

/// Records read at once.
pub const PAGE: usize = 512;
/// The name of the last run that a person or a client began.
const LAST: &str = "last";
/// Rows that are read at first to find it.
const LAST_ROWS: usize = 16;
/// Characters of the end of a run's id that name it.
const ENDING: std::ops::Range<usize> = 6..26;
/// The youngest runs among which such an end is looked for, besides the unfinished ones.
const YOUNGEST: usize = 1_000;

/// A store that is only read.
#[derive(Debug, Clone)]
pub struct Reader(Arc<dyn Journal>);

/// What an id stands for.
#[derive(Debug, Clone)]
pub enum Named {
    /// A session: by its id or its key.
    Session(SessionRow),
    /// A run: by its id, or as the last one.
    Run(Box<RunRow>),
}

/// A stored record with its sequence.
type Stored = (Seq, Record);

impl Reader {
    /// Reads this store.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self(journal)
    }

    /// What `id` names: a run, a session, the key of a session, `last`, a session by a lineage of its conversation, or a run
    /// by the end of its id.
    pub async fn find(&self, id: &str) -> Result<Named, Fault> {
        if id == LAST {
            return self.last().await.map(|last| Named::Run(Box::new(last)));
        }
        if let Ok(run) = id.parse::<RunId>()
            && let Some(row) = self.runs(Read::Run(run)).await?.pop()
        {
            return Ok(Named::Run(Box::new(row)));
        }
        if let Ok(session) = id.parse::<SessionId>()
            && let Some(row) = self.sessions(Read::Session(session)).await?.pop()
        {
            return Ok(Named::Session(row));
        }
        let of_key = self.sessions(Read::SessionOfKey(id.into())).await?.pop();
        if let Some(row) = of_key {
            return Ok(Named::Session(row));
        }
        if let Ok(lineage) = id.parse::<SessionId>()
            && let Some(row) = self.of_lineage(lineage).await?
        {
            return Ok(Named::Session(row));
        }
        self.ending(id).await?.map(|row| Named::Run(Box::new(row))).ok_or_else(|| {
            Fault::usage(format!(
                "there is no run or session `{id}`; see `hermod runs list` for what there is"
            ))
        })
    }

    /// The youngest run that is no subagent's.
    async fn last(&self) -> Result<RunRow, Fault> {
        let mut max = LAST_ROWS;
        loop {
            let rows = self.runs(Read::Runs { session: None, max }).await?;
            let is_all = rows.len() < max;
            match rows.into_iter().rfind(|row| row.parent.is_none()) {
                Some(last) => return Ok(last),
                None if is_all => {
                    let text = "there is no last run: no run in this store was begun by a person or a client";
                    return Err(Fault::usage(text));
                }
                // A run may have had any number of subagents, one after the other.
                None => max = max.saturating_mul(4),
            }
        }
    }

    /// The run whose id ends so, as a tree of runs shows it.
    async fn ending(&self, end: &str) -> Result<Option<RunRow>, Fault> {
        if !ENDING.contains(&end.len()) || !end.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        let mut rows = self.runs(Read::Runs { session: None, max: YOUNGEST }).await?;
        rows.extend(self.runs(Read::OpenRuns).await?);
        let upper = end.to_ascii_uppercase();
        rows.retain(|row| row.id.to_string().ends_with(&upper));
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            many => {
                Err(Fault::usage(format!("the ids of {many} runs end with `{end}`; name one by more of it")))
            }
        }
    }

    /// The runs above a subagent, its parent first: as many as there are still.
    pub(super) async fn above(&self, row: &RunRow) -> Result<Vec<RunRow>, Fault> {
        let (mut above, mut met, mut parent) = (Vec::new(), BTreeSet::from([row.id]), row.parent);
        while let Some(of) = parent
            && met.insert(of.call.run)
            && let Some(row) = self.runs(Read::Run(of.call.run)).await?.pop()
        {
            parent = row.parent;
            above.push(row);
        }
        Ok(above)
    }

    /// The run at the root of the tree to which the run that `id` names belongs.
    pub async fn root(&self, id: &str) -> Result<RunRow, Fault> {
        let row = self.run(id).await?;
        Ok(self.above(&row).await?.pop().unwrap_or(row))
    }

    /// The session that `id` names, directly or by one of its runs.
    pub async fn session(&self, id: &str) -> Result<SessionRow, Fault> {
        let session = match self.find(id).await? {
            Named::Session(row) => return Ok(row),
            Named::Run(row) => row.session,
        };
        let row = self.sessions(Read::Session(session)).await?.pop();
        row.ok_or_else(|| RunError::NoSession(session).into())
    }

    /// The rows that answer a question about runs.
    pub async fn runs(&self, what: Read) -> Result<Vec<RunRow>, Fault> {
        match self.read(what).await? {
            Rows::Runs(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_) => {
                Err(other_question())
            }
        }
    }

    /// The rows that answer a question about sessions.
    pub async fn sessions(&self, what: Read) -> Result<Vec<SessionRow>, Fault> {
        match self.read(what).await? {
            Rows::Sessions(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Runs(_) | Rows::Account(_) | Rows::Models(_) => {
                Err(other_question())
            }
        }
    }

    /// What runs have found out about models, in the order of their names.
    pub async fn models(&self) -> Result<Vec<ModelRow>, Fault> {
        match self.read(Read::AllModels).await? {
            Rows::Models(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Runs(_) | Rows::Account(_) => {
                Err(other_question())
            }
        }
    }

    /// An account, if there is one with this id.
    pub async fn account(&self, id: AccountId) -> Result<Option<Account>, Fault> {
        match self.read(Read::Account(id)).await? {
            Rows::Account(account) => Ok(account.map(|account| *account)),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Runs(_) | Rows::Models(_) => {
                Err(other_question())
            }
        }
    }

    /// The run that `id` names.
    pub async fn run(&self, id: &str) -> Result<RunRow, Fault> {
        match self.find(id).await? {
            Named::Run(row) => Ok(*row),
            Named::Session(_) => Err(Fault::usage(format!(
                "`{id}` is a session; see `hermod sessions show {id}` for its runs"
            ))),
        }
    }

    /// At most `max` records of a session, from `from` on.
    pub async fn page(&self, session: SessionId, from: Seq, max: usize) -> Result<Vec<Stored>, Fault> {
        self.stored(session, from, max).await.map_err(|error| RunError::Read(error).into())
    }

    async fn stored(&self, session: SessionId, from: Seq, max: usize) -> Result<Vec<Stored>, ReadError> {
        // Short reads are ready at once: many in a row would keep other tasks from running.
        tokio::task::coop::consume_budget().await;
        match self.0.read(Read::Records { session, from, max }).await? {
            Rows::Records(page) => {
                let own = |stored: StoredRecord| (stored.seq, Arc::unwrap_or_clone(stored.record));
                Ok(page.into_iter().map(own).collect())
            }
            Rows::Inbox(_) | Rows::Runs(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_) => {
                Err(ReadError::Unavailable("the journal answered another question".into()))
            }
        }
    }

    /// The records of a session from `from` on, handed to `each` in order.
    pub async fn records<E: From<Fault>>(
        &self,
        session: SessionId,
        from: Seq,
        mut each: impl FnMut(Stored) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = from;
        loop {
            let page = self.page(session, next, PAGE).await?;
            let more = page.len() == PAGE;
            for stored in page {
                next = stored.0 + 1;
                each(stored)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Why this program cannot read a session's journal; `None` if it can.
    pub async fn quarantined(&self, session: SessionId) -> Result<Option<String>, Fault> {
        let mut from = 1;
        loop {
            match self.0.read(Read::Records { session, from, max: PAGE }).await {
                Ok(Rows::Records(page)) => match page.last() {
                    Some(last) if page.len() == PAGE => from = last.seq + 1,
                    Some(_) | None => return Ok(None),
                },
                Ok(
                    Rows::Inbox(_) | Rows::Runs(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_),
                ) => {
                    return Err(other_question());
                }
                Err(error @ ReadError::Record { .. }) => return Ok(Some(error.to_string())),
                Err(error) => return Err(RunError::Read(error).into()),
            }
        }
    }

    /// The record that accepted a run.
    pub async fn accepted(&self, row: &RunRow) -> Result<RunAccepted, Fault> {
        if let Some((_, Record { body: Body::RunAccepted(accepted), .. })) =
            self.page(row.session, row.first, 1).await?.pop()
            && accepted.run == row.id
        {
            return Ok(*accepted);
        }
        // The row is one in place of a lost one, which knows no record.
        let mut found = None;
        self.records(row.session, 1, |(_, record)| {
            if let Body::RunAccepted(accepted) = record.body
                && accepted.run == row.id
            {
                found = Some(*accepted);
            }
            Ok::<(), Fault>(())
        })
        .await?;
        found
            .ok_or_else(|| unreadable(format!("no record of session {} accepts run {}", row.session, row.id)))
    }

    /// At most `max` records of a session from `from` on, and why the record behind them cannot be read, if one cannot.
    pub async fn readable_page(
        &self,
        session: SessionId,
        from: Seq,
        max: usize,
    ) -> Result<(Vec<Stored>, Option<Fault>), Fault> {
        let error = match self.stored(session, from, max).await {
            Ok(page) => return Ok((page, None)),
            Err(error) => error,
        };
        let ReadError::Record { seq, .. } = &error else { return Err(RunError::Read(error).into()) };
        let before = usize::try_from(seq.saturating_sub(from)).unwrap_or(usize::MAX);
        let page = match before {
            0 => Vec::new(),
            // Without the row that the records before it are found by, there are none.
            _ => self.page(session, from, before).await.unwrap_or_default(),
        };
        Ok((page, Some(RunError::Read(error).into())))
    }

    /// A run's row with the counts as they are now: the row of an unfinished run is as old as its last change of state.
    pub async fn counted(&self, mut row: RunRow) -> Result<RunRow, Fault> {
        // What cannot be read cannot be counted; it must not hide the other runs.
        if row.state == RunState::Ended || self.quarantined(row.session).await?.is_some() {
            return Ok(row);
        }
        let (run, mut told) = (Some(row.id), Told::default());
        self.records(row.session, row.first, |(_, record)| {
            if record.body.run() == run {
                told.take(&record.body);
            }
            Ok::<(), Fault>(())
        })
        .await?;
        (row.iterations, row.usage) = (told.iterations, told.usage);
        Ok(row)
    }

    /// What the model said last in a run; of a text in parts, all of them.
    pub async fn said(&self, row: &RunRow) -> Result<Option<String>, Fault> {
        let (run, mut said, mut goes_on) = (row.id, None::<String>, false);
        self.records(row.session, row.first, |(_, record)| {
            if let Body::ModelAnswered(answered) = record.body
                && answered.call.run == run
                && !answered.is_discarded()
                && !answered.message.text.is_empty()
            {
                let before = said.take().filter(|_| goes_on).unwrap_or_default();
                said = Some(before + &answered.message.text);
                goes_on = answered.is_part();
            }
            Ok::<(), Fault>(())
        })
        .await?;
        Ok(said)
    }

    /// What the runs of a session wait for.
    pub async fn waits(&self, session: SessionId) -> Result<WaitTracker, Fault> {
        let mut waits = WaitTracker::new(session);
        self.records(session, 1, |(_, record)| {
            waits.take(&record);
            Ok::<(), Fault>(())
        })
        .await?;
        Ok(waits)
    }

    /// What a run's model calls have cost.
    pub async fn bill(&self, row: &RunRow) -> Result<Bill, Fault> {
        let (run, mut bill) = (Some(row.id), Bill::default());
        self.records(row.session, row.first, |(_, record)| {
            if record.body.run() == run {
                bill.take(&record);
            }
            Ok::<(), Fault>(())
        })
        .await?;
        Ok(bill)
    }

    async fn read(&self, what: Read) -> Result<Rows, Fault> {
        // Short reads are ready at once: many in a row would keep other tasks from running.
        tokio::task::coop::consume_budget().await;
        self.0.read(what).await.map_err(|error| RunError::Read(error).into())
    }
}

fn other_question() -> Fault {
    unreadable("the journal answered another question".into())
}

fn unreadable(reason: String) -> Fault {
    RunError::Read(ReadError::Unavailable(reason)).into()
}
