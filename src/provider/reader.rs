//! Response reading that all wire formats share: an event stream, a JSON document, or another body.

use std::{fmt::Debug, sync::Arc};

use hermod_actors::{
    model::{AnswerOrigin, Failure, FailureClass, ModelAnswer, OpaqueState, RequestFate},
    port::DeltaSink,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    excerpt::excerpt,
    failure::failure_in_body,
    sse,
    wire::{DecodeProgress, Decoder},
};

/// Maximum size in bytes of an answer, and of a response that is not an event stream.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Bytes retained of a response that may be no answer, for the error message.
const MAX_PREFIX_BYTES: usize = 1_024;
/// Maximum number of characters of a response in a message.
const MAX_EXCERPT_CHARS: usize = 200;

/// A decoder of one wire format for an answer that arrives in events.
pub(super) trait AnswerDecoder: Debug + Clone + Send + 'static {
    /// Decodes the data of one event, never empty. An error ends the stream.
    fn push_event(&mut self, data: &[u8], deltas: &dyn DeltaSink) -> Result<DecodeProgress, DecodeError>;

    /// Decodes a whole answer of a server that does not stream. `Ok(false)` means that the document is no answer; the
    /// decoder is then unchanged.
    fn push_document(&mut self, body: &[u8], deltas: &dyn DeltaSink) -> Result<bool, DecodeError>;

    /// True if the vendor has sent the finish reason, though the stream may continue.
    fn is_whole(&self) -> bool;

    /// The answer, after an end that the vendor has marked in some way.
    fn finish(self, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure>;
}

/// Why an event or a document is no part of an answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum DecodeError {
    /// It reports a failure.
    Failure(#[from] Failure),
    /// It is no JSON, or JSON of another shape.
    Json(#[from] serde_json::Error),
}

/// Reads one response: an event stream, or one JSON object, which some servers send although a stream was requested.
#[derive(Debug, Clone)]
pub(super) struct ResponseReader<D> {
    body: ResponseBody,
    decoder: D,
    /// The end mark has come; later events are ignored.
    done: bool,
    /// An event has come.
    any: bool,
    /// A piece of the answer has come.
    begun: bool,
}

#[derive(Debug, Clone, Default)]
enum ResponseBody {
    /// Only white space so far.
    #[default]
    Unknown,
    /// An event stream, with its first bytes.
    Events { parser: sse::SseParser, begin: Vec<u8> },
    /// A JSON document.
    Json(Vec<u8>),
    /// A page (HTML); only its first bytes are retained.
    Page(Vec<u8>),
}

impl<D: AnswerDecoder> ResponseReader<D> {
    /// A reader at the start of a response.
    pub(super) fn new(decoder: D) -> Self {
        Self { body: ResponseBody::Unknown, decoder, done: false, any: false, begun: false }
    }

    /// Selects the body kind by the first significant byte; returns the bytes from there.
    fn recognise<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let first_byte = bytes.iter().position(|byte| !b" \t\r\n\xef\xbb\xbf".contains(byte));
        let bytes = &bytes[first_byte.unwrap_or(bytes.len())..];
        self.body = match bytes.first() {
            None => ResponseBody::Unknown,
            Some(b'{' | b'[') => ResponseBody::Json(Vec::new()),
            Some(b'<') => ResponseBody::Page(Vec::new()),
            Some(_) => ResponseBody::Events { parser: sse::SseParser::new(), begin: Vec::new() },
        };
        bytes
    }
}

