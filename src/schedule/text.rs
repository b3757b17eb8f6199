//! Timings as people write and read them.

use std::time::Duration;

use hermod_actors::model::{MIN_INTERVAL_MS, Timestamp, Timing};
use jiff::civil::DateTime;

use super::zone::find_zone;

/// The longest interval, in milliseconds: a year.
const MAX_INTERVAL_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
/// The time zone of a schedule that names none. That of the machine is not taken: a schedule would move with the machine.
const DEFAULT_ZONE: &str = "UTC";

/// What is written of a timing: one of `every`, `cron` and `at`, and a zone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimingWords<'a> {
    /// The distance of its times, like `15m`.
    pub(super) every: Option<&'a str>,
    /// A cron expression.
    pub(super) cron: Option<&'a str>,
    /// A single time.
    pub(super) at: Option<&'a str>,
    /// The time zone.
    pub(super) zone: Option<&'a str>,
}

impl TimingWords<'_> {
    /// The timing; the error is the name of the part and what is wrong with it. Whether an expression can be read is not
    /// checked: the calendar does that.
    pub(super) fn timing(&self) -> Result<Timing, (&'static str, String)> {
        let zone = zone_of(self.zone).map_err(|error| ("tz", error))?;
        match (self.every, self.cron, self.at) {
            (Some(every), None, None) => {
                if self.zone.is_some() {
                    let reason = "is of no use beside `every`, which counts from the beginning of 1970 in UTC; leave it out";
                    return Err(("tz", reason.to_owned()));
                }
                let interval_ms = interval(every).map_err(|error| ("every", error))?;
                Ok(Timing::Every { interval_ms, anchor: Timestamp(0) })
            }
            (None, Some(expression), None) => {
                Ok(Timing::Cron { expression: expression.trim().into(), zone: zone.into() })
            }
            (None, None, Some(at)) => {
                Ok(Timing::Once { at: parse_time_in(at, &zone).map_err(|error| ("at", error))? })
            }
            (None, None, None) => {
                let reason = "is missing; say when it is due: every = \"15m\", cron = \"0 6 * * *\", or at = \"2030-01-31T06:00\"";
                Err(("every", reason.to_owned()))
            }
            (Some(_), _, Some(_)) | (None, Some(_), Some(_)) => {
                Err(("at", "stands beside another time; leave one of every, cron and at".to_owned()))
            }
            (Some(_), Some(_), None) => {
                Err(("cron", "stands beside `every`; leave one of every, cron and at".to_owned()))
            }
        }
    }
}

fn interval(text: &str) -> Result<u64, String> {
    let rule = "write it like 90s, 15m or 1d";
    let duration: Duration = humantime::parse_duration(text).map_err(|error| format!("{error}; {rule}"))?;
    match u64::try_from(duration.as_millis()) {
        Ok(ms @ MIN_INTERVAL_MS..=MAX_INTERVAL_MS) => Ok(ms),
        Ok(_) | Err(_) => Err(format!("is not from 1s to 365days; {rule}")),
    }
}

/// The name of a time zone, as the database writes it; without one, that of UTC.
pub(super) fn zone_of(name: Option<&str>) -> Result<String, String> {
    let name = name.unwrap_or(DEFAULT_ZONE);
    let zone = find_zone(name)?;
    Ok(zone.iana_name().unwrap_or(name).to_owned())
}

/// A time: one of RFC 3339, or one without an offset that the clock of this zone shows.
pub(super) fn parse_time_in(text: &str, zone: &str) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(time.as_millisecond()));
    }
    let rule = || {
        format!(
            "`{text}` is no time; write it like 2030-01-31T06:00, or with an offset like 2030-01-31T06:00:00+01:00"
        )
    };
    let local: DateTime = text.parse().map_err(|_| rule())?;
    let time = find_zone(zone)?.to_ambiguous_timestamp(local).compatible().map_err(|_| rule())?;
    Ok(Timestamp(time.as_millisecond()))
}

/// A time as the clock of a zone shows it, with its offset; `None` for an unknown zone.
pub fn in_zone(at: Timestamp, zone: &str) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(at.0).ok()?.to_zoned(find_zone(zone).ok()?);
    Some(at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}
