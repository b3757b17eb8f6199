//! What is shown of runs, folded from their records: the details of a single run, and the summary of each run of a tree.
//! Pure.

use hermod_actors::{
    Bill, WaitTracker,
    model::{Body, Record, RunAccepted, RunCounts, RunId, RunRow, RunState},
};

use crate::view::RunSummaryView;

/// The fold of one run. It expects all records of the session, from the first on.
#[derive(Debug)]
pub(super) struct RunDetailFold {
    run: RunId,
    /// The record that accepted the run.
    pub(super) accepted: Option<RunAccepted>,
    /// The waits of an unfinished run.
    pub(super) waits: Option<WaitTracker>,
    /// The counts of the run.
    pub(super) counts: RunCounts,
    /// The cost of the run's model calls.
    pub(super) bill: Bill,
    /// The model's latest text; a text in several parts is joined.
    pub(super) last_text: Option<String>,
    is_last_text_partial: bool,
}

impl RunDetailFold {
    pub(super) fn new(row: &RunRow) -> Self {
        Self {
            run: row.id,
            accepted: None,
            waits: (row.state != RunState::Ended).then(|| WaitTracker::new(row.session)),
            counts: RunCounts::default(),
            bill: Bill::default(),
            last_text: None,
            is_last_text_partial: false,
        }
    }

    /// Adds the next record of the session.
    pub(super) fn take(&mut self, record: &Record) {
        if let Some(waits) = &mut self.waits {
            waits.take(record);
        }
        if record.body.run() != Some(self.run) {
            return;
        }
        self.counts.take(&record.body);
        self.bill.take(record);
        if let Body::RunAccepted(accepted) = &record.body {
            self.accepted = Some((**accepted).clone());
        } else if let Body::ModelAnswered(answered) = &record.body
            && !answered.is_discarded()
            && !answered.message.text.is_empty()
        {
            let before = self.last_text.take().filter(|_| self.is_last_text_partial).unwrap_or_default();
            self.last_text = Some(before + &answered.message.text);
            self.is_last_text_partial = answered.is_partial();
        }
    }
}

/// The projection of one run. It expects all records of the run, from the first on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunProjection {
    /// The beginning of the run's input.
    pub(super) input: String,
    /// The counts of the run.
    pub(super) counts: RunCounts,
    /// The subagents of the run, including ended ones.
    pub(super) children: Vec<RunId>,
}

impl RunProjection {
    /// Applies the next record.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change no summary")]
    pub(super) fn take(&mut self, body: &Body) {
        self.counts.take(body);
        match body {
            Body::RunAccepted(accepted) => {
                self.input = RunSummaryView::shorten_input(&accepted.input);
            }
            Body::CallStarted(started) => {
                for child in &*started.children {
                    // A repeated call start names the same subagents.
                    if !self.children.contains(&child.run) {
                        self.children.push(child.run);
                    }
                }
            }
            _ => {}
        }
    }
}
