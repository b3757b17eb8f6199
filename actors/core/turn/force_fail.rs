//! Force-fail: decides the end of runs from their index rows and counts, without the session's state. Parents are
//! notified, and subagents are stopped. `supervisor/force_fail.rs` reads the input and writes the append.

use std::sync::Arc;

use crate::{
    journal::{Append, IndexRow},
    model::{
        Amounts, Body, BudgetAccount, Incarnation, OutcomeDetail, Record, RunCounts, RunEnded, RunRow, Seq,
        SessionId, SessionTime, SubagentRef,
    },
    turn::{
        delegate::{report_to_parent, stop_message},
        ledger_and_index::{ended_row, settle},
        outbox::results,
    },
};

/// A run to end.
#[derive(Debug)]
pub struct OpenRun {
    /// Its index row.
    pub row: RunRow,
    /// Its iterations and usage, counted from the records that can be read.
    pub counts: RunCounts,
    /// What its own calls have reserved. Their real cost stays unknown, so the whole reservation counts as spent.
    pub reserved: Amounts,
    /// Its subagents that have not ended.
    pub subagents: Vec<SubagentRef>,
}

/// The end of runs of one session.
#[derive(Debug)]
pub struct ForcedEnds {
    /// The session.
    pub session: SessionId,
    /// The incarnation that writes.
    pub fence: Incarnation,
    /// The last sequence number of the session's journal.
    pub last: Seq,
    /// The time of the end.
    pub now: SessionTime,
    /// The outcome of all the runs.
    pub ended: OutcomeDetail,
}

impl ForcedEnds {
    /// Ends the runs, settles their reservations, reports to their parents, and stops their subagents.
    pub fn decide(&self, runs: Vec<OpenRun>) -> Append {
        let mut append = Append::new(self.session, self.fence, self.last + 1, Vec::new());
        for (OpenRun { row, counts, reserved, subagents }, seq) in runs.into_iter().zip(self.last + 1..) {
            let (run, iterations, usage) = (row.id, counts.iterations, counts.usage);
            let ended = RunEnded { run, ended: self.ended.clone(), iterations, usage };
            if !reserved.is_empty() {
                settle(&mut append.ledger, row.account, &reserved, &reserved);
            }
            if let Some(parent) = row.parent {
                report_to_parent(&mut append, parent, SubagentRef { session: self.session, run });
            }
            append.deliver.extend(subagents.into_iter().map(stop_message));
            // Its texts are not read: the session may be unreadable.
            append.index.extend(results(&row, &ended, "", self.now.at, |_| false));
            let row = ended_row(row, &ended, self.now.at, seq);
            append.index.push(IndexRow::Run(Box::new(row)));
            let (at, active_ms, body) = (self.now.at, self.now.active_ms, Body::RunEnded(ended));
            append.records.push(Arc::new(Record { at, active_ms, body }));
        }
        append
    }
}

