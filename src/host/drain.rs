//! Drains a process: it takes no new runs, and ends when its runs have ended, or after a time limit. Runs that are left are
//! suspended as at a signal.

use std::{collections::BTreeMap, future, time::Duration};

use hermod_actors::{
    RunError, Runtime,
    model::{RunRow, RunState, SessionId},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::control::{RequestError, RequestErrorKind};

/// The longest time limit of a drain.
const MAX_DRAIN_TIME: Duration = Duration::from_hours(30 * 24);

/// How a drain has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Runs that were still under way, and go on at the next start.
    pub suspended: usize,
    /// Unfinished runs that wait for a person.
    pub parked: usize,
}

/// The drain of a process, once it is requested.
#[derive(Debug, Default)]
pub struct Drain {
    deadline: watch::Sender<Option<Instant>>,
    outcome: watch::Sender<Option<DrainOutcome>>,
}

impl Drain {
    /// Requests it. A later request sets another time limit.
    pub fn request(&self, timeout: Duration) {
        self.deadline.send_replace(Some(tokio::time::Instant::now() + timeout.min(MAX_DRAIN_TIME)));
    }

    /// Whether it is requested.
    pub fn is_requested(&self) -> bool {
        self.deadline.borrow().is_some()
    }

    /// Refuses new work once it is requested.
    pub fn check_not_requested(&self) -> Result<(), RequestError> {
        if !self.is_requested() {
            return Ok(());
        }
        let text =
            "draining: the service takes no new work, and ends with its runs; try again after its next start";
        Err(RequestError::new(RequestErrorKind::Busy, text))
    }

    /// Waits for the request, then for the end of the runs or of the time. An error means that the runtime has ended.
    pub async fn carry_out(&self, runtime: &Runtime) -> Result<DrainOutcome, RunError> {
        let mut deadlines = self.deadline.subscribe();
        loop {
            let deadline = *deadlines.borrow_and_update();
            let over = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                idle = wait_until_idle(runtime), if deadline.is_some() => {
                    idle?;
                    break;
                }
                () = over => break,
                changed = deadlines.changed() => if changed.is_err() { future::pending::<()>().await },
            }
        }
        let rows = runtime.open_runs().await?;
        let suspended = runs_under_way(&rows).count();
        let outcome = DrainOutcome { suspended, parked: rows.len() - suspended };
        self.outcome.send_replace(Some(outcome));
        Ok(outcome)
    }

    /// Resolves when it has ended.
    pub async fn outcome(&self) -> DrainOutcome {
        let mut outcomes = self.outcome.subscribe();
        match outcomes.wait_for(Option::is_some).await.ok().and_then(|outcome| *outcome) {
            Some(outcome) => outcome,
            None => future::pending().await,
        }
    }
}

/// Waits until no run is under way.
async fn wait_until_idle(runtime: &Runtime) -> Result<(), RunError> {
    loop {
        let rows = runtime.open_runs().await?;
        let Some(run) = runs_under_way(&rows).map(|row| row.id).next() else { return Ok(()) };
        runtime.wait_until_ended_or_parked(run).await?;
    }
}

/// The runs that can make progress: all but the parked ones, and those that are queued behind one.
pub(crate) fn runs_under_way(rows: &[RunRow]) -> impl Iterator<Item = &RunRow> {
    let mut first = BTreeMap::<SessionId, &RunRow>::new();
    for row in rows.iter().filter(|row| row.state != RunState::Ended) {
        let first = first.entry(row.session).or_insert(row);
        if row.first < first.first {
            *first = row;
        }
    }
    let is_blocked =
        move |row: &RunRow| first.get(&row.session).is_some_and(|row| row.state == RunState::Parked);
    rows.iter().filter(move |row| match row.state {
        RunState::Running => true,
        RunState::Queued => !is_blocked(row),
        RunState::Parked | RunState::Ended => false,
    })
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{RunId, Timestamp};

    use super::*;

    #[test]
    fn what_waits_for_a_person_is_not_waited_for() {
        use RunState::{Ended, Parked, Queued, Running};
        let check = |states: &[(u128, RunState)], expect: &[u128]| {
            let row = |(n, (session, state)): (u64, &(u128, RunState))| RunRow {
                state: *state,
                ..RunRow::new(RunId::from_bits(n.into()), SessionId::from_bits(*session), Timestamp(0), n)
            };
            let rows: Vec<RunRow> = (1..).zip(states).map(row).collect();
            let ids: Vec<_> = runs_under_way(&rows).map(|row| row.id).collect();
            assert_eq!(ids, expect.iter().map(|n| RunId::from_bits(*n)).collect::<Vec<_>>(), "{states:?}");
        };
        check(&[], &[]);
        check(&[(1, Running), (1, Queued), (2, Ended)], &[1, 2]);
        check(&[(1, Parked), (1, Queued), (2, Queued)], &[3]);
        check(&[(1, Ended), (1, Parked), (1, Queued)], &[]);
    }

    #[tokio::test]
    async fn new_work_is_refused_once_it_is_requested() {
        let drain = Drain::default();
        assert!(drain.check_not_requested().is_ok());
        drain.request(Duration::MAX);
        let refused = drain.check_not_requested().unwrap_err();
        assert!(refused.text.starts_with("draining") && refused.kind == RequestErrorKind::Busy, "{refused}");
    }
}
