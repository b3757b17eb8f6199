//! The stored form of a budget account, and the parent of each account. The form is binary: every append that changes
//! accounts reads and writes them, and JSON would take twenty times as long.

use hermod_actors::model::{AccountId, Amounts, BudgetAccount, Dimension};
use redb::ReadTransaction;

use super::{
    error::Result,
    tables::{ACCOUNTS, for_each_row},
};

const VERSION: u8 = 1;

/// Layout: version, flags (1: has a parent, 2: owns its iterations), the parent, then limits, spent and reserved
/// amounts.
/// Each of these three is a byte with a bit for each dimension that is set, then those amounts. All numbers are
/// little-endian.
pub(super) fn encode(account: &BudgetAccount) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + 16 + 3 * (1 + 8 * Dimension::ALL.len()));
    let flags = u8::from(account.parent.is_some()) | u8::from(account.owns_iterations) << 1;
    bytes.extend([VERSION, flags]);
    if let Some(parent) = account.parent {
        bytes.extend(parent.bits().to_le_bytes());
    }
    for amounts in [&account.limits, &account.spent, &account.reserved] {
        let dimensions =
            Dimension::ALL.iter().enumerate().filter(|(_, dimension)| amounts.get(**dimension).is_some());
        bytes.push(dimensions.fold(0, |bits, (at, _)| bits | 1 << at));
        let amounts = Dimension::ALL.iter().filter_map(|dimension| amounts.get(*dimension));
        bytes.extend(amounts.flat_map(u64::to_le_bytes));
    }
    bytes
}

/// The accounts that have a parent, each with its parent.
pub(super) fn parents(txn: &ReadTransaction) -> Result<Vec<(u128, u128)>> {
    let mut parents = Vec::new();
    for_each_row(txn, ACCOUNTS, |id, account| {
        let parent = decode(account).ok().and_then(|account| account.parent);
        parents.extend(parent.map(|parent| (id, parent.bits())));
        Ok(())
    })?;
    Ok(parents)
}

pub(super) fn decode(bytes: &[u8]) -> Result<BudgetAccount, String> {
    let mut rest = bytes;
    match take(&mut rest)? {
        [VERSION] => {}
        [version] => return Err(format!("version {version} is unknown to this program")),
    }
    let [flags] = take(&mut rest)?;
    if flags > 3 {
        return Err(format!("flags {flags} are not all known to this program"));
    }
    let parent = (flags & 1 != 0).then(|| take(&mut rest)).transpose()?;
    let account = BudgetAccount {
        parent: parent.map(|bits| AccountId::from_bits(u128::from_le_bytes(bits))),
        limits: take_amounts(&mut rest)?,
        spent: take_amounts(&mut rest)?,
        reserved: take_amounts(&mut rest)?,
        owns_iterations: flags & 2 != 0,
    };
    if rest.is_empty() { Ok(account) } else { Err(format!("{} bytes too many", rest.len())) }
}

fn take_amounts(rest: &mut &[u8]) -> Result<Amounts, String> {
    let [dimensions] = take(rest)?;
    if dimensions >> Dimension::ALL.len() != 0 {
        return Err(format!("dimensions {dimensions:#010b} are not all known to this program"));
    }
    let mut amounts = Amounts::default();
    for (at, dimension) in Dimension::ALL.into_iter().enumerate() {
        if dimensions & 1 << at != 0 {
            amounts.set(dimension, u64::from_le_bytes(take(rest)?));
        }
    }
    Ok(amounts)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (taken, after) = rest.split_first_chunk().ok_or("too few bytes")?;
    *rest = after;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> BudgetAccount {
        let mut account = BudgetAccount {
            parent: Some(AccountId::from_bits(u128::MAX - 5)),
            limits: Amounts::default(),
            spent: Amounts { tokens: Some(0), children: Some(u64::MAX), ..Amounts::default() },
            reserved: Amounts::default(),
            owns_iterations: true,
        };
        for (n, dimension) in (1 << 40..).zip(Dimension::ALL) {
            account.limits.set(dimension, n);
        }
        account
    }

    #[test]
    fn accounts_survive_storage() {
        let bare =
            BudgetAccount { parent: None, limits: Amounts::default(), owns_iterations: false, ..full() };
        for account in [full(), bare] {
            assert_eq!(decode(&encode(&account)), Ok(account));
        }
    }

    #[test]
    fn the_stored_form_stays() {
        let account = BudgetAccount { parent: None, limits: Amounts::default(), ..full() };
        let mut expect = vec![1, 2, 0, 0b1_0010];
        expect.extend(0_u64.to_le_bytes());
        expect.extend(u64::MAX.to_le_bytes());
        expect.push(0);
        assert_eq!(encode(&account), expect);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let check = |bytes: &[u8], expect: &str| {
            let error = decode(bytes).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        let bytes = encode(&full());
        for length in 0..bytes.len() {
            check(&bytes[..length], "too few bytes");
        }
        check(&[&bytes[..], &[0]].concat(), "1 bytes too many");
        check(&[2, 0], "version 2");
        check(&[1, 7], "flags 7");
        check(&[1, 0, 0b0010_0000], "dimensions 0b00100000");
    }
}
