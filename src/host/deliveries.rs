//! The delivery of messages in a process that runs a store: started with its runtime, exchanged by a reload, and waited
//! for by a command that ends with its run.

use std::{sync::Arc, time::Duration};

use hermod_actors::model::RunId;

use super::{error::HostError, start::RuntimeHost};
use crate::{
    config::Config,
    delivery::{Deliverer, TargetOutputs, Targets},
    discovery::Variables,
};

/// How long a command waits for the first attempts of what its run sends.
const PATIENCE: Duration = Duration::from_secs(20);

impl RuntimeHost {
    /// Delivers to the configured targets from now on, once. A target that cannot be used is noted; its messages wait.
    /// Messages for targets that `outputs` lacks wait.
    pub fn start_deliveries(&self, (config, variables): (&Config, &Variables), outputs: TargetOutputs) {
        let targets = Targets::resolve(config, variables, &outputs, &self.state);
        for (name, reason) in &targets.unusable {
            if let Some(notes) = &self.notes {
                notes.note(&format!("target    {name} is not used, its messages wait: {reason}"));
            }
        }
        self.deliverer.get_or_init(|| {
            let outbox = (Arc::clone(&self.journal), self.outbox.clone());
            (Deliverer::start(outbox, &self.runtime, &targets), outputs)
        });
    }

    /// The targets of this configuration; an error if one of them cannot be used.
    pub(super) fn checked_targets(
        &self,
        config: &Config,
        variables: &Variables,
    ) -> Result<Targets, HostError> {
        let outputs = self.deliverer.get().map(|(_, outputs)| outputs.clone()).unwrap_or_default();
        let targets = Targets::resolve(config, variables, &outputs, &self.state);
        match targets.unusable.first() {
            None => Ok(targets),
            Some((name, reason)) => Err(HostError::usage(format!("targets.{name}: {reason}"))),
        }
    }

    /// Delivers to these targets from now on.
    pub(super) fn exchange_targets(&self, targets: &Targets) {
        if let Some((deliverer, _)) = self.deliverer.get() {
            deliverer.exchange(targets);
        }
    }

    /// The targets for which messages wait, though the configuration does not have them.
    pub fn gone_targets(&self) -> Vec<String> {
        self.deliverer.get().map(|(deliverer, _)| deliverer.gone_targets()).unwrap_or_default()
    }

    /// Waits for the first attempt of each message of a run that has ended, and notes those that wait still.
    pub async fn finish_deliveries(&self, run: RunId) {
        let Some((deliverer, _)) = self.deliverer.get() else { return };
        let waiting = match deliverer.wait_for_run(run, PATIENCE).await {
            Ok(waiting) => waiting,
            Err(error) => return tracing::warn!(%error, "whether messages wait is not known"),
        };
        for delivery in waiting {
            let (id, target) = (&delivery.message.id, &delivery.message.target);
            let why = delivery.error.as_deref().unwrap_or("not tried yet");
            if let Some(notes) = &self.notes {
                notes.note(&format!(
                    "waiting   message {id} for {target}: {why}; `hermod serve` or the next run delivers it"
                ));
            }
        }
    }
}
