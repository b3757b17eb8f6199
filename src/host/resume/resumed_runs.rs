//! The resumed runs: their rows, and which of them are under way. Revives and watches their sessions, merges their
//! events into one stream, and tells the observer of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
};

use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered, SelectAll},
};
use hermod_actors::{
    RunError, Runtime, Watch,
    model::{Body, EventBody, Record, RunId, RunRow, RunState, Seq, SessionId, Timestamp},
    port::ReadError,
};

use super::ResumeObserver;
use crate::{control::DiskFullMonitor, host::error::HostError};

pub(super) struct ResumedRuns<'a> {
    pub(super) runtime: &'a Runtime,
    observer: &'a mut dyn ResumeObserver,
    /// When this process began to resume. A revival recorded earlier belongs to another process.
    since: Timestamp,
    runs: BTreeMap<RunId, RunRow>,
    /// The runs that are under way, see [`running_runs`].
    under_way: BTreeSet<RunId>,
    /// The revived sessions; true once the record of this process's revival has been read, so that further records are
    /// new.
    revived: BTreeMap<SessionId, bool>,
    events: SelectAll<BoxStream<'a, ResumeEvent>>,
    disk_full: DiskFullMonitor,
    /// The ends of runs whose records cannot be read. For other runs these futures stay pending.
    ends: FuturesUnordered<BoxFuture<'a, (RunId, Result<(), RunError>)>>,
}

/// An event of a session.
pub(super) enum ResumeEvent {
    /// A record became durable.
    Recorded(SessionId, Seq, Arc<Record>),
    /// A run with unreadable records has ended.
    Ended(RunId, Result<(), RunError>),
    /// The disk became full, or has space again.
    Disk(String),
    /// The session cannot be watched.
    Unwatched(SessionId, ReadError),
}

impl<'a> ResumedRuns<'a> {
    pub(super) fn new(
        runtime: &'a Runtime,
        (rows, since): (Vec<RunRow>, Timestamp),
        observer: &'a mut dyn ResumeObserver,
    ) -> Self {
        let mut runs = Self {
            runtime,
            observer,
            since,
            runs: BTreeMap::new(),
            under_way: BTreeSet::new(),
            revived: BTreeMap::new(),
            events: SelectAll::new(),
            disk_full: DiskFullMonitor::new(runtime),
            ends: FuturesUnordered::new(),
        };
        rows.into_iter().for_each(|row| runs.add(row));
        runs
    }

    fn add(&mut self, row: RunRow) {
        let session = row.session;
        self.runs.insert(row.id, row);
        self.update_running(session);
    }

    /// Updates which runs of a session are under way.
    fn update_running(&mut self, session: SessionId) {
        let is_revived = self.revived.get(&session).is_some_and(|is_revived| *is_revived);
        let rows: Vec<&RunRow> = self.rows_of(session).collect();
        let running = running_runs(&rows, is_revived);
        let ids: BTreeSet<RunId> = rows.into_iter().map(|row| row.id).collect();
        self.under_way.retain(|run| !ids.contains(run));
        self.under_way.extend(running);
    }

    fn rows_of(&self, session: SessionId) -> impl Iterator<Item = &RunRow> {
        self.runs.values().filter(move |row| row.session == session)
    }

    /// All rows, in the order of acceptance.
    pub(super) fn rows(&self) -> Vec<RunRow> {
        self.runs.values().cloned().collect()
    }

    /// The sessions with unfinished runs, each with the first of these.
    pub(super) fn sessions(&self) -> BTreeMap<SessionId, RunId> {
        let open = self.runs.values().filter(|row| row.state != RunState::Ended);
        open.rev().map(|row| (row.session, row.id)).collect()
    }

    /// True if every run has its outcome, is parked, or waits behind a parked run.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// True if this run has its outcome, is parked, or waits behind a parked run.
    pub(super) fn is_ended_or_parked(&self, run: RunId) -> bool {
        !self.under_way.contains(&run)
    }

