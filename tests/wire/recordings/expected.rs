//! What the SDKs say of a recorded exchange, in our words. Each wire format has its own keys.

use std::time::Duration;

use serde_json::{Value, json};

use super::facts::{Facts, call, facts as facts_of};

/// Codes of errors under status 200 behind which the same request may do better.
const TRANSIENT: [&str; 4] = ["server_error", "overloaded_error", "rate_limit_exceeded", "unknown-error"];

/// What is expected of an exchange; `answer` reads that of a whole message.
pub(crate) fn facts(sdk: &Value, answer: fn(&Value) -> Facts) -> Facts {
    if sdk["truncated"] == true {
        return failure(true);
    }
    match sdk["outcome"].as_str().unwrap() {
        "message" => answer(sdk),
        "http_error" => {
            let mut facts = failure(sdk["sdk_would_retry"] == true);
            let after = sdk["sdk_retry_after_seconds"].as_f64().map(Duration::from_secs_f64);
            facts.extend(after.map(|after| {
                ("retry_after_ms".to_owned(), json!(u64::try_from(after.as_millis()).unwrap()))
            }));
            facts
        }
        "stream_error" | "failed" => failure(TRANSIENT.contains(&error_code(sdk))),
        "truncated_stream" => failure(true),
        "empty_stream" | "no_choices" | "sdk_error" => failure(false),
        other => panic!("unknown outcome {other}"),
    }
}

fn failure(retry: bool) -> Facts {
    facts_of([("outcome", json!("failure")), ("retry", json!(retry))])
}

/// The vendor's word for an error under status 200.
fn error_code(sdk: &Value) -> &str {
    let places = ["/stream_error/code", "/stream_error/type", "/error/code", "/type"];
    places.iter().find_map(|place| sdk.pointer(place)?.as_str()).unwrap_or_default()
}

/// `chat_completions`.
pub(crate) fn chat_completion(sdk: &Value) -> Facts {
    let mut answer = sdk.clone();
    let preferred = if sdk["preferred"] == "cross_check" {
        Some(&sdk["cross_check"])
    } else {
        // Where the accumulator of the SDK is known to be wrong.
        sdk.get("chunk_concatenation")
    };
    for (field, value) in preferred.and_then(Value::as_object).into_iter().flatten() {
        answer[field] = value.clone();
    }
    let mut calls: Vec<Value> =
        calls(&answer, |sdk| call(text(&sdk["id"]), text(&sdk["name"]), json!(text(&sdk["arguments"]))));
    let function = &answer["function_call"];
    if !text(&function["name"]).is_empty() {
        calls.push(call("call_0", text(&function["name"]), json!(text(&function["arguments"]))));
    }
    let refusal = text(&answer["refusal"]);
    let stop = match text(&answer["finish_reason"]) {
        _ if !refusal.is_empty() => Stop::Refused,
        "length" => Stop::Length,
        "content_filter" => Stop::Refused,
        _ => Stop::Other,
    };
    let said = Some(text(&answer["text"])).filter(|said| !said.is_empty()).unwrap_or(refusal);
    let written = answer.pointer("/usage/prompt_tokens_details/cache_write_tokens").and_then(Value::as_u64);
    answer_of(said, text(&answer["reasoning"]), calls, (stop, openai_usage(&answer, written)))
}

/// `codex_responses`. Refused parts stand in no other field.
pub(crate) fn response(sdk: &Value) -> Facts {
    let calls = calls(sdk, |sdk| {
        // A tool without a schema has a text in place of the arguments.
        let arguments = sdk.get("custom_input").unwrap_or(&sdk["arguments"]);
        call(text(&sdk["call_id"]), text(&sdk["name"]), json!(text(arguments)))
    });
    let refusal = text(&sdk["refusal"]);
    let stop = match sdk.pointer("/incomplete_details/reason").map(text) {
        _ if !refusal.is_empty() => Stop::Refused,
        Some("max_output_tokens") => Stop::Length,
        Some("content_filter") => Stop::Refused,
        _ => Stop::Other,
    };
    let said = Some(text(&sdk["text"])).filter(|said| !said.is_empty()).unwrap_or(refusal);
    let thought = [texts(&sdk["reasoning_summaries"]), texts(&sdk["reasoning_texts"])].concat().join("\n\n");
    let written = sdk.pointer("/usage/input_tokens_details/cache_write_tokens").and_then(Value::as_u64);
    answer_of(said, &thought, calls, (stop, openai_usage(sdk, written)))
}

/// `anthropic_messages`: the vendor's number of input tokens counts neither those read from the cache nor those written
/// to it, ours counts all.
pub(crate) fn anthropic_message(sdk: &Value) -> Facts {
    let calls = calls(sdk, |sdk| call(text(&sdk["id"]), text(&sdk["name"]), sdk["input"].clone()));
    let stop = match text(&sdk["stop_reason"]) {
        // A paused answer is to be gone on with, as one that is cut off at the limit.
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Stop::Length,
        "refusal" => Stop::Refused,
        _ => Stop::Other,
    };
    let usage = &sdk["usage_normalised"];
    let count = |field: &str| usage[field].as_u64().unwrap_or(0);
    let (cached, written) = (count("cache_read_tokens"), count("cache_write_tokens"));
    let usage = (!usage.is_null()).then(|| {
        json!({
            "input": count("input_tokens") + cached + written, "output": count("output_tokens"),
            "cached": cached, "written": written,
        })
    });
    answer_of(text(&sdk["text"]), &texts(&sdk["thinking"]).join("\n\n"), calls, (stop, json!(usage)))
}

/// Why the model stopped, as far as the vendors tell it in one way.
enum Stop {
    Length,
    Refused,
    Other,
}

fn answer_of(said: &str, thought: &str, calls: Vec<Value>, (stop, usage): (Stop, Value)) -> Facts {
    let finish = match stop {
        Stop::Length => "length",
        Stop::Refused => "refused",
        Stop::Other if calls.is_empty() => "stop",
        Stop::Other => "tool_calls",
    };
    facts_of([
        ("outcome", json!("answer")),
        ("text", json!(said)),
        ("reasoning", json!(thought)),
        ("calls", json!(calls)),
        ("finish", json!(finish)),
        ("usage", usage),
    ])
}

/// OpenAI's number of input tokens counts the cached ones.
fn openai_usage(sdk: &Value, written: Option<u64>) -> Value {
    let usage = &sdk["usage_normalised"];
    let count = |field: &str| usage[field].as_u64().unwrap_or(0);
    let usage = (!usage.is_null()).then(|| {
        json!({
            "input": count("input_tokens"), "output": count("output_tokens"),
            "cached": count("cached_tokens"), "written": written.unwrap_or(0),
        })
    });
    json!(usage)
}

fn calls(sdk: &Value, each: impl Fn(&Value) -> Value) -> Vec<Value> {
    sdk["tool_calls"].as_array().into_iter().flatten().map(each).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(text).filter(|text| !text.is_empty()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
