//! A small calendar for tests: daily and hourly times in zones whose offsets are in a table.

use hermod_actors::{
    model::{Timestamp, Timing},
    port::Calendar,
};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;

/// A zone: its offset in minutes before the change of 2026, the time of that, and the offset after it.
type Zone = (&'static str, i64, i64, i64);

/// The changes to and from summer time: Berlin forwards, New York back, Lord Howe back by half an hour.
pub(super) const ZONES: [Zone; 3] = [
    ("Europe/Berlin", 60, 1_774_746_000_000, 120),
    ("America/New_York", -240, 1_793_512_800_000, -300),
    ("Australia/Lord_Howe", 660, 1_775_314_800_000, 630),
];

/// Computes times by a table of three zones. A cron expression is `MINUTE HOUR * * *`, where HOUR may be `*`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ZoneCalendar;

impl Calendar for ZoneCalendar {
    fn next(&self, timing: &Timing, after: Timestamp) -> Result<Option<Timestamp>, String> {
        match timing {
            Timing::Every { interval_ms, anchor } => {
                let interval = i64::try_from(*interval_ms).map_err(|error| error.to_string())?.max(1);
                let passed = after.0.saturating_sub(anchor.0).div_euclid(interval);
                Ok(Some(Timestamp(anchor.0 + (passed + 1) * interval)))
            }
            Timing::Once { at } => Ok(Some(*at).filter(|at| *at > after)),
            Timing::Cron { expression, zone } => {
                let zone = ZONES.iter().find(|known| *known.0 == **zone).ok_or("an unknown zone")?;
                cron(expression, zone, after)
            }
        }
    }
}

fn cron(expression: &str, zone: &Zone, after: Timestamp) -> Result<Option<Timestamp>, String> {
    let mut fields = expression.split(' ');
    let minute: i64 = fields.next().and_then(|field| field.parse().ok()).ok_or("no minute")?;
    let hours = match fields.next().ok_or("no hour")? {
        "*" => (0..24).collect(),
        hour => vec![hour.parse::<i64>().map_err(|error| error.to_string())?],
    };
    let today = (after.0 + offset_ms(zone, after.0)).div_euclid(DAY_MS);
    let local = (today - 1..=today + 2)
        .flat_map(|day| hours.iter().map(move |hour| day * DAY_MS + hour * HOUR_MS + minute * 60_000));
    Ok(local.map(|local| Timestamp(instant(zone, local))).filter(|at| *at > after).min())
}

fn offset_ms(&(_, before, change, after): &Zone, at: i64) -> i64 {
    (if at < change { before } else { after }) * 60_000
}

/// The instant of a local time, as the calendar of the program computes it: one that is skipped is at the change, and one
/// that is there twice is at the first.
fn instant(zone: &Zone, local: i64) -> i64 {
    let &(_, before, change, after) = zone;
    let by_before = local - before * 60_000;
    if by_before < change { by_before } else { (local - after * 60_000).max(change.min(by_before)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_a_change_have_each_time_once() {
        let check = |zone: &str, expression: &str, after: i64, expect: i64| {
            let timing = Timing::Cron { expression: expression.into(), zone: zone.into() };
            assert_eq!(ZoneCalendar.next(&timing, Timestamp(after)), Ok(Some(Timestamp(expect))));
        };
        let berlin = ZONES[0].2;
        check("Europe/Berlin", "0 12 * * *", berlin - 2 * DAY_MS, berlin - 2 * DAY_MS + 10 * HOUR_MS);
        check("Europe/Berlin", "0 12 * * *", berlin, berlin + 9 * HOUR_MS);
        check("Europe/Berlin", "30 2 * * *", berlin - HOUR_MS, berlin);
        let new_york = ZONES[1].2;
        check("America/New_York", "30 1 * * *", new_york - 2 * HOUR_MS, new_york - HOUR_MS / 2);
        check(
            "America/New_York",
            "30 1 * * *",
            new_york - HOUR_MS / 2,
            new_york + 24 * HOUR_MS + HOUR_MS / 2,
        );
    }
}
