//! Schedules by name, and the rows of their occurrences by name and time. Of each schedule the newest occurrences are
//! kept.

use hermod_actors::model::{
    KEPT_OCCURRENCES, MAX_SCHEDULES, Occurrence, OccurrenceId, OccurrenceQuery, Schedule, ScheduleName,
    ScheduleOutcome, ScheduleWrite, Timestamp,
};
use redb::{ReadOnlyTable, ReadableTable as _, ReadableTableMetadata as _};
use serde::de::DeserializeOwned;

use super::{
    batch::{self, Batch, json},
    read::{self, SnapshotReader},
    tables::{OCCURRENCES, SCHEDULES, occurrences_of},
};

impl Batch<'_> {
    /// Creates or replaces a schedule, with the occurrences that it leaves out and its notices.
    pub(super) fn write_schedule(&mut self, write: ScheduleWrite) -> batch::Result<ScheduleOutcome> {
        let ScheduleWrite { schedule, expected, left_out, notices } = write;
        let stored = self.revision_of(&schedule.name)?;
        if stored.unwrap_or(0) != expected {
            return Ok(ScheduleOutcome::Changed(stored.unwrap_or(0)));
        }
        let schedules = self.tables.schedules()?;
        if stored.is_none() && schedules.len()? >= MAX_SCHEDULES {
            return Ok(ScheduleOutcome::TooMany);
        }
        schedules.insert(schedule.name.as_str(), &*json(&schedule))?;
        self.dirty = true;
        self.add_occurrences(&left_out)?;
        for notice in notices {
            self.add_message(notice)?;
        }
        Ok(ScheduleOutcome::Written)
    }

    /// Removes a schedule. The rows of its occurrences stay.
    pub(super) fn remove_schedule(
        &mut self,
        name: &ScheduleName,
        expected: u64,
    ) -> batch::Result<ScheduleOutcome> {
        let stored = self.revision_of(name)?;
        if stored != Some(expected) {
            return Ok(ScheduleOutcome::Changed(stored.unwrap_or(0)));
        }
        self.tables.schedules()?.remove(name.as_str())?;
        self.dirty = true;
        Ok(ScheduleOutcome::Written)
    }

    /// The revision of a schedule. A row that cannot be read has revision 0: it is replaced like one that is absent.
    fn revision_of(&mut self, name: &ScheduleName) -> batch::Result<Option<u64>> {
        let Some(stored) = self.tables.schedules()?.get(name.as_str())? else { return Ok(None) };
        Ok(Some(serde_json::from_slice::<Schedule>(stored.value()).map_or(0, |schedule| schedule.revision)))
    }

    /// Adds the rows of occurrences of a schedule that have none, and removes its oldest beyond the limit.
    pub(super) fn add_occurrences(&mut self, rows: &[Occurrence]) -> batch::Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let name = first.id.schedule.as_str();
        let occurrences = self.tables.occurrences()?;
        for row in rows {
            let key = (row.id.schedule.as_str(), row.id.at.0);
            if occurrences.get(key)?.is_none() {
                occurrences.insert(key, &*json(row))?;
            }
        }
        let newest = occurrences.range(occurrences_of(name))?.rev().nth(KEPT_OCCURRENCES).transpose()?;
        if let Some(last) = newest.map(|(key, _)| key.value().1) {
            occurrences.retain_in((name, i64::MIN)..=(name, last), |_, _| false)?;
        }
        Ok(())
    }

    /// The row of an occurrence. One that cannot be read counts as one that was left out: its run may be there.
    pub(super) fn occurrence_row(&mut self, id: &OccurrenceId) -> batch::Result<Option<Occurrence>> {
        let Some(stored) = self.tables.occurrences()?.get((id.schedule.as_str(), id.at.0))? else {
            return Ok(None);
        };
        Ok(Some(serde_json::from_slice(stored.value()).unwrap_or_else(|error| unreadable_row(id, &error))))
    }
}

impl SnapshotReader {
    pub(super) fn schedules(&mut self) -> read::Result<Vec<Schedule>> {
        let mut schedules = Vec::new();
        for row in self.open(SCHEDULES)?.iter()? {
            let (name, stored) = row?;
            self.spend(stored.value())?;
            schedules.extend(parse("schedules", name.value(), stored.value()));
        }
        Ok(schedules)
    }