/// What a run's own calls have reserved on its account: without the reservations of its subagents and their slots in
/// `children`, which the ends of the subagents return.
pub fn own_reservation(account: &BudgetAccount, subagents: &[BudgetAccount]) -> Amounts {
    let mut remaining = account.reserved;
    for BudgetAccount { mut reserved, owns_iterations, .. } in subagents.iter().copied() {
        reserved.iterations = reserved.iterations.filter(|_| !owns_iterations);
        remaining.reduce(&reserved);
    }
    Amounts { children: None, ..remaining }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        CallId, InboxMessage, Outcome, OutcomeCause, ParentRef, RunId, RunState, Settlement, StopReason,
        Timestamp, Usage,
    };

    const PARENT: ParentRef = ParentRef {
        session: SessionId::from_bits(7),
        call: CallId { run: RunId::from_bits(7), iteration: 1, n: 1 },
        n: 0,
    };

    fn amounts(iterations: Option<u64>, tokens: u64, children: Option<u64>) -> Amounts {
        Amounts { iterations, tokens: Some(tokens), children, ..Amounts::default() }
    }

    fn row(n: u128, parent: Option<ParentRef>) -> RunRow {
        RunRow {
            state: RunState::Running,
            started_at: Some(Timestamp(1)),
            parent,
            leg: 2,
            last: 9,
            counts: Some(RunCounts::default()),
            approvals: Some(Vec::new()),
            ..RunRow::new(RunId::from_bits(n), SessionId::from_bits(1), Timestamp(1), 2)
        }
    }

    fn counts() -> RunCounts {
        RunCounts { iterations: 3, usage: Usage { input_tokens: 4, ..Usage::default() } }
    }

    /// The settlements (account, reserved and spent tokens, children), and the messages about the runs' ends.
    #[track_caller]
    fn check(runs: Vec<OpenRun>, settled: &[(u128, Amounts, Amounts)], messages: &[(u128, InboxMessage)]) {
        let ended = OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::CrashLoop { error: "x".into() });
        let ends = ForcedEnds {
            session: SessionId::from_bits(1),
            fence: Incarnation { epoch: 1, revival: 2 },
            last: 9,
            now: SessionTime { at: Timestamp(50), active_ms: 40 },
            ended: ended.clone(),
        };
        let rows: Vec<RunRow> = runs.iter().map(|run| run.row.clone()).collect();
        let decision = ends.decide(runs);
        assert_eq!((decision.fence, decision.records.len()), (ends.fence, rows.len()));
        for ((row, record), (index, seq)) in
            rows.iter().zip(&decision.records).zip(decision.index.iter().zip(10..))
        {
            let body = RunEnded { run: row.id, ended: ended.clone(), iterations: 3, usage: counts().usage };
            assert_eq!(**record, Record { at: Timestamp(50), active_ms: 40, body: Body::RunEnded(body) });
            let expect = RunRow {
                state: RunState::Ended,
                ended_at: Some(Timestamp(50)),
                ended: Some(ended.clone()),
                last: seq,
                iterations: 3,
                usage: counts().usage,
                counts: None,
                approvals: None,
                ..row.clone()
            };
            assert_eq!(*index, IndexRow::Run(Box::new(expect)));
        }
        let settle = |(account, reserved, spent): &(u128, Amounts, Amounts)| Settlement {
            account: RunId::from_bits(*account).into(),
            reserved: *reserved,
            spent: *spent,
            refund: Amounts::default(),
        };
        assert_eq!(decision.ledger.settlements, settled.iter().map(settle).collect::<Vec<_>>());
        let sent = messages.iter().map(|(to, message)| (SessionId::from_bits(*to), message.to_json()));
        assert_eq!(decision.deliver, sent.collect::<Vec<_>>());
    }

    #[test]
    fn a_forced_end_settles_and_notifies() {
        let child = |n| SubagentRef { session: SessionId::from_bits(n), run: RunId::from_bits(n) };
        let stop = |n| (n, InboxMessage::Stop { run: RunId::from_bits(n), reason: StopReason::Parent });
        let run = |n, parent, reserved, subagents| OpenRun {
            row: row(n, parent),
            counts: counts(),
            reserved,
            subagents,
        };
        let (own, none) = (amounts(Some(1), 5, None), Amounts::default());
        check(vec![run(1, None, none, Vec::new())], &[], &[]);
        check(vec![run(1, None, own, vec![child(3), child(4)])], &[(1, own, own)], &[stop(3), stop(4)]);
        let of_parent = run(2, Some(PARENT), own, vec![child(3)]);
        let ended = InboxMessage::ChildEnded {
            call: PARENT.call,
            child: SubagentRef { run: RunId::from_bits(2), ..child(1) },
        };
        let slot = Amounts { children: Some(1), ..none };
        check(
            vec![run(1, None, own, Vec::new()), of_parent],
            &[(1, own, own), (2, own, own), (7, slot, none)],
            &[(7, ended), stop(3)],
        );
    }

    #[test]
    fn a_run_settles_what_its_own_calls_have_reserved() {
        let account = |reserved, owns_iterations| BudgetAccount {
            reserved,
            owns_iterations,
            parent: None,
            limits: Amounts::default(),
            spent: Amounts::default(),
        };
        let run = account(amounts(Some(3), 100, Some(2)), false);
        let check =
            |subagents: &[BudgetAccount], expect| assert_eq!(own_reservation(&run, subagents), expect);
        check(&[], amounts(Some(3), 100, None));
        let shared = account(amounts(Some(1), 30, Some(1)), false);
        let apart = account(amounts(Some(1), 20, None), true);
        check(&[shared, apart], amounts(Some(2), 50, None));
    }
}
