//! Computes the scripted answer to a conversation, with its usage and the ids of its calls. Pure: depends only on the
//! script and the conversation.

use std::fmt::Write;

use hermod_actors::{
    model::{AssistantMessage, FinishReason, ModelAnswer, ToolCall, Usage},
    shaping::is_silent_reply,
};

use super::{
    AnswerPace, CLOSING, CacheUsage, Conversation, PREFIX, Script, ScriptTurn, ThinkingMode,
    script::{FaultRule, ScriptStep},
};

/// The scripted answer to one request.
#[derive(Debug, Clone)]
pub struct ScriptedAnswer<'s> {
    /// The number of the step, counted from 1.
    pub step: u64,
    /// The answer, with its usage.
    pub answer: ModelAnswer,
    /// True if the script sets the tokens read from a cache or written to it.
    pub has_cache_usage: bool,
    /// The speed of the answer.
    pub pace: AnswerPace,
    /// The fault that the first attempts meet.
    pub fault: Option<&'s FaultRule>,
}

impl ScriptedAnswer<'_> {
    /// Adds the cache usage, limited by the input tokens.
    pub fn set_cache_usage(&mut self, cached: CacheUsage) {
        let Some(usage) = &mut self.answer.usage else { return };
        usage.cached_tokens = cached.read.min(usage.input_tokens);
        usage.cache_write_tokens = cached.written.min(usage.input_tokens - usage.cached_tokens);
    }
}

/// The answer to a conversation. Depends on nothing else.
pub fn next_answer<'s>(script: &'s Script, conversation: &Conversation<'_>) -> ScriptedAnswer<'s> {
    let turn = conversation.current_turn(|user| script.is_nudge(&user.text()));
    let number = turn.map_or(1, |turn| turn.step());
    let step =
        turn.and_then(|turn| script.steps_for(&turn.user.text())).and_then(|steps| steps.step_at(number));
    let message = match (turn, step) {
        (Some(turn), Some(step)) => render_step(step, number, &turn, conversation),
        (None | Some(_), _) => AssistantMessage {
            text: format!("{PREFIX}{CLOSING}"),
            reasoning: reasoning_for(None, number, conversation.thinking),
            ..AssistantMessage::default()
        },
    };
    let default_finish = if message.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let scripted = step.map(|step| step.usage).unwrap_or_default();
    // Four bytes count as one token.
    let usage = Usage {
        input_tokens: scripted.input_tokens.unwrap_or((conversation.bytes / 4) as u64),
        output_tokens: scripted.output_tokens.unwrap_or((output_bytes(&message) / 4) as u64),
        cached_tokens: scripted.cached_tokens.unwrap_or(0),
        cache_write_tokens: scripted.cache_write_tokens.unwrap_or(0),
        ..Usage::default()
    };
    let finish = step.and_then(|step| step.finish).unwrap_or(default_finish);
    ScriptedAnswer {
        step: number,
        answer: ModelAnswer { message, finish, usage: Some(usage) },
        has_cache_usage: scripted.cached_tokens.or(scripted.cache_write_tokens).is_some(),
        pace: step.map(|step| step.pace).unwrap_or_default(),
        fault: step.and_then(|step| step.fault.as_ref()),
    }
}

/// The id of call `n` of step `step`, both counted from 1.
pub fn call_id(step: u64, n: u64) -> String {
    format!("rh_{step}_{n}")
}

/// The step in a call id; `None` if the id is not of this form.
pub(super) fn step_of(id: &str) -> Option<u64> {
    // Clients that need unique ids append a suffix.
    let mut parts = id.strip_prefix("rh_")?.split('_');
    let step = parts.next()?;
    parts.next()?.parse::<u64>().ok()?;
    step.parse().ok()
}

fn render_step(
    step: &ScriptStep,
    number: u64,
    turn: &ScriptTurn<'_, '_>,
    conversation: &Conversation<'_>,
) -> AssistantMessage {
    let content = &step.content;
    let mut text = content.say.as_ref().map(|say| say.render(turn)).unwrap_or_default();
    let mut calls = Vec::with_capacity(content.calls.len());
    for (n, (tool, arguments)) in (1..).zip(&content.calls) {
        if conversation.offers_tools {
            let (id, arguments) = (call_id(number, n), arguments.render(turn));
            calls.push(ToolCall { id, name: tool.clone(), arguments });
        } else {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _infallible =
                write!(text, "{gap}(rehearsal) step {number} would call {tool}, but no tools are offered");
        }
    }
    // A scripted empty answer stays empty, to test its handling; and `NO_REPLY` is no text.
    if calls.is_empty() && !text.is_empty() && !is_silent_reply(&text) {
        text.insert_str(0, PREFIX);
    }
    let scripted = content.think.as_ref().map(|think| think.render(turn));
    let reasoning = reasoning_for(scripted, number, conversation.thinking);
    AssistantMessage { text, reasoning, calls, opaque: None }
}

fn reasoning_for(scripted: Option<String>, step: u64, thinking: ThinkingMode) -> String {
    match (thinking, scripted) {
        (ThinkingMode::Off, _) | (ThinkingMode::Scripted, None) => String::new(),
        (ThinkingMode::Scripted | ThinkingMode::Always, Some(thought)) => thought,
        (ThinkingMode::Always, None) => format!("(rehearsal) this is step {step}"),
    }
}

fn output_bytes(message: &AssistantMessage) -> usize {
    let calls = message.calls.iter().map(|call| call.name.len() + call.arguments.len());
    message.text.len() + message.reasoning.len() + calls.sum::<usize>()
}
