//! Counts what happened in sequences.

use std::{collections::BTreeMap, fmt};

use crate::{
    model::{Body, CallEnded, CallStatus, Flaw, Kind, Outcome, RepetitionPattern, RetryReason},
    turn::{DueAction, Input},
};

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) sequences: u64,
    pub(super) steps: u64,
    /// The most moves that a world without disturbances needed to end all runs.
    pub(super) moves: u32,
    times: BTreeMap<(&'static str, &'static str), u64>,
}

/// What must have happened, or the sequences test too little. All kinds of records are added to it.
const EXPECTED: [(&str, &[&str]); 7] = [
    (
        "input",
        &[
            "Opened",
            "Revived",
            "Submitted",
            "MayBegin",
            "Leased",
            "NoLease",
            "Permitted",
            "Answered",
            "ModelFailed",
            "ToolEnded",
            "Lost",
            "NeverStarted",
            "Decided",
            "Stop",
            "Steer",
            "Raise",
            "SetQueue",
            "ChildEnded",
            "Verified",
            "MemorySaved",
            "FromInbox",
            "Nothing",
            "Woke",
            "Refused",
        ],
    ),
    (
        "effect",
        &["Begin", "Ask", "Run", "End", "Seek", "Await", "Verify", "SaveMemory", "WakeAt", "WakeAtActive"],
    ),
    (
        "flaw",
        &[
            "UnknownTools",
            "Malformed",
            "Truncated",
            "Partial",
            "EmptyAfterTool",
            "OnlyThought",
            "Silent",
            "Empty",
            "Refused",
        ],
    ),
    ("again", &["Lost", "Interrupted", "NeverStarted", "InDoubt"]),
    ("call", &["Ok", "Error", "Stopped", "NotStarted", "InDoubt"]),
    (
        "outcome",
        &["completed", "failed", "stopped", "timed_out", "budget_exhausted", "refused", "loop_detected"],
    ),
    ("repetition", &["SameResult", "SameFailure", "AlternatingCalls", "FailingTool"]),
];

impl Tally {
    fn count(&mut self, group: &'static str, name: &'static str) {
        *self.times.entry((group, name)).or_default() += 1;
    }

    pub(super) fn input(&mut self, input: &Input) {
        if let Input::FromInbox { input: says, .. } = input {
            self.input(says);
        }
        self.count(
            "input",
            match input {
                Input::Opened(_) => "Opened",
                Input::Revived(_) => "Revived",
                Input::Submitted { .. } => "Submitted",
                Input::MayBegin { .. } => "MayBegin",
                Input::Leased { .. } => "Leased",
                Input::SummaryLeased { .. } => "SummaryLeased",
                Input::NoLease { .. } => "NoLease",
                Input::Permitted { .. } => "Permitted",
                Input::Answered { .. } => "Answered",
                Input::ModelFailed { .. } => "ModelFailed",
                Input::ToolEnded { .. } => "ToolEnded",
                Input::Lost { .. } => "Lost",
                Input::NeverStarted { .. } => "NeverStarted",
                Input::Approval { .. } => "Decided",
                Input::Stop { .. } => "Stop",
                Input::Steer { .. } => "Steer",
                Input::Raise { .. } => "Raise",
                Input::SetQueue(_) => "SetQueue",
                Input::ChildEnded(_) => "ChildEnded",
                Input::Verified { .. } => "Verified",
                Input::MemorySaved { .. } => "MemorySaved",
                Input::FromInbox { .. } => "FromInbox",
                Input::EmptyInboxRow => "Nothing",
                Input::TimerFired => "Woke",
                Input::BudgetRefused(_) => "Refused",
            },
        );
    }

    pub(super) fn effect(&mut self, effect: &DueAction) {
        self.count(
            "effect",
            match effect {
                DueAction::Begin(_) => "Begin",
                DueAction::CallModel { .. } => "Ask",
                DueAction::RunTool { .. } => "Run",
                DueAction::EndTool { .. } => "End",
                DueAction::Acquire { .. } => "Seek",
                DueAction::AwaitSubagent { .. } => "Await",
                DueAction::Verify(_) => "Verify",
                DueAction::SaveMemory(_) => "SaveMemory",
                DueAction::WakeAt(_) => "WakeAt",
                DueAction::WakeAtActive(_) => "WakeAtActive",
            },
        );
    }

    pub(super) fn record(&mut self, body: &Body) {
        self.count("record", body.kind().name());
        if let Body::RunEnded(ended) = body {
            self.outcome(ended.ended.outcome);
        }
        if let Body::CallLost(lost) = body {
            self.count(
                "again",
                match lost.reason {
                    RetryReason::Lost => "Lost",
                    RetryReason::Interrupted => "Interrupted",
                    RetryReason::NeverStarted => "NeverStarted",
                    RetryReason::InDoubt => "InDoubt",
                },
            );
        }
        if let Body::CallEnded(ended) = body {
            self.count(
                "call",
                match ended.end.status {
                    CallStatus::Ok => "Ok",
                    CallStatus::Error => "Error",
                    CallStatus::Stopped => "Stopped",
                    CallStatus::NotStarted => "NotStarted",
                    CallStatus::InDoubt => "InDoubt",
                },
            );
        }
        if let Body::CallEnded(CallEnded { repetition: Some(found), .. }) = body {
            self.count(
                "repetition",
                match found.pattern {
                    RepetitionPattern::SameResult => "SameResult",
                    RepetitionPattern::SameFailure => "SameFailure",
                    RepetitionPattern::AlternatingCalls => "AlternatingCalls",
                    RepetitionPattern::FailingTool => "FailingTool",
                },
            );
        }
        if let Body::ModelAnswered(answered) = body
            && let Some(flaw) = answered.flaw
        {
            self.flaw(flaw);
        }
    }

    fn outcome(&mut self, outcome: Outcome) {
        self.count("outcome", outcome.name());
    }

    fn flaw(&mut self, flaw: Flaw) {
        self.count(
            "flaw",
            match flaw {
                Flaw::UnknownTools => "UnknownTools",
                Flaw::Malformed => "Malformed",
                Flaw::Truncated => "Truncated",
                Flaw::Partial => "Partial",
                Flaw::EmptyAfterTool => "EmptyAfterTool",
                Flaw::ReasoningOnly => "OnlyThought",
                Flaw::Empty => "Empty",
                Flaw::Refused => "Refused",
                Flaw::Silent => "Silent",
            },
        );
    }

    /// Adds the counts of another tally.
    pub(super) fn add(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.steps += other.steps;
        self.moves = self.moves.max(other.moves);
        for (what, times) in other.times {
            *self.times.entry(what).or_default() += times;
        }
    }

    /// What never happened.
    pub(super) fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let records = Kind::ALL.iter().map(|kind| ("record", kind.name()));
        let others = EXPECTED.iter().flat_map(|(group, names)| names.iter().map(|name| (*group, *name)));
        others.chain(records).filter(|what| !self.times.contains_key(what)).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} sequences, {} steps, at most {} moves to the end",
            self.sequences, self.steps, self.moves
        )?;
        self.times
            .iter()
            .try_for_each(|((group, name), times)| writeln!(f, "  {group:8} {name:20} {times:>12}"))
    }
}
