//! Pages of lists: the newest rows first, and where the next page begins.

use std::collections::HashSet;

use hermod_actors::model::{AgentName, Outcome, RunId, RunRow, ScheduleName, SessionId, SessionRow};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ObjectBuilder, Type},
    },
};

use super::{
    fields::from_text, problem::Problem, reach::Reach, session_search::TextSearch, time_field::TimeField,
};
use crate::view::{RunStateView, RunSummaryView, SessionSummaryView, schema};

/// Rows of a page whose query names no limit, and the largest limit.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;
/// Rows that are read at once in search of those that fit.
const ROWS_PER_READ: usize = 256;
/// Most rows that are looked at for one page; the next page goes on there.
const MAX_SEARCHED: usize = 10_000;

/// Records that are read for one page of a search; the next page goes on there.
const MAX_SEARCHED_RECORDS: usize = 100_000;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// The rows, the newest first.
    pub(super) items: Vec<T>,
    /// The `before` of the next page; `null` if there are no more rows.
    #[schema(required)]
    pub(super) next: Option<String>,
}

/// The query of a list of sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsQuery {
    /// Most rows of the page; 100 if it is absent.
    #[param(value_type = MaxRows, required = false)]
    max: Option<MaxRows>,
    /// The `next` of the page before.
    #[param(value_type = schema::Id, required = false)]
    before: Option<RunId>,
    /// A text in the key, the title, a task, a message or an answer of the session, whatever its case.
    #[param(value_type = String, required = false)]
    text: Option<String>,
    /// `false` leaves the sessions of subagents out.
    #[serde(default, deserialize_with = "from_text")]
    #[param(value_type = bool, required = false)]
    subagents: Option<bool>,
}

/// A session of a list: `{…of the session, task, last_run, match}`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FoundSession {
    #[serde(flatten)]
    session: SessionSummaryView,
    /// The beginning of its first task, at most 200 characters; `null` if it cannot be read.
    #[schema(required)]
    task: Option<String>,
    /// Its newest run.
    last_run: RunSummaryView,
    /// What stands around the text that was searched; absent without a search, and if it is in the key or the title.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    found: Option<String>,
}

/// The query of a list of runs. A run fits if it has all that is named.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// Most rows of the page; 100 if it is absent.
    #[param(value_type = MaxRows, required = false)]
    max: Option<MaxRows>,
    /// The `next` of the page before.
    #[param(value_type = schema::Id, required = false)]
    before: Option<RunId>,
    /// The session.
    #[param(value_type = schema::Id, required = false)]
    session: Option<SessionId>,
    /// The agent.
    #[param(value_type = String, required = false, max_length = 64, pattern = "^[a-z0-9][a-z0-9_-]*$")]
    agent: Option<AgentName>,
    /// The state.
    #[param(value_type = RunStateView, required = false)]
    state: Option<RunStateView>,
    /// The outcome.
    #[param(value_type = schema::OutcomeName, required = false)]
    outcome: Option<Outcome>,
    /// The schedule of whose occurrences they are.
    #[param(value_type = String, required = false, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    schedule: Option<ScheduleName>,
    /// Accepted at this time or later.
    #[param(value_type = String, format = DateTime, required = false)]
    since: Option<TimeField>,
    /// `false` leaves the runs of subagents out.
    #[serde(default, deserialize_with = "from_text")]
    #[param(value_type = bool, required = false)]
    subagents: Option<bool>,
    /// A part of the beginning of the input, whatever its case.
    #[param(value_type = String, required = false)]
    text: Option<String>,
}

/// Most rows of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct MaxRows(usize);

impl<'de> Deserialize<'de> for MaxRows {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let max = text.parse().ok().filter(|max| (1..=MAX_ROWS).contains(max));
        max.map(Self)
            .ok_or_else(|| D::Error::custom(format!("max: `{text}` is no number from 1 to {MAX_ROWS}")))
    }
}

impl MaxRows {
    /// The number of rows of a page whose query names this limit.
    pub(super) fn or_default(max: Option<Self>) -> usize {
        max.map_or(DEFAULT_ROWS, |max| max.0)
    }
}

impl PartialSchema for MaxRows {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX_ROWS)).into()
    }
}

impl ToSchema for MaxRows {}

/// A page under construction: rows are taken from the newest one on, until it is full.
struct PageBuilder<T, I, R> {
    items: Vec<T>,
    max: usize,
    /// The last row that was taken; the next page goes on before it.
    next: Option<I>,
    /// Rows that were read and not taken, the newest last.
    rows: Vec<(I, Option<R>)>,
    /// Whether there are no rows before these.
    is_all: bool,
    searched: usize,
}

