//! JSON objects of results for programs.

use hermod_actors::{
    RunResult,
    model::{
        Amounts, BudgetAccount, Message, MessageContent, ModelRef, Outcome, RunId, RunWait, SessionId,
        SessionRow, Timestamp, ToolCall,
    },
};
use serde_json::{Map, Value, json};

use crate::{
    clock::rfc3339,
    control::{RunDetail, RunNode, RunRowStatus, RunSummary},
};

/// `{run, session, isolation_key, outcome, cause, …of the cause, answer, answer_source, messages, iterations, usage,
/// cost_usd, unpriced, started_at, ended_at}`. The text of a run that did not complete is `partial`.
pub(crate) fn result(result: &RunResult) -> Value {
    let mut object = identified(Some((result.run, result.session)));
    object.insert("isolation_key".into(), result.task.as_deref().into());
    object.insert("outcome".into(), Value::Null);
    object.insert("cause".into(), Value::Null);
    object.extend(fields(&result.ended));
    let completed = result.ended.outcome == Outcome::Completed;
    object.insert("answer".into(), result.text().filter(|_| completed).into());
    object.insert("answer_source".into(), json!(result.answer.as_ref().map(|said| said.source)));
    if let Some(text) = result.text().filter(|_| !completed) {
        object.insert("partial".into(), text.into());
    }
    object.insert("messages".into(), result.messages.iter().map(message).collect());
    object.extend(legs(result.legs));
    object.insert("iterations".into(), result.iterations.into());
    object.insert("usage".into(), json!(result.usage));
    object.extend(cost(result.cost, &result.unpriced));
    object.insert("started_at".into(), time(result.started_at));
    object.insert("ended_at".into(), time(result.ended_at));
    Value::Object(object)
}

