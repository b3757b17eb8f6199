//! The part of a report about schedules: what ran, and what was left out.

use hermod_actors::model::{OccurrenceQuery, OccurrenceState, Schedule, Timestamp};

use super::{error::RequestError, reader::StoreReader};
use crate::view::{OccurrenceView, ReportList, ReportPauseView, ReportSchedulesView};

/// Most rows of occurrences that are read; of more, the newest are counted.
const MAX_OCCURRENCES: usize = 20_000;
/// Items of each list.
const MAX_ITEMS: usize = 10;

/// The schedules from `since` until `until`, and those that are paused now.
pub(super) async fn report_schedules(
    reader: &StoreReader,
    (since, until): (Timestamp, Timestamp),
) -> Result<ReportSchedulesView, RequestError> {
    let query = OccurrenceQuery {
        since: Some(since),
        before: Some(until),
        max: MAX_OCCURRENCES,
        ..OccurrenceQuery::default()
    };
    let (mut ran, mut missed, mut skipped, mut left_out) = (0, 0, 0, Vec::new());
    for occurrence in reader.read(|rows| rows.occurrences(query)).await? {
        let is_missed = matches!(occurrence.state, OccurrenceState::Missed { .. });
        let view = OccurrenceView::new(occurrence, None);
        if view.run.is_some() {
            ran += 1;
        } else if is_missed {
            missed += view.count();
            left_out.push(view);
        } else {
            skipped += view.count();
        }
    }
    let paused = |schedule: Schedule| {
        let pause = schedule.paused?;
        Some(ReportPauseView {
            schedule: schedule.name,
            since: pause.since,
            reason: pause.reason.to_string(),
        })
    };
    let paused = reader.read(|rows| rows.schedules()).await?.into_iter().filter_map(paused).collect();
    Ok(ReportSchedulesView {
        ran,
        missed,
        skipped,
        left_out: ReportList::new(left_out, MAX_ITEMS),
        paused: ReportList::new(paused, MAX_ITEMS),
    })
}
