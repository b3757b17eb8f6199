//! Picks the credential for an attempt by the pool's strategy. `admissions.rs` knows which credentials are usable.

use crate::model::PoolStrategy;

/// Picks a credential and returns its index. `seats` holds the number of attempts under way with each one, `None` if it
/// may not be used; `last` is the one used last.
pub(super) fn pick(strategy: PoolStrategy, seats: &[Option<u32>], last: Option<usize>) -> Option<usize> {
    let free = || seats.iter().enumerate().filter_map(|(at, used)| Some((at, (*used)?)));
    match strategy {
        PoolStrategy::FillFirst => free().next(),
        PoolStrategy::RoundRobin => {
            free().find(|(at, _)| last.is_none_or(|last| *at > last)).or_else(|| free().next())
        }
        PoolStrategy::LeastUsed => free().min_by_key(|(at, used)| (*used, *at)),
    }
    .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_picks_its_own() {
        use PoolStrategy::{FillFirst, LeastUsed, RoundRobin};
        let check = |strategy, seats: &[Option<u32>], last, expect| {
            assert_eq!(pick(strategy, seats, last), expect, "{strategy:?} of {seats:?} after {last:?}");
        };
        let seats = [Some(2), None, Some(0), Some(0)];
        check(FillFirst, &seats, Some(2), Some(0));
        check(FillFirst, &seats[1..], None, Some(1));
        check(RoundRobin, &seats, None, Some(0));
        check(RoundRobin, &seats, Some(0), Some(2));
        check(RoundRobin, &seats, Some(3), Some(0));
        check(LeastUsed, &seats, Some(2), Some(2));
        for strategy in [FillFirst, RoundRobin, LeastUsed] {
            check(strategy, &[None, None], Some(0), None);
            check(strategy, &[], None, None);
        }
    }
}
