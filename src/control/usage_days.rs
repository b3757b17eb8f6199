//! What ran and what it cost, by day, from the rows of runs and accounts.

use hermod_actors::model::AgentName;

use super::{error::RequestError, handler::RequestHandler, protocol::MAX_DAYS};
use crate::{
    clock,
    view::{DaysFold, DaysView},
};

/// Rows that are read at once.
const PAGE_ROWS: usize = 1_000;
/// Runs whose rows and accounts are read for one answer.
const MAX_RUNS: usize = 50_000;

/// Refuses a number of days that is not from 1 to [`MAX_DAYS`].
pub fn check_days(count: u32) -> Result<u32, RequestError> {
    if (1..=MAX_DAYS).contains(&count) {
        Ok(count)
    } else {
        Err(RequestError::usage(format!("days: {count} is not from 1 to {MAX_DAYS}")))
    }
}

impl RequestHandler {
    /// The newest days, today included, with the runs of the agents that `sees` admits; `count` as [`check_days`] takes it.
    pub async fn days(
        &self,
        count: u32,
        sees: impl Fn(&AgentName) -> bool + Send,
    ) -> Result<DaysView, RequestError> {
        let mut fold = DaysFold::new(clock::now(), count);
        let (mut before, mut read) = (None, 0);
        loop {
            let page = self.reader().read(move |rows| match before {
                Some(before) => rows.runs_before(before, PAGE_ROWS),
                None => rows.runs(None, PAGE_ROWS),
            });
            let rows = page.await?;
            let is_last = rows.len() < PAGE_ROWS;
            read += rows.len();
            for row in rows.into_iter().rev() {
                before = Some(row.id);
                if !sees(&row.agent) {
                    continue;
                }
                // Ids are in the order of acceptance: all others are older.
                if fold.is_older(row.accepted_at) {
                    return Box::pin(self.days_view(fold, true)).await;
                }
                let account = row.account;
                let account = if row.parent.is_none() {
                    self.reader().read(move |rows| rows.account(account)).await?
                } else {
                    None
                };
                fold.take(&row, account.and_then(|account| account.spent.usd).unwrap_or(0));
            }
            if is_last || read >= MAX_RUNS {
                return Box::pin(self.days_view(fold, is_last)).await;
            }
        }
    }
    async fn days_view(&self, fold: DaysFold, is_complete: bool) -> Result<DaysView, RequestError> {
        let (days, rows) = fold.build();
        let mut dearest = Vec::with_capacity(rows.len());
        for row in rows {
            dearest.push(self.summary(row).await?);
        }
        Ok(DaysView { days, dearest, is_complete })
    }
}