    /// True if no run of a revived session is under way.
    pub(super) fn has_no_revived_running(&self) -> bool {
        self.under_way
            .iter()
            .all(|run| self.runs.get(run).is_none_or(|row| !self.revived.contains_key(&row.session)))
    }

    /// Revives a session, and watches it.
    pub(super) fn revive(&mut self, session: SessionId) -> Result<(), HostError> {
        let first = self.rows_of(session).map(|row| row.first).min().unwrap_or(1);
        self.revived.insert(session, false);
        let runtime = self.runtime;
        let open = self.runs.values().filter(|row| row.session == session);
        for row in open.filter(|row| row.state != RunState::Ended).cloned() {
            // If the journal has lost records, those that end its runs may have numbers that the watch does not
            // deliver.
            self.ends.push(Box::pin(async move {
                if runtime.has_acceptance(&row).await {
                    future::pending::<()>().await;
                }
                (row.id, runtime.wait(row.id, None).await.map(drop))
            }));
        }
        self.events.push(watch_session(session, self.runtime.watch(session, first)));
        Ok(self.runtime.revive(session)?)
    }

    /// The next event; never resolves before the first revival.
    pub(super) async fn next_event(&mut self) -> ResumeEvent {
        tokio::select! {
            Some(resume_event) = self.events.next(), if !self.events.is_empty() => resume_event,
            Some((run, end)) = self.ends.next(), if !self.ends.is_empty() => ResumeEvent::Ended(run, end),
            line = self.disk_full.next_change(), if !self.revived.is_empty() => ResumeEvent::Disk(line),
            else => future::pending().await,
        }
    }

    /// Handles an event, and shows it.
    pub(super) async fn on_event(&mut self, resume_event: &ResumeEvent) -> Result<(), HostError> {
        match resume_event {
            ResumeEvent::Recorded(session, _, record) => self.on_record(*session, record).await,
            ResumeEvent::Ended(run, end) => {
                end.clone()?;
                self.refresh_run(*run).await
            }
            ResumeEvent::Disk(line) => {
                self.observer.on_disk(line);
                Ok(())
            }
            // The session is being quarantined, and its runs are ended without it.
            ResumeEvent::Unwatched(session, ReadError::Record { .. }) => {
                let open = self.runs.values().filter(|row| row.session == *session);
                for run in open.map(|row| row.id) {
                    let runtime = self.runtime;
                    let end = async move { (run, runtime.wait(run, None).await.map(drop)) };
                    self.ends.push(Box::pin(end));
                }
                Ok(())
            }
            ResumeEvent::Unwatched(_, error) => Err(RunError::Read(error.clone()).into()),
        }
    }

    async fn on_record(&mut self, session: SessionId, record: &Record) -> Result<(), HostError> {
        let is_revived = self.revived.entry(session).or_default();
        *is_revived |= matches!(record.body, Body::SessionRevived(_)) && record.at >= self.since;
        let is_new = *is_revived;
        if let Body::RunAccepted(accepted) = &record.body
            && is_new
        {
            self.add(self.runtime.row(accepted.run).await?);
        }
        let run = record.body.run().or_else(|| self.first_open_run(session));
        let Some(run) = run.filter(|run| self.runs.contains_key(run)) else { return Ok(()) };
        // An end is always new: the run had none when it was added.
        let is_new = is_new || matches!(record.body, Body::RunEnded(_));
        self.observer.on_record(run, record, is_new);
        if !is_new {
            return Ok(());
        }
        if changes_row(&record.body) { self.refresh_run(run).await } else { Ok(()) }
    }

    fn first_open_run(&self, session: SessionId) -> Option<RunId> {
        self.rows_of(session).find(|row| row.state != RunState::Ended).map(|row| row.id)
    }

    /// Refreshes the rows of the runs under way: some may have ended before the watch began.
    pub(super) async fn refresh_running(&mut self) -> Result<(), HostError> {
        for run in self.under_way.clone() {
            self.refresh_run(run).await?;
        }
        Ok(())
    }

