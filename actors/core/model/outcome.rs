//! The end of a run: outcome and cause.

use std::fmt;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    BudgetRefusal, ContextBreakdown, ExpectationMiss, Failure, ModelRef, Repetition, UnansweredModel,
};

/// The outcome of a run. Every accepted run, or leg of one, ends with exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The run ended with a non-empty answer and without open work.
    Completed,
    /// An error from which the run cannot recover.
    Failed,
    /// A person, a signal or the parent run stopped it.
    Stopped,
    /// The run's timeout expired, or a subagent made no progress in time.
    TimedOut,
    /// A limit of its budget was reached, or cannot be enforced.
    BudgetExhausted,
    /// The run repeated its tool calls without progress.
    LoopDetected,
    /// The model or the vendor refused the content, or a hook the run.
    Refused,
}

impl Outcome {
    /// The outcome's name, as in records and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The source of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A stop command.
    Command,
    /// A signal to the process that runs it.
    Signal,
    /// The parent run that delegated the task is ending.
    Parent,
    /// A newer message in mode `interrupt`.
    Interrupt,
    /// Too many messages waited, and this run was the oldest of them.
    QueueFull,
    /// A later occurrence of its schedule was due.
    Overlap,
}

/// The cause of an outcome, where the outcome alone does not name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum OutcomeCause {
    /// A model call failed, and no model of the chain can answer it.
    Provider {
        /// The last failure.
        failure: Failure,
        /// The state of each model of the chain, if it has several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        chain: Vec<UnansweredModel>,
    },
    /// The model returned empty answers.
    EmptyAnswer,
    /// The answer reached the model's output limit.
    Truncated,
    /// Reasoning used up the output limit before any text.
    #[serde(rename = "only_thought")]
    ReasoningOnly {
        /// The limit of output tokens.
        max_tokens: u64,
    },
    /// The model kept calling tools that do not exist.
    UnknownTool,
    /// Expectations of the run do not hold, although the model was told so before.
    Expectation {
        /// The expectations that do not hold.
        misses: Vec<ExpectationMiss>,
    },
    /// The request exceeds the context window even after compaction.
    #[serde(rename = "irreducible")]
    ContextOverflow {
        /// The parts of the request.
        parts: ContextBreakdown,
    },
    /// A reservation did not fit a limit of the budget.
    Limit {
        /// The limit and the refused amount.
        refusal: BudgetRefusal,
    },
    /// The limit of money cannot be enforced: no available model has a known price for a conversation of this length.
    Unpriced {
        /// The first available model.
        model: ModelRef,
        /// The input tokens above which its price is unknown; 0 if it is always unknown.
        above: u64,
    },
    /// The allowed active time is used up.
    Time {
        /// The limit, in milliseconds of active time.
        limit_ms: u64,
    },
    /// No call of the subagent got a result within the limit.
    NoProgress {
        /// The limit, in milliseconds of active time.
        limit_ms: u64,
    },
    /// The model repeated tool calls after a warning.
    Repetition {
        /// The repeated call.
        repetition: Repetition,
    },
    /// The run was stopped.
    Stop {
        /// The source of the stop.
        reason: StopReason,
    },
    /// A hook that was asked before the run began has refused it.
    Hook {
        /// The hook and its reason, as a sentence.
        refusal: String,
    },
    /// The run crashed repeatedly at the same step.
    CrashLoop {
        /// The error of the last crash.
        error: String,
    },
    /// The session's journal cannot be read by this program; the outcome was written from the run's index row. Also the
    /// end that a parent gets of a subagent whose session was removed. Earlier versions wrote `quarantined`.
    #[serde(alias = "quarantined")]
    Unreadable {
        /// The error of reading it.
        error: String,
    },
}

impl OutcomeCause {
    /// The failure of the only available model.
    pub const fn provider(failure: Failure) -> Self {
        Self::Provider { failure, chain: Vec::new() }
    }
}

impl fmt::Display for OutcomeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider { failure, chain } => {
                write!(f, "provider: {failure}")?;
                chain.iter().try_for_each(|link| write!(f, "; {link}"))
            }
            Self::EmptyAnswer => f.write_str("empty_answer: the model answered nothing"),
            Self::Truncated => f.write_str("truncated: the answer ran into the model's output limit"),
            Self::ReasoningOnly { max_tokens } => write!(
                f,
                "only_thought: thinking used up all {max_tokens} output tokens before anything was said; raise \
                 max_tokens, or let the model think less"
            ),
            Self::UnknownTool => f.write_str("unknown_tool: the model kept calling tools that do not exist"),
            Self::Expectation { misses } => {
                f.write_str("expectation: ")?;
                misses.iter().enumerate().try_for_each(|(n, miss)| {
                    f.write_str(if n == 0 { "" } else { "; " })?;
                    fmt::Display::fmt(miss, f)
                })
            }
            Self::ContextOverflow { parts } => fmt::Display::fmt(parts, f),
            Self::Limit { refusal } => fmt::Display::fmt(refusal, f),
            Self::Unpriced { model, above } => write!(
                f,
                "unpriced: the price of {model} is not known above {above} tokens of input, so the limit of usd cannot be \
                 kept; limit tokens instead, or configure the price of such calls"
            ),
            Self::Time { limit_ms } => write!(f, "{limit_ms} ms of active time are used up"),
            Self::NoProgress { limit_ms } => {
                write!(f, "no_progress: no call has come to a result for {limit_ms} ms of active time")
            }
            Self::Repetition { repetition } => write!(f, "repetition: {repetition}"),
            Self::Stop { reason: StopReason::Command } => f.write_str("by command"),
            Self::Stop { reason: StopReason::Signal } => f.write_str("by signal"),
            Self::Stop { reason: StopReason::Parent } => f.write_str("with the run that gave it its task"),
            Self::Stop { reason: StopReason::Interrupt } => f.write_str("by a newer message"),
            Self::Stop { reason: StopReason::QueueFull } => {
                f.write_str("queue_full: too many messages waited")
            }
            Self::Stop { reason: StopReason::Overlap } => {
                f.write_str("overlap: a later occurrence of its schedule was due")
            }
            Self::Hook { refusal } => f.write_str(refusal),
            Self::CrashLoop { error } => write!(f, "crash_loop: {error}"),
            Self::Unreadable { error } => write!(f, "unreadable: {error}"),
        }
    }
}

/// The content of a run's terminal record: the outcome and its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeDetail {
    /// The outcome.
    pub outcome: Outcome,
    /// The cause; `None` where the outcome says it all.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub cause: Option<OutcomeCause>,
}

impl OutcomeDetail {
    /// An `outcome` with its `cause`.
    pub fn with_cause(outcome: Outcome, cause: OutcomeCause) -> Self {
        Self { outcome, cause: Some(cause) }
    }
}

impl fmt::Display for OutcomeDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{} ({cause})", self.outcome),
            None => fmt::Display::fmt(&self.outcome, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_an_earlier_version_is_read() {
        let stored = r#"{"outcome":"failed","cause":"quarantined","error":"why"}"#;
        let ended =
            OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Unreadable { error: "why".into() });
        assert_eq!(serde_json::from_str::<OutcomeDetail>(stored).unwrap(), ended);
        let now = r#"{"outcome":"failed","cause":"unreadable","error":"why"}"#;
        assert_eq!(serde_json::to_string(&ended).unwrap(), now);
    }
}
