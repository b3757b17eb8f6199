//! Budget accounts, their changes, and refusals: data per dimension, and its text for people. The ledger's arithmetic
//! is in `journal/ledger.rs`.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{AccountId, Period};

/// A resource that is counted and limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dimension {
    /// Iterations: model calls with their tool calls.
    Iterations,
    /// Tokens read and written.
    Tokens,
    /// Nano-dollars.
    Usd,
    /// Tool calls started.
    ToolCalls,
    /// Subagents alive.
    Children,
}

impl Dimension {
    /// All dimensions, in the order of the fields of `Amounts`.
    pub const ALL: [Self; 5] = [Self::Iterations, Self::Tokens, Self::Usd, Self::ToolCalls, Self::Children];

    /// The dimension's name, as in records and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Formats an amount of this dimension for people: money in dollars.
    pub fn display(self, amount: u64) -> impl fmt::Display {
        fmt::from_fn(move |f| match self {
            Self::Usd => {
                let part = format!("{:09}", amount % 1_000_000_000);
                let part = part.trim_end_matches('0');
                write!(f, "${}{}{part}", amount / 1_000_000_000, if part.is_empty() { "" } else { "." })
            }
            Self::Iterations | Self::Tokens | Self::ToolCalls | Self::Children => write!(f, "{amount}"),
        })
    }
}

/// An amount per dimension. An absent one means zero in a spend, and unlimited in a limit ([`BudgetAccount::limits`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amounts {
    /// Iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Nano-dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<u64>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Subagents alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Amounts {
    /// The amount of one dimension.
    pub const fn get(mut self, dimension: Dimension) -> Option<u64> {
        *self.amount_mut(dimension)
    }

    /// Sets the amount of one dimension.
    pub const fn set(&mut self, dimension: Dimension, amount: u64) {
        *self.amount_mut(dimension) = Some(amount);
    }

    const fn amount_mut(&mut self, dimension: Dimension) -> &mut Option<u64> {
        match dimension {
            Dimension::Iterations => &mut self.iterations,
            Dimension::Tokens => &mut self.tokens,
            Dimension::Usd => &mut self.usd,
            Dimension::ToolCalls => &mut self.tool_calls,
            Dimension::Children => &mut self.children,
        }
    }

    /// Adds `more` per dimension; sums saturate.
    pub fn add(&mut self, more: &Self) {
        self.change(more, u64::saturating_add);
    }

    /// Subtracts `less` per dimension; no result is below 0.
    pub fn reduce(&mut self, less: &Self) {
        self.change(less, u64::saturating_sub);
    }

    /// Adds `by` to the amounts that there are; the other dimensions stay without one.
    pub(crate) fn raise(&mut self, by: &Self) {
        for dimension in Dimension::ALL {
            if let Some((amount, more)) = self.get(dimension).zip(by.get(dimension)) {
                self.set(dimension, amount.saturating_add(more));
            }
        }
    }

    fn change(&mut self, by: &Self, how: fn(u64, u64) -> u64) {
        for dimension in Dimension::ALL {
            if let Some(amount) = by.get(dimension).filter(|amount| *amount > 0) {
                self.set(dimension, how(self.get(dimension).unwrap_or(0), amount));
            }
        }
    }

    /// The part that counts in the periods of a store: tokens and money.
    #[must_use]
    pub fn in_periods(&self) -> Self {
        Self { tokens: self.tokens, usd: self.usd, ..Self::default() }
    }

    /// True if no dimension has an amount.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A budget account; only the committer changes its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAccount {
    /// The parent account. Each spend is reserved on it too, except iterations if `owns_iterations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<AccountId>,
    /// The limits; an absent one means unlimited.
    pub limits: Amounts,
    /// The settled spends.
    pub spent: Amounts,
    /// Reservations of calls that have not ended.
    pub reserved: Amounts,
    /// True if its iterations do not count on its ancestors.
    #[serde(rename = "apart", default, skip_serializing_if = "super::is_default")]
    pub owns_iterations: bool,
}

/// An account that an append opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewAccount {
    /// Its id.
    pub id: AccountId,
    /// The parent account.
    pub parent: Option<AccountId>,
    /// Its limits.
    pub limits: Amounts,
    /// True if its iterations do not count on its ancestors; see [`BudgetAccount::owns_iterations`].
    pub owns_iterations: bool,
}

impl NewAccount {
    /// The account after it was opened: nothing is spent or reserved.
    pub fn opened(&self) -> BudgetAccount {
        let &Self { parent, limits, owns_iterations, .. } = self;
        BudgetAccount {
            parent,
            limits,
            spent: Amounts::default(),
            reserved: Amounts::default(),
            owns_iterations,
        }
    }
}

/// A reservation before a spend, on the account and all its ancestors. If it exceeds a limit, the whole append is
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The account.
    pub account: AccountId,
    /// The amounts to reserve.
    pub amounts: Amounts,
}

