//! `hermod wire decode`: decodes a stored response of a provider, and prints the result as JSON.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use clap::Args;
use hermod_actors::{
    model::{AnswerOrigin, Failure as CallFailure, FailureClass, ModelAnswer, Timestamp, ToolCall, Usage},
    port::DeltaSink,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::{
    FormatArgs, file_error, read,
    response_shape::{BodyKind, ErrorField, ResponseShape, contradiction},
};
use crate::{
    cli::{CliError, print_json, print_note},
    clock::rfc3339,
    host::Identifier,
    provider::{Dialect, WireFormat, failure::failure_of},
};

/// Wire formats in which the vendor's `input_tokens` exclude those read from the cache and those written to it.
/// Decoding adds them, so the output subtracts them again.
const WITHOUT_CACHED: &[&str] = &["anthropic_messages"];

/// Print what a response says, as JSON
#[derive(Debug, Args)]
pub(super) struct DecodeArgs {
    #[command(flatten)]
    format: FormatArgs,
    /// Its status
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=999))]
    status: u16,
    /// Its headers, as a JSON object of texts
    #[arg(long, value_name = "FILE.json")]
    headers: Option<PathBuf>,
    /// The provider that is named as the maker of opaque state
    #[arg(long, value_name = "NAME", default_value = "wire", requires = "model")]
    provider: Identifier,
    /// The model that is named as the maker of opaque state; without it such state is not printed
    #[arg(long, value_name = "NAME")]
    model: Option<Identifier>,
    /// Its body, as it came; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
}

/// Decodes the response and prints it.
pub(super) fn execute(args: &DecodeArgs) -> Result<(), CliError> {
    let wire = args.format.wire(&Dialect::default());
    let headers = args.headers.as_deref().map(headers).transpose()?.unwrap_or_default();
    let body = read(&args.file)?;
    let origin = Arc::new(AnswerOrigin {
        provider: (*args.provider).into(),
        wire: args.format.format.name.into(),
        model: args.model.as_deref().unwrap_or_default().into(),
    });
    let mut decoded = if (200..300).contains(&args.status) {
        let shape = ResponseShape::of(&body);
        contradiction(&headers, shape.kind)
            .into_iter()
            .for_each(|contradiction| print_note(format!("hermod: {contradiction}")));
        decode_answer(&*wire, origin, &body, &shape)
    } else {
        failure_json("http_error", &failure_of(args.status, &headers, &body))
    };
    if args.model.is_none() {
        decoded.shift_remove("opaque");
    }
    print_json(&Value::Object(decoded))
}

fn headers(path: &Path) -> Result<HeaderMap, CliError> {
    let json: Map<String, Value> = serde_json::from_slice(&read(path)?).map_err(|error| {
        file_error(path, format!("{error}; give an object like {{\"retry-after\": \"3\"}}"))
    })?;
    let header = |(name, value): (String, Value)| {
        let text = value.as_str().map(|text| HeaderValue::from_bytes(text.as_bytes()));
        match (HeaderName::from_bytes(name.as_bytes()), text) {
            (Ok(name), Some(Ok(value))) => Ok((name, value)),
            _ => Err(file_error(
                path,
                format!("\"{name}\": {value} is no header; give a text without line breaks"),
            )),
        }
    };
    json.into_iter().map(header).collect()
}

/// The output for a response with a success status.
fn decode_answer(
    wire: &dyn WireFormat,
    origin: Arc<AnswerOrigin>,
    body: &[u8],
    shape: &ResponseShape,
) -> Map<String, Value> {
    let deltas = DeltaBuffer::default();
    let mut decoder = wire.decoder(Arc::clone(&origin));
    let result = match decoder.push(body, &deltas) {
        Ok(_) => decoder.finish(&deltas).map_err(|failure| (failure, DecodeStage::End)),
        Err(failure) => Err((failure, DecodeStage::Event)),
    };
    let deltas = deltas.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut decoded = match &result {
        Ok(answer) => message_json(&origin.wire, answer),
        Err((failure, stage)) => {
            let mut decoded = failure_json(outcome(&failure.class, *stage, shape), failure);
            // The text and reasoning that a user would have seen before the failure.
            decoded["text"] = deltas.text.into();
            decoded["reasoning"] = deltas.reasoning.into();
            decoded
        }
    };
    decoded["stop_reason"] = shape.stop.as_deref().into();
    decoded
}

