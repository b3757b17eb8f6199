//! Views of what `hermod run` and `hermod runs resume` print at their end.

use hermod_actors::{
    AnswerSource, RunResult,
    model::{ModelRef, Outcome, OutcomeDetail, RunId, SessionId, Timestamp, Usage},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    encoding,
    message::MessageView,
    run::{RunView, is_one_leg},
    schema::{Id, Model, RunEnd, Source, Time, TokenUsage},
};

/// The result of a run, or the reason why there is none. Without an outcome all but `run`, `session` and `error` is
/// `null` or absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
pub struct ResultView {
    /// The run; `None` if nothing was accepted.
    #[schema(value_type = Option<Id>, required)]
    pub run: Option<RunId>,
    /// The run's session.
    #[schema(value_type = Option<Id>, required)]
    pub session: Option<SessionId>,
    /// The isolation key of the run's tools; `None` if its records cannot be read.
    #[schema(required)]
    pub isolation_key: Option<String>,
    /// The outcome and its cause.
    #[serde(flatten, serialize_with = "encoding::outcome::serialize")]
    #[schema(value_type = RunEnd)]
    pub ended: Option<OutcomeDetail>,
    /// The answer of a completed run.
    #[schema(required)]
    pub answer: Option<String>,
    /// True if the answer was `NO_REPLY`: there is nothing to deliver. Absent if it was not.
    #[serde(skip_serializing_if = "encoding::is_false")]
    #[schema(required = false)]
    pub silent: bool,
    /// How the last text came about.
    #[schema(value_type = Option<Source>, required)]
    pub answer_source: Option<AnswerSource>,
    /// The last text of a run that did not complete; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// The run's messages as a model reads them.
    #[schema(required)]
    pub messages: Option<Vec<MessageView>>,
    /// Number of legs; absent if it is 1.
    #[serde(skip_serializing_if = "is_one_leg")]
    pub legs: u32,
    /// Number of iterations.
    #[schema(required)]
    pub iterations: Option<u32>,
    /// Usage of the run's model calls.
    #[schema(value_type = Option<TokenUsage>, required)]
    pub usage: Option<Usage>,
    /// Cost of the run's model calls; `None` if it is not known for all of them.
    #[serde(rename = "cost_usd", serialize_with = "encoding::dollars::serialize")]
    #[schema(value_type = Option<f64>, required)]
    pub cost: Option<u64>,
    /// Models whose part of the cost is unknown.
    #[schema(value_type = Option<Vec<Model>>, required)]
    pub unpriced: Option<Vec<ModelRef>>,
    /// When the run started.
    #[serde(serialize_with = "encoding::optional_time::serialize")]
    #[schema(value_type = Option<Time>, required)]
    pub started_at: Option<Timestamp>,
    /// When the run ended.
    #[serde(serialize_with = "encoding::optional_time::serialize")]
    #[schema(value_type = Option<Time>, required)]
    pub ended_at: Option<Timestamp>,
    /// Why there is no outcome; absent if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&RunResult> for ResultView {
    fn from(result: &RunResult) -> Self {
        let (answer, partial) = answer_or_partial(Some(&result.ended), result.text());
        Self {
            run: Some(result.run),
            session: Some(result.session),
            isolation_key: result.task.clone(),
            ended: Some(result.ended.clone()),
            answer,
            silent: result.silent,
            answer_source: result.answer.as_ref().map(|answer| answer.source),
            partial,
            messages: Some(result.messages.iter().map(MessageView::from).collect()),
            legs: result.legs,
            iterations: Some(result.iterations),
            usage: Some(result.usage),
            cost: result.cost,
            unpriced: Some(result.unpriced.clone()),
            started_at: result.started_at,
            ended_at: result.ended_at,
            error: None,
        }
    }
}

impl ResultView {
    /// A run without an outcome, or no run at all; `error` is the reason.
    pub fn without_outcome(run: Option<(RunId, SessionId)>, error: &str) -> Self {
        Self {
            run: run.map(|(run, _)| run),
            session: run.map(|(_, session)| session),
            legs: 1,
            error: Some(error.to_owned()),
            ..Self::default()
        }
    }
}

