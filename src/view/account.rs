//! Views of the budget of a run: its accounts by dimension, and its active time.

use std::collections::BTreeMap;

use hermod_actors::model::{
    AccountId, Amounts, BudgetAccount, Dimension, Period, PeriodUnit, Timestamp, rfc3339_time,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{encoding, run::RunView, schema::Id};

/// The budget of a run: `{…of the run, leg, accounts, wall}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The number of the present leg, from 1.
    pub leg: u32,
    /// The run's own account first, then each parent up to the root.
    pub accounts: Vec<AccountView>,
    /// The active time.
    pub wall: ActiveTimeView,
}

/// The active time of a run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActiveTimeView {
    /// Active time allowed; `None` without a limit.
    #[schema(required)]
    pub limit_ms: Option<u64>,
    /// Active time used; `None` if that is no longer known.
    #[schema(required)]
    pub used_ms: Option<u64>,
}

/// An account. Dimensions that are neither limited nor used are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    /// The account's id.
    #[schema(value_type = Id)]
    pub account: AccountId,
    /// What is limited and used of each dimension; dollars are nano-dollars here.
    #[serde(with = "encoding::money")]
    #[schema(value_type = BTreeMap<String, DimensionUsage<f64>>)]
    pub dimensions: BTreeMap<Dimension, DimensionUsage>,
}

impl AccountView {
    /// An account with its id.
    pub fn new(id: AccountId, account: &BudgetAccount) -> Self {
        let usage = |dimension| Some((dimension, DimensionUsage::of(account, dimension)?));
        Self { account: id, dimensions: Dimension::ALL.into_iter().filter_map(usage).collect() }
    }
}

/// What all runs of the store together may use in the present period, and have used: `{period, ends_at, …of the account}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeriodUsageView {
    /// `hour`, `day` or `month`, in UTC.
    #[schema(value_type = String)]
    pub period: PeriodUnit,
    /// When the next period begins.
    #[serde(with = "rfc3339_time")]
    #[schema(value_type = String, format = DateTime)]
    pub ends_at: Timestamp,
    /// The account of the period.
    #[serde(flatten)]
    pub account: AccountView,
}

impl PeriodUsageView {
    /// A period with its account.
    pub fn new(period: Period, account: &BudgetAccount) -> Self {
        let account = AccountView::new(period.account(), account);
        Self { period: period.unit, ends_at: period.ends_at(), account }
    }
}

/// One dimension of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DimensionUsage<T = u64> {
    /// The limit; `None` without one.
    #[schema(value_type = Option<f64>, required)]
    pub limit: Option<T>,
    /// What is spent.
    #[schema(value_type = f64)]
    pub spent: T,
    /// What calls in progress have reserved.
    #[schema(value_type = f64)]
    pub reserved: T,
    /// What is left of the limit; `None` without one.
    #[schema(value_type = Option<f64>, required)]
    pub left: Option<T>,
}

impl DimensionUsage {
    /// `None` for a dimension that is neither limited nor used.
    fn of(account: &BudgetAccount, dimension: Dimension) -> Option<Self> {
        let limit = account.limits.get(dimension);
        let amount = |amounts: &Amounts| amounts.get(dimension).unwrap_or(0);
        let (spent, reserved) = (amount(&account.spent), amount(&account.reserved));
        let left = limit.map(|limit| limit.saturating_sub(spent).saturating_sub(reserved));
        (limit.is_some() || spent > 0 || reserved > 0).then_some(Self { limit, spent, reserved, left })
    }
}

impl<T> DimensionUsage<T> {
    /// The same usage in another unit.
    pub fn map<U>(self, convert: impl Fn(T) -> U) -> DimensionUsage<U> {
        DimensionUsage {
            limit: self.limit.map(&convert),
            spent: convert(self.spent),
            reserved: convert(self.reserved),
            left: self.left.map(&convert),
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_account_has_what_is_limited_or_used() {
        let account = BudgetAccount {
            parent: None,
            limits: Amounts { iterations: Some(10), usd: Some(1_000_000_000), ..Amounts::default() },
            spent: Amounts { iterations: Some(4), tokens: Some(700), ..Amounts::default() },
            reserved: Amounts { iterations: Some(1), usd: Some(250_000_000), ..Amounts::default() },
            owns_iterations: false,
        };
        let view = AccountView::new(RunId::from_bits(1).into(), &account);
        let written = json!({
            "account": "00000000000000000000000001",
            "dimensions": {
                "iterations": { "limit": 10, "spent": 4, "reserved": 1, "left": 5 },
                "tokens": { "limit": null, "spent": 700, "reserved": 0, "left": null },
                "usd": { "limit": 1.0, "spent": 0.0, "reserved": 0.25, "left": 0.75 },
            },
        });
        assert_eq!(json!(view), written);
        assert_eq!(serde_json::from_value::<AccountView>(written).unwrap(), view);
    }
}
