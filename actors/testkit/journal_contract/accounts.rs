//! Cases of the journal contract: reservations, settlements and raises on budget accounts.

use super::subject::{Subject, account, one, record, session};
use hermod_actors::{
    model::{
        AccountId, Amounts, BudgetAccount, BudgetRefusal, Dimension, Incarnation, LedgerChange, LimitRaise,
        NewAccount, Reservation, Settlement,
    },
    port::{Append, WriteRefusal},
};

const SESSION: u128 = 3;

fn tokens(n: u64) -> Amounts {
    Amounts { tokens: Some(n), ..Amounts::default() }
}

fn reserve(of: AccountId, n: u64) -> LedgerChange {
    LedgerChange {
        reservations: vec![Reservation { account: of, amounts: tokens(n) }],
        ..LedgerChange::default()
    }
}

fn settle(of: AccountId, reserved: u64, spent: u64) -> LedgerChange {
    let settle = Settlement {
        account: of,
        reserved: tokens(reserved),
        spent: tokens(spent),
        refund: Amounts::default(),
    };
    LedgerChange { settlements: vec![settle], ..LedgerChange::default() }
}

/// An append of one record with a ledger change, at sequence number `expected` of session `SESSION`.
fn with(fence: Incarnation, expected: u64, ledger: LedgerChange) -> Append {
    Append { ledger, ..one(session(SESSION), fence, expected) }
}

/// Opens accounts with the first append: 1 (limit 100 tokens), its child 2 (limit 80) and 2's child 3 (no limit).
async fn tree(journal: &Subject) -> Incarnation {
    let fence = journal.take_over(session(SESSION)).await.incarnation;
    let open = |id, parent, limits| NewAccount { id, parent, limits, owns_iterations: false };
    let open = vec![
        open(account(1), None, tokens(100)),
        open(account(2), Some(account(1)), tokens(80)),
        open(account(3), Some(account(2)), Amounts::default()),
    ];
    journal.append(with(fence, 1, LedgerChange { new_accounts: open, ..LedgerChange::default() })).await;
    fence
}

/// Account `n` of [`tree`] with these tokens spent and reserved; `None` if there never were any.
fn state(n: u128, spent: Option<u64>, reserved: Option<u64>) -> (AccountId, BudgetAccount) {
    let of = |tokens| Amounts { tokens, ..Amounts::default() };
    let limits = of([Some(100), Some(80), None][n as usize - 1]);
    let parent = (n > 1).then(|| account(n - 1));
    (
        account(n),
        BudgetAccount { parent, limits, spent: of(spent), reserved: of(reserved), owns_iterations: false },
    )
}

pub(super) async fn a_ledger_counts_on_all_ancestors(mut journal: Subject) {
    let fence = tree(&journal).await;
    let reserved = journal.append(with(fence, 2, reserve(account(3), 30))).await;
    let expect = [3, 2, 1].map(|n| state(n, None, Some(30)));
    assert_eq!(reserved.accounts, expect, "the account first, then its ancestors");
    journal.append(with(fence, 3, reserve(account(1), 5))).await;
    let settled = journal.append(with(fence, 4, settle(account(3), 30, 12))).await;
    let expect = [(3, 0), (2, 0), (1, 5)].map(|(n, reserved)| state(n, Some(12), Some(reserved)));
    assert_eq!(settled.accounts, expect);
    let both =
        LedgerChange { reservations: reserve(account(2), 68).reservations, ..settle(account(2), 0, 0) };
    assert_eq!(journal.append(with(fence, 5, both)).await.accounts[0], state(2, Some(12), Some(68)));
    journal.reopen();
    for (n, reserved) in [(1, 73), (2, 68), (3, 0)] {
        let (id, account) = state(n, Some(12), Some(reserved));
        journal.check_account(id, Some(&account)).await;
    }
    journal.check_account(account(4), None).await;
}

