//! The conversations of the store, as a person chooses among them: without those of subagents, the one with the latest run
//! first. Rows of runs are read from the newest on; of the listed conversations alone a few records.

use std::collections::HashSet;

use hermod_actors::model::{Body, RunRow, SessionId};

use super::{
    error::{RequestError, RequestErrorKind},
    reader::StoreReader,
};
use crate::view::{ConversationListView, ConversationView, RunSummaryView, SessionView};

/// Records at the beginning of a session among which its first task is looked for.
const FIRST_RECORDS: usize = 8;

impl StoreReader {
    /// The `max` conversations with the latest runs. With `check` each journal is read as a whole, to find out whether this
    /// version can read it.
    pub(super) async fn conversations(
        &self,
        max: usize,
        check: bool,
    ) -> Result<ConversationListView, RequestError> {
        let (newest, is_cut) = self.newest_of_sessions(max).await?;
        let mut conversations = Vec::with_capacity(newest.len());
        for row in newest {
            conversations.extend(self.conversation(&row, check).await?);
        }
        Ok(ConversationListView { conversations, is_cut })
    }

    /// The newest run of each session, the newest first; true if there are more than `max`.
    async fn newest_of_sessions(&self, max: usize) -> Result<(Vec<RunRow>, bool), RequestError> {
        let (mut newest, mut seen) = (Vec::new(), HashSet::<SessionId>::new());
        let mut pages = self.run_pages();
        while let Some(page) = pages.next().await? {
            for row in page.into_iter().rev().filter(|row| row.parent.is_none()) {
                if seen.insert(row.session) {
                    if newest.len() >= max {
                        return Ok((newest, true));
                    }
                    newest.push(row);
                }
            }
        }
        Ok((newest, false))
    }

    /// `None` for a session that was removed meanwhile.
    async fn conversation(
        &self,
        newest: &RunRow,
        check: bool,
    ) -> Result<Option<ConversationView>, RequestError> {
        let Some(row) = self.read(|rows| rows.session(newest.session)).await? else { return Ok(None) };
        let accepted = if_readable(self.acceptance(newest).await)?;
        let of_newest = || accepted.as_ref().map(|accepted| RunSummaryView::shorten_input(&accepted.input));
        let task = self.first_task(row.id).await?.or_else(of_newest).unwrap_or_default();
        let quarantined = if check { self.quarantine_reason(row.id).await? } else { None };
        Ok(Some(ConversationView {
            task,
            workspace: accepted.map(|accepted| accepted.spec.workspace.clone()),
            last_run_at: newest.accepted_at,
            session: SessionView::new(&row, quarantined),
        }))
    }

    /// The beginning of the first task of a session; `None` if it is not among the first records, or cannot be read.
    pub(crate) async fn first_task(&self, session: SessionId) -> Result<Option<String>, RequestError> {
        let records = if_readable(self.page(session, 1, FIRST_RECORDS).await.map_err(RequestError::from))?
            .unwrap_or_default();
        Ok(records.iter().find_map(|stored| {
            let Body::RunAccepted(accepted) = &stored.record.body else { return None };
            Some(RunSummaryView::shorten_input(&accepted.input))
        }))
    }
}

/// What was read; `None` if the session cannot be read, which must not hide the others.
fn if_readable<T>(read: Result<T, RequestError>) -> Result<Option<T>, RequestError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind == RequestErrorKind::Store => Ok(None),
        Err(error) => Err(error),
    }
}
