//! The planned answers of the simulated models, and the planned faults in their place.

use serde_json::{Value, json};

use super::{
    context_pressure, loops,
    plan::{ModelFault, PlannedStep, RunPlan, SimulationPlan},
    todo,
};
use hermod_actors::{
    DELEGATE_TASK,
    model::{
        AssistantMessage, Dimension, Failure, FailureClass, FinishReason, ModelAnswer, RequestFate, ToolCall,
        Usage,
    },
};

/// Input tokens that each answer reports; fewer than any request is estimated at.
const INPUT_TOKENS: u64 = 2;
/// More tokens than any call of a plan can have; reported usage of this size is not believed.
pub(super) const IMPOSSIBLE_TOKENS: u64 = 1_000_000_000_000;
/// Words in the answer of a model that does not stop.
const LONG_ANSWER_WORDS: usize = 4_000;

/// The run of the plan that a view belongs to, and the number of steps it has made: one more than the last step shown,
/// because earlier steps may have been left out.
pub(super) fn position(messages: &[Value]) -> (Option<usize>, usize) {
    let text = |message: &Value| message["text"].as_str().unwrap_or_default().to_owned();
    let is_task = |message: &&Value| {
        message["role"] == "user"
            && (text(message).starts_with("run-") || text(message).starts_with("steer-"))
    };
    let Some(begin) = messages.iter().rposition(|message| is_task(&message)) else { return (None, 0) };
    let task = text(&messages[begin]);
    let digits = |task: &str| task.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let run = task.strip_prefix("run-").and_then(digits);
    let made = |message: &Value| step_of(message["calls"].get(0)?["id"].as_str()?);
    (run, messages[begin..].iter().rev().find_map(made).map_or(0, |last| last + 1))
}

/// The vendor's id of a call: the run of the plan, its step, and the call within the step.
pub(super) fn call_id((run, at): (usize, usize), call: &str) -> String {
    format!("{run}_{at}_{call}")
}

/// Reads the step out of an id made by `call_id`.
fn step_of(id: &str) -> Option<usize> {
    id.split('_').nth(1)?.parse().ok()
}

/// The result of one attempt at a step of a run; `None` if the attempt never ends or panics.
pub(super) fn planned_answer(
    (plan, run): (&SimulationPlan, Option<&RunPlan>),
    (at, step, mishap): (usize, &PlannedStep, Option<ModelFault>),
    max_tokens: u64,
) -> Option<Result<ModelAnswer, Failure>> {
    let whole = || {
        let name = run.map_or_else(|| "a message".to_owned(), |run| format!("run {}", run.n));
        let calls = run.map_or_else(Vec::new, |run| match loops::is_loop(run, at) {
            true => vec![loops::call(run, at)],
            false => calls((plan, run.n), at, step),
        });
        match calls.is_empty() {
            true => text_answer(&format!("{name} is done"), max_tokens),
            false => call_answer(calls, max_tokens),
        }
    };
    answer_or_fault(mishap, (run.map_or(0, |run| run.n), at), max_tokens, whole)
}

/// The result of one attempt whose answer without a fault is `whole`; `None` if the attempt never ends or panics.
pub(super) fn answer_or_fault(
    mishap: Option<ModelFault>,
    position: (usize, usize),
    max_tokens: u64,
    whole: impl FnOnce() -> ModelAnswer,
) -> Option<Result<ModelAnswer, Failure>> {
    let fails = |class| Some(Err(Failure::new(class, "planned")));
    let plain = |text: &str| text_answer(text, max_tokens);
    let odd = |name: &str, arguments: &str| {
        let call = ToolCall { id: call_id(position, "odd"), name: name.into(), arguments: arguments.into() };
        call_answer(vec![call], max_tokens)
    };
    let answer = match mishap {
        Some(ModelFault::RateLimited(retry_after_ms)) => {
            return fails(FailureClass::RateLimited { retry_after_ms, reset_at: None });
        }
        Some(ModelFault::Overloaded) => return fails(FailureClass::Overloaded),
        Some(ModelFault::Server) => return fails(FailureClass::Server),
        Some(ModelFault::Network) => return fails(FailureClass::Network),
        Some(ModelFault::NotConnected) => {
            let failure = Failure::new(FailureClass::Network, "planned");
            return Some(Err(failure.with_request(RequestFate::NotSent)));
        }
        Some(ModelFault::FailedWithUsage(output_tokens)) => {
            let usage = Usage { input_tokens: INPUT_TOKENS, output_tokens, ..Usage::default() };
            return Some(Err(Failure::new(FailureClass::Server, "planned").with_usage(Some(usage))));
        }
        Some(ModelFault::IncompleteStream) => return fails(FailureClass::IncompleteStream),
        Some(ModelFault::Auth) => return fails(FailureClass::Auth),
        Some(ModelFault::Hang | ModelFault::Panic) => return None,
        Some(ModelFault::Empty) => plain(""),
        Some(ModelFault::ReasoningOnly) => {
            let mut answer = plain("");
            answer.message.reasoning = "hm".into();
            answer
        }
        Some(ModelFault::Truncated) => ModelAnswer { finish: FinishReason::Length, ..plain("a part ") },
        Some(ModelFault::TruncatedCalls) => {
            ModelAnswer { finish: FinishReason::Length, ..odd("look", "{\"of\":") }
        }
        Some(ModelFault::UnknownTool) => odd("abracadabra", "{}"),
        Some(ModelFault::Malformed) => odd("look", "no json"),
        Some(ModelFault::Refused) => ModelAnswer { finish: FinishReason::Refused, ..plain("no") },
        Some(ModelFault::TooLong) => plain(&"blah ".repeat(LONG_ANSWER_WORDS)),
        Some(ModelFault::NoUsage) => ModelAnswer { usage: None, ..whole() },
        Some(ModelFault::WrongUsage) => {
            let usage =
                Usage { input_tokens: INPUT_TOKENS, cached_tokens: IMPOSSIBLE_TOKENS, ..Usage::default() };
            let usage = Usage { output_tokens: IMPOSSIBLE_TOKENS, ..usage };
            ModelAnswer { usage: Some(usage), ..whole() }
        }
        None => whole(),
    };
    Some(Ok(answer))
}

