//! The calendar: the next occurrence of a timing.

use hermod_actors::{
    model::{MIN_INTERVAL_MS, Timestamp, Timing},
    port::Calendar,
};

use super::{
    cron::CronExpression,
    zone::{find_zone, first_after},
};

/// The calendar of the process: expressions as cron reads them, and the time zones that are compiled in.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemCalendar;

impl Calendar for SystemCalendar {
    fn next(&self, timing: &Timing, after: Timestamp) -> Result<Option<Timestamp>, String> {
        match timing {
            Timing::Every { interval_ms, anchor } => next_of_interval(*interval_ms, *anchor, after),
            Timing::Cron { expression, zone } => {
                let zone = find_zone(zone)?;
                let after = jiff::Timestamp::from_millisecond(after.0)
                    .map_err(|_| format!("{} ms is no time of the calendar", after.0))?;
                let next = first_after(&CronExpression::parse(expression)?, &zone, after)?;
                Ok(next.map(|next| Timestamp(next.as_millisecond())))
            }
            Timing::Once { at } => Ok((*at > after).then_some(*at)),
        }
    }
}

/// The first time after `after` that is a whole number of intervals after `anchor`.
fn next_of_interval(
    interval_ms: u64,
    anchor: Timestamp,
    after: Timestamp,
) -> Result<Option<Timestamp>, String> {
    let interval = i64::try_from(interval_ms).ok().filter(|_| interval_ms >= MIN_INTERVAL_MS);
    let interval = interval.ok_or_else(|| {
        format!("an interval of {interval_ms} ms is not possible; the shortest is {MIN_INTERVAL_MS} ms")
    })?;
    let passed = after.0.saturating_sub(anchor.0).max(0) / interval;
    let next = passed.checked_add(1).and_then(|count| count.checked_mul(interval));
    Ok(next.and_then(|since| anchor.0.checked_add(since)).map(Timestamp))
}
