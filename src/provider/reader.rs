//! What all wire formats have in common in reading a response: an event stream, a JSON document, or something else.

use std::{fmt::Debug, sync::Arc};

use hermod_actors::{
    model::{Answer, Failure, FailureClass, Opaque, Origin, RequestFate},
    port::Deltas,
};
use serde::Deserialize;
use serde_json::Value;

use super::{
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

/// An answer that comes in pieces, as one wire format has them.
pub(super) trait Draft: Debug + Clone + Send + 'static {
    /// Takes the data of an event, not empty. An error ends the stream.
    fn event(&mut self, data: &[u8], deltas: &dyn Deltas) -> Result<Progress, Failure>;

    /// Takes a whole answer, as servers send it that do not stream. `Ok(false)` means that it is none, which is only
    /// found out before anything of it is taken.
    fn document(&mut self, body: &[u8], deltas: &dyn Deltas) -> Result<bool, Unread>;

    /// Whether the vendor has said why the model stopped, though the stream may go on.
    fn is_whole(&self) -> bool;

    /// The answer, after an end that the vendor has marked in some way.
    fn finish(self, deltas: &dyn Deltas) -> Result<Answer, Failure>;
}

/// Why a document is no answer.
#[derive(Debug)]
pub(super) enum Unread {
    /// It says itself what failed.
    Failure(Failure),
    /// It is no JSON, or JSON of another shape.
    Json(serde_json::Error),
}

