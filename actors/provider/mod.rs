//! Provider: the control plane of one endpoint. It never makes or awaits a call: sessions own the tasks of their calls,
//! and take leases at the gates, which outlive the actors.

mod actor;
mod gate;
mod leases;

pub use actor::{ModelStatus, ProviderStatus};
pub(crate) use actor::{Provider, ProviderMsg, Report, State as ProviderState};
pub(crate) use gate::{Admission, Gate};
pub(crate) use leases::{Lease, Leases, NoLease, Pause, Permit};
