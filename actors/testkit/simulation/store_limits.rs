//! Limits of the whole store in plans, and the invariant of the accounts of periods. That no account exceeds its limits is
//! checked as it happens (`observations.rs`).

use super::{
    invariants::{FinalState, Violations},
    seeded_rng::SeededRng,
};
use hermod_actors::model::{AccountId, Amounts, BudgetAccount, Period, PeriodUnit, StoreLimits};

/// Percentage of plans whose store has limits.
const PERCENT_OF_PLANS: u64 = 20;

/// The limits of the store in the plan of a seed.
pub(super) fn plan_store_limits(seed: u64) -> StoreLimits {
    // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
    let mut dice = SeededRng::new(seed.rotate_left(16) ^ u64::from(u32::MAX));
    if !dice.chance(PERCENT_OF_PLANS) {
        return StoreLimits::default();
    }
    let mut limit = |percent: u64, from: u64, to: u64| {
        let tokens = dice.chance(percent).then(|| dice.between(from, to));
        Amounts { tokens, ..Amounts::default() }
    };
    StoreLimits { hour: limit(80, 1_000, 8_000), day: limit(50, 4_000, 30_000), month: Amounts::default() }
}

/// The accounts of the periods have spent what all runs have, each attempt on one period of each length, and nothing is
/// reserved there in the end. A forced end leaves its reservation in its period.
pub(super) fn periods_add_up(past: &FinalState<'_>) -> Violations {
    let accounts = &past.inner.observations.accounts;
    let limits = past.plan.store_limits;
    let shortest = PeriodUnit::ALL.into_iter().find(|unit| !limits.of(*unit).is_empty());
    let Some(shortest) = shortest.filter(|_| !past.has_forced_end()) else { return Violations::new() };
    let sum = |is_meant: &dyn Fn(AccountId, &BudgetAccount) -> bool| {
        let meant = accounts.iter().filter(|(id, account)| is_meant(**id, account));
        meant.fold((0, 0), |(spent, reserved), (_, account)| {
            let tokens = |amounts: &Amounts| amounts.tokens.unwrap_or(0);
            (spent + tokens(&account.spent), reserved + tokens(&account.reserved))
        })
    };
    let roots = sum(&|id, account| account.parent.is_none() && Period::of_account(id).is_none());
    let mut found = Violations::new();
    for unit in PeriodUnit::ALL.into_iter().filter(|unit| *unit >= shortest) {
        let periods = sum(&|id, _| Period::of_account(id).is_some_and(|period| period.unit == unit));
        if periods != roots {
            found.push(format!("{unit:?}: (spent, reserved) is {periods:?}, and of the runs {roots:?}"));
        }
    }
    found
}
