//! A run as a response of OpenAI: its id, its status and its one message.

use hermod_actors::{
    RunResult,
    model::{Outcome, OutcomeDetail, RunId, RunRow, RunState, Timestamp, Usage},
};
use serde_json::{Value, json};

use super::chat_answer::seconds;

const PREFIX: &str = "resp_";
/// Ends the id of a response that is not kept. A later request that names it finds nothing, also after a restart.
const UNSTORED: &str = "_unstored";

/// The run that a response's id names; `None` if there can be none.
pub(super) fn run_of_id(id: &str) -> Option<RunId> {
    id.strip_prefix(PREFIX)?.parse().ok()
}

/// True for the id of a response that was not stored.
pub(super) fn is_unstored(id: &str) -> bool {
    id.ends_with(UNSTORED)
}

/// What a response has of its request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RequestFacts {
    pub(super) agent: String,
    pub(super) instructions: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) metadata: Option<Value>,
    pub(super) is_stored: bool,
    pub(super) is_background: bool,
}

/// A response of a run, before or after its end.
#[derive(Debug, Clone)]
pub(super) struct ResponseView {
    run: RunId,
    created: i64,
    request: RequestFacts,
}

/// The state of a response, as OpenAI names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseState {
    name: &'static str,
    error: Option<(&'static str, String)>,
    incomplete: Option<&'static str>,
}

impl ResponseState {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, error: None, incomplete: None }
    }

    /// The status of a run that goes on.
    pub(super) fn of_row(row: &RunRow) -> Self {
        match row.state {
            RunState::Queued => Self::new("queued"),
            RunState::Running | RunState::Parked | RunState::Ended => Self::new("in_progress"),
        }
    }

    /// The status of an outcome. A response is incomplete if the run can have an answer with more of something.
    fn of_outcome(ended: &OutcomeDetail) -> Self {
        let failed = |code| Self { error: Some((code, ended.to_string())), ..Self::new("failed") };
        let incomplete = |reason| Self { incomplete: Some(reason), ..Self::new("incomplete") };
        match ended.outcome {
            Outcome::Completed => Self::new("completed"),
            Outcome::Stopped => Self::new("cancelled"),
            Outcome::Refused => incomplete("content_filter"),
            Outcome::TimedOut | Outcome::BudgetExhausted => incomplete(ended.outcome.name()),
            Outcome::LoopDetected => failed(ended.outcome.name()),
            Outcome::Failed => failed("server_error"),
        }
    }

    /// The event of a stream that ends with this status.
    pub(super) fn last_event(&self) -> &'static str {
        match self.name {
            "completed" => "response.completed",
            "incomplete" => "response.incomplete",
            _ => "response.failed",
        }
    }
}

impl ResponseView {
    pub(super) const fn new(run: RunId, created: Timestamp, request: RequestFacts) -> Self {
        Self { run, created: seconds(created), request }
    }

    /// The id of the only item of the output.
    pub(super) fn message_id(&self) -> String {
        format!("msg_{}", self.run)
    }

    /// The response of a run that goes on.
    pub(super) fn unfinished(&self, status: &ResponseState) -> Value {
        self.object(status, Vec::new(), Value::Null)
    }