fn message_json(wire: &str, answer: &ModelAnswer) -> Map<String, Value> {
    let mut decoded = shape("message");
    let call = |ToolCall { id, name, arguments }: &ToolCall| json!({ "id": id, "name": name, "arguments": arguments });
    decoded["text"] = answer.message.text.as_str().into();
    decoded["reasoning"] = answer.message.reasoning.as_str().into();
    decoded["tool_calls"] = answer.message.calls.iter().map(call).collect();
    decoded["usage"] = answer.usage.map(|usage| usage_json(wire, &usage)).into();
    decoded["opaque"] = json!(answer.message.opaque);
    decoded
}

fn usage_json(wire: &str, usage: &Usage) -> Value {
    let Usage { mut input_tokens, output_tokens, cached_tokens, cache_write_tokens, .. } = *usage;
    if WITHOUT_CACHED.contains(&wire) {
        input_tokens = input_tokens.saturating_sub(cached_tokens.saturating_add(cache_write_tokens));
    }
    json!({
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cached_tokens": cached_tokens,
        "cache_write_tokens": cache_write_tokens,
    })
}

fn failure_json(outcome: &str, failure: &CallFailure) -> Map<String, Value> {
    // As in records: every class with such a time stores it under these names.
    let class = json!(failure.class);
    let reset_at = class["reset_at"].as_i64().map(Timestamp);
    let mut decoded = shape(outcome);
    decoded["failure"] = json!({
        "class": failure.class.name(),
        "retry_after": class["retry_after_ms"].as_u64().map(seconds),
        "reset_at": reset_at.map(rfc3339),
        "message": failure.message,
    });
    decoded
}

#[allow(clippy::cast_precision_loss)] // a wait is bounded to a year
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// The fields of every output, in order, with empty values.
fn shape(outcome: &str) -> Map<String, Value> {
    let fields = [
        ("outcome", outcome.into()),
        ("text", "".into()),
        ("reasoning", "".into()),
        ("tool_calls", json!([])),
        ("stop_reason", Value::Null),
        ("usage", Value::Null),
        ("failure", Value::Null),
        ("opaque", Value::Null),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The stage at which decoding failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecodeStage {
    /// In an event.
    Event,
    /// At the end of the response.
    End,
}

/// The `outcome` of a response without an answer.
fn outcome(class: &FailureClass, stage: DecodeStage, shape: &ResponseShape) -> &'static str {
    match (shape.kind, shape.error) {
        (BodyKind::Neither, _) => "empty_stream",
        (_, Some(ErrorField::Failed)) => "failed",
        (BodyKind::Events, Some(ErrorField::Error)) => "stream_error",
        (BodyKind::Document, Some(ErrorField::Error)) => "no_choices",
        (_, None) if *class != FailureClass::IncompleteStream => match shape.kind {
            BodyKind::Events => "stream_error",
            BodyKind::Document | BodyKind::Neither => "no_choices",
        },
        (_, None) => match stage {
            DecodeStage::Event => "sdk_error",
            DecodeStage::End => "truncated_stream",
        },
    }
}

/// The text and reasoning streamed before the answer was complete.
#[derive(Debug, Default)]
struct DeltaBuffer(Mutex<DeltaTexts>);

#[derive(Debug, Default)]
struct DeltaTexts {
    text: String,
    reasoning: String,
}

impl DeltaSink for DeltaBuffer {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).text.push_str(delta);
    }

    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reasoning.push_str(delta);
    }
}
