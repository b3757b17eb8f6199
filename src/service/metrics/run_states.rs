//! Counts the unfinished runs by state, from their rows in the appends that are committed. The store would have to read
//! all these rows for each scrape.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hermod_actors::{
    model::{RunId, RunState},
    port::{ReadError, RowReader},
};

/// All states of an unfinished run.
const OPEN_STATES: [(&str, RunState); 3] =
    [("queued", RunState::Queued), ("running", RunState::Running), ("parked", RunState::Parked)];

/// The states of the unfinished runs. A clone has the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunStates(Arc<Mutex<CountedStates>>);

#[derive(Debug, Default)]
struct CountedStates {
    states: HashMap<RunId, RunState>,
    /// In the order of [`OPEN_STATES`].
    counts: [u64; OPEN_STATES.len()],
}

impl RunStates {
    /// Takes over the states of the runs that are unfinished at the start.
    pub(crate) async fn read(&self, rows: &dyn RowReader) -> Result<(), ReadError> {
        let rows = rows.open_runs().await?;
        self.update_states(rows.into_iter().map(|row| (row.id, row.state)));
        Ok(())
    }

    /// Takes over new states of runs.
    pub(super) fn update_states(&self, states: impl IntoIterator<Item = (RunId, RunState)>) {
        let mut counted = self.lock();
        states.into_iter().for_each(|(run, state)| counted.update(run, state));
    }

    /// Number of unfinished runs by state.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        OPEN_STATES.iter().zip(self.lock().counts).map(|((name, _), count)| (*name, count)).collect()
    }

    /// Ignores poisoning: no update panics.
    fn lock(&self) -> MutexGuard<'_, CountedStates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedStates {
    fn update(&mut self, run: RunId, state: RunState) {
        let previous = match state {
            RunState::Ended => self.states.remove(&run),
            RunState::Queued | RunState::Running | RunState::Parked => self.states.insert(run, state),
        };
        for ((_, counted), count) in OPEN_STATES.iter().zip(&mut self.counts) {
            *count += u64::from(*counted == state);
            *count -= u64::from(Some(*counted) == previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_runs_are_counted_by_their_last_state() {
        let states = RunStates::default();
        let check = |changes: &[(u128, RunState)], expect: [u64; 3]| {
            states.update_states(changes.iter().map(|(run, state)| (RunId::from_bits(*run), *state)));
            let counts = states.counts();
            assert_eq!(OPEN_STATES.map(|(name, _)| counts[name]), expect);
        };
        check(&[], [0, 0, 0]);
        check(&[(1, RunState::Running), (2, RunState::Queued), (3, RunState::Queued)], [2, 1, 0]);
        check(&[(1, RunState::Parked), (1, RunState::Parked)], [2, 0, 1]);
        check(&[(1, RunState::Ended), (1, RunState::Ended), (2, RunState::Running)], [1, 1, 0]);
        // A run that is reopened.
        check(&[(1, RunState::Running)], [1, 2, 0]);
        check(&[(1, RunState::Ended), (2, RunState::Ended), (3, RunState::Ended)], [0, 0, 0]);
    }
}
