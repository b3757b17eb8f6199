//! The ledger: what the account changes of an append do to budget accounts and their ancestors. Shared by all stores.
//! Pure: writes nothing.

use super::WriteRefusal;
use crate::model::{
    AccountId, Amounts, BudgetAccount, BudgetRefusal, Dimension, LedgerChange, LimitRaise, NewAccount,
    Reservation, Settlement,
};

/// The state of an account after the ledger was applied. The ledger names the account or one below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The account's id.
    pub id: AccountId,
    /// The account's state after the ledger.
    pub account: BudgetAccount,
    /// True if the account's row must be written.
    pub is_changed: bool,
}

/// Computes the accounts after `ledger`. `get` reads an account; nothing is written.
///
/// Order: opens accounts, opens or limits those of periods, raises limits, settles, reserves. Settlements and reservations apply to the account and all
/// its ancestors; iterations stop at an account that owns its iterations. A raise applies to its account alone, and
/// only to dimensions that have a limit. Postings follow the ledger's settlements, reservations, raises and opened
/// accounts, each account before its ancestors and only once.
///
/// Refused as `BudgetRefusal` if a reservation exceeds a limit; as `Malformed` if an account does not exist, or already
/// exists and should be opened. Sums saturate.
pub fn post<E: From<WriteRefusal>>(
    ledger: &LedgerChange,
    get: impl FnMut(AccountId) -> Result<Option<BudgetAccount>, E>,
) -> Result<Vec<Posting>, E> {
    let mut accounts = AccountSet { get, entries: Vec::new() };
    for new in &ledger.new_accounts {
        accounts.open(new)?;
    }
    for period in &ledger.period_accounts {
        accounts.open_or_limit(period)?;
    }
    for raise in &ledger.raises {
        accounts.raise(raise)?;
    }
    for settle in &ledger.settlements {
        accounts.settle(settle)?;
    }
    for reserve in &ledger.reservations {
        accounts.reserve(reserve)?;
    }
    accounts.postings(ledger)
}

/// The accounts read or opened so far.
struct AccountSet<G> {
    get: G,
    entries: Vec<AccountEntry>,
}

struct AccountEntry {
    id: AccountId,
    /// The stored account; `None` if this ledger opens it.
    before: Option<BudgetAccount>,
    now: BudgetAccount,
}

/// An account on the path from one account to the root.
struct AncestorEntry {
    entry: usize,
    /// True if an account below this one on the path owns its iterations.
    excludes_iterations: bool,
}

impl AncestorEntry {
    /// The part of `amounts` that counts on this account.
    const fn counted(&self, amounts: &Amounts) -> Amounts {
        if self.excludes_iterations { Amounts { iterations: None, ..*amounts } } else { *amounts }
    }
}