pub(super) async fn what_does_not_fit_is_refused_with_its_numbers(journal: Subject) {
    let fence = tree(&journal).await;
    journal.append(with(fence, 2, settle(account(1), 0, 15))).await;
    journal.append(with(fence, 3, reserve(account(2), 60))).await;
    let refused = |n, limit, (spent, reserved), needed| {
        let (account, dimension) = (account(n), Dimension::Tokens);
        WriteRefusal::BudgetRefusal(BudgetRefusal { account, dimension, limit, spent, reserved, needed })
    };
    journal.check_refused(with(fence, 4, reserve(account(3), 21)), refused(2, 80, (0, 60), Some(21))).await;
    journal.check_refused(with(fence, 4, reserve(account(1), 26)), refused(1, 100, (15, 60), Some(26))).await;
    journal
        .check_refused(with(fence, 4, reserve(account(1), u64::MAX)), refused(1, 100, (15, 60), None))
        .await;
    let mut settled_too = settle(account(3), 0, 7);
    settled_too.reservations = reserve(account(3), 14).reservations;
    journal.check_refused(with(fence, 4, settled_too), refused(2, 80, (7, 60), Some(14))).await;
    journal.check_account(account(3), Some(&state(3, None, None).1)).await;
    journal.check_account(account(1), Some(&state(1, Some(15), Some(60)).1)).await;
    journal.check_journal(session(SESSION), &[record(1), record(2), record(3)]).await;
    let fits = journal.append(with(fence, 4, reserve(account(3), 20))).await;
    assert_eq!(fits.accounts[2], state(1, Some(15), Some(80)));
}

pub(super) async fn what_exceeds_is_booked_and_refunded(journal: Subject) {
    let fence = tree(&journal).await;
    journal.append(with(fence, 2, reserve(account(2), 10))).await;
    let exceeded = journal.append(with(fence, 3, settle(account(2), 10, 130))).await;
    assert_eq!(exceeded.accounts, [2, 1].map(|n| state(n, Some(130), Some(0))));
    let refused = BudgetRefusal {
        account: account(2),
        dimension: Dimension::Tokens,
        limit: 80,
        spent: 130,
        reserved: 0,
        needed: Some(1),
    };
    journal.check_refused(with(fence, 4, reserve(account(2), 1)), WriteRefusal::BudgetRefusal(refused)).await;
    let mut refund = settle(account(2), 0, 0);
    refund.settlements[0].refund = tokens(100);
    let refunded = journal.append(with(fence, 4, refund)).await;
    assert_eq!(refunded.accounts, [2, 1].map(|n| state(n, Some(30), Some(0))));
    journal.append(with(fence, 5, reserve(account(2), 50))).await;
}

pub(super) async fn an_account_of_a_period_is_opened_once_and_limited_anew(mut journal: Subject) {
    let fence = journal.take_over(session(SESSION)).await.incarnation;
    let reserve_in = |day, month, n| {
        let new = |id, parent, limit| NewAccount {
            id: account(id),
            parent,
            limits: tokens(limit),
            owns_iterations: false,
        };
        let period_accounts = vec![new(1, None, month), new(2, Some(account(1)), day)];
        LedgerChange { period_accounts, ..reserve(account(2), n) }
    };
    let refused = |n, limit, reserved, needed| {
        let (account, dimension, needed) = (account(n), Dimension::Tokens, Some(needed));
        WriteRefusal::BudgetRefusal(BudgetRefusal { account, dimension, limit, spent: 0, reserved, needed })
    };
    journal.check_refused(with(fence, 1, reserve_in(50, 100, 51)), refused(2, 50, 0, 51)).await;
    journal.check_account(account(2), None).await;
    journal.append(with(fence, 1, reserve_in(50, 100, 50))).await;
    journal.check_refused(with(fence, 2, reserve_in(10, 100, 1)), refused(2, 10, 50, 1)).await;
    journal.check_refused(with(fence, 2, reserve_in(70, 60, 11)), refused(1, 60, 50, 11)).await;
    let raised = journal.append(with(fence, 2, reserve_in(70, 60, 10))).await;
    let state = |n, limit| BudgetAccount {
        parent: (n > 1).then(|| account(n - 1)),
        limits: tokens(limit),
        spent: Amounts::default(),
        reserved: tokens(60),
        owns_iterations: false,
    };
    assert_eq!(raised.accounts, [(account(2), state(2, 70)), (account(1), state(1, 60))]);
    journal.reopen();
    for (n, limit) in [(1, 60), (2, 70)] {
        journal.check_account(account(n), Some(&state(n, limit))).await;
    }
}

fn raise(of: AccountId, n: u64) -> LedgerChange {
    LedgerChange { raises: vec![LimitRaise { account: of, amounts: tokens(n) }], ..LedgerChange::default() }
}

