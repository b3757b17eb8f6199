//! The counts of findings; and the check of one run, which compares its journal, and the lines that its commands wrote,
//! with its workload. Lost and changed records are found in `seen_journal.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
};

use hermod_actors::model::{Body, CallId, CallStatus, Outcome, Record, Seq};
use serde::{Deserialize, Serialize};

use super::workload::Workload;

/// Counts of findings, of one run or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Findings {
    /// Records that a process had reported as durable.
    pub(super) acknowledged: usize,
    /// Reported records that are missing on disk.
    pub(super) lost: usize,
    /// Records that were on disk and are gone or changed.
    pub(super) changed: usize,
    /// Records whose number is not their place in the journal, counted from 1.
    pub(super) gaps: usize,
    /// Commands that ran more than once.
    #[serde(rename = "twice")]
    pub(super) duplicated: usize,
    /// Lines that are missing although their command is not in doubt.
    pub(super) missing: usize,
    /// Lines that no command should have written.
    #[serde(rename = "unasked")]
    pub(super) unexpected: usize,
    /// Commands that ran without a record of their start.
    pub(super) unrecorded: usize,
    /// Calls that ended in doubt.
    pub(super) in_doubt: usize,
    /// Calls in doubt whose line is missing.
    pub(super) in_doubt_without_line: usize,
    /// Runs that did not end as completed.
    pub(super) not_completed: usize,
    /// Runs with more outcomes than legs.
    pub(super) ended_twice: usize,
}

impl AddAssign for Findings {
    fn add_assign(&mut self, more: Self) {
        self.acknowledged += more.acknowledged;
        self.lost += more.lost;
        self.changed += more.changed;
        self.gaps += more.gaps;
        self.duplicated += more.duplicated;
        self.missing += more.missing;
        self.unexpected += more.unexpected;
        self.unrecorded += more.unrecorded;
        self.in_doubt += more.in_doubt;
        self.in_doubt_without_line += more.in_doubt_without_line;
        self.not_completed += more.not_completed;
        self.ended_twice += more.ended_twice;
    }
}

/// The state of one command according to the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandFate {
    Started,
    InDoubt,
}

/// Checks a run by its journal and its lines. A run with an empty journal was never accepted.
pub(super) fn check_run(plan: &Workload, records: &[(Seq, Record)], lines: &str) -> Findings {
    let bodies = || records.iter().map(|(_, record)| &record.body);
    let outcomes: Vec<Outcome> = bodies()
        .filter_map(|body| if let Body::RunEnded(ended) = body { Some(ended.ended.outcome) } else { None })
        .collect();
    let legs = 1 + bodies().filter(|body| matches!(body, Body::RunReopened(_))).count();
    // Only the outcome of the last leg counts; earlier legs were continued.
    let last = outcomes.get(legs - 1..).unwrap_or_default();
    let has_completed = !last.is_empty() && last.iter().all(|outcome| *outcome == Outcome::Completed);
    let is_accepted = bodies().any(|body| matches!(body, Body::RunAccepted(_)));
    let mut counts = Findings {
        not_completed: usize::from(is_accepted && !has_completed),
        ended_twice: usize::from(outcomes.len() > legs),
        ..Findings::default()
    };
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines.lines() {
        *written.entry(line).or_default() += 1;
    }
    let fates = command_fates(records);
    for line in plan.lines() {
        let written_lines = written.remove(line).unwrap_or(0);
        let fate = fates.get(&Workload::command(line));
        let in_doubt = fate == Some(&CommandFate::InDoubt);
        counts.duplicated += usize::from(written_lines > 1);
        counts.missing += usize::from(written_lines == 0 && is_accepted && !in_doubt);
        counts.unrecorded += usize::from(written_lines > 0 && fate.is_none());
        counts.in_doubt += usize::from(in_doubt);
        counts.in_doubt_without_line += usize::from(in_doubt && written_lines == 0);
    }
    counts.unexpected = written.values().sum();
    counts
}

