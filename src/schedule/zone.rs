//! When the wall clock of a time zone shows a time that fits an expression.
//!
//! A wall clock skips times and shows times twice, when daylight saving time begins and ends. Both kinds of expressions are
//! treated as the cron of Debian does:
//!
//! - One with fixed times, like `30 2 * * *`, fits once a day. A time that is skipped is due when the clock has been put
//!   forward; a time that comes twice is due the first time. Several skipped times are due together, as one.
//! - One that repeats all day, like `*/15 * * * *`, follows the time that passes: what is skipped is not due, and what comes
//!   twice is due twice.

use std::sync::LazyLock;

use jiff::{
    Span, Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

use super::cron::CronExpression;

/// The time zones that are compiled in. Those of the system are not asked: a schedule is due at the same time on every
/// machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
/// Most steps of a search; each is a change of the clock, or a jump to the next time that fits.
const MAX_STEPS: usize = 10_000;
/// No clock is put back further, in hours.
const LONGEST_CHANGE_HOURS: i64 = 25;
/// How long before a time that fits a search goes on that has jumped to it; longer than any change of the clock.
const MARGIN_DAYS: i64 = 2;

/// The time zone of this name, in any case of its letters.
pub(super) fn find_zone(name: &str) -> Result<TimeZone, String> {
    ZONES.get(name).map_err(|_| {
        let shown: String = name.chars().take(80).collect();
        format!("there is no time zone `{shown}`; use a name of the IANA database, like \"Europe/Berlin\" or \"UTC\"")
    })
}

/// The first time after `after` at which the clock shows a time that fits.
pub(super) fn first_after(
    cron: &CronExpression,
    zone: &TimeZone,
    after: Timestamp,
) -> Result<Option<Timestamp>, String> {
    let next =
        if cron.repeats_all_day { next_repeated(cron, zone, after) } else { next_fixed(cron, zone, after) };
    next.map_err(|error| match error {
        NextTimeError::Time(error) => format!("its next time cannot be computed: {error}"),
        NextTimeError::Cron(error) => format!("its next time cannot be computed: {error}"),
        NextTimeError::Steps => "its next time is too far away".to_owned(),
    })
}

/// Why a next time cannot be computed.
enum NextTimeError {
    Time(jiff::Error),
    Cron(String),
    Steps,
}

impl From<jiff::Error> for NextTimeError {
    fn from(error: jiff::Error) -> Self {
        Self::Time(error)
    }
}

fn next_fixed(
    cron: &CronExpression,
    zone: &TimeZone,
    after: Timestamp,
) -> Result<Option<Timestamp>, NextTimeError> {
    let local = zone.to_datetime(after);
    let (from, is_inclusive) = match zone.to_ambiguous_timestamp(local).offset() {
        // What is shown a second time has been due already.
        AmbiguousOffset::Fold { before, after: later } if zone.to_offset(after) == later => {
            (before.to_datetime(latest_change(zone, after)?), true)
        }
        AmbiguousOffset::Fold { .. } | AmbiguousOffset::Gap { .. } | AmbiguousOffset::Unambiguous { .. } => {
            (local, false)
        }
    };
    let Some(found) = cron.first(from, is_inclusive).map_err(NextTimeError::Cron)? else { return Ok(None) };
    Ok(Some(match zone.to_ambiguous_timestamp(found).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(found)?,
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(found)?,
        AmbiguousOffset::Gap { before, .. } => latest_change(zone, before.to_timestamp(found)?)?,
    }))
}

fn next_repeated(
    cron: &CronExpression,
    zone: &TimeZone,
    after: Timestamp,
) -> Result<Option<Timestamp>, NextTimeError> {
    let (mut from, mut is_inclusive) = (after, false);
    for _ in 0..MAX_STEPS {
        let (offset, local) = (zone.to_offset(from), zone.to_datetime(from));
        let Some(found) = cron.first(local, is_inclusive).map_err(NextTimeError::Cron)? else {
            return Ok(None);
        };
        let at = offset.to_timestamp(found)?;
        let change = zone.following(from).next().map(|change| change.timestamp());
        let Some(change) = change.filter(|change| at >= *change) else { return Ok(Some(at)) };
        // No clock shows a time before `local` again from here on, so nothing fits until `found`.
        let is_settled = change.duration_since(from).as_hours() > LONGEST_CHANGE_HOURS;
        let margin = found.checked_sub(Span::new().days(MARGIN_DAYS))?;
        (from, is_inclusive) =
            if is_settled && margin > local { (instant(zone, margin)?, true) } else { (change, true) };
    }
    Err(NextTimeError::Steps)
}

/// A time at which the clock shows `local`; if it never does, one soon after.
fn instant(zone: &TimeZone, local: DateTime) -> Result<Timestamp, jiff::Error> {
    zone.to_ambiguous_timestamp(local).compatible()
}

/// The latest change of the clock up to `until`, including it.
fn latest_change(zone: &TimeZone, until: Timestamp) -> Result<Timestamp, jiff::Error> {
    let after = until.checked_add(Span::new().nanoseconds(1))?;
    Ok(zone.preceding(after).next().map_or(until, |change| change.timestamp()))
}
