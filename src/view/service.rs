//! Views that only the service shows: an accepted run, and the state of a run that a client waits for.

use hermod_actors::{
    AcceptedRun, RunResult,
    model::{MessageFate, MessageState, Outcome, OutcomeDetail, RunId, RunRow, SessionId, Timestamp},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    encoding,
    run::RunStateView,
    schema::{Id, MessageStateName, OutcomeName, Time},
};

/// A run that is durable: `{run, session, accepted_at}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunAcceptedView {
    /// The run; for a repeated submission, the first one.
    #[schema(value_type = Id)]
    pub run: RunId,
    /// The run's session.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// When the run was accepted.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub accepted_at: Timestamp,
}

impl From<AcceptedRun> for RunAcceptedView {
    fn from(accepted: AcceptedRun) -> Self {
        Self { run: accepted.run, session: accepted.session, accepted_at: accepted.at }
    }
}

/// A message that is durable: `{message, session}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageAcceptedView {
    /// The message; for a repeated one, the first. It is also the run that the message becomes unless it joins another.
    #[schema(value_type = Id)]
    pub message: RunId,
    /// The message's session.
    #[schema(value_type = Id)]
    pub session: SessionId,
}

impl From<AcceptedRun> for MessageAcceptedView {
    fn from(accepted: AcceptedRun) -> Self {
        Self { message: accepted.run, session: accepted.session }
    }
}

/// A webhook that became no message: `{challenge}` or `{ignored}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct InboundAnswerView {
    /// The text that the sender has asked for, to see that the endpoint listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub challenge: Option<String>,
    /// Why it became none: `ping`, or `events`, which are not wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<&'static str>,
}

/// What became of a message: `{state, reason?, run?}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MessageFateView {
    /// The state.
    #[schema(value_type = MessageStateName)]
    pub state: MessageState,
    /// Why it was dropped, or why it still waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The run in which it is or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Id>)]
    pub run: Option<RunId>,
}

impl From<MessageFate> for MessageFateView {
    fn from(MessageFate { state, run, reason }: MessageFate) -> Self {
        Self { state, reason, run }
    }
}

/// The state of a run: `{run, session, state, outcome, answer, partial, reason}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunWaitView {
    /// The run.
    #[schema(value_type = Id)]
    pub run: RunId,
    /// The run's session.
    #[schema(value_type = Id)]
    pub session: SessionId,
    /// The run's state.
    pub state: RunStateView,
    /// The name of the outcome; `None` (`null`) if the run has not ended.
    #[schema(value_type = Option<OutcomeName>, required)]
    pub outcome: Option<String>,
    /// The answer of a completed run, else `null`.
    #[schema(required)]
    pub answer: Option<String>,
    /// True if the answer was `NO_REPLY`: there is nothing to deliver. Absent if it was not.
    #[serde(default, skip_serializing_if = "super::encoding::is_false")]
    #[schema(required = false)]
    pub silent: bool,
    /// The last text of a run that did not complete; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Why the run did not complete; absent if it did, or has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RunWaitView {
    fn new((run, session): (RunId, SessionId), state: RunStateView, ended: Option<&OutcomeDetail>) -> Self {
        let reason = ended.filter(|ended| ended.outcome != Outcome::Completed).map(ToString::to_string);
        let outcome = ended.map(|ended| ended.outcome.name().to_owned());
        Self { run, session, state, outcome, answer: None, silent: false, partial: None, reason }
    }
}

/// A run without its text.
impl From<RunRow> for RunWaitView {
    fn from(row: RunRow) -> Self {
        Self::new((row.id, row.session), row.state.into(), row.ended.as_ref())
    }
}

impl From<&RunResult> for RunWaitView {
    fn from(result: &RunResult) -> Self {
        let ids = (result.run, result.session);
        let (answer, partial) = super::result::answer_or_partial(Some(&result.ended), result.text());
        Self {
            answer,
            silent: result.silent,
            partial,
            ..Self::new(ids, RunStateView::Ended, Some(&result.ended))
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{OutcomeCause, RunState, StopReason};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wait_shows_the_outcome_once_there_is_one() {
        let row = RunRow::new(RunId::from_bits(1), SessionId::from_bits(2), Timestamp(0), 1);
        let ids = json!({ "run": row.id, "session": row.session });
        let check = |row: RunRow, expect: serde_json::Value| {
            let mut shown = json!(RunWaitView::from(row));
            for id in ["run", "session"] {
                assert_eq!(shown.as_object_mut().unwrap().remove(id), ids.get(id).cloned());
            }
            assert_eq!(shown, expect);
        };
        check(row.clone(), json!({ "state": "queued", "outcome": null, "answer": null }));
        let stop = OutcomeCause::Stop { reason: StopReason::Command };
        let ended = OutcomeDetail::with_cause(Outcome::Stopped, stop);
        let reason = ended.to_string();
        check(
            RunRow { state: RunState::Ended, ended: Some(ended), ..row },
            json!({ "state": "ended", "outcome": "stopped", "answer": null, "reason": reason }),
        );
    }
}