/// The states of the started commands, by command.
fn command_fates(records: &[(Seq, Record)]) -> BTreeMap<String, CommandFate> {
    let mut commands: BTreeMap<CallId, String> = BTreeMap::new();
    let (mut started, mut in_doubt) = (BTreeSet::new(), BTreeSet::new());
    for (_, record) in records {
        if let Body::ModelAnswered(answered) = &record.body {
            for (n, call) in (1..).zip(&answered.message.calls) {
                let id = CallId { n, ..answered.call };
                commands.extend(command(&call.arguments).map(|command| (id, command)));
            }
        } else if let Body::CallStarted(call) = &record.body {
            started.insert(call.call);
        } else if let Body::CallEnded(ended) = &record.body
            && ended.end.status == CallStatus::InDoubt
        {
            in_doubt.insert(ended.call);
        }
    }
    let fate = |call: &CallId| {
        started
            .contains(call)
            .then(|| if in_doubt.contains(call) { CommandFate::InDoubt } else { CommandFate::Started })
    };
    commands.into_iter().filter_map(|(call, command)| Some((command, fate(&call)?))).collect()
}

fn command(arguments: &str) -> Option<String> {
    let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
    Some(arguments.get("command")?.as_str()?.to_owned())
}

/// Sample records for tests.
#[cfg(test)]
pub(super) mod samples {
    use std::sync::Arc;

    use hermod_actors::model::{
        AssistantMessage, CallEnd, CallEnded, CallStarted, FinishReason, ImportedHistory, Incarnation,
        ModelAnswered, OutcomeDetail, RunAccepted, RunEnded, RunId, RunSpec, Timestamp, ToolCall, Usage,
    };
    use serde_json::json;

    use super::*;

    pub(in super::super) const RUN: RunId = RunId::from_bits(1);

    const fn call(iteration: u32, n: u32) -> CallId {
        CallId { run: RUN, iteration, n }
    }

    pub(in super::super) fn numbered(bodies: Vec<Body>) -> Vec<(Seq, Record)> {
        let record = |body| Record { at: Timestamp(0), active_ms: 0, body };
        (1..).zip(bodies.into_iter().map(record)).collect()
    }

    pub(in super::super) fn accepted() -> Body {
        let spec = RunSpec::new(Vec::new(), "/w");
        let (images, history) = (Arc::from([]), Arc::new(ImportedHistory::default()));
        Body::RunAccepted(Box::new(RunAccepted {
            run: RUN,
            input: "go".into(),
            images,
            history,
            spec: spec.into(),
            parent: None,
            request_hash: None,
            queueing: None,
            hold: None,
            occurrence: None,
        }))
    }