/// A resumed run with its last text: `{…of the run, answer, partial}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndedRunView {
    /// The run.
    #[serde(flatten)]
    pub run: RunView,
    /// The answer of a completed run.
    pub answer: Option<String>,
    /// The last text of a run that did not complete; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl EndedRunView {
    /// A run with its last text, if that is known.
    pub fn new(run: RunView, text: Option<&str>) -> Self {
        let (answer, partial) = answer_or_partial(run.ended.as_ref(), text);
        Self { run, answer, partial }
    }
}

/// The last text of a run as its answer if it completed, else as a partial one.
pub(super) fn answer_or_partial(
    ended: Option<&OutcomeDetail>,
    text: Option<&str>,
) -> (Option<String>, Option<String>) {
    let text = text.map(str::to_owned);
    if ended.is_some_and(|ended| ended.outcome == Outcome::Completed) { (text, None) } else { (None, text) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermod_actors::{
        FinalText,
        model::{AssistantMessage, Failure as CallFailure, FailureClass, Message, OutcomeCause, ToolCall},
    };
    use serde_json::{Value, json};

    use super::*;

    fn messages() -> Vec<Message> {
        let call = ToolCall { id: "1".into(), name: "look".into(), arguments: "{}".into() };
        let asked = AssistantMessage { reasoning: "hm".into(), calls: vec![call], ..Default::default() };
        vec![
            Message::User("hi".into()),
            Message::Assistant(Arc::new(asked)),
            Message::Tool { call: "1".into(), name: "look".into(), content: "x".into() },
        ]
    }

    fn sample(ended: OutcomeDetail) -> Value {
        let completed = ended.outcome == Outcome::Completed;
        let source = if completed { AnswerSource::Final } else { AnswerSource::Partial };
        let result = RunResult {
            run: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            ended,
            task: Some("t".into()),
            answer: Some(FinalText { text: "said".into(), source }),
            silent: false,
            messages: messages(),
            legs: 1,
            iterations: 3,
            usage: Usage { input_tokens: 5, output_tokens: 6, ..Usage::default() },
            cost: Some(1_234_500_000),
            unpriced: Vec::new(),
            accepted_at: Timestamp(0),
            started_at: Some(Timestamp(0)),
            ended_at: Some(Timestamp(1)),
        };
        json!(ResultView::from(&result))
    }

    fn completed() -> Value {
        sample(OutcomeDetail { outcome: Outcome::Completed, cause: None })
    }

    #[test]
    fn a_completed_run_has_an_answer() {
        assert_eq!(
            completed().to_string(),
            json!({
                "run": "00000000000000000000000001", "session": "00000000000000000000000002",
                "isolation_key": "t", "outcome": "completed", "cause": null, "answer": "said", "answer_source": "final",
                "messages": [
                    { "role": "user", "content": "hi" },
                    {
                        "role": "assistant", "content": "", "reasoning": "hm",
                        "tool_calls": [
                            { "id": "1", "type": "function", "function": { "name": "look", "arguments": "{}" } },
                        ],
                    },
                    { "role": "tool", "tool_call_id": "1", "name": "look", "content": "x" },
                ],
                "iterations": 3,
                "usage": { "input_tokens": 5, "output_tokens": 6 },
                "cost_usd": 1.2345, "unpriced": [],
                "started_at": "1970-01-01T00:00:00.000Z", "ended_at": "1970-01-01T00:00:00.001Z",
            })
            .to_string()
        );
    }

    #[test]
    fn another_run_has_a_cause_and_no_answer() {
        let failure = CallFailure::new(FailureClass::Auth, "no");
        let shown = sample(OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::provider(failure)));
        assert_eq!((&shown["outcome"], &shown["cause"]), (&json!("failed"), &json!("provider")));
        assert_eq!(shown["failure"], json!({ "class": "auth", "message": "no" }));
        assert_eq!((&shown["answer"], &shown["partial"]), (&Value::Null, &json!("said")));
        assert_eq!(shown["answer_source"], "partial");
    }

    #[test]
    fn no_run_has_the_same_fields() {
        let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let none = json!(ResultView::without_outcome(None, "why"));
        let mut expect = fields(&completed());
        expect.push("error".into());
        assert_eq!(fields(&none), expect);
        let known =
            |value: &Value| value.as_object().unwrap().values().filter(|value| !value.is_null()).count();
        assert_eq!((known(&none), &none["error"]), (1, &json!("why")));
    }
}
