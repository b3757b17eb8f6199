//! Tells hooks that a service serves, or ends. These events are in no journal: after a kill there is no `service_stop`.

use std::sync::Arc;

use futures::future::join_all;
use hermod_actors::model::Timestamp;
use serde_json::json;

use super::{
    configured::ConfiguredHooks,
    hook::Hook,
    names::{HookRole, NAMES, ObservedEvent},
};
use crate::clock;

/// How often a hook is told.
const MAX_TRIES: usize = 3;

impl ConfiguredHooks {
    /// Tells the hooks of an event of the service that began at this time. Ends when each has taken it, or has failed
    /// several times.
    pub async fn tell_of_service(&self, event: ObservedEvent, address: &str, started_at: Timestamp) {
        let role = HookRole::Observes(event);
        let Some(name) = NAMES.iter().find(|name| name.role == role).map(|name| name.name) else { return };
        let started_at = clock::rfc3339(started_at);
        let tell = async |hook: &Arc<Hook>| {
            let event = json!({
                "id": format!("service/{started_at}/{name}"),
                "name": name,
                "hook": *hook.name,
                "address": address,
                "started_at": started_at,
                "version": env!("CARGO_PKG_VERSION"),
            });
            for _ in 0..MAX_TRIES {
                if hook.tell(&event).await.is_ok() {
                    return;
                }
            }
        };
        join_all(self.hooks().iter().filter(|hook| hook.observes(event)).map(tell)).await;
    }
}
