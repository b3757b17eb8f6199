//! Rules that need no state of their own: pure functions from what happened to what may be done.

mod intensity;
mod retry;

pub(crate) use intensity::{Deaths, InARow, Intensity, Verdict};
pub(crate) use retry::{Billing, billing, falls_back};
