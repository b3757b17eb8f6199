//! Times in queries: RFC 3339 with any offset, of any year.

use hermod_actors::model::Timestamp;
use serde::{Deserialize, Deserializer, de::Error as _};

/// Days from the first of March of the year 0 to the first of January 1970.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// A time of RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeField(pub(super) Timestamp);

impl<'de> Deserialize<'de> for TimeField {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        parse(&text).map(Self).ok_or_else(|| {
            D::Error::custom(format!("`{text}` is no time of RFC 3339; write it like 2026-01-31T12:00:00Z"))
        })
    }
}

/// The time that `text` is in RFC 3339, with any offset.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, offset) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    if !(1..=12).contains(&month) || !(1..=days_of_month(year, month)).contains(&day) {
        return None;
    }
    let (time, fraction) =
        time.split_once('.').map_or((time, None), |(time, fraction)| (time, Some(fraction)));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    // The second 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let minutes = days_since_epoch(year, month, day) * 1440 + hour * 60 + minute - offset_minutes(offset)?;
    let ms = fraction.map_or(Some(0), milliseconds)?;
    Some(Timestamp((minutes * 60 + second) * 1000 + ms))
}

/// Numbers with exactly these counts of digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && is_digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn milliseconds(fraction: &str) -> Option<i64> {
    if !is_digits(fraction) {
        return None;
    }
    let first: String = fraction.chars().chain("00".chars()).take(3).collect();
    first.parse().ok()
}

fn offset_minutes(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, text) =
        text.strip_prefix('-').map_or_else(|| Some((1, text.strip_prefix('+')?)), |rest| Some((-1, rest)))?;
    let [hours, minutes] = numbers(text, ':', [2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of the Gregorian calendar; a year begins in March here, so that the leap day is its last one.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - DAYS_BEFORE_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_offsets() {
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(parse(text).map(|at| at.0), expect, "{text}");
        };
        check("1970-01-01T00:00:00Z", Some(0));
        check("1970-01-01t00:00:00.5z", Some(500));
        check("1970-01-01T02:00:00.1239+02:00", Some(123));
        check("1969-12-31T20:30:00-03:30", Some(0));
        check("2024-02-29T12:34:56Z", Some(1_709_210_096_000));
        check("2000-03-01T00:00:00Z", Some(951_868_800_000));
        check("0119-06-27T09:57:30-14:11", Some(-58_396_549_890_000));
        check("9999-12-31T23:59:60Z", Some(253_402_300_800_000));
        for text in [
            "",
            "2026-01-01",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-1-01T00:00:00Z",
            "é026-01-01T00:00:00Z",
            "2026-01-01T00:00:00ZZ",
        ] {
            check(text, None);
        }
    }
}
