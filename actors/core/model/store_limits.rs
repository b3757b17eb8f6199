//! Limits of all runs of a store together, by calendar period in UTC, and the budget account of each period.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{AccountId, Amounts, Dimension, NewAccount, Timestamp, is_default};

const HOUR_MS: u64 = 3_600_000;
const DAY_HOURS: u64 = 24;
/// The first 48 bits of a period's account. As the time of a ULID it is the year 10889, so no run has it.
const ACCOUNT_PREFIX: u128 = 0xffff_ffff_ffff << 80;
/// Position of the unit in the bits of a period's account; the hour of the start is below.
const UNIT_SHIFT: u32 = 64;

/// The length of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PeriodUnit {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A month.
    Month,
}

/// A calendar period in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Its length.
    pub unit: PeriodUnit,
    /// Its start, in hours since 1970.
    start_hour: u64,
}

/// What all runs of a store together may spend, by period. Only tokens and money are counted in periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoreLimits {
    /// The limits of each hour.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hour: Amounts,
    /// The limits of each day.
    #[serde(default, skip_serializing_if = "is_default")]
    pub day: Amounts,
    /// The limits of each month.
    #[serde(default, skip_serializing_if = "is_default")]
    pub month: Amounts,
}

impl PeriodUnit {
    /// All units, the shortest first.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Month];

    /// The unit's name, as in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Period {
    /// The period of this length that contains `at`.
    pub fn containing(unit: PeriodUnit, at: Timestamp) -> Self {
        let hour = at.ms_since(Timestamp::default()) / HOUR_MS;
        let day = hour / DAY_HOURS;
        let start_hour = match unit {
            PeriodUnit::Hour => hour,
            PeriodUnit::Day => day * DAY_HOURS,
            PeriodUnit::Month => first_day(month_of(day)) * DAY_HOURS,
        };
        Self { unit, start_hour }
    }

    /// The period whose account this is; `None` for the account of a run.
    pub fn of_account(account: AccountId) -> Option<Self> {
        let rest = account.bits().checked_sub(ACCOUNT_PREFIX)?;
        let unit = PeriodUnit::ALL.into_iter().find(|unit| rest >> UNIT_SHIFT == *unit as u128)?;
        // The bits below the unit.
        let start_hour = u64::try_from(rest & u128::from(u64::MAX)).ok()?;
        Some(Self { unit, start_hour })
    }

    /// The budget account of this period.
    pub fn account(self) -> AccountId {
        AccountId::from_bits(ACCOUNT_PREFIX | (self.unit as u128) << UNIT_SHIFT | u128::from(self.start_hour))
    }

    /// The first moment after this period.
    pub fn ends_at(self) -> Timestamp {
        let hour = match self.unit {
            PeriodUnit::Hour => self.start_hour.saturating_add(1),
            PeriodUnit::Day => self.start_hour.saturating_add(DAY_HOURS),
            PeriodUnit::Month => first_day(month_of(self.start_hour / DAY_HOURS) + 1) * DAY_HOURS,
        };
        Timestamp::default().plus_ms(hour.saturating_mul(HOUR_MS))
    }

    /// The name of this period's limit in a dimension, as in the configuration: `usd_per_day`.
    pub fn limit_name(self, dimension: Dimension) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "{}_per_{}", dimension.name(), self.unit.name()))
    }
}

impl StoreLimits {
    /// The limits of each period of this length.
    pub const fn of(&self, unit: PeriodUnit) -> &Amounts {
        match unit {
            PeriodUnit::Hour => &self.hour,
            PeriodUnit::Day => &self.day,
            PeriodUnit::Month => &self.month,
        }
    }

    /// True if a period limits this dimension.
    pub fn has_limit(&self, dimension: Dimension) -> bool {
        PeriodUnit::ALL.into_iter().any(|unit| self.of(unit).get(dimension).is_some())
    }

    /// The accounts of a call that starts at this time, each behind its parent. The last one is that of the shortest
    /// limited period: a spend on it counts on all. Empty without limits.
    pub fn accounts(&self, at: Timestamp) -> Vec<NewAccount> {
        let mut accounts: Vec<NewAccount> = Vec::new();
        let Some(shortest) = PeriodUnit::ALL.into_iter().find(|unit| !self.of(*unit).is_empty()) else {
            return accounts;
        };
        for unit in PeriodUnit::ALL.into_iter().rev().filter(|unit| *unit >= shortest) {
            accounts.push(NewAccount {
                id: Period::containing(unit, at).account(),
                parent: accounts.last().map(|parent| parent.id),
                limits: *self.of(unit),
                owns_iterations: false,
            });
        }
        accounts
    }
}

