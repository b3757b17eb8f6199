//! Traces: the runs of the journal as spans, which a service exports to a collector of OpenTelemetry. No actor knows of them.
//!
//! `fold.rs` makes the spans of a leg of a run from its records, and `span.rs` has their form. `settings.rs` finds out where
//! they go. With the feature `otlp`, `exporter.rs` waits for ends of runs in the feed, `encode.rs` makes messages of OTLP,
//! `sender.rs` sends them. `feed_cursor.rs` keeps the place in the feed.

mod counts;
#[cfg(feature = "otlp")]
mod encode;
mod export;
#[cfg(feature = "otlp")]
mod exporter;
mod fold;
mod names;
#[cfg(feature = "otlp")]
mod sender;
mod settings;
mod span;

pub use counts::ExportCounts;
pub use export::{TraceExport, TraceSource};
pub use fold::{LegSpans, TracedLeg};
pub use settings::OtlpSettings;
pub use span::{Attribute, AttributeValue, Span, SpanEvent, SpanId, SpanKind, TraceId};
