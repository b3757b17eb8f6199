//! Reads one response, for all wire formats: an event stream, a JSON document, or another body. [`AnswerDecoder`] is
//! what each format implements for it. Also here: JSON parsing that tolerates broken texts, and the size limit of an
//! answer.

use std::{fmt::Debug, sync::Arc};

use hermod_actors::{
    model::{AnswerOrigin, Failure, FailureClass, FinishReason, ModelAnswer, OpaqueState, RequestFate},
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

/// Maximum size in bytes of an answer, and of a response that is a JSON document.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Bytes retained of a response that may be no answer, for the error message.
const MAX_PREFIX_BYTES: usize = 1_024;
/// Maximum number of characters of a response in a message.
const MAX_EXCERPT_CHARS: usize = 200;

/// A decoder of one wire format for an answer that arrives in events.
pub(super) trait AnswerDecoder: Debug + Clone + Default + Send + 'static {
    /// The JSON of an event.
    type Event<'a>: Deserialize<'a>;
    /// The JSON of a whole answer.
    type Document<'a>: Deserialize<'a>;

    /// Adds an event, whose text is `data`. An error ends the stream.
    fn push_event(
        &mut self,
        event: Self::Event<'_>,
        data: &[u8],
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure>;

    /// Adds the whole answer of a server that does not stream. `Ok(false)` means that the document is no answer; the
    /// decoder is then unchanged.
    fn push_document(
        &mut self,
        document: Self::Document<'_>,
        deltas: &dyn DeltaSink,
    ) -> Result<bool, Failure>;

    /// True if the vendor has sent the finish reason, though the stream may continue.
    fn is_whole(&self) -> bool;

    /// The answer of `origin`, after an end that the vendor has marked in some way.
    fn finish(self, origin: Arc<AnswerOrigin>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure>;
}

/// Reads one response: an event stream, or one JSON object, which some servers send although a stream was requested.
#[derive(Debug, Clone)]
pub(super) struct ResponseReader<D> {
    /// Opaque parts of the answer are stored with it.
    origin: Arc<AnswerOrigin>,
    body: ResponseBody,
    events: EventReader<D>,
}

/// Passes events to a decoder until one ends the stream or fails.
#[derive(Debug, Clone, Default)]
struct EventReader<D> {
    decoder: D,
    /// The end mark has come; later events are ignored.
    is_done: bool,
    /// An event has come.
    has_event: bool,
    /// A piece of the answer has come.
    has_content: bool,
}

#[derive(Debug, Clone, Default)]
enum ResponseBody {
    /// Only white space so far.
    #[default]
    Unknown,
    /// An event stream, with its first bytes.
    Events { parser: sse::SseParser, prefix: Vec<u8> },
    /// A JSON document.
    Json(Vec<u8>),
    /// A page (HTML); only its first bytes are retained.
    Page(Vec<u8>),
}

impl<D: AnswerDecoder> ResponseReader<D> {
    /// A reader at the start of a response.
    pub(super) fn new(origin: Arc<AnswerOrigin>) -> Self {
        Self { origin, body: ResponseBody::Unknown, events: EventReader::default() }
    }

    /// Selects the body kind by the first significant byte; returns the bytes from there.
    fn recognise<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let first_byte = bytes.iter().position(|byte| !b" \t\r\n\xef\xbb\xbf".contains(byte));
        let bytes = &bytes[first_byte.unwrap_or(bytes.len())..];
        self.body = match bytes.first() {
            None => ResponseBody::Unknown,
            Some(b'{' | b'[') => ResponseBody::Json(Vec::new()),
            Some(b'<') => ResponseBody::Page(Vec::new()),
            Some(_) => ResponseBody::Events { parser: sse::SseParser::default(), prefix: Vec::new() },
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
            ResponseBody::Events { parser, prefix } => {
                retain_prefix(prefix, bytes);
                let mut result = Ok(self.events.start());
                let parsed = parser.push(bytes, |data| self.events.decode_event(data, deltas, &mut result));
                self.events.end(parsed, result)
            }
            ResponseBody::Json(body) if body.len() + bytes.len() > MAX_ANSWER_BYTES => {
                Err(incomplete_stream(&format!("the response is larger than {MAX_ANSWER_BYTES} bytes")))
            }
            ResponseBody::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(DecodeProgress::Content)
            }
            ResponseBody::Page(prefix) => {
                retain_prefix(prefix, bytes);
                Ok(DecodeProgress::Quiet)
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.events.is_whole()
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn finish(mut self: Box<Self>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure> {
        match std::mem::take(&mut self.body) {
            ResponseBody::Unknown => {
                return Err(incomplete_stream("the stream ended before anything had come"));
            }
            ResponseBody::Page(prefix) => return Err(not_an_api("a page", &prefix)),
            ResponseBody::Json(body) => {
                return read_document(self.events.decoder, self.origin, &body, deltas);
            }
            ResponseBody::Events { parser, prefix } => {
                let is_stream = parser.is_event_stream();
                let mut result = Ok(self.events.start());
                let parsed = parser.finish(|data| self.events.decode_event(data, deltas, &mut result));
                let result = self.events.end(parsed, result);
                if !self.events.has_event && !is_stream {
                    return Err(not_an_api("no event stream", &prefix));
                }
                result?;
            }
        }
        if !self.is_whole() {
            return Err(incomplete_stream("the stream ended without a finish reason"));
        }
        self.events.decoder.finish(self.origin, deltas)
    }
}

impl<D: AnswerDecoder> EventReader<D> {
    fn is_whole(&self) -> bool {
        self.is_done || self.decoder.is_whole()
    }

    /// The progress before the first event of a piece.
    fn start(&self) -> DecodeProgress {
        if self.is_done { DecodeProgress::Done } else { DecodeProgress::Quiet }
    }

    /// Decodes an event, unless one before it failed or ended the stream.
    fn decode_event(
        &mut self,
        data: &[u8],
        deltas: &dyn DeltaSink,
        result: &mut Result<DecodeProgress, Failure>,
    ) {
        let data = data.trim_ascii();
        if result.is_err() || self.is_done || data.is_empty() {
            return;
        }
        self.has_event = true;
        let was_whole = self.decoder.is_whole();
        let progress = match data {
            b"[DONE]" => Ok(DecodeProgress::Done),
            _ => parse_json_lossy(data, &mut String::new(), |event: D::Event<'_>| {
                self.decoder.push_event(event, data, deltas)
            })
            .unwrap_or_else(|error| Err(malformed_event(&error, data))),
        };
        match progress {
            Ok(DecodeProgress::Quiet) => {}
            Ok(DecodeProgress::Content) => {
                self.has_content = true;
                *result = progress;
            }
            Ok(DecodeProgress::Done) => self.finish_events(result),
            // An unreadable event after the finish reason, such as half an event, costs only the usage.
            Err(failure) if was_whole && failure.class == FailureClass::IncompleteStream => {
                self.finish_events(result);
            }
            Err(_) => *result = progress,
        }
    }

    fn finish_events(&mut self, result: &mut Result<DecodeProgress, Failure>) {
        self.is_done = true;
        *result = Ok(DecodeProgress::Done);
    }

    /// The result of the events, combined with the parser's error. After the first content the request may have run,
    /// whatever a failure itself reports.
    fn end(
        &mut self,
        parsed: Result<(), sse::EventTooLarge>,
        mut result: Result<DecodeProgress, Failure>,
    ) -> Result<DecodeProgress, Failure> {
        match parsed {
            Err(_) if result.is_ok() && self.decoder.is_whole() => self.finish_events(&mut result),
            Err(error) => result = result.and(Err(incomplete_stream(&error.to_string()))),
            Ok(()) => {}
        }
        result.map_err(
            |failure| {
                if self.has_content { failure.with_request(RequestFate::MayHaveRun) } else { failure }
            },
        )
    }
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
    let opaque = OpaqueState::new(origin, parts).map_err(|error| incomplete_stream(&error.to_string()))?;
    Ok(Some(Arc::new(opaque)))
}

/// The finish reason of an answer. `Stop` and `ToolCalls` follow from its calls: some vendors do not distinguish them.
pub(super) const fn finish_of(reported: Option<FinishReason>, has_calls: bool) -> FinishReason {
    match reported {
        Some(finish @ (FinishReason::Length | FinishReason::Refused)) => finish,
        Some(FinishReason::Stop | FinishReason::ToolCalls) | None if has_calls => FinishReason::ToolCalls,
        Some(FinishReason::Stop | FinishReason::ToolCalls) | None => FinishReason::Stop,
    }
}

/// The failure for an event that is no JSON, or JSON of another shape.
fn malformed_event(error: &serde_json::Error, data: &[u8]) -> Failure {
    incomplete_stream(&format!("an event makes no sense ({error}): {}", excerpt(data, MAX_EXCERPT_CHARS)))
}

/// Decodes the answer in a JSON document.
fn read_document<D: AnswerDecoder>(
    mut decoder: D,
    origin: Arc<AnswerOrigin>,
    body: &[u8],
    deltas: &dyn DeltaSink,
) -> Result<ModelAnswer, Failure> {
    let read = parse_json_lossy(body, &mut String::new(), |document: D::Document<'_>| {
        decoder.push_document(document, deltas)
    });
    match read {
        Ok(Ok(true)) => decoder.finish(origin, deltas),
        Ok(Err(failure)) => Err(failure),
        Err(error) if error.is_eof() || is_json_prefix(body) => {
            Err(incomplete_stream("the response ended in the middle of its JSON document"))
        }
        Ok(Ok(false)) | Err(_) => {
            Err(failure_in_body(body).unwrap_or_else(|| not_an_api("a JSON document", body)))
        }
    }
}

/// True if the body is cut JSON. Parsing as a type can fail earlier for another reason, so this parses plain JSON.
pub(super) fn is_json_prefix(body: &[u8]) -> bool {
    let read = parse_json_lossy(body, &mut String::new(), |_: serde_json::Value| ());
    read.is_err_and(|error| error.is_eof())
}

fn retain_prefix(prefix: &mut Vec<u8>, bytes: &[u8]) {
    let length = MAX_PREFIX_BYTES.saturating_sub(prefix.len()).min(bytes.len());
    prefix.extend_from_slice(&bytes[..length]);
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

fn not_an_api(what: &str, prefix: &[u8]) -> Failure {
    let message =
        format!("{what} came in place of an answer, check base_url: {}", excerpt(prefix, MAX_EXCERPT_CHARS));
    Failure::new(FailureClass::NotAnApi, message)
}
