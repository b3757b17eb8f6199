//! Provider: the control plane of one endpoint. Its actor never makes or awaits a model call. Sessions own the tasks of
//! their calls, and take leases at the gates, which outlive the actors.

mod actor;
mod gate;
mod leases;
mod model_lists;
mod statistics;

pub(crate) use actor::{LIST_TIMEOUT, ProviderActor, ProviderMsg, ProviderState};
pub(crate) use gate::{Gate, GateAdmission};
pub(crate) use leases::{Lease, LeaseUnavailable, Leases, WaitHint};
pub(crate) use model_lists::LIST_TTL_MS;
pub(crate) use statistics::{AnswerReport, AttemptReport};
pub use statistics::{ModelStatus, ProviderStatus};