impl<T, I: Copy + ToString, R> PageBuilder<T, I, R> {
    fn new(max: Option<MaxRows>, before: Option<I>) -> Self {
        let max = MaxRows::or_default(max);
        Self { items: Vec::new(), max, next: before, rows: Vec::new(), is_all: false, searched: 0 }
    }

    /// Whether more rows are to be read.
    const fn has_space(&self) -> bool {
        !self.is_all && self.items.len() < self.max && self.searched < MAX_SEARCHED
    }

    /// Adds the rows before `next`.
    fn add(&mut self, (rows, is_all): (Vec<(I, Option<R>)>, bool)) {
        self.searched += rows.len();
        (self.rows, self.is_all) = (rows, is_all);
    }

    /// Takes the next row that the client reaches; `None` if more are to be read, or none.
    fn take(&mut self) -> Option<R> {
        while self.items.len() < self.max {
            let (id, row) = self.rows.pop()?;
            self.next = Some(id);
            if row.is_some() {
                return row;
            }
        }
        None
    }

    fn build(self) -> Page<T> {
        let is_over = self.is_all && self.rows.is_empty();
        let next = self.next.filter(|_| !is_over);
        Page { items: self.items, next: next.map(|id| id.to_string()) }
    }
}

impl SessionsQuery {
    /// The sessions that fit, the one with the latest run first. A page may have fewer than `max` although there are more.
    pub(super) async fn page(&self, reach: &Reach) -> Result<Page<FoundSession>, Problem> {
        let search = self.text.as_deref().and_then(TextSearch::new);
        let (mut page, mut records) = (PageBuilder::new(self.max, self.before), 0);
        let mut seen = HashSet::new();
        while page.has_space() && records < MAX_SEARCHED_RECORDS {
            page.add(reach.runs_before(page.next, ROWS_PER_READ).await?);
            while records < MAX_SEARCHED_RECORDS
                && let Some(run) = page.take()
            {
                let fits = self.subagents != Some(false) || run.parent.is_none();
                if fits
                    && seen.insert(run.session)
                    && let Some(row) = reach.session_with_newest(&run).await?
                {
                    let (found, read) = Self::found(reach, run, &row, search.as_ref()).await?;
                    records += read;
                    page.items.extend(found);
                }
            }
        }
        Ok(page.build())
    }

    /// The session with its newest run, if the text is found in it, and the number of records that were read for that.
    async fn found(
        reach: &Reach,
        newest: RunRow,
        row: &SessionRow,
        search: Option<&TextSearch>,
    ) -> Result<(Option<FoundSession>, usize), Problem> {
        let session = SessionSummaryView::from(row);
        let (mut found, mut read) = (None, 0);
        if let Some(search) = search.filter(|search| !search.is_named(&session)) {
            (found, read) = reach.search_session(row, search).await?;
            if found.is_none() {
                return Ok((None, read));
            }
        }
        let task = reach.first_task(row).await?;
        let last_run = reach.service().handler.summary(newest).await?;
        Ok((Some(FoundSession { session, task, last_run, found }), read))
    }
}

impl RunsQuery {
    /// The newest runs that fit. A page may have fewer than `max` although there are more.
    pub(super) async fn page(&self, reach: &Reach) -> Result<Page<RunSummaryView>, Problem> {
        let mut page = PageBuilder::new(self.max, self.before);
        while page.has_space() {
            page.add(reach.runs_before(page.next, ROWS_PER_READ).await?);
            while let Some(row) = page.take() {
                if self.fits(&row) {
                    let summary = reach.service().handler.summary(row).await?;
                    page.items.extend(Some(summary).filter(|summary| self.fits_text(summary)));
                }
            }
        }
        Ok(page.build())
    }

    fn fits(&self, row: &RunRow) -> bool {
        let outcome = row.ended.as_ref().map(|ended| ended.outcome);
        self.session.is_none_or(|session| session == row.session)
            && self.agent.as_ref().is_none_or(|agent| *agent == row.agent)
            && self.state.is_none_or(|state| state == row.state.into())
            && self.schedule.as_ref().is_none_or(|named| row.schedule.as_ref() == Some(named))
            && self.outcome.is_none_or(|named| Some(named) == outcome)
            && (self.subagents != Some(false) || row.parent.is_none())
            && self.since.is_none_or(|since| row.accepted_at >= since.0)
    }

    fn fits_text(&self, summary: &RunSummaryView) -> bool {
        let text = self.text.as_ref().map(|text| text.to_lowercase());
        text.is_none_or(|text| summary.input.to_lowercase().contains(&text))
    }
}
