//! What a run's journal was when it was last read, and its comparison with what is on disk now. Records once seen on
//! disk must stay there unchanged, and a reported record must be there.

use hermod_actors::model::{Body, Hash, Record, RunId, Seq, encode};
use serde::{Deserialize, Serialize};

use super::{findings::Findings, progress_lines::ReportedStep};

/// The journal of one run when it was last read. Each run has a session of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenJournal {
    /// The run, if its acceptance was read on disk, or reported by the process since then.
    pub(super) run: Option<RunId>,
    /// Whether the run has its outcome.
    pub(super) ended: bool,
    /// A hash of each record.
    records: Vec<Hash>,
}

impl SeenJournal {
    /// Compares the records on disk with the last state and with the steps that the process reported; returns the
    /// findings.
    pub(super) fn check(&mut self, records: &[(Seq, Record)], reported: &[ReportedStep]) -> Findings {
        let hashes: Vec<_> = records.iter().map(|(_, record)| Hash::of(&encode(record))).collect();
        let unchanged = self.records.iter().zip(&hashes).filter(|(before, now)| before == now).count();
        let gaps = (1..).zip(records).filter(|(expect, (seq, _))| expect != seq).count();
        let changed = self.records.len() - unchanged;
        let lost = reported
            .iter()
            .filter(|step| !records.iter().any(|(_, record)| step.matches(&record.body)))
            .count();
        let accepted = records.iter().find_map(|(_, record)| {
            if let Body::RunAccepted(accepted) = &record.body { Some(accepted.run) } else { None }
        });
        let is_missing = self.run.is_some() && accepted.is_none();
        self.run = accepted;
        let last = |matches: fn(&Body) -> bool| records.iter().rposition(|(_, record)| matches(&record.body));
        let reopened = last(|body| matches!(body, Body::RunReopened(_)));
        self.ended = last(|body| matches!(body, Body::RunEnded(_))) > reopened;
        self.records = hashes;
        let (acknowledged, lost) = (reported.len(), lost + usize::from(is_missing));
        Findings { acknowledged, lost, changed, gaps, ..Findings::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::Kind;

    use super::*;
    use crate::cli::chaos::findings::samples::{RUN, accepted, answered, numbered, run_ended, started};

    fn journal() -> Vec<(Seq, Record)> {
        numbered(vec![accepted(), answered(1, &["1.1"]), started(1, 1)])
    }

    /// Checks the usual journal, and then the journal `then`; `expect` are the counts of lost and changed records and
    /// of gaps.
    #[track_caller]
    fn check(then: &[(Seq, Record)], reported: &[ReportedStep], expect: [usize; 3]) {
        let mut book = SeenJournal::default();
        assert_eq!(book.check(&journal(), &[]), Findings::default());
        assert_eq!((book.run, book.ended, book.len()), (Some(RUN), false, 3));
        let counts = book.check(then, reported);
        assert_eq!([counts.lost, counts.changed, counts.gaps], expect);
    }

    const STARTED: ReportedStep =
        ReportedStep { kind: Kind::CallStarted, iteration: 1, n: 1, attempt: Some(1) };

    #[test]
    fn a_journal_that_only_grows_is_well() {
        check(&journal(), &[STARTED], [0, 0, 0]);
        let more = numbered(vec![accepted(), answered(1, &["1.1"]), started(1, 1), run_ended("completed")]);
        check(&more, &[STARTED], [0, 0, 0]);
    }

    #[test]
    fn a_record_that_is_gone_or_not_what_it_was_is_found() {
        check(&journal()[..2], &[], [0, 1, 0]);
        check(&[], &[], [1, 3, 0]);
        check(&numbered(vec![accepted(), answered(1, &["1.2"]), started(1, 1)]), &[], [0, 1, 0]);
        let mut later = journal();
        later[2].1.active_ms += 1;
        check(&later, &[], [0, 1, 0]);
    }

    #[test]
    fn what_was_said_and_is_not_there_is_lost() {
        let reported = |kind, n, attempt| ReportedStep { kind, iteration: 1, n, attempt };
        check(&journal(), &[reported(Kind::CallEnded, 1, None)], [1, 0, 0]);
        check(&journal(), &[reported(Kind::CallStarted, 2, Some(1)), STARTED], [1, 0, 0]);
        check(&journal(), &[reported(Kind::CallStarted, 1, Some(2))], [1, 0, 0]);
        let mut book = SeenJournal { run: Some(RUN), ..SeenJournal::default() };
        assert_eq!(book.check(&[], &[]).lost, 1);
    }

    #[test]
    fn a_gap_is_found() {
        let mut gap = journal();
        gap.last_mut().unwrap().0 += 1;
        check(&gap, &[], [0, 0, 1]);
    }
}