/// An answer with this text and no tool calls.
pub(super) fn text_answer(text: &str, max_tokens: u64) -> ModelAnswer {
    let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
    let usage = Usage { input_tokens: INPUT_TOKENS, output_tokens: max_tokens.min(40), ..Usage::default() };
    ModelAnswer { message, finish: FinishReason::Stop, usage: Some(usage) }
}

/// An answer with these tool calls.
fn call_answer(calls: Vec<ToolCall>, max_tokens: u64) -> ModelAnswer {
    let message = AssistantMessage { calls, ..AssistantMessage::default() };
    ModelAnswer { message, finish: FinishReason::ToolCalls, ..text_answer("", max_tokens) }
}

fn calls((plan, run): (&SimulationPlan, usize), at: usize, step: &PlannedStep) -> Vec<ToolCall> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for (n, call) in step.calls.iter().enumerate() {
        let id = call_id((run, at), &format!("c{n}"));
        let twin = calls.last().filter(|_| call.is_twin).cloned();
        calls.push(if let Some(twin) = twin {
            ToolCall { id, ..twin }
        } else {
            let of = format!("{run}.{at}.{n}");
            let mut arguments = json!({"of": of, "ms": call.ms, "does": call.behaviour});
            if plan.context_pressure.is_some() {
                arguments["pad"] = context_pressure::padding(run + at + n).into();
            }
            ToolCall { id, name: call.tool.name().into(), arguments: arguments.to_string() }
        });
    }
    for (n, give) in step.delegations.iter().enumerate() {
        let tasks: Vec<Value> =
            give.tasks.iter().filter_map(|task| Some(task_of(plan.run(*task)?))).collect();
        let mut arguments = match &tasks[..] {
            [task] => task.clone(),
            tasks => json!({"tasks": tasks}),
        };
        arguments["background"] = give.background.into();
        let (id, name) = (call_id((run, at), &format!("g{n}")), DELEGATE_TASK.into());
        calls.push(ToolCall { id, name, arguments: arguments.to_string() });
    }
    calls.extend(todo::call((run, at)).filter(|_| !calls.is_empty()));
    calls
}

/// The arguments with which a model delegates a task. The goal names the task by its number, like a run's.
fn task_of(task: &RunPlan) -> Value {
    let mut budget = json!({});
    for dimension in Dimension::ALL {
        if let Some(amount) = task.limits.budget.get(dimension) {
            budget[dimension.name()] = amount.into();
        }
    }
    if let Some(ms) = task.limits.wall_ms {
        budget["wall_s"] = ms.div_ceil(1_000).into();
    }
    json!({"goal": format!("run-{}", task.n), "budget": budget})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_tells_its_place_whatever_was_left_out_of_it() {
        let user = |text: &str| json!({"role": "user", "text": text});
        let calls = |id: &str| json!({"role": "assistant", "calls": [{"id": id}, {"id": "x"}]});
        let result = json!({"role": "tool", "content": "done"});
        let ended = json!({"role": "assistant", "text": "it is done", "calls": []});
        for (view, expected) in [
            (vec![user("run-3")], (Some(3), 0)),
            (
                vec![user("run-3"), calls("3_0_c0"), result.clone(), calls("3_1_odd"), result.clone()],
                (Some(3), 2),
            ),
            (vec![user("run-3\n\n[left out]"), calls("3_4_c0"), result.clone()], (Some(3), 5)),
            (vec![user("run-3"), calls("3_4_c0"), result, ended, user("run-12")], (Some(12), 0)),
            (vec![user("steer-1.")], (None, 0)),
            (vec![user("something else")], (None, 0)),
        ] {
            assert_eq!(position(&view), expected, "{view:?}");
        }
    }
}