/// Releases a reservation and books the actual spend, on the account and all its ancestors. Never refused, because the
/// spend has happened. `spent` may exceed the reservation. A settlement that corrects an earlier one releases no
/// reservation and returns `refund`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    /// The account.
    pub account: AccountId,
    /// The reservation to release.
    pub reserved: Amounts,
    /// The amounts spent.
    pub spent: Amounts,
    /// Amounts that an earlier settlement booked and that were not spent.
    pub refund: Amounts,
}

/// A raise of one account's limits. A dimension without a limit stays unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRaise {
    /// The account.
    pub account: AccountId,
    /// The additions to the limits.
    pub amounts: Amounts,
}

/// The changes of accounts in an append, applied in the order of these fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerChange {
    /// Accounts to open.
    pub new_accounts: Vec<NewAccount>,
    /// Accounts of periods, each behind its parent. One that exists gets these limits.
    pub period_accounts: Vec<NewAccount>,
    /// Raises of limits.
    pub raises: Vec<LimitRaise>,
    /// Settlements of ended calls.
    pub settlements: Vec<Settlement>,
    /// Reservations of calls that start.
    pub reservations: Vec<Reservation>,
}

/// A refused reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct BudgetRefusal {
    /// The account whose limit would be exceeded.
    pub account: AccountId,
    /// The dimension.
    pub dimension: Dimension,
    /// The limit.
    pub limit: u64,
    /// The amount already spent on the account.
    pub spent: u64,
    /// The amount already reserved on the account.
    pub reserved: u64,
    /// The refused amount; unknown (`None`) in records of earlier builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed: Option<u64>,
}

impl BudgetRefusal {
    /// The raise with which a run that has spent `spent` can resume. It admits four times the refused amount, because
    /// each call reads more than the one before. `None` if the refused amount is unknown.
    pub fn sufficient_raise(&self, spent: u64) -> Option<u64> {
        let used = self.reserved.saturating_add(spent.max(self.spent));
        Some(self.needed?.saturating_mul(4).saturating_add(used).saturating_sub(self.limit))
    }
}

impl fmt::Display for BudgetRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, dimension, limit, spent, reserved, needed } = self;
        let [limit, spent, reserved] = [limit, spent, reserved].map(|amount| dimension.display(*amount));
        let period = Period::of_account(*account);
        match period {
            Some(period) => period.limit_name(*dimension).fmt(f)?,
            None => f.write_str(dimension.name())?,
        }
        write!(f, " limit of {limit} reached: {spent} spent, {reserved} reserved")?;
        match (dimension, needed) {
            (Dimension::Tokens | Dimension::Usd, Some(needed)) => {
                write!(f, ", {} needed for the next call", dimension.display(*needed))?;
            }
            // The amount needed of these is trivial: one, or as many as the answer has calls.
            (Dimension::Iterations | Dimension::ToolCalls | Dimension::Children, _) | (_, None) => {}
        }
        match period {
            Some(period) => write!(f, "; the {} ends at {}", period.unit.name(), period.ends_at()),
            None => write!(f, ", account {account}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sufficient_raise_has_room_for_some_calls() {
        let check = |(limit, spent, reserved), needed, spent_by_now, expect| {
            let (account, dimension) = (AccountId::from_bits(0), Dimension::Tokens);
            let refusal = BudgetRefusal { account, dimension, limit, spent, reserved, needed };
            assert_eq!(refusal.sufficient_raise(spent_by_now), expect);
        };
        check((80, 70, 5), Some(20), 0, Some(75));
        check((80, 70, 5), Some(20), 79, Some(84));
        check((80, 70, 5), None, 0, None);
        check((80, 0, 0), Some(u64::MAX), 9, Some(u64::MAX - 80));
    }

    #[test]
    fn money_is_told_in_dollars() {
        let refusal = |dimension, limit, spent, needed| {
            let account = AccountId::from_bits(0);
            BudgetRefusal { account, dimension, limit, spent, reserved: 0, needed }.to_string()
        };
        let told = |dimension, limit, spent| refusal(dimension, limit, spent, None);
        let usd = told(Dimension::Usd, 5_000_000_000, 4_120_000_000);
        assert!(usd.starts_with("usd limit of $5 reached: $4.12 spent, $0 reserved"), "{usd}");
        assert!(
            told(Dimension::Usd, 100_000, 1).starts_with("usd limit of $0.0001 reached: $0.000000001 spent")
        );
        assert!(
            told(Dimension::Tokens, 80, 0).starts_with("tokens limit of 80 reached: 0 spent, 0 reserved, a")
        );
        for (dimension, expect) in [
            (Dimension::Tokens, ", 90 needed for the next call, account"),
            (Dimension::Usd, ", $0.00000009 needed for the next call, account"),
            (Dimension::Iterations, " 0 reserved, account"),
        ] {
            let text = refusal(dimension, 80, 0, Some(90));
            assert!(text.contains(expect), "{text}");
        }
    }
}