    pub(super) fn schedule(&mut self, name: &ScheduleName) -> read::Result<Option<Schedule>> {
        let Some(stored) = self.open(SCHEDULES)?.get(name.as_str())? else { return Ok(None) };
        self.spend(stored.value())?;
        let schedule = serde_json::from_slice(stored.value());
        Ok(Some(schedule.map_err(|error| read::unreadable_row("schedules", format!("{name}: {error}")))?))
    }

    pub(super) fn occurrence(&mut self, id: &OccurrenceId) -> read::Result<Option<Occurrence>> {
        let Some(stored) = self.open(OCCURRENCES)?.get((id.schedule.as_str(), id.at.0))? else {
            return Ok(None);
        };
        self.spend(stored.value())?;
        Ok(Some(serde_json::from_slice(stored.value()).unwrap_or_else(|error| unreadable_row(id, &error))))
    }

    pub(super) fn occurrences(&mut self, query: &OccurrenceQuery) -> read::Result<Vec<Occurrence>> {
        let table = self.open(OCCURRENCES)?;
        let mut found = Vec::new();
        if let Some(name) = &query.schedule {
            self.occurrences_of(&table, name.as_str(), query, &mut found)?;
            return Ok(found);
        }
        let mut name = String::new();
        // A schedule that was removed may have occurrences: the names are those of the rows.
        while let Some(row) = table.range((&*name, i64::MAX)..)?.find_map(|row| match row {
            Ok((key, _)) if key.value().0 == name => None,
            row => Some(row),
        }) {
            row?.0.value().0.clone_into(&mut name);
            self.occurrences_of(&table, &name, query, &mut found)?;
            found.sort_by(|a, b| (b.id.at, &b.id.schedule).cmp(&(a.id.at, &a.id.schedule)));
            found.truncate(query.max);
        }
        Ok(found)
    }

    /// Adds the newest wanted occurrences of a schedule.
    fn occurrences_of(
        &mut self,
        table: &ReadOnlyTable<(&'static str, i64), &'static [u8]>,
        name: &str,
        query: &OccurrenceQuery,
        found: &mut Vec<Occurrence>,
    ) -> read::Result<()> {
        let (Timestamp(first), Timestamp(last)) = query.times();
        let mut left = query.max;
        if first > last {
            return Ok(());
        }
        for row in table.range((name, first)..=(name, last))?.rev() {
            if left == 0 {
                break;
            }
            let (key, stored) = row?;
            self.spend(stored.value())?;
            let label = (name, key.value().1);
            let row = parse::<Occurrence>("occurrences", format_args!("{label:?}"), stored.value());
            if let Some(row) = row.filter(|row| query.wants(row)) {
                found.push(row);
                left -= 1;
            }
        }
        Ok(())
    }
}

/// A row that can be read. One that cannot holds up no others; the check of the store reports it.
fn parse<T: DeserializeOwned>(table: &str, key: impl std::fmt::Display, stored: &[u8]) -> Option<T> {
    let row = serde_json::from_slice(stored);
    row.inspect_err(|error| tracing::error!(%key, %error, "a row of {table} cannot be read")).ok()
}

/// The row of an occurrence whose stored row cannot be read.
fn unreadable_row(id: &OccurrenceId, error: &serde_json::Error) -> Occurrence {
    let reason = format!("its row cannot be read: {error}").into();
    let state = hermod_actors::model::OccurrenceState::Missed { reason };
    Occurrence { id: id.clone(), state, recorded_at: id.at, further: None }
}

/// What is wrong with the row of a schedule.
pub(super) fn check_schedule(name: &str, stored: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Schedule>(stored) {
        Ok(schedule) if schedule.name.as_str() == name => Ok(()),
        Ok(schedule) => Err(format!("the row of schedule {name} is that of {}", schedule.name)),
        Err(error) => Err(format!("the row of schedule {name}: {error}")),
    }
}

/// What is wrong with the row of an occurrence. Its run may have been removed.
pub(super) fn check_occurrence((name, at): (&str, i64), stored: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<Occurrence>(stored) {
        Ok(row) if (row.id.schedule.as_str(), row.id.at.0) == (name, at) => Ok(()),
        Ok(row) => Err(format!("the row of {at} of schedule {name} is that of {}", row.id)),
        Err(error) => Err(format!("the row of {at} of schedule {name}: {error}")),
    }
}
