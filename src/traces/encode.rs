//! Spans as messages of OTLP, and the meaning of the collector's answer.

use bytes::Bytes;
use hermod_actors::model::Timestamp;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1 as wire,
};
use prost::Message as _;

use super::span::{Attribute, AttributeValue, Span, SpanEvent, SpanKind};

/// The media type of requests and answers.
pub(super) const MEDIA_TYPE: &str = "application/x-protobuf";
/// Nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;

/// The request that exports these spans of a service with these attributes.
pub(super) fn encode(spans: Vec<Span>, service: &[(String, String)]) -> Bytes {
    let attributes = service.iter().map(|(key, value)| pair(key, text(value.as_str())));
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let of_scope = wire::ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(encode_span).collect(),
        schema_url: String::new(),
    };
    let of_service = wire::ResourceSpans {
        resource: Some(Resource { attributes: attributes.collect(), ..Resource::default() }),
        scope_spans: vec![of_scope],
        schema_url: String::new(),
    };
    ExportTraceServiceRequest { resource_spans: vec![of_service] }.encode_to_vec().into()
}

/// Number of spans that a collector has rejected although it answered with success, and why.
pub(super) fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportTraceServiceResponse::decode(answer).ok()?.partial_success?;
    let rejected = u64::try_from(partial.rejected_spans).ok().filter(|rejected| *rejected > 0)?;
    Some((rejected, partial.error_message))
}

fn encode_span(span: Span) -> wire::Span {
    let status = span.is_error.then(|| wire::Status {
        code: wire::status::StatusCode::Error.into(),
        // The messages of errors may have texts of users in them.
        message: String::new(),
    });
    let kind = match span.kind {
        SpanKind::Internal => wire::span::SpanKind::Internal,
        SpanKind::Client => wire::span::SpanKind::Client,
    };
    wire::Span {
        trace_id: span.trace.as_bytes().to_vec(),
        span_id: span.id.as_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.as_bytes().to_vec()).unwrap_or_default(),
        name: span.name,
        kind: kind.into(),
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: encode_attributes(span.attributes),
        events: span.events.into_iter().map(encode_event).collect(),
        dropped_events_count: span.dropped_events,
        status,
        ..wire::Span::default()
    }
}

fn encode_event(event: SpanEvent) -> wire::span::Event {
    wire::span::Event {
        time_unix_nano: nanos(event.at),
        name: event.name.to_owned(),
        attributes: encode_attributes(event.attributes),
        dropped_attributes_count: 0,
    }
}

fn encode_attributes(attributes: Vec<Attribute>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(key, value)| pair(key, encode_value(value))).collect()
}

fn encode_value(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(value) => Value::StringValue(value),
        AttributeValue::Whole(number) => Value::IntValue(number),
        AttributeValue::Real(number) => Value::DoubleValue(number),
        AttributeValue::Flag(flag) => Value::BoolValue(flag),
        AttributeValue::Texts(texts) => {
            let values = texts.into_iter().map(|value| AnyValue { value: Some(text(value)) });
            Value::ArrayValue(ArrayValue { values: values.collect() })
        }
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::StringValue(text.into())
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Nanoseconds since 1970.
fn nanos(at: Timestamp) -> u64 {
    at.ms_since(Timestamp::default()).saturating_mul(NANOS)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn an_answer_may_reject_some_spans() {
        let check = |partial: Option<(i64, &str)>, expect: Option<(u64, &str)>| {
            let partial_success = partial.map(|(rejected_spans, message)| ExportTracePartialSuccess {
                rejected_spans,
                error_message: message.to_owned(),
            });
            let answer = ExportTraceServiceResponse { partial_success }.encode_to_vec();
            let found = rejected(&answer);
            assert_eq!(found.as_ref().map(|(count, why)| (*count, why.as_str())), expect);
        };
        check(None, None);
        check(Some((0, "a warning")), None);
        check(Some((3, "too old")), Some((3, "too old")));
        assert_eq!(rejected(b"{}"), None, "an answer that is no message");
    }
}
