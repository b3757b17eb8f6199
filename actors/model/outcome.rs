use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BudgetRefusal, ContextBreakdown, Failure, ModelRef, UnansweredModel};

/// How a run ended. Every accepted run ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a non-empty answer and nothing left to do.
    Completed,
    /// Something that cannot be mended from here went wrong.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// Its timeout ran out.
    TimedOut,
    /// A limit of its budget was reached.
    BudgetExhausted,
    /// It went in circles.
    LoopDetected,
    /// The model or the vendor refused.
    Refused,
}

impl Outcome {
    /// The outcome's name, as in records and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::TimedOut => "timed_out",
            Self::BudgetExhausted => "budget_exhausted",
            Self::LoopDetected => "loop_detected",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who stopped a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A stop command.
    Command,
    /// A signal to the process that runs it.
    Signal,
    /// The run that had given it its task is ending.
    Parent,
}

/// Why a run ended as it did, where the outcome alone does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum OutcomeCause {
    /// The model could not be asked, or not any more.
    Provider {
        /// The last failure.
        failure: Failure,
        /// What became of each model of the chain, if it has several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        chain: Vec<UnansweredModel>,
    },
    /// The model said nothing.
    EmptyAnswer,
    /// The answer ran into the limit of its output.
    Truncated,
    /// The limit of its output was used up before anything was said.
    #[serde(rename = "only_thought")]
    ReasoningOnly {
        /// The output tokens that it had.
        max_tokens: u64,
    },
    /// The model kept calling tools that do not exist.
    UnknownTool,
    /// The request does not fit the model, whatever is left out.
    #[serde(rename = "irreducible")]
    ContextOverflow {
        /// What it consists of.
        parts: ContextBreakdown,
    },
    /// A limit was reached.
    Limit {
        /// Which one, and how far.
        refusal: BudgetRefusal,
    },
    /// The limit of money cannot be kept any more: the conversation is longer than the price of any model that could be
    /// asked is known for.
    Unpriced {
        /// The first of these models.
        model: ModelRef,
        /// The input tokens above which its price is not known; 0 if it never is.
        above: u64,
    },
    /// The active time allowed ran out, in milliseconds.
    Time {
        /// The limit.
        limit_ms: u64,
    },
    /// A subagent came to no result of a call for so long, in milliseconds of active time.
    NoProgress {
        /// The limit.
        limit_ms: u64,
    },
    /// It was stopped.
    Stop {
        /// By whom.
        reason: StopReason,
    },
    /// It died at the same step again and again.
    CrashLoop {
        /// What it died of, the last time.
        error: String,
    },
    /// Its session cannot be read by this program: written without its journal, from its index row. Earlier versions
    /// wrote `quarantined`.
    #[serde(alias = "quarantined")]
    Unreadable {
        /// Why.
        error: String,
    },
}

impl OutcomeCause {
    /// The only model that could be asked failed so.
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
            Self::Stop { reason: StopReason::Command } => f.write_str("by command"),
            Self::Stop { reason: StopReason::Signal } => f.write_str("by signal"),
            Self::Stop { reason: StopReason::Parent } => f.write_str("with the run that gave it its task"),
            Self::CrashLoop { error } => write!(f, "crash_loop: {error}"),
            Self::Unreadable { error } => write!(f, "unreadable: {error}"),
        }
    }
}

/// The terminal record's content: the outcome, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeDetail {
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub cause: Option<OutcomeCause>,
}

impl OutcomeDetail {
    /// Ended with `outcome` because of `cause`.
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
