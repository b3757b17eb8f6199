//! Incoming webhooks of other services: who has signed them, and what message they become.
//!
//! `signature.rs` checks them over the bytes that came, `event_filter.rs` chooses among them, and `template.rs` makes texts
//! of them. `endpoint.rs` joins these for one section `inbound.NAME`, and `endpoints.rs` has those of a configuration. All
//! of it is pure. `service/routes/inbound.rs` has the route, and `docs/decisions/inbound.md` the reasons.

mod endpoint;
mod endpoints;
mod event_filter;
mod signature;
mod template;

pub use endpoint::{InboundEndpoint, InboundError, InboundMessage, InboundProbe};
pub use endpoints::InboundEndpoints;
pub use event_filter::EventFilter;
pub use signature::{SignatureClaim, SignatureScheme};
