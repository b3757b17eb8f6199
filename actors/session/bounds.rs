//! The limits of the tasks of a session, for whoever wants to know when a wait is over at the latest.

use std::time::Duration;

use crate::{
    model::{ModelRef, RunSpec},
    policy::arguments,
    session::{
        Wiring,
        attempt::RENEWING,
        watchdog::{KEEPING, STOPPING, TOOL, of_call},
    },
    turn::TaskDeadlines,
};

impl TaskDeadlines for Wiring {
    /// Reading its pictures, the call itself, and renewing a credential that was refused.
    fn model(&self, model: &ModelRef, spec: &RunSpec) -> u64 {
        let own = spec.traits_of(model).deadlines.call_ms;
        let call = self.leases.endpoint(model).map_or(Duration::ZERO, |endpoint| of_call(&**endpoint, own));
        ms(KEEPING + call + RENEWING)
    }

    /// The tool's own limit, and keeping a long result.
    fn tool(&self, tool: &str, text: &str) -> u64 {
        let limit = self.tools.get(tool).zip(arguments(text).ok()).and_then(|(tool, text)| tool.limit(&text));
        ms(limit.unwrap_or(TOOL) + KEEPING)
    }

    /// What a tool has to end in, and as long for keeping what it has said.
    fn stop(&self) -> u64 {
        ms(STOPPING * 2)
    }
}

fn ms(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
