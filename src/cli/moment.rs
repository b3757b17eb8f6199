//! Times that a person names: a time ago, a day, a time of RFC 3339. Without an offset they are in UTC, as all times that
//! Hermod prints.

use hermod_actors::model::Timestamp;

use crate::{
    clock,
    host::{millis, parse_duration},
    service::parse_time,
};

/// Parses a time that is given to an option.
pub(super) fn parse_moment(text: &str) -> Result<Timestamp, String> {
    parse_at(text, clock::now()).ok_or_else(|| {
        "must be a time ago like 8h or 2d, a day like 2026-01-31, or a time like 2026-01-31T06:00 or \
         2026-01-31T06:00:00+01:00"
            .to_owned()
    })
}

fn parse_at(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if let Some(time) = parse_time(text) {
        return Some(time);
    }
    // A day, then a time without an offset, with and without seconds.
    for rest in ["T00:00:00Z", ":00Z", "Z"] {
        if let Some(time) = parse_time(&format!("{text}{rest}")) {
            return Some(time);
        }
    }
    let ago = parse_duration(text).ok()?;
    Some(Timestamp(now.0.saturating_sub_unsigned(millis(ago))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_day_a_time_of_day_or_a_time_ago() {
        let now = Timestamp(10 * 86_400_000);
        let check = |text: &str, expect: Option<i64>| {
            assert_eq!(parse_at(text, now).map(|at| at.0), expect, "{text}");
        };
        check("8h", Some(now.0 - 8 * 3_600_000));
        check("1d 30m", Some(now.0 - 86_400_000 - 1_800_000));
        check("1970-01-02", Some(86_400_000));
        check("1970-01-02T06:30", Some(86_400_000 + 23_400_000));
        check("1970-01-02 06:30:01", Some(86_400_000 + 23_401_000));
        check("1970-01-02T06:30:00+01:00", Some(86_400_000 + 19_800_000));
        for text in ["", "soon", "8", "1970-13-01", "06:30", "1970-01-02T25:00"] {
            check(text, None);
        }
    }
}
