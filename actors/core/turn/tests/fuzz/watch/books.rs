//! Checks that accounts and index rows agree with the records.

use super::{Run, State, Watch};
use crate::{
    journal::IndexRow,
    model::{Amounts, LedgerChange, RunId, RunState, Settlement},
    turn::{
        Turn,
        tests::fuzz::{family::ONE_CHILD, hold, money::Held},
    },
};

impl Watch {
    /// A subagent of a run returns its slot in `children`.
    pub(in crate::turn::tests::fuzz) fn child_left(&mut self, run: RunId) -> Result<(), String> {
        let settle = Settlement {
            account: run.into(),
            reserved: ONE_CHILD,
            spent: Amounts::default(),
            refund: Amounts::default(),
        };
        self.money.post(&LedgerChange { settlements: vec![settle], ..LedgerChange::default() })?;
        self.running(run)?.held.give_back(&ONE_CHILD);
        Ok(())
    }

    /// Checks the accounts and rows after an append.
    pub(in crate::turn::tests::fuzz) fn appended(
        &mut self,
        (ledger, index): (&LedgerChange, &[IndexRow]),
        turn: &Turn,
    ) -> Result<(), String> {
        for row in index {
            let IndexRow::Run(row) = row else { continue };
            match self.rows.iter_mut().find(|(id, _)| *id == row.id) {
                Some((_, state)) => *state = row.state,
                None => self.rows.push((row.id, row.state)),
            }
        }
        self.fresh.clear();
        for run in &self.runs {
            let is_touched = ledger.settlements.iter().any(|settle| settle.account == run.id.into())
                || ledger.reservations.iter().any(|reserve| reserve.account == run.id.into());
            if is_touched || run.state != State::Ended {
                self.money.check(run.id, &run.held)?;
                self.check_row(run, turn)?;
            }
            if run.state == State::Running {
                let booked = (run.made.0.into(), run.made.1 - run.unmade);
                self.money.check_counts(run.id, booked)?;
            }
        }
        if let Some(run) = &turn.current {
            let (folded, booked) = (run.budget.spent.tokens.unwrap_or(0), self.money.tokens(run.id));
            let booked = booked - self.family.spent(run.id);
            hold!(
                folded == booked,
                "{} has spent {folded} tokens by its records, {booked} by its account",
                run.id
            );
        }
        Ok(())
    }

    fn check_row(&self, run: &Run, turn: &Turn) -> Result<(), String> {
        let row = self.rows.iter().find(|(id, _)| *id == run.id).map(|(_, state)| *state);
        let expected = match run.state {
            State::Queued => RunState::Queued,
            State::Running | State::Stopping if turn.parked_run() == Some(run.id) => RunState::Parked,
            State::Running | State::Stopping => RunState::Running,
            State::Ended => RunState::Ended,
        };
        hold!(row == Some(expected), "the row of {} says {row:?} and not {expected:?}", run.id);
        Ok(())
    }

    /// Checks the end of a sequence: every run has ended, and nothing is reserved.
    pub(in crate::turn::tests::fuzz) fn over(&self, turn: &Turn) -> Result<(), String> {
        for run in &self.runs {
            hold!(run.state == State::Ended, "{run:?} has no end");
            self.money.check(run.id, &Held { reserved: Amounts::default(), ..run.held })?;
            self.check_row(run, turn)?;
        }
        let own = |run: &Run| self.money.tokens(run.id) - self.family.spent(run.id);
        self.money.check_periods(self.runs.iter().map(own).sum())?;
        self.shown.check_all(turn)
    }
}
