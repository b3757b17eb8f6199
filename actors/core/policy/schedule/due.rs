//! The occurrences that are due at a time. Of very many, as after a week of downtime, the newest are listed and the older
//! ones counted, in bounded time and memory.

use super::times::{OccurrenceTime, ScheduleTimes};
use crate::model::{FurtherOccurrences, MAX_COUNTED_OCCURRENCES, Timestamp};

/// Most occurrences that are listed.
pub(super) const MAX_LISTED: usize = 1_000;

/// The occurrences whose runs may begin, by a time.
#[derive(Debug, Default)]
pub(super) struct DueOccurrences {
    /// Those before the listed ones: the first, and the others.
    pub(super) older: Option<(Timestamp, Option<FurtherOccurrences>)>,
    /// The newest, at most [`MAX_LISTED`], in their order.
    pub(super) listed: Vec<OccurrenceTime>,
    /// The first that is not due.
    pub(super) next: Option<OccurrenceTime>,
}

impl DueOccurrences {
    /// The occurrences from `first` on that are due at `now`.
    pub(super) fn of(times: &ScheduleTimes<'_>, first: Timestamp, now: Timestamp) -> Result<Self, String> {
        let (listed, next) = list(times, Some(first), now)?;
        if listed.len() <= MAX_LISTED {
            return Ok(Self { older: None, listed, next });
        }
        let (listed, next) = newest(times, first, now)?;
        let Some(oldest) = listed.first().map(|oldest| oldest.at) else {
            return Ok(Self { older: None, listed, next });
        };
        let older = Some((first, further(times, first, Timestamp(oldest.0.saturating_sub(1)))?));
        Ok(Self { older, listed, next })
    }
}

/// The due occurrences from `at` on, at most one more than [`MAX_LISTED`], and the one behind them.
fn list(
    times: &ScheduleTimes<'_>,
    mut at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(Vec<OccurrenceTime>, Option<OccurrenceTime>), String> {
    let mut listed = Vec::new();
    while let Some(this) = at {
        let occurrence = times.occurrence(this)?;
        if occurrence.begins_at > now || listed.len() > MAX_LISTED {
            return Ok((listed, Some(occurrence)));
        }
        at = occurrence.following;
        listed.push(occurrence);
    }
    Ok((listed, None))
}

/// The newest due occurrences, where more than [`MAX_LISTED`] are due from `first` on: a binary search for the time since
/// which there are neither none nor too many.
fn newest(
    times: &ScheduleTimes<'_>,
    first: Timestamp,
    now: Timestamp,
) -> Result<(Vec<OccurrenceTime>, Option<OccurrenceTime>), String> {
    let (mut few, mut many) = (now.0, first.0);
    loop {
        let middle = many.midpoint(few);
        let (listed, next) = list(times, times.after(Timestamp(middle))?, now)?;
        let is_last = few.saturating_sub(many) <= 1;
        if is_last || (MAX_LISTED / 2..=MAX_LISTED).contains(&listed.len()) {
            return Ok((listed, next));
        }
        if listed.len() > MAX_LISTED { many = middle } else { few = middle }
    }
}

/// The occurrences after `first` up to `until`; `None` if there are none. Those of a fixed distance are counted without
/// visiting them.
pub(super) fn further(
    times: &ScheduleTimes<'_>,
    first: Timestamp,
    until: Timestamp,
) -> Result<Option<FurtherOccurrences>, String> {
    if let Some(interval) = times.interval_ms().filter(|interval| *interval > 0) {
        let count = until.ms_since(first) / interval;
        let last = first.plus_ms(count.saturating_mul(interval));
        return Ok((count > 0).then_some(FurtherOccurrences { count, until: last }));
    }
    let (mut count, mut last) = (0, first);
    while let Some(at) = times.after(last)?.filter(|at| *at <= until) {
        if count == MAX_COUNTED_OCCURRENCES {
            return Ok(Some(FurtherOccurrences { count, until }));
        }
        (count, last) = (count + 1, at);
    }
    Ok((count > 0).then_some(FurtherOccurrences { count, until: last }))
}
