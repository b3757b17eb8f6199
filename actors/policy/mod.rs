//! Rules that need no state of their own: pure functions from what happened to what may be done.

mod admissions;
mod bill;
mod billing;
mod blame;
mod breaker;
pub(crate) mod delegation;
mod hidden;
mod housekeeping;
mod intensity;
mod limiter;
mod pool;
mod repair;
mod retry;
mod said;
pub(crate) mod todo;
mod visible;
mod walk;

pub(crate) use admissions::{Admissions, End, Known, Ticket};
pub use bill::Bill;
pub use billing::usage_anomaly;
pub(crate) use billing::{Billing, believed, billing, spent_by_failure, with_believed_usage};
pub(crate) use blame::{Blame, blame};
pub(crate) use breaker::{Cooldown, Gauge};
pub(crate) use housekeeping::is_housekeeping;
pub(crate) use intensity::{Deaths, InARow, Intensity, Verdict};
pub(crate) use repair::{Unreadable, arguments, fit_name, tool_name};
pub(crate) use retry::{After, Contact, Elsewhere, Otherwise, Past, may_pass};
pub(crate) use said::said;
pub use said::{AnswerSource, Said};
pub use visible::Visible;
pub(crate) use walk::{Candidate, Next, Standing, Visit, next, until};
