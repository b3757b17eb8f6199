//! Rules that need no state of their own: pure functions from what happened to what may be done.

mod housekeeping;
mod intensity;
mod repair;
mod retry;
mod visible;

pub(crate) use housekeeping::is_housekeeping;
pub(crate) use intensity::{Deaths, InARow, Intensity, Verdict};
pub(crate) use repair::{Unreadable, arguments, fit_name, tool_name};
pub(crate) use retry::{Billing, billing, falls_back};
pub use visible::Visible;