    /// The current unfinished runs of a session that is not revived yet.
    pub(super) async fn refresh_session(&mut self, session: SessionId) -> Result<Vec<RunRow>, HostError> {
        for run in self.rows_of(session).map(|row| row.id).collect::<Vec<_>>() {
            self.refresh_run(run).await?;
        }
        Ok(self.rows_of(session).filter(|row| row.state != RunState::Ended).cloned().collect())
    }

    /// Refreshes the row of a run, and shows its end if that is new.
    pub(super) async fn refresh_run(&mut self, run: RunId) -> Result<(), HostError> {
        let row = self.runtime.row(run).await?;
        let Some(known) = self.runs.get_mut(&run) else { return Ok(()) };
        let before = std::mem::replace(known, row.clone());
        if before.state != RunState::Ended && row.state == RunState::Ended {
            self.observer.on_end(&row);
        }
        self.update_running(row.session);
        Ok(())
    }

    /// Shows what is done with a run on probation.
    pub(super) fn show_trial(&mut self, run: RunId, line: &str) {
        self.observer.on_trial(run, line);
    }
}

/// The runs of a session that are under way. `is_revived` says whether the session is revived. Before the revival, a
/// parked run counts too, since its approval may have expired. After it, queued runs behind a parked one do not count.
fn running_runs(rows: &[&RunRow], is_revived: bool) -> BTreeSet<RunId> {
    let open = || rows.iter().filter(|row| row.state != RunState::Ended);
    let first = open().min_by_key(|row| row.first).map(|row| row.state);
    let waits = is_revived && first == Some(RunState::Parked);
    let counts = |row: &&&RunRow| match row.state {
        RunState::Queued => !waits,
        RunState::Running => true,
        RunState::Parked => !is_revived,
        RunState::Ended => false,
    };
    open().filter(counts).map(|row| row.id).collect()
}

/// True if the run's row may change with this record.
const fn changes_row(body: &Body) -> bool {
    matches!(
        body,
        Body::RunAccepted(_)
            | Body::RunStopping(_)
            | Body::RunEnded(_)
            | Body::CallEnded(_)
            | Body::ApprovalRequested(_)
            | Body::RunExhausted(_)
            | Body::RunReopened(_)
            | Body::BudgetRaised(_)
            | Body::ChildEnded(_)
            | Body::ApprovalAnswered(_)
            | Body::SessionRevived(_)
    )
}

/// The records of a session as events, until the watch fails.
fn watch_session<'a>(session: SessionId, watch: Watch) -> BoxStream<'a, ResumeEvent> {
    stream::unfold(Some(watch), move |watch| async move {
        let mut watch = watch?;
        loop {
            match watch.next().await {
                Ok(event) => {
                    if let EventBody::Recorded { record } = event.body {
                        return Some((
                            ResumeEvent::Recorded(session, event.seq, Arc::clone(&record)),
                            Some(watch),
                        ));
                    }
                }
                Err(error) => return Some((ResumeEvent::Unwatched(session, error), None)),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u64, state: RunState) -> RunRow {
        RunRow { state, ..RunRow::new(RunId::from_bits(n.into()), SessionId::from_bits(9), Timestamp(0), n) }
    }

    #[track_caller]
    fn check(states: &[RunState], is_revived: bool, expect: &[u128]) {
        let rows: Vec<RunRow> = (1..).zip(states).map(|(n, state)| row(n, *state)).collect();
        let running = running_runs(&rows.iter().collect::<Vec<_>>(), is_revived);
        let expect = expect.iter().map(|n| RunId::from_bits(*n)).collect();
        assert_eq!(running, expect, "{states:?}, revived: {is_revived}");
    }

    #[test]
    fn what_waits_for_a_person_is_not_under_way() {
        use RunState::{Ended, Parked, Queued, Running};
        check(&[Running, Queued], true, &[1, 2]);
        check(&[Parked, Queued], true, &[]);
        check(&[Ended, Parked, Queued, Queued], true, &[]);
        check(&[Ended, Queued], true, &[2]);
        check(&[Ended, Ended], false, &[]);
        // Until the session is revived, it is unknown whether the question has expired.
        check(&[Parked, Queued], false, &[1, 2]);
    }
}
