//! The endpoints for webhooks of a configuration, with their secrets.

use std::{collections::BTreeMap, sync::Arc};

use super::{endpoint::InboundEndpoint, event_filter::EventFilter, signature::Keys};
use crate::{
    config::{Config, InboundSection},
    discovery::Variables,
    redaction,
};

/// The endpoints by name.
#[derive(Debug, Default)]
pub struct InboundEndpoints {
    ready: BTreeMap<String, Arc<InboundEndpoint>>,
    /// Those that take nothing now, each with the reason.
    pub unusable: Vec<(String, String)>,
}

impl InboundEndpoints {
    /// Resolves the secrets of the sections `inbound.NAME`, which become known to this process's redaction.
    pub fn resolve(config: &Config, variables: &Variables) -> Self {
        let mut endpoints = Self::default();
        for (name, section) in &config.inbound {
            match endpoint(name, section, variables) {
                Ok(endpoint) => drop(endpoints.ready.insert(name.clone(), Arc::new(endpoint))),
                Err(reason) => endpoints.unusable.push((name.clone(), reason)),
            }
        }
        endpoints
    }

    /// The endpoint of this name.
    pub fn find(&self, name: &str) -> Option<Arc<InboundEndpoint>> {
        self.ready.get(name).cloned()
    }
}

fn endpoint(name: &str, section: &InboundSection, variables: &Variables) -> Result<InboundEndpoint, String> {
    // The check of the configuration has found these keys.
    let missing = || "its section is not complete".to_owned();
    let scheme = section.signature.as_ref().ok_or_else(missing)?.0;
    let (session, text) = section.session.as_ref().zip(section.text.as_ref()).ok_or_else(missing)?;
    Ok(InboundEndpoint {
        name: name.into(),
        scheme,
        keys: keys(scheme, section, variables)?,
        filter: section.events.as_ref().map_or_else(EventFilter::default, |events| events.0.clone()),
        session: session.0.clone(),
        text: text.0.clone(),
        instructions: section.instructions.as_ref().map(|text| text.0.clone()),
        mode: section.mode.as_ref().map(|mode| mode.0),
        agent: section.agent_name(),
        deliver_to: section.deliver_to.as_ref().map(|targets| targets.0.clone()),
    })
}

fn keys(
    scheme: super::SignatureScheme,
    section: &InboundSection,
    variables: &Variables,
) -> Result<Keys, String> {
    let mut secrets = Vec::new();
    for reference in section.references() {
        let secret = reference.resolve(variables).map_err(|missing| format!("secret: {missing}"))?;
        redaction::of_process().learn_all([(&*reference.to_string(), &secret)]);
        secrets.push(secret);
    }
    if secrets.is_empty() {
        return Err("its section has no secret".to_owned());
    }
    scheme.keys(secrets).map_err(|why| format!("secret: {why}"))
}