    /// The response of a run that has ended, its status and the text of its message.
    pub(super) fn ended<'a>(&self, result: &'a RunResult) -> (Value, ResponseState, Option<&'a str>) {
        let status = ResponseState::of_outcome(&result.ended);
        let text = result.text();
        let output = text.map(|text| self.message(text, &status)).into_iter().collect();
        (self.object(&status, output, usage(&result.usage)), status, text)
    }

    /// The item of the output.
    pub(super) fn message(&self, text: &str, status: &ResponseState) -> Value {
        let status = if status.name == "completed" { "completed" } else { "incomplete" };
        json!({
            "id": self.message_id(), "type": "message", "status": status, "role": "assistant",
            "content": [text_part(text)],
        })
    }

    fn object(&self, status: &ResponseState, output: Vec<Value>, usage: Value) -> Value {
        let request = &self.request;
        let suffix = if request.is_stored { "" } else { UNSTORED };
        let error = status.error.as_ref().map(|(code, message)| json!({ "code": code, "message": message }));
        json!({
            "id": format!("{PREFIX}{}{suffix}", self.run), "object": "response", "created_at": self.created,
            "status": status.name, "background": request.is_background, "error": error,
            "incomplete_details": status.incomplete.map(|reason| json!({ "reason": reason })),
            "instructions": request.instructions, "max_output_tokens": null, "model": request.agent,
            "output": output, "parallel_tool_calls": true, "previous_response_id": request.previous,
            "reasoning": { "effort": null, "summary": null }, "store": request.is_stored, "temperature": null,
            "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [], "top_p": null,
            "truncation": "disabled", "usage": usage, "user": null,
            "metadata": request.metadata.clone().unwrap_or_else(|| json!({})),
        })
    }
}

/// The content of the message.
pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn usage(usage: &Usage) -> Value {
    let (read, written) = (usage.input_total(), usage.output_total());
    json!({
        "input_tokens": read, "input_tokens_details": { "cached_tokens": usage.cached_tokens },
        "output_tokens": written, "output_tokens_details": { "reasoning_tokens": usage.unlisted_reasoning_tokens },
        "total_tokens": read.saturating_add(written),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::service::openai::chat_answer::tests::result;

    pub(in crate::service::openai) fn view(is_stored: bool) -> ResponseView {
        let request = RequestFacts { agent: "default".into(), is_stored, ..RequestFacts::default() };
        ResponseView::new(RunId::from_bits(1), Timestamp(2_000), request)
    }

    #[test]
    fn an_id_names_a_run_that_is_stored() {
        let check = |id: &str, expect: Option<u128>| {
            assert_eq!(run_of_id(id), expect.map(RunId::from_bits), "{id}");
        };
        let id = |is_stored: bool| {
            let object = view(is_stored).unfinished(&ResponseState::new("queued"));
            object["id"].as_str().unwrap().to_owned()
        };
        check(&id(true), Some(1));
        check(&id(false), None);
        assert!(is_unstored(&id(false)) && !is_unstored(&id(true)));
        check("00000000000000000000000001", None);
        check("resp_", None);
    }

    #[test]
    fn each_outcome_is_a_status() {
        let check =
            |outcome: Outcome, status: &str, reason: Option<&str>, code: Option<&str>, event: &str| {
                let result = result(outcome, "part");
                let (object, found, _) = view(true).ended(&result);
                assert_eq!(object["status"], status);
                assert_eq!(object["incomplete_details"]["reason"].as_str(), reason);
                assert_eq!(object["error"]["code"].as_str(), code);
                assert_eq!(found.last_event(), event);
            };
        check(Outcome::Completed, "completed", None, None, "response.completed");
        check(Outcome::Stopped, "cancelled", None, None, "response.failed");
        check(Outcome::Refused, "incomplete", Some("content_filter"), None, "response.incomplete");
        check(Outcome::TimedOut, "incomplete", Some("timed_out"), None, "response.incomplete");
        check(Outcome::BudgetExhausted, "incomplete", Some("budget_exhausted"), None, "response.incomplete");
        check(Outcome::LoopDetected, "failed", None, Some("loop_detected"), "response.failed");
        check(Outcome::Failed, "failed", None, Some("server_error"), "response.failed");
    }

    #[test]
    fn the_text_is_the_only_message() {
        let result = result(Outcome::Completed, "hi");
        let (object, ..) = view(true).ended(&result);
        let expect = json!([{
            "id": "msg_00000000000000000000000001", "type": "message", "status": "completed", "role": "assistant",
            "content": [{ "type": "output_text", "text": "hi", "annotations": [], "logprobs": [] }],
        }]);
        assert_eq!(object["output"], expect);
        assert_eq!(object["usage"]["total_tokens"], 14);
        assert_eq!(object["usage"]["input_tokens_details"]["cached_tokens"], 3);
    }
}
