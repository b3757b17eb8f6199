//! Which runs a list has. Everything is decided by the index rows: no journal is read.

use hermod_actors::model::{AgentName, Outcome, RunId, RunRow, ScheduleName, Timestamp};
use serde::{Deserialize, Serialize};

use super::{error::RequestError, reader::StoreReader};

/// Rows of runs per read in search of those that fit.
const PAGE_RUNS: usize = 256;

/// The outcome of a run in a list, or that it has none yet.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunOutcomeFilter {
    /// Completed.
    Completed,
    /// Failed.
    Failed,
    /// Stopped.
    Stopped,
    /// Timed out.
    TimedOut,
    /// A limit of its budget was reached.
    BudgetExhausted,
    /// It repeated its calls.
    LoopDetected,
    /// Refused.
    Refused,
    /// It has no outcome yet.
    Unfinished,
}

impl RunOutcomeFilter {
    fn of(outcome: Option<Outcome>) -> Self {
        match outcome {
            None => Self::Unfinished,
            Some(Outcome::Completed) => Self::Completed,
            Some(Outcome::Failed) => Self::Failed,
            Some(Outcome::Stopped) => Self::Stopped,
            Some(Outcome::TimedOut) => Self::TimedOut,
            Some(Outcome::BudgetExhausted) => Self::BudgetExhausted,
            Some(Outcome::LoopDetected) => Self::LoopDetected,
            Some(Outcome::Refused) => Self::Refused,
        }
    }
}

/// What the runs of a list have in common. A run fits if it has all that is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// The agent.
    pub agent: Option<AgentName>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
    /// Of an occurrence of this schedule.
    pub schedule: Option<ScheduleName>,
    /// One of these outcomes; empty means all.
    pub outcomes: Vec<RunOutcomeFilter>,
}

impl RunFilter {
    fn fits(&self, row: &RunRow) -> bool {
        let outcome = || RunOutcomeFilter::of(row.ended.as_ref().map(|ended| ended.outcome));
        self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.since.is_none_or(|since| row.accepted_at >= since)
            && self.until.is_none_or(|until| row.accepted_at < until)
            && self.schedule.as_ref().is_none_or(|name| row.schedule.as_ref() == Some(name))
            && (self.outcomes.is_empty() || self.outcomes.contains(&outcome()))
    }

    /// Whether all these rows, and so all that are older, were accepted too early. A clock that went back for a while
    /// hides no run behind a single row.
    fn is_before(&self, page: &[RunRow]) -> bool {
        self.since.is_some_and(|since| page.iter().all(|row| row.accepted_at < since))
    }
}

impl StoreReader {
    /// The newest runs that fit, in the order of their acceptance. Memory is bounded by `max` and a page of rows.
    pub(super) async fn newest_runs(
        &self,
        max: usize,
        filter: &RunFilter,
    ) -> Result<Vec<RunRow>, RequestError> {
        if *filter == RunFilter::default() {
            return self.read(|rows| rows.runs(None, max)).await;
        }
        let mut found = Vec::new();
        let mut pages = self.run_pages();
        while found.len() < max
            && let Some(page) = pages.next().await?
            && !filter.is_before(&page)
        {
            found.extend(page.into_iter().rev().filter(|row| filter.fits(row)));
        }
        found.truncate(max);
        found.reverse();
        Ok(found)
    }

    /// The rows of all runs, page by page, the newest page first.
    pub(super) const fn run_pages(&self) -> RunPages<'_> {
        RunPages { reader: self, before: None, is_over: false }
    }
}

/// Pages of rows of runs; each is in the order of acceptance.
pub(super) struct RunPages<'r> {
    reader: &'r StoreReader,
    before: Option<RunId>,
    is_over: bool,
}

impl RunPages<'_> {
    /// The page of the next older runs; `None` after the oldest.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<RunRow>>, RequestError> {
        if self.is_over {
            return Ok(None);
        }
        let before = self.before;
        let page = self.reader.read(|rows| match before {
            Some(before) => rows.runs_before(before, PAGE_RUNS),
            None => rows.runs(None, PAGE_RUNS),
        });
        let page = page.await?;
        self.is_over = page.len() < PAGE_RUNS;
        self.before = page.first().map(|row| row.id);
        Ok(Some(page).filter(|page| !page.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{OutcomeDetail, SessionId};

    use super::*;

    fn row(at: i64, outcome: Option<Outcome>) -> RunRow {
        RunRow {
            ended: outcome.map(|outcome| OutcomeDetail { outcome, cause: None }),
            ..RunRow::new(RunId::from_bits(1), SessionId::from_bits(2), Timestamp(at), 1)
        }
    }

    #[test]
    fn a_run_fits_if_it_has_all_that_is_named() {
        let check = |filter: &RunFilter, at, outcome, expect| {
            assert_eq!(filter.fits(&row(at, outcome)), expect, "{filter:?} {at} {outcome:?}");
        };
        let failed = RunFilter {
            since: Some(Timestamp(10)),
            until: Some(Timestamp(20)),
            outcomes: vec![RunOutcomeFilter::Failed, RunOutcomeFilter::Unfinished],
            ..RunFilter::default()
        };
        check(&failed, 10, Some(Outcome::Failed), true);
        check(&failed, 19, None, true);
        check(&failed, 20, None, false);
        check(&failed, 9, None, false);
        check(&failed, 10, Some(Outcome::Completed), false);
        let agent = RunFilter { agent: Some("other".parse().unwrap()), ..RunFilter::default() };
        check(&agent, 10, None, false);
        check(&RunFilter::default(), 0, Some(Outcome::Refused), true);
    }

    #[test]
    fn a_page_ends_a_list_if_all_of_it_is_too_old() {
        let filter = RunFilter { since: Some(Timestamp(10)), ..RunFilter::default() };
        assert!(filter.is_before(&[row(8, None), row(9, None)]));
        assert!(!filter.is_before(&[row(11, None), row(9, None)]), "the clock went back");
        assert!(!RunFilter::default().is_before(&[row(0, None)]));
    }
}