impl<G, E> AccountSet<G>
where
    G: FnMut(AccountId) -> Result<Option<BudgetAccount>, E>,
    E: From<WriteRefusal>,
{
    fn open(&mut self, new: &NewAccount) -> Result<(), E> {
        let &NewAccount { id, parent, .. } = new;
        if self.find(id)?.is_some() {
            return malformed(format!("account {id} exists already"));
        }
        if let Some(parent) = parent {
            self.ancestors(parent)?;
        }
        self.entries.push(AccountEntry { id, before: None, now: new.opened() });
        Ok(())
    }

    /// Opens the account of a period, or sets its limits.
    fn open_or_limit(&mut self, period: &NewAccount) -> Result<(), E> {
        let Some(index) = self.find(period.id)? else { return self.open(period) };
        self.entries[index].now.limits = period.limits;
        Ok(())
    }

    fn raise(&mut self, raise: &LimitRaise) -> Result<(), E> {
        let index = self.entry(raise.account)?;
        self.entries[index].now.limits.raise(&raise.amounts);
        Ok(())
    }

    fn settle(&mut self, settle: &Settlement) -> Result<(), E> {
        for link in self.ancestors(settle.account)? {
            let now = &mut self.entries[link.entry].now;
            now.reserved.reduce(&link.counted(&settle.reserved));
            now.spent.add(&link.counted(&settle.spent));
            now.spent.reduce(&link.counted(&settle.refund));
        }
        Ok(())
    }

    fn reserve(&mut self, reserve: &Reservation) -> Result<(), E> {
        let chain = self.ancestors(reserve.account)?;
        for link in &chain {
            let AccountEntry { id, now, .. } = &self.entries[link.entry];
            if let Some(refused) = find_refusal(*id, now, &link.counted(&reserve.amounts)) {
                return Err(WriteRefusal::BudgetRefusal(refused).into());
            }
        }
        for link in chain {
            self.entries[link.entry].now.reserved.add(&link.counted(&reserve.amounts));
        }
        Ok(())
    }

    /// The account and its ancestors, in order up to the root.
    fn ancestors(&mut self, account: AccountId) -> Result<Vec<AncestorEntry>, E> {
        let mut chain: Vec<AncestorEntry> = Vec::new();
        let (mut next, mut excludes_iterations) = (Some(account), false);
        while let Some(id) = next {
            let index = self.entry(id)?;
            if chain.iter().any(|link| link.entry == index) {
                return malformed(format!("account {id} is its own ancestor"));
            }
            chain.push(AncestorEntry { entry: index, excludes_iterations });
            let now = &self.entries[index].now;
            (next, excludes_iterations) = (now.parent, excludes_iterations || now.owns_iterations);
        }
        Ok(chain)
    }

    fn entry(&mut self, id: AccountId) -> Result<usize, E> {
        self.find(id)?.map_or_else(|| malformed(format!("account {id} does not exist")), Ok)
    }

    /// The entry of an account, which is read if it is not known yet; `None` if it does not exist.
    fn find(&mut self, id: AccountId) -> Result<Option<usize>, E> {
        if let Some(index) = self.entries.iter().position(|entry| entry.id == id) {
            return Ok(Some(index));
        }
        let Some(account) = (self.get)(id)? else { return Ok(None) };
        self.entries.push(AccountEntry { id, before: Some(account), now: account });
        Ok(Some(self.entries.len() - 1))
    }

    fn postings(mut self, ledger: &LedgerChange) -> Result<Vec<Posting>, E> {
        let settled = ledger.settlements.iter().map(|settle| settle.account);
        let reserved = ledger.reservations.iter().map(|reserve| reserve.account);
        let raised = ledger.raises.iter().map(|raise| raise.account);
        let opened = ledger.new_accounts.iter().map(|new| new.id);
        let mut order = Vec::with_capacity(self.entries.len());
        for account in settled.chain(reserved).chain(raised).chain(opened) {
            for AncestorEntry { entry: index, .. } in self.ancestors(account)? {
                if !order.contains(&index) {
                    order.push(index);
                }
            }
        }
        let posting = |index: usize| {
            let AccountEntry { id, before, now } = &self.entries[index];
            Posting { id: *id, account: *now, is_changed: *before != Some(*now) }
        };
        Ok(order.into_iter().map(posting).collect())
    }
}

/// The first dimension in which `amounts` exceeds the limit. An amount of 0 always fits, even above the limit.
fn find_refusal(id: AccountId, account: &BudgetAccount, amounts: &Amounts) -> Option<BudgetRefusal> {
    Dimension::ALL.into_iter().find_map(|dimension| {
        let amount = amounts.get(dimension).filter(|amount| *amount > 0)?;
        let limit = account.limits.get(dimension)?;
        let spent = account.spent.get(dimension).unwrap_or(0);
        let reserved = account.reserved.get(dimension).unwrap_or(0);
        let total = spent.checked_add(reserved).and_then(|used| used.checked_add(amount));
        let fits = total.is_some_and(|total| total <= limit);
        // A spend without a known price reserves `u64::MAX`, which is no amount to report.
        let needed = Some(amount).filter(|amount| *amount < u64::MAX);
        (!fits).then_some(BudgetRefusal { account: id, dimension, limit, spent, reserved, needed })
    })
}