/// Days from 0000-03-01 to 1970-01-01. A year that begins in March has its leap day at its end.
const MARCH_EPOCH_DAYS: u64 = 719_468;
/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;
const ERA_MONTHS: u64 = 4_800;

/// The month of a day since 1970, counted from March of the year 0.
const fn month_of(day: u64) -> u64 {
    let day = day.saturating_add(MARCH_EPOCH_DAYS);
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - year_days(year);
    era * ERA_MONTHS + year * 12 + (5 * day + 2) / 153
}

/// The first day of a month, in days since 1970.
const fn first_day(month: u64) -> u64 {
    let (era, month) = (month / ERA_MONTHS, month % ERA_MONTHS);
    let days = era * ERA_DAYS + year_days(month / 12) + (153 * (month % 12) + 2) / 5;
    days.saturating_sub(MARCH_EPOCH_DAYS)
}

/// The days of the first `years` years of an era.
const fn year_days(years: u64) -> u64 {
    years * 365 + years / 4 - years / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        super::super::rfc3339_time::deserialize(serde_json::json!(text)).unwrap()
    }

    #[test]
    fn a_period_is_of_the_calendar() {
        let check = |unit, at: &str, start: &str, end: &str| {
            let period = Period::containing(unit, time(at));
            let starts_at = Timestamp::default().plus_ms(period.start_hour * HOUR_MS);
            assert_eq!((starts_at, period.ends_at()), (time(start), time(end)), "{unit:?} of {at}");
            assert_eq!(Period::containing(unit, Timestamp(period.ends_at().0 - 1)), period);
            assert_ne!(Period::containing(unit, period.ends_at()), period);
            assert_eq!(Period::of_account(period.account()), Some(period));
        };
        let last = "2026-11-28T23:59:59.999Z";
        check(PeriodUnit::Hour, last, "2026-11-28T23:00:00Z", "2026-11-29T00:00:00Z");
        check(PeriodUnit::Day, last, "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z");
        check(PeriodUnit::Month, last, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z");
        for (at, start, end) in [
            ("1970-01-01", "1970-01-01", "1970-02-01"),
            ("1999-12-31", "1999-12-01", "2000-01-01"),
            ("2000-02-29", "2000-02-01", "2000-03-01"),
            ("2000-03-01", "2000-03-01", "2000-04-01"),
            ("2023-02-28", "2023-02-01", "2023-03-01"),
            ("2024-02-29", "2024-02-01", "2024-03-01"),
            ("2100-02-28", "2100-02-01", "2100-03-01"),
            ("2400-02-29", "2400-02-01", "2400-03-01"),
        ] {
            let [at, start, end] = [at, start, end].map(|day| format!("{day}T00:00:00Z"));
            check(PeriodUnit::Month, &at, &start, &end);
        }
    }

    #[test]
    fn every_day_of_eight_centuries_is_in_its_month() {
        let mut month = month_of(0);
        for day in 0..2 * ERA_DAYS {
            month += u64::from(day == first_day(month + 1));
            assert_eq!(month_of(day), month, "day {day}");
        }
        assert_eq!(month, month_of(0) + 2 * ERA_MONTHS - 1);
    }

    #[test]
    fn the_account_of_a_run_is_that_of_no_period() {
        let period = Period::containing(PeriodUnit::Month, time("2026-11-28T00:00:00Z"));
        let bits = period.account().bits();
        for other in [0, 1 << 100, bits - (1 << 80), bits + (1 << UNIT_SHIFT), u128::MAX] {
            assert_eq!(Period::of_account(AccountId::from_bits(other)), None, "{other:#x}");
        }
    }

    #[test]
    fn the_shortest_limited_period_is_named_last() {
        let at = time("2026-11-28T12:00:00Z");
        let one = Amounts { tokens: Some(1), ..Amounts::default() };
        let check = |limits: StoreLimits, expect: &[PeriodUnit]| {
            let accounts = limits.accounts(at);
            let units = accounts.iter().map(|new| Period::of_account(new.id).unwrap().unit);
            assert_eq!(units.collect::<Vec<_>>(), expect);
            let parents = accounts.iter().map(|new| new.parent).skip(1);
            assert!(parents.eq(accounts.iter().map(|new| Some(new.id)).take(accounts.len().max(1) - 1)));
            for (new, unit) in accounts.iter().zip(expect) {
                assert_eq!(new.limits, *limits.of(*unit));
            }
        };
        let none = StoreLimits::default();
        check(none, &[]);
        check(StoreLimits { month: one, ..none }, &[PeriodUnit::Month]);
        check(StoreLimits { day: one, ..none }, &[PeriodUnit::Month, PeriodUnit::Day]);
        let all = [PeriodUnit::Month, PeriodUnit::Day, PeriodUnit::Hour];
        check(StoreLimits { hour: one, month: one, ..none }, &all);
    }
}
