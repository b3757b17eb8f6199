//! The budget of a run, read from the store.

use hermod_actors::{
    WaitTracker,
    model::{AccountId, Body, BudgetAccount, RunRow},
};
use serde::{Deserialize, Serialize};

use super::{error::RequestError, reader::StoreReader, status::RunRowStatus};

/// The budget of a run: its account and the accounts above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetDetail {
    /// The run's row.
    pub row: RunRowStatus,
    /// The run's own account first, then each parent up to the root.
    pub accounts: Vec<AccountWithId>,
    /// Active time used, in milliseconds; `None` if that is no longer known.
    pub used_ms: Option<u64>,
    /// Active time allowed, in milliseconds; `None` without a limit.
    pub wall_ms: Option<u64>,
}

/// An account with its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountWithId {
    /// The account's id.
    pub id: AccountId,
    /// The account.
    #[serde(flatten)]
    pub account: BudgetAccount,
}

impl StoreReader {
    /// The accounts, the used time and the time limit of a run.
    pub async fn budget(&self, row: RunRow) -> Result<BudgetDetail, RequestError> {
        let (mut accounts, mut next) = (Vec::new(), Some(row.account));
        while let Some(id) = next {
            let Some(account) = self.account(id).await? else { break };
            next = account.parent;
            accounts.push(AccountWithId { id, account });
        }
        let (mut waits, mut wall_ms, id) = (WaitTracker::new(row.session), None, row.id);
        self.records(row.session, 1, |(_, record)| {
            waits.take(&record);
            if let Body::RunAccepted(accepted) = &record.body
                && accepted.run == id
            {
                wall_ms = accepted.spec.limits.wall_ms;
            }
            let by = if let Body::RunReopened(reopened) = &record.body {
                Some((reopened.run, reopened.increase))
            } else if let Body::BudgetRaised(raised) = &record.body {
                Some((raised.run, raised.increase))
            } else {
                None
            };
            let more = by.filter(|(run, _)| *run == id).and_then(|(_, by)| by.wall_ms).unwrap_or(0);
            wall_ms = wall_ms.map(|wall: u64| wall.saturating_add(more));
            Ok::<(), RequestError>(())
        })
        .await?;
        let used_ms = waits.active_ms(id);
        Ok(BudgetDetail { row: self.with_current_counts(row).await?.into(), accounts, used_ms, wall_ms })
    }
}
