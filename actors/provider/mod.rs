//! Provider: the control plane of one endpoint. It never makes or awaits a call: sessions own the tasks of their calls,
//! and take leases at the gates, which outlive the actors.

mod actor;
mod gate;
mod leases;

pub(crate) use actor::{AttemptReport, ProviderActor, ProviderMsg, ProviderState};
pub use actor::{ModelStatus, ProviderStatus};
pub(crate) use gate::{Gate, GateAdmission};
pub(crate) use leases::{Lease, LeaseUnavailable, Leases, QueuedPermit, WaitHint};
