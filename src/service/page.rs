//! Pages of lists: the newest rows first, and where the next page begins.

use hermod_actors::model::{AgentName, Outcome, RunId, RunRow, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{problem::Problem, reach::Reach};
use crate::view::{RunStateView, RunSummaryView, SessionSummaryView};

/// Rows of a page whose query names no limit, and the largest limit.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;
/// Rows that are read at once in search of those that fit.
const ROWS_PER_READ: usize = 256;
/// Most rows that are looked at for one page; the next page goes on there.
const MAX_SEARCHED: usize = 10_000;

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T, Id> {
    /// The rows, the newest first.
    pub(super) items: Vec<T>,
    /// The `before` of the next page; `null` if there are no more rows.
    pub(super) next: Option<Id>,
}

/// The query of a list of sessions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsQuery {
    max: Option<usize>,
    before: Option<SessionId>,
}

/// The query of a list of runs. A run fits if it has all that is named.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsQuery {
    max: Option<usize>,
    before: Option<RunId>,
    /// The session.
    session: Option<SessionId>,
    /// The agent.
    agent: Option<AgentName>,
    /// The state.
    state: Option<RunStateView>,
    /// The outcome.
    outcome: Option<Outcome>,
    /// Accepted at this time or later.
    #[serde(default, with = "hermod_actors::model::optional_rfc3339_time")]
    since: Option<Timestamp>,
    /// A part of the beginning of the input, whatever its case.
    text: Option<String>,
}

const fn rows(max: Option<usize>) -> usize {
    match max {
        None => DEFAULT_ROWS,
        Some(max) if max > MAX_ROWS => MAX_ROWS,
        Some(max) => max,
    }
}

impl SessionsQuery {
    /// The newest sessions. A page may have fewer than `max` although there are more.
    pub(super) async fn page(&self, reach: &Reach) -> Result<Page<SessionSummaryView, SessionId>, Problem> {
        let (max, mut searched) = (rows(self.max), 0);
        let mut page = Page { items: Vec::new(), next: self.before };
        while searched < MAX_SEARCHED && page.items.len() < max {
            let count = (max - page.items.len()).max(ROWS_PER_READ);
            let (rows, is_all) = reach.sessions_before(page.next, count).await?;
            let mut is_full = false;
            searched += rows.len();
            for (id, row) in rows.into_iter().rev() {
                if page.items.len() == max {
                    is_full = true;
                    break;
                }
                page.next = Some(id);
                page.items.extend(row.as_ref().map(SessionSummaryView::from));
            }
            if is_all && !is_full {
                page.next = None;
                break;
            }
        }
        Ok(page)
    }
}

impl RunsQuery {
    /// The newest runs that fit. A page may have fewer than `max` although there are more.
    pub(super) async fn page(&self, reach: &Reach) -> Result<Page<RunSummaryView, RunId>, Problem> {
        let (max, mut searched) = (rows(self.max), 0);
        let mut page = Page { items: Vec::new(), next: self.before };
        while searched < MAX_SEARCHED && page.items.len() < max {
            let (rows, is_all) = reach.runs_before(page.next, ROWS_PER_READ).await?;
            let mut is_full = false;
            searched += rows.len();
            for (id, row) in rows.into_iter().rev() {
                if page.items.len() == max {
                    is_full = true;
                    break;
                }
                page.next = Some(id);
                if let Some(row) = row.filter(|row| self.fits(row)) {
                    let summary = reach.service().handler.summary(row).await?;
                    page.items.extend(Some(summary).filter(|summary| self.fits_text(summary)));
                }
            }
            if is_all && !is_full {
                page.next = None;
                break;
            }
        }
        Ok(page)
    }

    fn fits(&self, row: &RunRow) -> bool {
        let outcome = row.ended.as_ref().map(|ended| ended.outcome);
        self.session.is_none_or(|session| session == row.session)
            && self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.state.is_none_or(|state| state == row.state.into())
            && self.outcome.is_none_or(|named| Some(named) == outcome)
            && self.since.is_none_or(|since| row.accepted_at >= since)
    }

    fn fits_text(&self, summary: &RunSummaryView) -> bool {
        let text = self.text.as_ref().map(|text| text.to_lowercase());
        text.is_none_or(|text| summary.input.to_lowercase().contains(&text))
    }
}
