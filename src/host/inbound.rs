//! The webhooks of other services that a process takes: opened with its runtime, and exchanged by a reload.

use std::sync::Arc;

use super::{error::HostError, exchangeable::Exchangeable, start::RuntimeHost};
use crate::{config::Config, discovery::Variables, inbound::InboundEndpoints};

impl RuntimeHost {
    /// Takes webhooks as they are configured from now on. An endpoint whose secret is missing is noted; it takes nothing.
    pub fn open_inbound(
        &self,
        config: &Config,
        variables: &Variables,
    ) -> Arc<Exchangeable<InboundEndpoints>> {
        let endpoints = InboundEndpoints::resolve(config, variables);
        for (name, reason) in &endpoints.unusable {
            if let Some(notes) = &self.notes {
                notes.note(&format!("inbound   {name} takes no webhooks: {reason}"));
            }
        }
        self.inbound.exchange(endpoints);
        Arc::clone(&self.inbound)
    }
}

/// The endpoints of this configuration; an error if one of them cannot be used.
pub(super) fn checked_inbound(config: &Config, variables: &Variables) -> Result<InboundEndpoints, HostError> {
    let endpoints = InboundEndpoints::resolve(config, variables);
    match endpoints.unusable.first() {
        None => Ok(endpoints),
        Some((name, reason)) => Err(HostError::usage(format!("inbound.{name}: {reason}"))),
    }
}