    /// An answer that calls the commands that write these lines.
    pub(in super::super) fn answered(iteration: u32, lines: &[&str]) -> Body {
        let call_of = |line: &&str| ToolCall {
            id: "c".into(),
            name: "shell".into(),
            arguments: json!({ "command": Workload::command(line) }).to_string(),
        };
        let calls = lines.iter().map(call_of).collect();
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: call(iteration, 0),
            attempt: 1,
            message: Arc::new(AssistantMessage { calls, ..AssistantMessage::default() }),
            finish: FinishReason::ToolCalls,
            flaw: None,
            fallback: None,
            usage: None,
            anomaly: None,
        }))
    }

    pub(in super::super) fn started(iteration: u32, n: u32) -> Body {
        let incarnation = Incarnation::default();
        Body::CallStarted(CallStarted {
            call: call(iteration, n),
            attempt: 1,
            incarnation,
            boot: "b".into(),
            children: Arc::default(),
        })
    }

    pub(in super::super) fn ended(iteration: u32, n: u32, status: CallStatus) -> Body {
        let end = CallEnd::new(status, "x");
        Body::CallEnded(CallEnded::new(call(iteration, n), 1, end))
    }

    pub(in super::super) fn run_ended(outcome: &str) -> Body {
        let outcome = if outcome == "completed" { Outcome::Completed } else { Outcome::Failed };
        let ended = OutcomeDetail { outcome, cause: None };
        Body::RunEnded(RunEnded { run: RUN, ended, iterations: 1, usage: Usage::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        samples::{accepted, answered, ended, numbered, run_ended, started},
        *,
    };

    /// A run of two commands; the second one ended with this status, and `end` are the outcomes after it.
    fn journal(second: CallStatus, end: &[&str]) -> Vec<(Seq, Record)> {
        let mut bodies = vec![accepted()];
        for (iteration, line, status) in [(1, "1.1", CallStatus::Ok), (2, "2.1", second)] {
            bodies.extend([answered(iteration, &[line]), started(iteration, 1), ended(iteration, 1, status)]);
        }
        bodies.extend(end.iter().map(|outcome| run_ended(outcome)));
        numbered(bodies)
    }

    #[track_caller]
    fn check(records: &[(Seq, Record)], lines: &str, expect: Findings) {
        assert_eq!(check_run(&Workload::new(2), records, lines), expect, "{lines}");
    }

    const NONE: Findings = Findings {
        acknowledged: 0,
        lost: 0,
        changed: 0,
        gaps: 0,
        duplicated: 0,
        missing: 0,
        unexpected: 0,
        unrecorded: 0,
        in_doubt: 0,
        in_doubt_without_line: 0,
        not_completed: 0,
        ended_twice: 0,
    };

    #[test]
    fn a_run_that_did_all_once_is_well() {
        check(&journal(CallStatus::Ok, &["completed"]), "1.1\n2.1\n", NONE);
        check(&journal(CallStatus::Ok, &["completed"]), "2.1\n1.1\n", NONE);
        check(&[], "", NONE);
    }

    #[test]
    fn lines_that_are_wrong_are_found() {
        let records = journal(CallStatus::Ok, &["completed"]);
        check(&records, "1.1\n1.1\n2.1\n", Findings { duplicated: 1, ..NONE });
        check(&records, "1.1\n1.1\n1.1\n2.1\n2.1\n", Findings { duplicated: 2, ..NONE });
        check(&records, "1.1\n", Findings { missing: 1, ..NONE });
        check(&records, "", Findings { missing: 2, ..NONE });
        check(&records, "1.1\n2.1\n3.1\n", Findings { unexpected: 1, ..NONE });
        check(&records, "1.12.1\n", Findings { unexpected: 1, missing: 2, ..NONE });
    }

    #[test]
    fn a_call_in_doubt_may_have_its_line_or_not_but_never_two() {
        let records = journal(CallStatus::InDoubt, &["completed"]);
        check(&records, "1.1\n2.1\n", Findings { in_doubt: 1, ..NONE });
        check(&records, "1.1\n", Findings { in_doubt: 1, in_doubt_without_line: 1, ..NONE });
        check(&records, "1.1\n2.1\n2.1\n", Findings { in_doubt: 1, duplicated: 1, ..NONE });
        check(&records, "2.1\n", Findings { in_doubt: 1, missing: 1, ..NONE });
    }

    #[test]
    fn what_ran_without_a_record_is_found() {
        check(&[], "1.1\n", Findings { unrecorded: 1, ..NONE });
        let unstarted = numbered(vec![accepted(), answered(1, &["1.1"]), run_ended("completed")]);
        check(&unstarted, "1.1\n", Findings { unrecorded: 1, missing: 1, ..NONE });
    }

    #[test]
    fn every_run_has_one_outcome() {
        let lines = "1.1\n2.1\n";
        check(&journal(CallStatus::Ok, &[]), lines, Findings { not_completed: 1, ..NONE });
        check(&journal(CallStatus::Ok, &["failed"]), lines, Findings { not_completed: 1, ..NONE });
        check(
            &journal(CallStatus::Ok, &["completed", "completed"]),
            lines,
            Findings { ended_twice: 1, ..NONE },
        );
        let both = Findings { ended_twice: 1, not_completed: 1, ..NONE };
        check(&journal(CallStatus::Ok, &["failed", "completed"]), lines, both);
    }
}