/// `{cost_usd, unpriced}`: dollars, `null` if the cost is unknown because of unpriced models.
fn cost(nano_usd: Option<u64>, unpriced: &[ModelRef]) -> Map<String, Value> {
    let fields = [("cost_usd", json!(nano_usd.map(in_dollars))), ("unpriced", json!(unpriced))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Nano-dollars as dollars; exact to the nano-dollar up to four million dollars.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn in_dollars(nano: u64) -> Value {
    json!(nano as f64 / 1e9)
}

/// Converts stored money from nano-dollars to dollars, as everywhere in `--json`. Money is `usd` of limits and
/// accounts, and the numbers of a refusal whose `dimension` is `usd`.
pub(crate) fn with_dollars(mut value: Value) -> Value {
    const AMOUNTS: [&str; 4] = ["limit", "spent", "reserved", "needed"];
    if let Value::Object(object) = &mut value {
        let is_of_usd = object.get("dimension").is_some_and(|dimension| dimension == "usd");
        for (name, field) in object.iter_mut() {
            let is_money = name == "usd" || (is_of_usd && AMOUNTS.contains(&name.as_str()));
            *field = match field.as_u64().filter(|_| is_money) {
                Some(nano) => in_dollars(nano),
                None => with_dollars(field.take()),
            };
        }
    }
    value
}

/// The fields of a journal's record that hold stored amounts.
const WITH_AMOUNTS: [&str; 6] = ["spec", "budget", "reserved", "booked", "refusal", "usd"];

/// A record as `hermod journal` prints it. Texts of vendors and models stay unchanged.
pub(crate) fn record(mut record: Value) -> Value {
    for name in WITH_AMOUNTS {
        if let Some(field) = record.get_mut(name) {
            *field = with_dollars(json!({ name: field.take() }))[name].take();
        }
    }
    record
}

/// The object of `result` for a run without an outcome, or for no run; `error` has the reason.
pub(crate) fn no_result(run: Option<(RunId, SessionId)>, error: &str) -> Value {
    let mut object = identified(run);
    for field in ABSENT {
        object.insert(field.into(), Value::Null);
    }
    object.insert("error".into(), error.into());
    Value::Object(object)
}

/// The fields of a result that are `null` without an outcome.
const ABSENT: [&str; 12] = [
    "isolation_key",
    "outcome",
    "cause",
    "answer",
    "answer_source",
    "messages",
    "iterations",
    "usage",
    "cost_usd",
    "unpriced",
    "started_at",
    "ended_at",
];

/// A message in the form of `chat_completions`, with the reasoning beside the text.
fn message(message: &Message) -> Value {
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    match message {
        Message::System(text) => said("system", text),
        Message::User(content) => with_images(said("user", &content.text_with_note()), content),
        Message::Assistant(answer) => {
            let mut object = said("assistant", &answer.text);
            if !answer.reasoning.is_empty() {
                object["reasoning"] = answer.reasoning.as_str().into();
            }
            if !answer.calls.is_empty() {
                let call = |call: &ToolCall| {
                    let function = json!({ "name": call.name, "arguments": call.arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                };
                object["tool_calls"] = answer.calls.iter().map(call).collect();
            }
            object
        }
        Message::Tool { call, name, content } => {
            let whole = content.text_with_note();
            with_images(
                json!({ "role": "tool", "tool_call_id": call, "name": name, "content": whole }),
                content,
            )
        }
    }
}

/// Adds the images of the content to a message, if it has any.
fn with_images(mut message: Value, content: &MessageContent) -> Value {
    if !content.images.is_empty() {
        message["images"] = json!(content.images);
    }
    message
}

/// `{legs}`, if there is more than one.
fn legs(legs: u32) -> Option<(String, Value)> {
    (legs > 1).then(|| ("legs".to_owned(), legs.into()))
}

fn identified(run: Option<(RunId, SessionId)>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("run".into(), run.map(|(run, _)| run.to_string()).into());
    object.insert("session".into(), run.map(|(_, session)| session.to_string()).into());
    object
}

/// `{id, session, state, outcome, cause, …of the cause, accepted_at, started_at, ended_at, iterations, usage}`.
pub(crate) fn run(row: &RunRowStatus) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), row.id.to_string().into());
    object.insert("session".into(), row.session.to_string().into());
    object.insert("state".into(), row.state().into());
    object.insert("outcome".into(), Value::Null);
    object.insert("cause".into(), Value::Null);
    object.extend(row.ended.as_ref().map(fields).unwrap_or_default());
    object.insert("accepted_at".into(), rfc3339(row.accepted_at).into());
    object.insert("started_at".into(), time(row.started_at));
    object.insert("ended_at".into(), time(row.ended_at));
    object.extend(legs(row.leg));
    object.insert("iterations".into(), row.iterations.into());
    object.insert("usage".into(), json!(row.usage));
    Value::Object(object)
}

/// `{…of the run, input, model, workspace, spent_usd}`, and `unreadable` if a part of the run cannot be read.
pub(crate) fn summary(summary: &RunSummary) -> Value {
    let mut object = as_object(run(&summary.status));
    object.insert("input".into(), summary.input.as_str().into());
    object.insert("model".into(), json!(summary.model));
    object.insert("workspace".into(), summary.workspace.as_deref().into());
    object.insert("spent_usd".into(), json!(summary.spent_usd.map(in_dollars)));
    object.extend(summary.unreadable.as_ref().map(|why| ("unreadable".to_owned(), why.as_str().into())));
    Value::Object(object)
}

/// `{id, key, opened_at}`.
pub(crate) fn session(row: &SessionRow) -> Value {
    json!({ "id": row.id.to_string(), "key": row.key, "opened_at": rfc3339(row.opened_at) })
}

/// The run with its input and its last text: `{…of the run, waits, cost_usd, unpriced, input, said, spec}`.
pub(crate) fn detail(detail: &RunDetail) -> Value {
    let mut object = as_object(run(&detail.row));
    object.insert("waits".into(), detail.waits.iter().map(wait).collect());
    object.extend(cost(detail.cost, &detail.unpriced));
    object.insert("input".into(), detail.input.as_str().into());
    object.insert("said".into(), detail.last_text.as_deref().into());
    object.insert("spec".into(), with_dollars(json!(detail.spec)));
    object.extend(detail.unreadable.as_ref().map(|why| ("unreadable".to_owned(), why.as_str().into())));
    Value::Object(object)
}

/// `{what, …of that, since, until}`; `until` is absent if the wait has no time limit.
fn wait(wait: &RunWait) -> Value {
    let mut object = as_object(json!(wait));
    object.insert("since".into(), rfc3339(wait.since).into());
    object.extend(wait.until.map(|until| ("until".to_owned(), rfc3339(until).into())));
    Value::Object(object)
}

/// The run with its subagents: `{…of the run, parent, input, limits, spent, reserved, waits, children}`; each child
/// has the same form.
pub(crate) fn node(node: &RunNode) -> Value {
    let mut object = as_object(run(&node.run));
    object.insert("parent".into(), json!(node.run.parent));
    object.insert("input".into(), node.input.as_str().into());
    let amounts = |of: fn(&BudgetAccount) -> Amounts| with_dollars(json!(node.account.as_ref().map(of)));
    object.insert("limits".into(), amounts(|account| account.limits));
    object.insert("spent".into(), amounts(|account| account.spent));
    object.insert("reserved".into(), amounts(|account| account.reserved));
    object.insert("waits".into(), node.waits.iter().map(wait).collect());
    object.insert("children".into(), node.children.iter().map(self::node).collect());
    Value::Object(object)
}

fn time(at: Option<Timestamp>) -> Value {
    at.map(rfc3339).into()
}

fn fields(ended: &hermod_actors::model::OutcomeDetail) -> Map<String, Value> {
    as_object(with_dollars(json!(ended)))
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermod_actors::model::{
        AssistantMessage, Failure as CallFailure, FailureClass, OutcomeCause, OutcomeDetail, Usage,
    };
    use hermod_actors::{AnswerSource, FinalText};

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

    fn sample(ended: OutcomeDetail) -> RunResult {
        let completed = ended.outcome == Outcome::Completed;
        let source = if completed { AnswerSource::Final } else { AnswerSource::Partial };
        RunResult {
            run: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            ended,
            task: Some("t".into()),
            answer: Some(FinalText { text: "said".into(), source }),
            messages: messages(),
            legs: 1,
            iterations: 3,
            usage: Usage { input_tokens: 5, output_tokens: 6, ..Usage::default() },
            cost: Some(1_234_500_000),
            unpriced: Vec::new(),
            accepted_at: Timestamp(0),
            started_at: Some(Timestamp(0)),
            ended_at: Some(Timestamp(1)),
        }
    }

    #[test]
    fn a_completed_run_has_an_answer() {
        assert_eq!(
            result(&sample(OutcomeDetail { outcome: Outcome::Completed, cause: None })),
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
        );
    }

    #[test]
    fn another_run_has_a_cause_and_no_answer() {
        let failure = CallFailure::new(FailureClass::Auth, "no");
        let shown =
            result(&sample(OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::provider(failure))));
        assert_eq!((&shown["outcome"], &shown["cause"]), (&json!("failed"), &json!("provider")));
        assert_eq!(shown["failure"], json!({ "class": "auth", "message": "no" }));
        assert_eq!((&shown["answer"], &shown["partial"]), (&Value::Null, &json!("said")));
        assert_eq!(shown["answer_source"], "partial");
    }

    #[test]
    fn a_cost_is_a_number_of_dollars_or_says_what_is_not_known() {
        let check = |nano, expect: &str| assert_eq!(cost(Some(nano), &[])["cost_usd"].to_string(), expect);
        check(0, "0.0");
        check(1, "1e-9");
        check(45_001, "0.000045001");
        check(4_000_000_123_456_789, "4000000.123456789");
        let unknown = cost(None, &["p/a/b".parse().unwrap()]);
        assert_eq!(json!(unknown), json!({ "cost_usd": null, "unpriced": ["p/a/b"] }));
    }

    #[test]
    fn money_is_in_dollars_wherever_it_stands() {
        let check = |stored: Value, expect: Value| assert_eq!(record(stored), expect);
        let amounts = |usd: Value| json!({ "tokens": 5, "usd": usd });
        for name in ["budget", "reserved", "booked"] {
            check(json!({ name: amounts(json!(2_500_000_000_u64)) }), json!({ name: amounts(json!(2.5)) }));
        }
        check(json!({ "usd": 1_000_000_000_u64 }), json!({ "usd": 1.0 }));
        let spec = |usd: Value| json!({ "spec": { "limits": { "budget": amounts(usd) } } });
        check(spec(json!(1)), spec(json!(1e-9)));
        let refusal = |dimension: &str, of: Value| {
            let refusal = json!({ "dimension": dimension, "limit": of, "spent": of, "reserved": of });
            json!({ "refusal": refusal })
        };
        check(refusal("usd", json!(500_000_000)), refusal("usd", json!(0.5)));
        check(refusal("tokens", json!(7)), refusal("tokens", json!(7)));
        let vendors = json!({ "message": { "opaque": { "usd": 5 } } });
        check(vendors.clone(), vendors);
    }

    #[test]
    fn no_run_has_the_same_fields() {
        let of_result = result(&sample(OutcomeDetail { outcome: Outcome::Completed, cause: None }));
        let of_none = no_result(None, "why");
        let fields = |value: &Value| as_object(value.clone()).keys().cloned().collect::<Vec<_>>();
        let mut expect = fields(&of_result);
        expect.push("error".into());
        assert_eq!(fields(&of_none), expect);
    }
}
