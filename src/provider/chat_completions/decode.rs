use hermod_actors::{
    model::{Answer, Failure, FailureClass},
    port::Deltas,
};

use super::{chunk::Chunk, draft::Draft};
use crate::provider::{
    excerpt::excerpt,
    failure::failure_in_body,
    sse,
    wire::{Decoder, Progress},
};

/// Bytes that a response may have which is no event stream.
const MAX_BODY: usize = 32 * 1024 * 1024;
/// Bytes that are kept of a response which may turn out to be no answer, to show them.
const KEPT: usize = 1_024;
/// Characters of a response that a message shows.
const SHOWN: usize = 200;

/// Reads one response: an event stream, or the whole answer as one JSON object, as some servers send it unasked.
#[derive(Debug, Clone, Default)]
pub struct ChatDecoder {
    body: Body,
    draft: Draft,
    /// `[DONE]` has come.
    done: bool,
    /// An event has come.
    any: bool,
}

#[derive(Debug, Clone, Default)]
enum Body {
    /// Nothing but white space so far.
    #[default]
    Unknown,
    /// An event stream, and how it began.
    Events { parser: sse::Parser, begin: Vec<u8> },
    /// A JSON document.
    Json(Vec<u8>),
    /// A page, of which the begin is kept.
    Page(Vec<u8>),
}

impl ChatDecoder {
    /// A decoder at the begin of a response.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides by the first byte that says something; gives what is left from there.
    fn recognise<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let said = bytes.iter().position(|byte| !b" \t\r\n\xef\xbb\xbf".contains(byte));
        let bytes = &bytes[said.unwrap_or(bytes.len())..];
        self.body = match bytes.first() {
            None => Body::Unknown,
            Some(b'{' | b'[') => Body::Json(Vec::new()),
            Some(b'<') => Body::Page(Vec::new()),
            Some(_) => Body::Events { parser: sse::Parser::new(), begin: Vec::new() },
        };
        bytes
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, mut bytes: &[u8], deltas: &dyn Deltas) -> Result<Progress, Failure> {
        if matches!(self.body, Body::Unknown) {
            bytes = self.recognise(bytes);
        }
        match &mut self.body {
            Body::Unknown => Ok(Progress::Quiet),
            Body::Events { parser, begin } => {
                keep(begin, bytes);
                let mut events = Events::of(&mut self.draft, &mut self.done, deltas);
                parser
                    .push(bytes, |event| events.take(event.data))
                    .map_err(|error| cut(&error.to_string()))?;
                self.any |= events.any;
                events.result
            }
            Body::Json(body) if body.len() + bytes.len() > MAX_BODY => {
                Err(cut(&format!("the response is larger than {MAX_BODY} bytes")))
            }
            Body::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(Progress::Content)
            }
            Body::Page(begin) => {
                keep(begin, bytes);
                Ok(Progress::Quiet)
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.done || self.draft.is_finished()
    }

    fn finish(mut self: Box<Self>, deltas: &dyn Deltas) -> Result<Answer, Failure> {
        match std::mem::take(&mut self.body) {
            Body::Unknown => return Err(cut("the stream ended before anything had come")),
            Body::Page(begin) => return Err(no_api("a page", &begin)),
            Body::Json(body) => return whole(&body, deltas),
            Body::Events { parser, begin } => {
                let mut events = Events::of(&mut self.draft, &mut self.done, deltas);
                let flushed = parser.finish(|event| events.take(event.data));
                let result = flushed.map_err(|error| cut(&error.to_string())).and(events.result);
                self.any |= events.any;
                if !self.any {
                    return Err(no_api("no event stream", &begin));
                }
                // Half an event behind the finish reason costs no more than the usage.
                if let Err(failure) = result
                    && !(self.is_whole() && failure.class == FailureClass::Cut)
                {
                    return Err(failure);
                }
            }
        }
        if !self.is_whole() {
            return Err(cut("the stream ended without a finish reason"));
        }
        self.draft.finish(deltas)
    }
}

/// Takes events in, until one ends the stream or cannot be taken.
struct Events<'a> {
    draft: &'a mut Draft,
    done: &'a mut bool,
    deltas: &'a dyn Deltas,
    any: bool,
    result: Result<Progress, Failure>,
}

impl<'a> Events<'a> {
    fn of(draft: &'a mut Draft, done: &'a mut bool, deltas: &'a dyn Deltas) -> Self {
        let progress = if *done { Progress::Done } else { Progress::Quiet };
        Self { draft, done, deltas, any: false, result: Ok(progress) }
    }

    fn take(&mut self, data: &[u8]) {
        let (Ok(before), false) = (&self.result, *self.done) else { return };
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        self.any = true;
        if data == b"[DONE]" {
            *self.done = true;
            self.result = Ok(Progress::Done);
            return;
        }
        let before = *before;
        self.result = match with_chunk(data, |chunk| self.draft.push(chunk, self.deltas)) {
            Ok(Ok(Progress::Quiet)) => Ok(before),
            Ok(result) => result,
            Err(error) => Err(cut(&format!("an event makes no sense ({error}): {}", excerpt(data, SHOWN)))),
        };
    }
}

/// Reads a chunk; bytes that are no UTF-8 are made visible, and nothing else is lost for them.
fn with_chunk<T>(data: &[u8], take: impl FnOnce(Chunk<'_>) -> T) -> Result<T, serde_json::Error> {
    let error = match serde_json::from_slice(data) {
        Ok(chunk) => return Ok(take(chunk)),
        Err(error) => error,
    };
    if std::str::from_utf8(data).is_ok() {
        return Err(error);
    }
    serde_json::from_str(&String::from_utf8_lossy(data)).map(take)
}

/// The answer that a JSON document is.
fn whole(body: &[u8], deltas: &dyn Deltas) -> Result<Answer, Failure> {
    let mut draft = Draft::default();
    let answered = with_chunk(body, |mut chunk| {
        // Some vendors send an empty delta beside the message, also when nothing is streamed.
        for choice in chunk.choices.0.iter_mut().flatten() {
            choice.delta.0 = choice.message.0.take().or(choice.delta.0.take());
        }
        let answers = chunk.choices.0.as_ref().is_some_and(|choices| !choices.is_empty());
        let failed = chunk.error != super::chunk::Loose::Nothing;
        if answers || failed { draft.push(chunk, deltas).map(|_| true) } else { Ok(false) }
    });
    match answered {
        Ok(Ok(true)) => draft.finish(deltas),
        Ok(Ok(false)) => Err(failure_in_body(body).unwrap_or_else(|| no_api("a JSON document", body))),
        Ok(Err(failure)) => Err(failure),
        Err(error) if error.is_eof() => Err(cut("the response ended in the middle of its JSON document")),
        Err(_) => Err(failure_in_body(body).unwrap_or_else(|| no_api("a JSON document", body))),
    }
}

fn keep(begin: &mut Vec<u8>, bytes: &[u8]) {
    let room = KEPT.saturating_sub(begin.len()).min(bytes.len());
    begin.extend_from_slice(&bytes[..room]);
}

fn cut(message: &str) -> Failure {
    Failure::new(FailureClass::Cut, message)
}

fn no_api(what: &str, begin: &[u8]) -> Failure {
    let message = format!("{what} came in place of an answer, check base_url: {}", excerpt(begin, SHOWN));
    Failure::new(FailureClass::NotAnApi, message)
}
