//! View of what ran and what it cost, by day.

use std::collections::BTreeMap;

use hermod_actors::model::{Outcome, RunRow, Timestamp, Usage, rfc3339};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{encoding, run::RunSummaryView};

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 3_600_000;
/// Runs of [`DaysView::dearest`].
const MAX_DEAREST: usize = 10;

/// The newest days: `{days, dearest, is_complete}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DaysView {
    /// The days of UTC, the newest first; each is there, also without runs.
    pub days: Vec<DayView>,
    /// The ten runs of these days that cost most with their subagents, the dearest first; those that cost nothing are left out.
    /// Owners of earlier versions do not tell them.
    #[serde(default)]
    pub dearest: Vec<RunSummaryView>,
    /// False if there are more runs than are read for one answer: then the oldest of them are left out.
    pub is_complete: bool,
}

/// The runs that were accepted on one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DayView {
    /// The day, as `2026-01-31`.
    pub day: String,
    /// Number of runs that are no subagents'.
    pub runs: u64,
    /// Number of runs of subagents.
    pub subagents: u64,
    /// Number of runs that are no subagents' by outcome, and `unfinished` for those that have none.
    pub outcomes: BTreeMap<String, u64>,
    /// Tokens read, subagents' included.
    pub input_tokens: u64,
    /// Tokens written, subagents' included.
    pub output_tokens: u64,
    /// Dollars that are booked on the accounts of these runs, with those of their subagents.
    #[serde(with = "encoding::dollars_known")]
    #[schema(value_type = f64)]
    pub spent_usd: u64,
}

/// Adds up runs by the day of their acceptance.
#[derive(Debug)]
pub struct DaysFold {
    /// The day of `days[0]`, counted from the beginning of 1970.
    newest: i64,
    days: Vec<DayView>,
    /// The runs that cost most, and what they cost, the dearest first.
    dearest: Vec<(u64, RunRow)>,
}

impl DaysFold {
    /// This number of days, the last of which has `now`.
    pub fn new(now: Timestamp, count: u32) -> Self {
        let newest = now.0.div_euclid(DAY_MS);
        let day = |ago: u32| DayView {
            day: rfc3339(Timestamp((newest - i64::from(ago)) * DAY_MS)).chars().take(10).collect(),
            runs: 0,
            subagents: 0,
            outcomes: BTreeMap::new(),
            input_tokens: 0,
            output_tokens: 0,
            spent_usd: 0,
        };
        Self { newest, days: (0..count).map(day).collect(), dearest: Vec::new() }
    }

    /// True if a run that was accepted at this time is older than all days.
    pub fn is_older(&self, at: Timestamp) -> bool {
        self.newest - at.0.div_euclid(DAY_MS) >= i64::try_from(self.days.len()).unwrap_or(i64::MAX)
    }

    /// Adds a run with what is booked on its account.
    pub fn take(&mut self, row: &RunRow, spent: u64) {
        let ago = self.newest - row.accepted_at.0.div_euclid(DAY_MS);
        // The clock may have been set back since.
        let Some(day) = usize::try_from(ago.max(0)).ok().and_then(|ago| self.days.get_mut(ago)) else {
            return;
        };
        let usage: Usage = row.counts.as_ref().map_or(row.usage, |counts| counts.usage);
        let usage = if row.ended.is_some() { row.usage } else { usage };
        day.input_tokens = day.input_tokens.saturating_add(usage.input_total());
        day.output_tokens = day.output_tokens.saturating_add(usage.output_total());
        if row.parent.is_some() {
            // Its money is on the account of the run above it, too.
            day.subagents += 1;
            return;
        }
        day.runs += 1;
        day.spent_usd = day.spent_usd.saturating_add(spent);
        let outcome = row.ended.as_ref().map_or("unfinished", |ended| Outcome::name(ended.outcome));
        *day.outcomes.entry(outcome.to_owned()).or_default() += 1;
        // Of runs that cost as much, the newest comes first: rows come from the newest on.
        let at = self.dearest.partition_point(|(other, _)| *other >= spent);
        if spent > 0 && at < MAX_DEAREST {
            self.dearest.insert(at, (spent, row.clone()));
            self.dearest.truncate(MAX_DEAREST);
        }
    }

    /// The days, the newest first, and the runs that cost most, the dearest first.
    pub fn build(self) -> (Vec<DayView>, Vec<RunRow>) {
        (self.days, self.dearest.into_iter().map(|(_, row)| row).collect())
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallId, OutcomeDetail, ParentRef, RunId, RunState, SessionId};

    use super::*;

    #[test]
    fn runs_count_on_the_day_of_their_acceptance() {
        let now = Timestamp(1_800_000_000_000);
        let (id, session) = (RunId::from_bits(1), SessionId::from_bits(1));
        let usage = Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() };
        let row = |at: i64, outcome: Option<Outcome>| RunRow {
            state: if outcome.is_some() { RunState::Ended } else { RunState::Running },
            ended: outcome.map(|outcome| OutcomeDetail { outcome, cause: None }),
            usage,
            ..RunRow::new(id, session, Timestamp(at), 1)
        };
        let mut fold = DaysFold::new(now, 2);
        fold.take(&row(now.0, Some(Outcome::Completed)), 5);
        fold.take(&row(now.0 + DAY_MS, Some(Outcome::Failed)), 1);
        fold.take(&row(now.0 - DAY_MS, None), 7);
        let parent = ParentRef { session, call: CallId { run: id, iteration: 1, n: 1 }, n: 0 };
        fold.take(&RunRow { parent: Some(parent), ..row(now.0 - DAY_MS, Some(Outcome::Completed)) }, 9);
        let check =
            |ago: i64, expect: bool| assert_eq!(fold.is_older(Timestamp(now.0 - ago)), expect, "{ago}");
        check(0, false);
        check(DAY_MS, false);
        check(2 * DAY_MS, true);
        fold.take(&row(now.0 - 2 * DAY_MS, None), 100);
        let (days, _) = fold.build();
        let shown: Vec<_> =
            days.iter().map(|day| (&*day.day, day.runs, day.subagents, day.spent_usd)).collect();
        assert_eq!(shown, [("2027-01-15", 2, 0, 6), ("2027-01-14", 1, 1, 7)]);
        let outcomes = [("completed".to_owned(), 1), ("failed".to_owned(), 1)];
        assert_eq!(days[0].outcomes, outcomes.into());
        assert_eq!((days[1].input_tokens, days[1].output_tokens), (20, 4));
    }
    #[test]
    fn the_dearest_runs_come_first() {
        let now = Timestamp(1_800_000_000_000);
        let row = |bits| RunRow::new(RunId::from_bits(bits), SessionId::from_bits(1), now, 1);
        let check = |spent: &[u64], expect: &[u128]| {
            let mut fold = DaysFold::new(now, 1);
            (1..).zip(spent).for_each(|(bits, spent)| fold.take(&row(bits), *spent));
            let ids: Vec<u128> = fold.build().1.iter().map(|row| row.id.bits()).collect();
            assert_eq!(ids, expect, "{spent:?}");
        };
        check(&[], &[]);
        check(&[0, 3, 0, 5, 3], &[4, 2, 5]);
        check(&[1; 12], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        check(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2], &[11, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
