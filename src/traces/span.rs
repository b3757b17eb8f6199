//! A span of a trace, as data, with identifiers that follow from the journal: the same records give the same spans.

use std::fmt;

use data_encoding::HEXLOWER;
use hermod_actors::model::{CallId, Hasher, RunId, Timestamp};

/// Most events of one span, as in OpenTelemetry's SDKs. Further ones are counted.
const MAX_EVENTS: usize = 128;

/// Identifies a trace: the 128 bits of the root run's id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Identifies a span within its trace: the beginning of a hash of what the span is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A unit of work with its beginning and end.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub id: SpanId,
    /// The span that this one is a part of; `None` for the root of the trace.
    pub parent: Option<SpanId>,
    /// The operation and its object.
    pub name: String,
    /// Whether the work is done elsewhere.
    pub kind: SpanKind,
    /// The beginning.
    pub start: Timestamp,
    /// The end; never before the beginning.
    pub end: Timestamp,
    /// What is known of the work. Each key is there once.
    pub attributes: Vec<Attribute>,
    /// What happened meanwhile, in order.
    pub events: Vec<SpanEvent>,
    /// Number of events that are left out.
    pub dropped_events: u32,
    /// True if the work ended in an error; the attribute `error.type` names it.
    pub is_error: bool,
}

/// Where the work of a span is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// In this system.
    Internal,
    /// By a server that this system calls.
    Client,
}

/// A moment within a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// The name of what happened.
    pub name: &'static str,
    /// When.
    pub at: Timestamp,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
}

/// A key with its value.
pub type Attribute = (&'static str, AttributeValue);

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A whole number.
    Whole(i64),
    /// A number with a fraction.
    Real(f64),
    /// A truth value.
    Flag(bool),
}

impl TraceId {
    /// The trace of a run that no other run delegated, and of all that work for it.
    pub const fn of_root(run: RunId) -> Self {
        Self(run.bits().to_be_bytes())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// The span of a run's leg, counted from 1.
    pub fn of_leg(run: RunId, leg: u32) -> Self {
        Self::of(&format!("run {run} {leg}"))
    }

    /// The span of a call to a model or a tool.
    pub fn of_call(call: CallId) -> Self {
        Self::of(&format!("call {call}"))
    }

    fn of(subject: &str) -> Self {
        let mut hasher = Hasher::default();
        hasher.part(subject.as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hasher.finish().as_bytes()[..8]);
        // All zeroes mean that there is no span.
        Self(if id == [0; 8] { [1; 8] } else { id })
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Span {
    /// Sets an attribute, in place of an earlier value.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.retain(|(known, _)| *known != key);
        self.attributes.push((key, value.into()));
    }

    /// Adds an event, or counts it if there are too many.
    pub(super) fn add_event(&mut self, name: &'static str, at: Timestamp, attributes: Vec<Attribute>) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(SpanEvent { name, at, attributes });
        } else {
            self.dropped_events = self.dropped_events.saturating_add(1);
        }
    }

    /// Marks the span as failed, with the class of its error.
    pub(super) fn fail(&mut self, error_type: &str) {
        self.is_error = true;
        self.set("error.type", error_type);
    }

    /// Ends the span. The clock may have gone back since its beginning.
    pub(super) fn end_at(&mut self, at: Timestamp) {
        self.end = at.max(self.start);
    }

    /// The value of an attribute.
    pub fn attribute(&self, key: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

/// Numbers beyond the range of the wire format are its largest.
impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId::from_bits(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    #[test]
    fn the_id_of_a_trace_is_that_of_its_root_run() {
        assert_eq!(TraceId::of_root(RUN).to_string(), "0123456789abcdef0011223344556677");
    }

    #[test]
    fn ids_of_spans_are_stable_and_differ() {
        let call = |iteration, n| SpanId::of_call(CallId { run: RUN, iteration, n });
        // Backends know spans of earlier versions by these ids.
        assert_eq!(SpanId::of_leg(RUN, 1).to_string(), "0c46657e3a4b78bc");
        let ids = [
            SpanId::of_leg(RUN, 1),
            SpanId::of_leg(RUN, 2),
            call(1, 0),
            call(1, 1),
            call(11, 0),
            SpanId::of_call(CallId::aside(RUN, 1, hermod_actors::model::AsideJob::Summary)),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{id}");
        }
    }

    #[test]
    fn further_events_are_counted() {
        let mut span = Span {
            trace: TraceId::of_root(RUN),
            id: SpanId::of_leg(RUN, 1),
            parent: None,
            name: String::new(),
            kind: SpanKind::Internal,
            start: Timestamp(5),
            end: Timestamp(5),
            attributes: Vec::new(),
            events: Vec::new(),
            dropped_events: 0,
            is_error: false,
        };
        for _ in 0..MAX_EVENTS + 3 {
            span.add_event("e", Timestamp(6), Vec::new());
        }
        assert_eq!((span.events.len(), span.dropped_events), (MAX_EVENTS, 3));
        span.end_at(Timestamp(4));
        assert_eq!(span.end, Timestamp(5), "the clock went back");
        span.set("k", 1_u32);
        span.set("k", u64::MAX);
        assert_eq!(span.attributes, [("k", AttributeValue::Whole(i64::MAX))]);
    }
}
