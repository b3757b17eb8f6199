//! Parsing of vendors' retry times: durations and points in time, in headers and in texts.

use std::{
    sync::LazyLock,
    time::{Duration, UNIX_EPOCH},
};

use hermod_actors::model::Timestamp;
use regex_lite::Regex;

/// When to retry: after a duration, at a point in time, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::provider) struct RetryAfter {
    /// Milliseconds from now.
    pub(in crate::provider) after_ms: Option<u64>,
    /// The point in time.
    pub(in crate::provider) at: Option<Timestamp>,
}

/// The maximum wait in milliseconds: a year. Longer waits are cut to it.
pub(super) const MAX_WAIT_MS: u64 = 365 * 24 * 3_600 * 1_000;
/// Numbers from here on are times in seconds since 1970; smaller numbers are durations.
const EPOCH_SECONDS: f64 = 1e9;
/// Numbers from here on are times in milliseconds since 1970.
const EPOCH_MILLIS: f64 = 1e12;

impl RetryAfter {
    /// After a number of milliseconds, rounded up; `None` if it is negative.
    pub(super) fn after(ms: f64) -> Option<Self> {
        (ms >= 0.0).then(|| Self { after_ms: Some(ceil_u64(ms).min(MAX_WAIT_MS)), at: None })
    }

    fn at(ms: f64) -> Self {
        Self { after_ms: None, at: i64::try_from(ceil_u64(ms)).ok().map(Timestamp) }
    }

    /// This value, with missing fields from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self { after_ms: self.after_ms.or(other.after_ms), at: self.at.or(other.at) }
    }

    /// The later of the two values, field by field.
    pub(super) fn later(self, other: Self) -> Self {
        Self { after_ms: self.after_ms.max(other.after_ms), at: self.at.max(other.at) }
    }
}

/// Parses a whole value: seconds, a time in seconds or milliseconds since 1970, `1m30s`, or `2026-08-24T10:00:00Z`.
pub(in crate::provider) fn parse_retry_after(text: &str) -> Option<RetryAfter> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return match number {
            n if n >= EPOCH_MILLIS => Some(RetryAfter::at(n)),
            n if n >= EPOCH_SECONDS => Some(RetryAfter::at(n * 1_000.0)),
            seconds => RetryAfter::after(seconds * 1_000.0),
        };
    }
    parse_instant(text).or_else(|| parse_duration(text))
}

/// Parses RFC 3339, or `DATE at HH:MM utc`, at the start of a text.
fn parse_instant(text: &str) -> Option<RetryAfter> {
    let mut words = text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ')']));
    let word = match [words.next()?, words.next().unwrap_or(""), words.next().unwrap_or("")] {
        [date, "at", time] if words.next() == Some("utc") => format!("{date}T{time}:00Z"),
        [time, ..] => time.to_ascii_uppercase(),
    };
    let utc = word.strip_suffix("+00:00").map(|time| format!("{time}Z"));
    let time = humantime::parse_rfc3339(utc.as_ref().unwrap_or(&word)).ok()?;
    let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
    Some(RetryAfter { after_ms: None, at: i64::try_from(since.as_millis()).ok().map(Timestamp) })
}

/// Parses a duration at the start of a text: `20s`, `3m12.5s`, `6hr 29min`, `1 hour and 5 minutes`. Numbers need units.
fn parse_duration(mut text: &str) -> Option<RetryAfter> {
    let mut total = None;
    loop {
        text = text.trim_start_matches([' ', ',']);
        text = text.strip_prefix("and ").unwrap_or(text);
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let Ok(number) = text[..digits].parse::<f64>() else { break };
        let rest = text[digits..].trim_start();
        let unit = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let Some(ms) = unit_ms(&rest[..unit]) else { break };
        total = Some(total.unwrap_or(0.0) + number * ms);
        text = &rest[unit..];
    }
    total.and_then(RetryAfter::after)
}

fn unit_ms(unit: &str) -> Option<f64> {
    match unit {
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => Some(1.0),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1e3),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(6e4),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(3.6e6),
        "d" | "day" | "days" => Some(8.64e7),
        _ => None,
    }
}

/// The retry time in a lower-case text.
pub(super) fn find_retry_after(text: &str) -> RetryAfter {
    static BEFORE: LazyLock<Regex> = LazyLock::new(|| {
        let before = r"\b(?:again|retry|available|resets?|wait)(?: (?:again|in|after|at|on|for|at least|about|approximately))+ |\b(?:wait|resets:?|regain access on) |\|";
        Regex::new(before).expect("the pattern is constant")
    });
    let rests = BEFORE.find_iter(text).map(|before| (before.as_str(), &text[before.end()..]));
    let mut found = rests.filter_map(|(before, rest)| {
        // After `|`, only a point in time is unambiguous.
        if before == "|" {
            parse_retry_after(rest).filter(|it| it.at.is_some())
        } else {
            parse_instant(rest).or_else(|| parse_duration(rest))
        }
    });
    found.next().unwrap_or_default()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
fn ceil_u64(n: f64) -> u64 {
    n.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64) -> RetryAfter {
        RetryAfter { after_ms: Some(ms), at: None }
    }

    fn at(ms: i64) -> RetryAfter {
        RetryAfter { after_ms: None, at: Some(Timestamp(ms)) }
    }

    #[test]
    fn a_value_is_a_duration_or_a_time() {
        let check = |text: &str, expected: Option<RetryAfter>| {
            assert_eq!(parse_retry_after(text), expected, "{text}");
        };
        check("6ms", Some(after(6)));
        check("1m30s", Some(after(90_000)));
        check("2m59.56s", Some(after(179_560)));
        check("0s", Some(after(0)));
        check("33011.382867", Some(after(33_011_383)));
        check("1754667660", Some(at(1_754_667_660_000)));
        check("1754667660000", Some(at(1_754_667_660_000)));
        check("2026-08-24T10:00:00Z", Some(at(1_787_565_600_000)));
        check("2026-08-24T10:00:00.250+00:00", Some(at(1_787_565_600_250)));
        check("1e300", Some(RetryAfter::default()));
        for nonsense in ["", "soon", "-1", "NaN", "20 requests", "2026-99-99T10:00:00Z", "s", "."] {
            check(nonsense, None);
        }
    }

    #[test]
    fn a_text_says_when() {
        let check = |text: &str, expected: RetryAfter| assert_eq!(find_retry_after(text), expected, "{text}");
        check("rate limit reached. please try again in 20s. visit https://x", after(20_000));
        check("please try again in 6ms", after(6));
        check("please retry after 3m12.5s", after(192_500));
        check("please retry in 34.074824224s.", after(34_075));
        check("usage limit reached, try again in 5 minutes", after(300_000));
        check("usage limit reached, available in 42 minutes", after(2_520_000));
        check("weekly usage limit reached. resets in 6hr 29min.", after(23_340_000));
        check("try again in 1 hour and 5 minutes", after(3_900_000));
        check("please wait 30 seconds before", after(30_000));
        check("your quota will reset after 1h12m34s.", after(4_354_000));
        check("usage limit reached; resets at 2026-08-24t10:00:00z", at(1_787_565_600_000));
        check("you will regain access on 2026-08-24 at 10:00 utc.", at(1_787_565_600_000));
        check("claude ai usage limit reached|1755806400", at(1_755_806_400_000));
        for nothing in [
            "please try again later",
            "daily limit reached, resets tomorrow.",
            "retry in 3 requests",
            "limited to 1 requests per minute. please retry shortly",
            "the tool waited 30 seconds",
            "a|5",
        ] {
            check(nothing, RetryAfter::default());
        }
    }
}
