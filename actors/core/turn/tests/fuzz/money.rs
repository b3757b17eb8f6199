//! Checks the accounts, as a store keeps them, against the reservations in the records.

use super::hold;
use crate::{
    journal::{WriteRefusal, post},
    model::{
        AccountId, Amounts, BudgetAccount, BudgetRefusal, Dimension, LedgerChange, Period, PeriodUnit, RunId,
    },
};

#[derive(Debug, Default)]
pub(super) struct Money {
    accounts: Vec<(AccountId, BudgetAccount)>,
}

/// The reservations of a run's attempts under way, and the tokens that providers have charged beyond reservations.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) reserved: Amounts,
    pub(super) excess: u64,
}

impl Held {
    pub(super) fn reserve(&mut self, amounts: &Amounts) {
        self.change(amounts, u64::checked_add);
    }

    pub(super) fn give_back(&mut self, amounts: &Amounts) {
        self.change(amounts, u64::checked_sub);
    }

    /// Callers hold attempts, each of which is reserved and given back once.
    fn change(&mut self, by: &Amounts, how: fn(u64, u64) -> Option<u64>) {
        for dimension in Dimension::ALL {
            if let Some(amount) = by.get(dimension) {
                let there = self.reserved.get(dimension).unwrap_or(0);
                self.reserved.set(dimension, how(there, amount).expect("each attempt is settled once"));
            }
        }
    }
}

impl Money {
    /// Books the account changes of an append, or returns the refusal.
    pub(super) fn post(&mut self, ledger: &LedgerChange) -> Result<Option<BudgetRefusal>, String> {
        for settle in &ledger.settlements {
            let reserved = self.get(settle.account).map_or(Amounts::default(), |account| account.reserved);
            for dimension in Dimension::ALL {
                let (there, less) = (reserved.get(dimension), settle.reserved.get(dimension));
                hold!(
                    less.unwrap_or(0) <= there.unwrap_or(0),
                    "{settle:?} gives back more than {reserved:?}"
                );
            }
        }
        match post(ledger, |id| Ok::<_, WriteRefusal>(self.get(id).copied())) {
            Ok(postings) => {
                for posting in postings {
                    match self.accounts.iter_mut().find(|(id, _)| *id == posting.id) {
                        Some((_, account)) => *account = posting.account,
                        None => self.accounts.push((posting.id, posting.account)),
                    }
                }
                Ok(None)
            }
            Err(WriteRefusal::BudgetRefusal(refusal)) => Ok(Some(refusal)),
            Err(refusal) => Err(format!("{refusal:?}: {ledger:?}")),
        }
    }

    fn get(&self, id: AccountId) -> Option<&BudgetAccount> {
        self.accounts.iter().find(|(known, _)| *known == id).map(|(_, account)| account)
    }

    /// Tokens spent on a run's account.
    pub(super) fn tokens(&self, run: RunId) -> u64 {
        self.get(run.into()).and_then(|account| account.spent.tokens).unwrap_or(0)
    }

    /// Checks that the iterations and tool calls that a run has made are spent or reserved.
    pub(super) fn check_counts(&self, run: RunId, made: (u64, u64)) -> Result<(), String> {
        let Some(BudgetAccount { spent, reserved, .. }) = self.get(run.into()) else {
            return Err(format!("{run} has no account"));
        };
        let both = |dimension| spent.get(dimension).unwrap_or(0) + reserved.get(dimension).unwrap_or(0);
        let booked = (both(Dimension::Iterations), both(Dimension::ToolCalls));
        hold!(booked == made, "{run} has made {made:?} iterations and calls, and {booked:?} are booked");
        Ok(())
    }

    /// Checks the accounts of periods, if there are some: they have spent these tokens, and nothing is reserved.
    pub(super) fn check_periods(&self, tokens: u64) -> Result<(), String> {
        let of = |unit| {
            let accounts = self.accounts.iter();
            accounts.filter(move |(id, _)| Period::of_account(*id).is_some_and(|period| period.unit == unit))
        };
        if of(PeriodUnit::Hour).next().is_none() {
            return Ok(());
        }
        for unit in PeriodUnit::ALL {
            let spent: u64 = of(unit).filter_map(|(_, account)| account.spent.tokens).sum();
            hold!(spent == tokens, "the runs have spent {tokens} tokens, and {unit:?} accounts {spent}");
            let reserved = of(unit).find(|(_, account)| account.reserved.tokens.is_some_and(|n| n > 0));
            hold!(reserved.is_none(), "at the end {reserved:?}");
        }
        Ok(())
    }

    /// Checks that a run's account has reserved what its attempts under way hold, and has not spent more than its
    /// limits.
    pub(super) fn check(&self, run: RunId, held: &Held) -> Result<(), String> {
        let Some(account) = self.get(run.into()) else { return Err(format!("{run} has no account")) };
        for dimension in Dimension::ALL {
            let [spent, reserved, holds] =
                [&account.spent, &account.reserved, &held.reserved].map(|of| of.get(dimension).unwrap_or(0));
            hold!(
                reserved == holds,
                "{run} has reserved {reserved} {dimension:?} for attempts that hold {holds}"
            );
            let excess = if dimension == Dimension::Tokens { held.excess } else { 0 };
            let limit = account.limits.get(dimension).unwrap_or(u64::MAX).saturating_add(excess);
            hold!(spent <= limit, "{run} has spent {spent} of {limit} {dimension:?}");
        }
        Ok(())
    }
}
