//! The end of a prompt: the outcome of its run in, a stop reason or an error out. Pure.

use agent_client_protocol::{Error, ErrorCode, v1::schema::StopReason};
use hermod_actors::model::{Dimension, Outcome, OutcomeCause, OutcomeDetail, RunId};
use serde_json::json;

/// How a prompt ends that is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptEnd {
    /// The stop reason.
    pub(super) reason: StopReason,
    /// What the user is told before it; `None` if the answer says it all.
    pub(super) note: Option<String>,
}

impl PromptEnd {
    /// The end of a prompt without a note.
    pub(super) const fn quiet(reason: StopReason) -> Self {
        Self { reason, note: None }
    }

    /// The end of the prompt whose run has this outcome. A prompt that the client has cancelled ends as such, whatever
    /// its run came to meanwhile. A failure is an error that says what to do.
    pub(super) fn new(run: RunId, ended: &OutcomeDetail, is_cancelled: bool) -> Result<Self, Error> {
        if is_cancelled {
            return Ok(Self::quiet(StopReason::Cancelled));
        }
        let reason = match (ended.outcome, &ended.cause) {
            (Outcome::Completed, _) => return Ok(Self::quiet(StopReason::EndTurn)),
            (Outcome::Stopped, _) => StopReason::Cancelled,
            (Outcome::BudgetExhausted, cause) => limit_reason(cause.as_ref()),
            (Outcome::Refused, _) => StopReason::Refusal,
            (Outcome::Failed, Some(OutcomeCause::Truncated | OutcomeCause::ReasoningOnly { .. })) => {
                StopReason::MaxTokens
            }
            (Outcome::Failed | Outcome::TimedOut | Outcome::LoopDetected, _) => {
                return Err(failure(run, ended));
            }
        };
        let remedy = match ended.outcome {
            Outcome::BudgetExhausted => {
                format!(" `hermod budget add {run} …` and `hermod runs resume {run}` let it go on.")
            }
            Outcome::Completed
            | Outcome::Failed
            | Outcome::Stopped
            | Outcome::TimedOut
            | Outcome::LoopDetected
            | Outcome::Refused => String::new(),
        };
        Ok(Self { reason, note: Some(format!("The run ended: {ended}.{remedy}")) })
    }
}

/// Tokens have a reason of their own; what else runs out is told as the number of requests.
fn limit_reason(cause: Option<&OutcomeCause>) -> StopReason {
    let Some(OutcomeCause::Limit { refusal }) = cause else { return StopReason::MaxTurnRequests };
    match refusal.dimension {
        Dimension::Tokens => StopReason::MaxTokens,
        Dimension::Iterations | Dimension::Usd | Dimension::ToolCalls | Dimension::Children => {
            StopReason::MaxTurnRequests
        }
    }
}

fn failure(run: RunId, ended: &OutcomeDetail) -> Error {
    let text = format!(
        "the run ended: {ended}. `hermod show {run}` shows it; send the prompt again, or change what it names"
    );
    let data = json!({ "run": run, "outcome": ended.outcome });
    Error::new(ErrorCode::INTERNAL_ERROR, text).data(data)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{AccountId, BudgetRefusal, StopReason as RunStop};

    use super::*;

    const RUN: RunId = RunId::from_bits(1);

    /// Checks the stop reason and a part of the note, or a part of the error.
    #[track_caller]
    fn check(ended: OutcomeDetail, is_cancelled: bool, expect: Result<(StopReason, &str), &str>) {
        match (PromptEnd::new(RUN, &ended, is_cancelled), expect) {
            (Ok(end), Ok((reason, note))) => {
                assert_eq!(end.reason, reason);
                let text = end.note.unwrap_or_default();
                assert!(text.contains(note) && text.is_empty() == note.is_empty(), "{text}");
            }
            (Err(error), Err(part)) => assert!(error.message.contains(part), "{}", error.message),
            (got, expect) => panic!("expected {expect:?}, got {got:?}"),
        }
    }

    fn outcome(outcome: Outcome) -> OutcomeDetail {
        OutcomeDetail { outcome, cause: None }
    }

    fn exhausted(dimension: Dimension) -> OutcomeDetail {
        let account = AccountId::from(RUN);
        let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
        OutcomeDetail::with_cause(Outcome::BudgetExhausted, OutcomeCause::Limit { refusal })
    }

    #[test]
    fn an_outcome_becomes_a_stop_reason_or_an_error() {
        check(outcome(Outcome::Completed), false, Ok((StopReason::EndTurn, "")));
        let stopped = OutcomeCause::Stop { reason: RunStop::Command };
        let stopped = OutcomeDetail::with_cause(Outcome::Stopped, stopped);
        check(stopped.clone(), false, Ok((StopReason::Cancelled, "stopped (by command)")));
        check(stopped, true, Ok((StopReason::Cancelled, "")));
        check(outcome(Outcome::Refused), false, Ok((StopReason::Refusal, "refused")));
        check(exhausted(Dimension::Tokens), false, Ok((StopReason::MaxTokens, "hermod budget add")));
        check(exhausted(Dimension::Iterations), false, Ok((StopReason::MaxTurnRequests, "iterations limit")));
        check(exhausted(Dimension::Usd), false, Ok((StopReason::MaxTurnRequests, "usd limit")));
        let truncated = OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Truncated);
        check(truncated, false, Ok((StopReason::MaxTokens, "output limit")));
        check(outcome(Outcome::LoopDetected), false, Err("the run ended: loop_detected. `hermod show "));
        check(outcome(Outcome::TimedOut), false, Err("timed_out"));
        let empty = OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::EmptyAnswer);
        check(empty.clone(), false, Err("the model answered nothing"));
        check(empty, true, Ok((StopReason::Cancelled, "")));
    }
}