fn malformed<T, E: From<WriteRefusal>>(why: String) -> Result<T, E> {
    Err(WriteRefusal::Malformed(why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: AccountId = AccountId::from_bits(1);
    const CHILD: AccountId = AccountId::from_bits(2);

    fn tokens(n: u64) -> Amounts {
        Amounts { tokens: Some(n), ..Amounts::default() }
    }

    fn account(parent: Option<AccountId>, limit: u64, spent: u64, reserved: u64) -> BudgetAccount {
        BudgetAccount {
            parent,
            limits: tokens(limit),
            spent: tokens(spent),
            reserved: tokens(reserved),
            owns_iterations: false,
        }
    }

    /// A root with 100 tokens (30 spent, 20 reserved) and its child with 60 (10 spent, 5 reserved).
    fn get(id: AccountId) -> Option<BudgetAccount> {
        match id {
            ROOT => Some(account(None, 100, 30, 20)),
            CHILD => Some(account(Some(ROOT), 60, 10, 5)),
            _ => None,
        }
    }

    /// Checks (id, spent, reserved, changed) of each posting.
    fn check(ledger: &LedgerChange, expect: Result<&[(AccountId, u64, u64, bool)], WriteRefusal>) {
        let got = post(ledger, |id| Ok(get(id))).map(|postings| {
            let row = |p: Posting| {
                let of = |amounts: Amounts| amounts.tokens.unwrap_or(0);
                (p.id, of(p.account.spent), of(p.account.reserved), p.is_changed)
            };
            postings.into_iter().map(row).collect::<Vec<_>>()
        });
        assert_eq!(got, expect.map(<[_]>::to_vec));
    }

    fn reserve(account: AccountId, n: u64) -> LedgerChange {
        LedgerChange {
            reservations: vec![Reservation { account, amounts: tokens(n) }],
            ..LedgerChange::default()
        }
    }

    fn settle(reserved: u64, spent: u64, refund: u64) -> LedgerChange {
        let (reserved, spent, refund) = (tokens(reserved), tokens(spent), tokens(refund));
        LedgerChange {
            settlements: vec![Settlement { account: CHILD, reserved, spent, refund }],
            ..LedgerChange::default()
        }
    }

    fn short_of(account: AccountId, (limit, spent, reserved): (u64, u64, u64), needed: u64) -> WriteRefusal {
        let needed = Some(needed).filter(|needed| *needed < u64::MAX);
        let dimension = Dimension::Tokens;
        WriteRefusal::BudgetRefusal(BudgetRefusal { account, dimension, limit, spent, reserved, needed })
    }

    #[test]
    fn a_reservation_counts_on_all_ancestors_up_to_the_limit() {
        check(&reserve(CHILD, 45), Ok(&[(CHILD, 10, 50, true), (ROOT, 30, 65, true)]));
        check(&reserve(CHILD, 46), Err(short_of(CHILD, (60, 10, 5), 46)));
        check(&reserve(ROOT, 51), Err(short_of(ROOT, (100, 30, 20), 51)));
        check(&reserve(CHILD, u64::MAX), Err(short_of(CHILD, (60, 10, 5), u64::MAX)));
        check(&reserve(CHILD, 0), Ok(&[(CHILD, 10, 5, false), (ROOT, 30, 20, false)]));
    }

    #[test]
    fn an_ancestor_refuses_what_the_account_allows() {
        let roomy = NewAccount {
            id: AccountId::from_bits(3),
            parent: Some(ROOT),
            limits: Amounts::default(),
            owns_iterations: false,
        };
        let mut ledger = reserve(roomy.id, 51);
        ledger.new_accounts.push(roomy);
        check(&ledger, Err(short_of(ROOT, (100, 30, 20), 51)));
        ledger.reservations[0].amounts = tokens(50);
        check(&ledger, Ok(&[(roomy.id, 0, 50, true), (ROOT, 30, 70, true)]));
    }

    #[test]
    fn a_settlement_is_never_refused_and_makes_room_first() {
        check(&settle(5, 3, 0), Ok(&[(CHILD, 13, 0, true), (ROOT, 33, 15, true)]));
        check(&settle(5, 500, 0), Ok(&[(CHILD, 510, 0, true), (ROOT, 530, 15, true)]));
        check(&settle(0, 0, 4), Ok(&[(CHILD, 6, 5, true), (ROOT, 26, 20, true)]));
        check(&settle(99, u64::MAX, 0), Ok(&[(CHILD, u64::MAX, 0, true), (ROOT, u64::MAX, 0, true)]));
        let both = LedgerChange { reservations: reserve(CHILD, 50).reservations, ..settle(5, 0, 0) };
        check(&both, Ok(&[(CHILD, 10, 50, true), (ROOT, 30, 65, true)]));
    }

    #[test]
    fn reservations_of_one_ledger_add_up() {
        let mut ledger = reserve(CHILD, 40);
        ledger.reservations.push(Reservation { account: CHILD, amounts: tokens(6) });
        check(&ledger, Err(short_of(CHILD, (60, 10, 45), 6)));
    }

    fn raise(account: AccountId, by: u64) -> LedgerChange {
        LedgerChange { raises: vec![LimitRaise { account, amounts: tokens(by) }], ..LedgerChange::default() }
    }

    /// Checks the limits of each posting.
    fn check_limits(ledger: &LedgerChange, expect: &[(AccountId, Amounts)]) {
        let postings = post(ledger, |id| Ok::<_, WriteRefusal>(get(id))).unwrap();
        let limits: Vec<_> = postings.iter().map(|posting| (posting.id, posting.account.limits)).collect();
        assert_eq!(limits, expect);
    }

    #[test]
    fn a_raise_makes_room_on_its_account_alone() {
        check_limits(&raise(CHILD, 7), &[(CHILD, tokens(67)), (ROOT, tokens(100))]);
        check_limits(&raise(ROOT, u64::MAX), &[(ROOT, tokens(u64::MAX))]);
        let all = Dimension::ALL.into_iter().fold(Amounts::default(), |mut all, dimension| {
            all.set(dimension, 7);
            all
        });
        let every = LedgerChange {
            raises: vec![LimitRaise { account: CHILD, amounts: all }],
            ..LedgerChange::default()
        };
        check_limits(&every, &[(CHILD, tokens(67)), (ROOT, tokens(100))]);
        let twice = LedgerChange {
            raises: [raise(ROOT, 1).raises, raise(ROOT, 2).raises].concat(),
            ..LedgerChange::default()
        };
        check_limits(&twice, &[(ROOT, tokens(103))]);
        check(&raise(CHILD, 7), Ok(&[(CHILD, 10, 5, true), (ROOT, 30, 20, false)]));
        check(&raise(CHILD, 0), Ok(&[(CHILD, 10, 5, false), (ROOT, 30, 20, false)]));
        let used = |by, n| LedgerChange { reservations: reserve(CHILD, n).reservations, ..raise(CHILD, by) };
        check(&used(5, 50), Ok(&[(CHILD, 10, 55, true), (ROOT, 30, 70, true)]));
        check(&used(5, 51), Err(short_of(CHILD, (65, 10, 5), 51)));
        check(&used(500, 51), Err(short_of(ROOT, (100, 30, 20), 51)));
        let id = AccountId::from_bits(3);
        let mut opened = raise(id, 1);
        opened.new_accounts =
            vec![NewAccount { id, parent: None, limits: tokens(4), owns_iterations: false }];
        check_limits(&opened, &[(id, tokens(5))]);
    }

    #[test]
    fn iterations_of_an_account_that_is_apart_go_no_further_up() {
        const TOP: AccountId = AccountId::from_bits(4);
        const APART: AccountId = AccountId::from_bits(5);
        const BELOW: AccountId = AccountId::from_bits(6);
        let both = |iterations, tokens| Amounts {
            iterations: Some(iterations),
            tokens: Some(tokens),
            ..Amounts::default()
        };
        let of = |parent, limits, owns_iterations| {
            let (spent, reserved) = (both(2, 0), both(1, 0));
            Some(BudgetAccount { parent, limits, spent, reserved, owns_iterations })
        };
        let get = |id| match id {
            TOP => of(None, both(3, 50), false),
            APART => of(Some(TOP), both(9, 40), true),
            BELOW => of(Some(APART), both(20, 90), false),
            _ => None,
        };
        let check = |ledger: &LedgerChange,
                     expect: Result<&[(AccountId, Amounts, Amounts)], WriteRefusal>| {
            let rows = post(ledger, |id| Ok(get(id))).map(|postings| {
                let row = |p: Posting| (p.id, p.account.spent, p.account.reserved);
                postings.into_iter().map(row).collect::<Vec<_>>()
            });
            assert_eq!(rows, expect.map(<[_]>::to_vec));
        };
        let reserve = |account, iterations, tokens| LedgerChange {
            reservations: vec![Reservation { account, amounts: both(iterations, tokens) }],
            ..LedgerChange::default()
        };
        let refused = |account, dimension, limit, (spent, reserved), needed| {
            let needed = Some(needed);
            let refusal = BudgetRefusal { account, dimension, limit, spent, reserved, needed };
            Err(WriteRefusal::BudgetRefusal(refusal))
        };
        let below = [
            (BELOW, both(2, 0), both(7, 40)),
            (APART, both(2, 0), both(7, 40)),
            (TOP, both(2, 0), both(1, 40)),
        ];
        check(&reserve(BELOW, 6, 40), Ok(&below));
        check(&reserve(APART, 6, 1), Ok(&[(APART, both(2, 0), both(7, 1)), (TOP, both(2, 0), both(1, 1))]));
        check(&reserve(TOP, 1, 0), refused(TOP, Dimension::Iterations, 3, (2, 1), 1));
        check(&reserve(APART, 7, 1), refused(APART, Dimension::Iterations, 9, (2, 1), 7));
        check(&reserve(BELOW, 7, 1), refused(APART, Dimension::Iterations, 9, (2, 1), 7));
        check(&reserve(BELOW, 6, 41), refused(APART, Dimension::Tokens, 40, (0, 0), 41));
        let (id, limits) = (AccountId::from_bits(7), Amounts::default());
        let mut roomy = reserve(id, 1_000, 51);
        roomy.new_accounts = vec![NewAccount { id, parent: Some(TOP), limits, owns_iterations: true }];
        check(&roomy, refused(TOP, Dimension::Tokens, 50, (0, 0), 51));
        let settle =
            Settlement { account: BELOW, reserved: both(1, 0), spent: both(5, 9), refund: both(2, 4) };
        let settled =
            [(BELOW, both(5, 5), both(0, 0)), (APART, both(5, 5), both(0, 0)), (TOP, both(2, 5), both(1, 0))];
        check(&LedgerChange { settlements: vec![settle], ..LedgerChange::default() }, Ok(&settled));
    }

    #[test]
    fn what_makes_no_sense_is_malformed() {
        let nobody = AccountId::from_bits(9);
        let open = |id, parent| LedgerChange {
            new_accounts: vec![NewAccount { id, parent, limits: Amounts::default(), owns_iterations: false }],
            ..LedgerChange::default()
        };
        let malformed = |text: String| Err(WriteRefusal::Malformed(text));
        check(&reserve(nobody, 1), malformed(format!("account {nobody} does not exist")));
        check(&raise(nobody, 1), malformed(format!("account {nobody} does not exist")));
        check(&open(CHILD, None), malformed(format!("account {CHILD} exists already")));
        check(&open(nobody, Some(nobody)), malformed(format!("account {nobody} does not exist")));
    }

    #[test]
    fn a_circle_of_accounts_ends() {
        let circle = |_| Ok::<_, WriteRefusal>(Some(account(Some(ROOT), 1, 0, 0)));
        let refused = WriteRefusal::Malformed(format!("account {ROOT} is its own ancestor"));
        assert_eq!(post(&reserve(CHILD, 1), circle), Err(refused));
    }
}
