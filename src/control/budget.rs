//! Queries of [`StoreReader`] for budgets: the accounts and the active time of a run, and the accounts of the present
//! periods.

use hermod_actors::{
    WaitTracker,
    model::{Body, BudgetAccount, Period, RunRow, StoreLimits, Timestamp},
};

use super::{error::RequestError, reader::StoreReader};
use crate::view::{AccountView, ActiveTimeView, PeriodUsageView};

impl StoreReader {
    /// The periods at this time in which all runs together have limits, and the longer ones: the shortest first, each with
    /// what is used of it.
    pub async fn periods(
        &self,
        limits: &StoreLimits,
        at: Timestamp,
    ) -> Result<Vec<PeriodUsageView>, RequestError> {
        let mut periods = Vec::new();
        for new in limits.accounts(at).into_iter().rev() {
            let Some(period) = Period::of_account(new.id) else { continue };
            let stored = self.read(|rows| rows.account(new.id)).await?;
            // The stored limits are those of the last call.
            let account = BudgetAccount { limits: new.limits, ..stored.unwrap_or_else(|| new.opened()) };
            periods.push(PeriodUsageView::new(period, &account));
        }
        Ok(periods)
    }

    /// The account of a run, then those of the runs above it. Also its active time and the limit of that.
    pub(super) async fn budget(
        &self,
        row: &RunRow,
    ) -> Result<(Vec<AccountView>, ActiveTimeView), RequestError> {
        let (mut accounts, mut next) = (Vec::new(), Some(row.account));
        while let Some(id) = next {
            let Some(account) = self.read(|rows| rows.account(id)).await? else { break };
            next = account.parent;
            accounts.push(AccountView::new(id, &account));
        }
        let (mut waits, mut limit_ms, id) = (WaitTracker::new(row.session), None, row.id);
        self.records(row.session, 1, |_, record| {
            waits.take(&record);
            if let Body::RunAccepted(accepted) = &record.body
                && accepted.run == id
            {
                limit_ms = accepted.spec.limits.wall_ms;
            }
            let increase = if let Body::RunReopened(reopened) = &record.body {
                Some((reopened.run, reopened.increase))
            } else if let Body::BudgetRaised(raised) = &record.body {
                Some((raised.run, raised.increase))
            } else {
                None
            };
            let added_ms = increase
                .filter(|(run, _)| *run == id)
                .and_then(|(_, increase)| increase.wall_ms)
                .unwrap_or(0);
            limit_ms = limit_ms.map(|limit: u64| limit.saturating_add(added_ms));
        })
        .await?;
        Ok((accounts, ActiveTimeView { limit_ms, used_ms: waits.active_ms(id) }))
    }
}