/// Reads one response: an event stream, or the whole answer as one JSON object, as some servers send it unasked.
#[derive(Debug, Clone)]
pub(super) struct Reader<D> {
    body: Body,
    draft: D,
    /// The mark behind which nothing follows has come.
    done: bool,
    /// An event has come.
    any: bool,
    /// A piece of the answer has come.
    begun: bool,
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

impl<D: Draft> Reader<D> {
    /// A reader at the begin of a response.
    pub(super) fn new(draft: D) -> Self {
        Self { body: Body::Unknown, draft, done: false, any: false, begun: false }
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

impl<D: Draft> Decoder for Reader<D> {
    fn push(&mut self, mut bytes: &[u8], deltas: &dyn Deltas) -> Result<Progress, Failure> {
        if matches!(self.body, Body::Unknown) {
            bytes = self.recognise(bytes);
        }
        match &mut self.body {
            Body::Unknown => Ok(Progress::Quiet),
            Body::Events { parser, begin } => {
                keep(begin, bytes);
                let mut events = Events::of(&mut self.draft, &mut self.done, deltas);
                let parsed = parser.push(bytes, |event| events.take(event.data));
                self.any |= events.any;
                self.begun |= events.begun;
                events.end(parsed).map_err(|failure| behind(failure, self.begun))
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
        self.done || self.draft.is_whole()
    }

    fn fork(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn finish(mut self: Box<Self>, deltas: &dyn Deltas) -> Result<Answer, Failure> {
        match std::mem::take(&mut self.body) {
            Body::Unknown => return Err(cut("the stream ended before anything had come")),
            Body::Page(begin) => return Err(no_api("a page", &begin)),
            Body::Json(body) => return whole(self.draft, &body, deltas),
            Body::Events { parser, begin } => {
                let is_stream = parser.is_event_stream();
                let mut events = Events::of(&mut self.draft, &mut self.done, deltas);
                let parsed = parser.finish(|event| events.take(event.data));
                self.any |= events.any;
                let begun = self.begun | events.begun;
                let result = events.end(parsed).map_err(|failure| behind(failure, begun));
                if !self.any && !is_stream {
                    return Err(no_api("no event stream", &begin));
                }
                result?;
            }
        }
        if !self.is_whole() {
            return Err(cut("the stream ended without a finish reason"));
        }
        self.draft.finish(deltas)
    }
}

/// Takes events in, until one ends the stream or cannot be taken.
struct Events<'a, D> {
    draft: &'a mut D,
    done: &'a mut bool,
    deltas: &'a dyn Deltas,
    any: bool,
    begun: bool,
    result: Result<Progress, Failure>,
}

impl<'a, D: Draft> Events<'a, D> {
    fn of(draft: &'a mut D, done: &'a mut bool, deltas: &'a dyn Deltas) -> Self {
        let progress = if *done { Progress::Done } else { Progress::Quiet };
        Self { draft, done, deltas, any: false, begun: false, result: Ok(progress) }
    }

    fn take(&mut self, data: &[u8]) {
        let (Ok(before), false) = (&self.result, *self.done) else { return };
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        self.any = true;
        let (before, was_whole) = (*before, self.draft.is_whole());
        let result = if data == b"[DONE]" { Ok(Progress::Done) } else { self.draft.event(data, self.deltas) };
        let result = match result {
            // What makes no sense behind the finish reason, as half an event, costs no more than the usage.
            Err(failure) if was_whole && failure.class == FailureClass::Cut => Ok(Progress::Done),
            result => result,
        };
        *self.done = matches!(result, Ok(Progress::Done));
        self.begun |= matches!(result, Ok(Progress::Content));
        self.result = match result {
            Ok(Progress::Quiet) => Ok(before),
            Ok(Progress::Content | Progress::Done) | Err(_) => result,
        };
    }

    /// What they brought, and the parser's word on them.
    fn end(self, parsed: Result<(), sse::TooLarge>) -> Result<Progress, Failure> {
        match parsed {
            Err(_) if self.result.is_ok() && self.draft.is_whole() => {
                *self.done = true;
                Ok(Progress::Done)
            }
            Err(error) => self.result.and(Err(cut(&error.to_string()))),
            Ok(()) => self.result,
        }
    }
}

/// A failure that follows what was read: behind a piece of the answer, the request was worked on, whatever is said then.
fn behind(failure: Failure, begun: bool) -> Failure {
    if begun { failure.with_request(RequestFate::MayHaveRun) } else { failure }
}

/// Reads JSON; bytes that are no UTF-8 and half surrogates are made visible, and nothing else is lost for them.
pub(crate) fn with_json<'a, J: Deserialize<'a>, T>(
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

/// Puts `\ufffd` in place of every escape of a surrogate that has no other half.
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
            // An escaped backslash begins no escape. What follows one in a broken text may be no ASCII.
            (None, _) => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    for at in halves {
        json.replace_range(at..at + 6, "\\ufffd");
    }
}

/// The state that `origin` wants to see again, if there is any. An answer whose state no record can carry is unusable.
pub(super) fn opaque_state(origin: Arc<Origin>, parts: Vec<Value>) -> Result<Option<Arc<Opaque>>, Failure> {
    if parts.is_empty() {
        return Ok(None);
    }
    match Opaque::new(origin, parts) {
        Ok(opaque) => Ok(Some(Arc::new(opaque))),
        Err(error) => Err(cut(&error.to_string())),
    }
}

/// An event that is no JSON, or JSON of another shape.
pub(super) fn senseless(error: &serde_json::Error, data: &[u8]) -> Failure {
    cut(&format!("an event makes no sense ({error}): {}", excerpt(data, SHOWN)))
}

/// The answer that a JSON document is.
fn whole<D: Draft>(mut draft: D, body: &[u8], deltas: &dyn Deltas) -> Result<Answer, Failure> {
    match draft.document(body, deltas) {
        Ok(true) => draft.finish(deltas),
        Err(Unread::Failure(failure)) => Err(failure),
        Err(Unread::Json(error)) if error.is_eof() || is_begin_of_json(body) => {
            Err(cut("the response ended in the middle of its JSON document"))
        }
        Ok(false) | Err(Unread::Json(_)) => {
            Err(failure_in_body(body).unwrap_or_else(|| no_api("a JSON document", body)))
        }
    }
}

/// Whether JSON ends before its document does. What is read into a type can fail earlier, for another reason.
pub(super) fn is_begin_of_json(body: &[u8]) -> bool {
    let read = with_json(body, &mut String::new(), |_: serde_json::Value| ());
    read.is_err_and(|error| error.is_eof())
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