pub(super) async fn a_raise_makes_room_on_one_account(mut journal: Subject) {
    let fence = tree(&journal).await;
    let raised = |n, by| {
        let (id, mut account) = state(n, None, None);
        account.limits.tokens = account.limits.tokens.map(|limit: u64| limit.saturating_add(by));
        (id, account)
    };
    let refused = |n, limit, needed| {
        let (account, dimension, needed) = (account(n), Dimension::Tokens, Some(needed));
        WriteRefusal::BudgetRefusal(BudgetRefusal {
            account,
            dimension,
            limit,
            spent: 0,
            reserved: 0,
            needed,
        })
    };
    journal.check_refused(with(fence, 2, reserve(account(2), 90)), refused(2, 80, 90)).await;
    let one = journal.append(with(fence, 2, raise(account(2), 10))).await;
    assert_eq!(one.accounts, [raised(2, 10), raised(1, 0)]);
    let too_much =
        LedgerChange { reservations: reserve(account(2), 101).reservations, ..raise(account(2), 15) };
    journal.check_refused(with(fence, 3, too_much), refused(1, 100, 101)).await;
    journal.check_account(account(2), Some(&raised(2, 10).1)).await;
    let without = journal.append(with(fence, 3, raise(account(3), 10))).await;
    assert_eq!(without.accounts, [raised(3, 0), raised(2, 10), raised(1, 0)], "what has no limit gets none");
    let both =
        LedgerChange { reservations: reserve(account(3), 101).reservations, ..raise(account(1), u64::MAX) };
    journal.check_refused(with(fence, 4, both), refused(2, 90, 101)).await;
    journal.append(with(fence, 4, raise(account(1), u64::MAX))).await;
    journal.reopen();
    journal.check_account(account(1), Some(&raised(1, u64::MAX).1)).await;
    journal.check_account(account(2), Some(&raised(2, 10).1)).await;
}

pub(super) async fn iterations_that_are_apart_go_no_further_up(mut journal: Subject) {
    let fence = journal.take_over(session(SESSION)).await.incarnation;
    let both = |iterations, tokens| Amounts {
        iterations: Some(iterations),
        tokens: Some(tokens),
        ..Amounts::default()
    };
    let open = |n, parent: Option<u128>, limits, owns_iterations| NewAccount {
        id: account(n),
        parent: parent.map(account),
        limits,
        owns_iterations,
    };
    let open = vec![open(1, None, both(2, 100), false), open(2, Some(1), both(5, 1_000), true)];
    journal.append(with(fence, 1, LedgerChange { new_accounts: open, ..LedgerChange::default() })).await;
    journal.reopen();
    let fence = journal.take_over(session(SESSION)).await.incarnation;
    let reserve = |of, amounts| LedgerChange {
        reservations: vec![Reservation { account: account(of), amounts }],
        ..LedgerChange::default()
    };
    let refused = |of, dimension, limit, reserved, needed| {
        let (account, needed) = (account(of), Some(needed));
        WriteRefusal::BudgetRefusal(BudgetRefusal { account, dimension, limit, spent: 0, reserved, needed })
    };
    journal.append(with(fence, 2, reserve(2, both(5, 60)))).await;
    let refusal = refused(2, Dimension::Iterations, 5, 5, 1);
    journal.check_refused(with(fence, 3, reserve(2, both(1, 1))), refusal).await;
    let above = refused(1, Dimension::Tokens, 100, 60, 41);
    journal.check_refused(with(fence, 3, reserve(2, tokens(41))), above).await;
    let spent = both(4, 70);
    let settle = Settlement { account: account(2), reserved: both(5, 60), spent, refund: Amounts::default() };
    let settled = journal
        .append(with(fence, 3, LedgerChange { settlements: vec![settle], ..LedgerChange::default() }))
        .await;
    let child = BudgetAccount {
        parent: Some(account(1)),
        limits: both(5, 1_000),
        spent,
        reserved: both(0, 0),
        owns_iterations: true,
    };
    let parent = BudgetAccount {
        parent: None,
        limits: both(2, 100),
        spent: tokens(70),
        reserved: tokens(0),
        owns_iterations: false,
    };
    assert_eq!(settled.accounts, [(account(2), child), (account(1), parent)]);
    journal.append(with(fence, 4, reserve(1, both(2, 30)))).await;
}

pub(super) async fn an_unknown_account_is_malformed(journal: Subject) {
    let fence = tree(&journal).await;
    journal.check_malformed(with(fence, 2, reserve(account(9), 1))).await;
    journal.check_malformed(with(fence, 2, settle(account(9), 0, 1))).await;
    journal.check_malformed(with(fence, 2, raise(account(9), 1))).await;
    let new = |id, parent| LedgerChange {
        new_accounts: vec![NewAccount { id, parent, limits: Amounts::default(), owns_iterations: false }],
        ..LedgerChange::default()
    };
    journal.check_malformed(with(fence, 2, new(account(4), Some(account(9))))).await;
    journal.check_malformed(with(fence, 2, new(account(2), None))).await;
    journal.check_account(account(4), None).await;
    journal.check_journal(session(SESSION), &[record(1)]).await;
}