impl<D: AnswerDecoder> Decoder for ResponseReader<D> {
    fn push(&mut self, mut bytes: &[u8], deltas: &dyn DeltaSink) -> Result<DecodeProgress, Failure> {
        if matches!(self.body, ResponseBody::Unknown) {
            bytes = self.recognise(bytes);
        }
        match &mut self.body {
            ResponseBody::Unknown => Ok(DecodeProgress::Quiet),
            ResponseBody::Events { parser, begin } => {
                retain_prefix(begin, bytes);
                let mut events = EventConsumer::of(&mut self.decoder, &mut self.done, deltas);
                let parsed = parser.push(bytes, |event| events.take(event.data));
                self.any |= events.any;
                self.begun |= events.begun;
                events.end(parsed).map_err(|failure| mark_request_run(failure, self.begun))
            }
            ResponseBody::Json(body) if body.len() + bytes.len() > MAX_ANSWER_BYTES => {
                Err(incomplete_stream(&format!("the response is larger than {MAX_ANSWER_BYTES} bytes")))
            }
            ResponseBody::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(DecodeProgress::Content)
            }
            ResponseBody::Page(begin) => {
                retain_prefix(begin, bytes);
                Ok(DecodeProgress::Quiet)
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.done || self.decoder.is_whole()
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn finish(mut self: Box<Self>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure> {
        match std::mem::take(&mut self.body) {
            ResponseBody::Unknown => {
                return Err(incomplete_stream("the stream ended before anything had come"));
            }
            ResponseBody::Page(begin) => return Err(not_an_api("a page", &begin)),
            ResponseBody::Json(body) => return read_document(self.decoder, &body, deltas),
            ResponseBody::Events { parser, begin } => {
                let is_stream = parser.is_event_stream();
                let mut events = EventConsumer::of(&mut self.decoder, &mut self.done, deltas);
                let parsed = parser.finish(|event| events.take(event.data));
                self.any |= events.any;
                let begun = self.begun | events.begun;
                let result = events.end(parsed).map_err(|failure| mark_request_run(failure, begun));
                if !self.any && !is_stream {
                    return Err(not_an_api("no event stream", &begin));
                }
                result?;
            }
        }
        if !self.is_whole() {
            return Err(incomplete_stream("the stream ended without a finish reason"));
        }
        self.decoder.finish(deltas)
    }
}

/// Passes events to the decoder until one ends the stream or fails.
struct EventConsumer<'a, D> {
    decoder: &'a mut D,
    done: &'a mut bool,
    deltas: &'a dyn DeltaSink,
    any: bool,
    begun: bool,
    result: Result<DecodeProgress, Failure>,
}

impl<'a, D: AnswerDecoder> EventConsumer<'a, D> {
    fn of(decoder: &'a mut D, done: &'a mut bool, deltas: &'a dyn DeltaSink) -> Self {
        let progress = if *done { DecodeProgress::Done } else { DecodeProgress::Quiet };
        Self { decoder, done, deltas, any: false, begun: false, result: Ok(progress) }
    }

    fn take(&mut self, data: &[u8]) {
        let (Ok(before), false) = (&self.result, *self.done) else { return };
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        self.any = true;
        let (before, was_whole) = (*before, self.decoder.is_whole());
        let result = if data == b"[DONE]" {
            Ok(DecodeProgress::Done)
        } else {
            self.decoder.push_event(data, self.deltas).map_err(|error| match error {
                DecodeError::Failure(failure) => failure,
                DecodeError::Json(error) => malformed_event(&error, data),
            })
        };
        let result = match result {
            // An unreadable event after the finish reason, such as half an event, costs only the usage.
            Err(failure) if was_whole && failure.class == FailureClass::IncompleteStream => {
                Ok(DecodeProgress::Done)
            }
            result => result,
        };
        *self.done = matches!(result, Ok(DecodeProgress::Done));
        self.begun |= matches!(result, Ok(DecodeProgress::Content));
        self.result = match result {
            Ok(DecodeProgress::Quiet) => Ok(before),
            Ok(DecodeProgress::Content | DecodeProgress::Done) | Err(_) => result,
        };
    }

    /// The result of the events, combined with the parser's error.
    fn end(self, parsed: Result<(), sse::EventTooLarge>) -> Result<DecodeProgress, Failure> {
        match parsed {
            Err(_) if self.result.is_ok() && self.decoder.is_whole() => {
                *self.done = true;
                Ok(DecodeProgress::Done)
            }
            Err(error) => self.result.and(Err(incomplete_stream(&error.to_string()))),
            Ok(()) => self.result,
        }
    }
}

/// Marks a failure after the first content: the request may have run, whatever the failure itself reports.
fn mark_request_run(failure: Failure, begun: bool) -> Failure {
    if begun { failure.with_request(RequestFate::MayHaveRun) } else { failure }
}

/// Parses JSON. Invalid UTF-8 and lone surrogates are replaced by U+FFFD; all else is kept.
pub(crate) fn parse_json_lossy<'a, J: Deserialize<'a>, T>(
    data: &'a [u8],
    lossy: &'a mut String,
    take: impl FnOnce(J) -> T,
) -> Result<T, serde_json::Error> {
    let error = match serde_json::from_slice(data) {
        Ok(json) => return Ok(take(json)),
        Err(error) => error,
    };
    *lossy = String::from_utf8_lossy(data).into_owned();
    replace_half_surrogates(lossy);
    if lossy.as_bytes() == data {
        return Err(error);
    }
    serde_json::from_str(lossy).map(take)
}

/// Replaces every escape of a lone surrogate with `\ufffd`.
fn replace_half_surrogates(json: &mut String) {
    let surrogate = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
    };
    let mut halves = Vec::new();
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        at += found;
        at += match (surrogate(at), surrogate(at + 6)) {
            (Some(..0xdc00), Some(0xdc00..)) => 12,
            (Some(_), _) => {
                halves.push(at);
                6
            }
            // An escaped backslash starts no escape. In broken text a non-ASCII character may follow a backslash.
            (None, _) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    for at in halves {
        json.replace_range(at..at + 6, "\\ufffd");
    }
}

/// The opaque state that `origin` expects back, if any. An error if no record can hold the state.
pub(super) fn opaque_state(
    origin: Arc<AnswerOrigin>,
    parts: Vec<Value>,
) -> Result<Option<Arc<OpaqueState>>, Failure> {
    if parts.is_empty() {
        return Ok(None);
    }
    match OpaqueState::new(origin, parts) {
        Ok(opaque) => Ok(Some(Arc::new(opaque))),
        Err(error) => Err(incomplete_stream(&error.to_string())),
    }
}

/// The failure for an event that is no JSON, or JSON of another shape.
fn malformed_event(error: &serde_json::Error, data: &[u8]) -> Failure {
    incomplete_stream(&format!("an event makes no sense ({error}): {}", excerpt(data, MAX_EXCERPT_CHARS)))
}

/// Decodes the answer in a JSON document.
fn read_document<D: AnswerDecoder>(
    mut draft: D,
    body: &[u8],
    deltas: &dyn DeltaSink,
) -> Result<ModelAnswer, Failure> {
    match draft.push_document(body, deltas) {
        Ok(true) => draft.finish(deltas),
        Err(DecodeError::Failure(failure)) => Err(failure),
        Err(DecodeError::Json(error)) if error.is_eof() || is_json_prefix(body) => {
            Err(incomplete_stream("the response ended in the middle of its JSON document"))
        }
        Ok(false) | Err(DecodeError::Json(_)) => {
            Err(failure_in_body(body).unwrap_or_else(|| not_an_api("a JSON document", body)))
        }
    }
}

/// True if the body is cut JSON. Parsing as a type can fail earlier for another reason, so this parses plain JSON.
pub(super) fn is_json_prefix(body: &[u8]) -> bool {
    let read = parse_json_lossy(body, &mut String::new(), |_: serde_json::Value| ());
    read.is_err_and(|error| error.is_eof())
}

fn retain_prefix(begin: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_PREFIX_BYTES.saturating_sub(begin.len()).min(bytes.len());
    begin.extend_from_slice(&bytes[..room]);
}

/// Fails if an answer has more bytes than are accepted.
pub(super) fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes > MAX_ANSWER_BYTES {
        return Err(incomplete_stream(&format!("the answer is larger than {MAX_ANSWER_BYTES} bytes")));
    }
    Ok(())
}

pub(super) fn incomplete_stream(message: &str) -> Failure {
    Failure::new(FailureClass::IncompleteStream, message)
}

fn not_an_api(what: &str, begin: &[u8]) -> Failure {
    let message =
        format!("{what} came in place of an answer, check base_url: {}", excerpt(begin, MAX_EXCERPT_CHARS));
    Failure::new(FailureClass::NotAnApi, message)
}
