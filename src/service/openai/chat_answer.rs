//! The answer of `POST /v1/chat/completions`: one object, or chunks.

use axum::response::sse::Event;
use hermod_actors::{
    AcceptedRun, RunResult,
    model::{Outcome, RunId, Timestamp, Usage},
};
use serde_json::{Value, json};

use super::{error::ApiError, stream::pieces};

/// The data after the last chunk.
const DONE: &str = "[DONE]";

/// What is the same in an answer and in each of its chunks.
#[derive(Debug, Clone)]
pub(super) struct AnswerHead {
    run: RunId,
    created: i64,
    agent: String,
}

impl AnswerHead {
    pub(super) fn new(accepted: &AcceptedRun, agent: &str) -> Self {
        Self { run: accepted.run, created: seconds(accepted.at), agent: agent.to_owned() }
    }

    /// The answer of a run as one object.
    pub(super) fn object(&self, result: &RunResult) -> Result<Value, ApiError> {
        let (text, reason) = answer(result)?;
        let message = json!({ "role": "assistant", "content": text, "refusal": null });
        let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason });
        let mut object = self.with("chat.completion", json!([choice]));
        object["usage"] = usage(&result.usage);
        Ok(object)
    }

    /// The first chunk, which is sent before there is a text.
    pub(super) fn first_chunk(&self, has_usage: bool) -> Event {
        let delta = json!({ "role": "assistant", "content": "", "refusal": null });
        event(&self.chunk(delta, None, has_usage))
    }

    /// The chunks of a run that has ended, or an error.
    pub(super) fn chunks(&self, result: Result<RunResult, ApiError>, has_usage: bool) -> Vec<Event> {
        let answered = result.and_then(|result| {
            let (text, reason) = answer(&result)?;
            let deltas = pieces(text).map(|piece| self.chunk(json!({ "content": piece }), None, has_usage));
            let mut chunks: Vec<Value> = deltas.collect();
            chunks.push(self.chunk(json!({}), Some(reason), has_usage));
            if has_usage {
                let mut last = self.with("chat.completion.chunk", json!([]));
                last["usage"] = usage(&result.usage);
                chunks.push(last);
            }
            Ok(chunks)
        });
        match answered {
            Ok(chunks) => chunks.iter().map(event).chain([Event::default().data(DONE)]).collect(),
            Err(error) => vec![event(&error.body())],
        }
    }

    fn chunk(&self, delta: Value, reason: Option<&str>, has_usage: bool) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        let mut chunk = self.with("chat.completion.chunk", json!([choice]));
        if has_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn with(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.run), "object": object, "created": self.created, "model": self.agent,
            "choices": choices, "system_fingerprint": null,
        })
    }
}

fn event(value: &Value) -> Event {
    Event::default().data(value.to_string())
}

/// The text of the run, and why it ends there.
fn answer(result: &RunResult) -> Result<(&str, &'static str), ApiError> {
    let text = result.text().unwrap_or_default();
    match result.ended.outcome {
        Outcome::Completed => Ok((text, "stop")),
        Outcome::Refused => Ok((text, "content_filter")),
        Outcome::Failed
        | Outcome::Stopped
        | Outcome::TimedOut
        | Outcome::BudgetExhausted
        | Outcome::LoopDetected => Err(ApiError::no_answer(result)),
    }
}

/// Unix time in whole seconds.
pub(super) const fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

fn usage(usage: &Usage) -> Value {
    let (read, written) = (usage.input_total(), usage.output_total());
    json!({
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read.saturating_add(written),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use hermod_actors::{
        AnswerSource, FinalText,
        model::{OutcomeCause, OutcomeDetail, SessionId, StopReason},
    };

    use super::*;

    pub(in crate::service::openai) fn result(outcome: Outcome, text: &str) -> RunResult {
        let cause = OutcomeCause::Stop { reason: StopReason::Command };
        RunResult {
            run: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            task: None,
            ended: OutcomeDetail { outcome, cause: (outcome == Outcome::Stopped).then_some(cause) },
            answer: Some(FinalText { text: text.into(), source: AnswerSource::Final }),
            silent: false,
            messages: Vec::new(),
            legs: 1,
            iterations: 1,
            usage: Usage { input_tokens: 10, output_tokens: 4, cached_tokens: 3, ..Usage::default() },
            cost: None,
            unpriced: Vec::new(),
            accepted_at: Timestamp(1_500),
            started_at: None,
            ended_at: None,
        }
    }

    fn head() -> AnswerHead {
        let accepted =
            AcceptedRun { run: RunId::from_bits(1), session: SessionId::from_bits(2), at: Timestamp(1_500) };
        AnswerHead::new(&accepted, "default")
    }

    #[test]
    fn an_answer_is_an_object_of_openai() {
        let expect = json!({
            "id": "chatcmpl-00000000000000000000000001", "object": "chat.completion", "created": 1, "model": "default",
            "choices": [{
                "index": 0, "message": { "role": "assistant", "content": "hi", "refusal": null },
                "logprobs": null, "finish_reason": "stop",
            }],
            "system_fingerprint": null,
            "usage": {
                "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
                "prompt_tokens_details": { "cached_tokens": 3 },
            },
        });
        assert_eq!(head().object(&result(Outcome::Completed, "hi")), Ok(expect));
    }

    #[test]
    fn an_outcome_is_a_finish_reason_or_an_error() {
        let check = |outcome: Outcome, expect: Result<&str, &str>| {
            let object = head().object(&result(outcome, "part"));
            let shown = object.as_ref().map(|object| object["choices"][0]["finish_reason"].as_str().unwrap());
            assert_eq!(shown.map_err(ApiError::code), expect);
        };
        check(Outcome::Completed, Ok("stop"));
        check(Outcome::Refused, Ok("content_filter"));
        check(Outcome::Failed, Err("failed"));
        check(Outcome::Stopped, Err("stopped"));
        check(Outcome::TimedOut, Err("timed_out"));
        check(Outcome::BudgetExhausted, Err("budget_exhausted"));
        check(Outcome::LoopDetected, Err("loop_detected"));
    }

    #[test]
    fn a_stream_ends_with_the_reason_the_usage_and_a_mark() {
        let check = |result: Result<RunResult, ApiError>, has_usage: bool, events: usize| {
            assert_eq!(head().chunks(result, has_usage).len(), events);
        };
        let long = "x".repeat(201);
        check(Ok(result(Outcome::Completed, &long)), false, 4);
        check(Ok(result(Outcome::Completed, &long)), true, 5);
        check(Ok(result(Outcome::Failed, &long)), true, 1);
        check(Err(ApiError::stopping(RunId::from_bits(1))), true, 1);
    }
}
