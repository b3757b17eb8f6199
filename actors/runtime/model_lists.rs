//! Requests the limits of models with an unknown context window, before a run and at the start of the runtime. The
//! Provider actors request the lists from the endpoints (`provider/model_lists.rs`).

use std::sync::Arc;

use futures::future::join_all;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    model::{ListedLimits, ModelRef, ModelRow, RunSpec},
    provider::{LIST_TIMEOUT, LIST_TTL_MS, ProviderMsg},
    runtime::Runtime,
};

impl Runtime {
    /// Requests the unknown limits of the default models, so that the first run need not wait for them.
    pub(super) async fn request_default_limits(&self) {
        let spec = &self.defaults.spec;
        if self.models_to_list(spec, &[]).is_empty() {
            return;
        }
        let rows = self.model_rows(spec).await;
        for model in self.models_to_list(spec, &rows) {
            drop(self.request_limits(&model));
        }
    }

    /// The models of a run whose limits must be requested: their window is unknown, and their list was not requested
    /// within a day.
    pub(super) fn models_to_list(&self, spec: &RunSpec, rows: &[ModelRow]) -> Vec<ModelRef> {
        let parts = &self.parts;
        let now = parts.clock.at();
        let is_needed = |model: &ModelRef| {
            let row = rows.iter().find(|row| row.model == *model);
            let is_named =
                spec.profile_of(model).window.is_some() || row.is_some_and(|row| row.window.is_some());
            let listed = row.and_then(|row| row.listed);
            let is_fresh =
                listed.is_some_and(|listed| listed.at <= now && now.ms_since(listed.at) < LIST_TTL_MS);
            let endpoint = parts.leases.endpoint(model);
            !is_named && !is_fresh && endpoint.is_some_and(|it| it.model_limits(model.model()).is_some())
        };
        spec.models().into_iter().filter(is_needed).collect()
    }

    /// The listed limits of these models. Models whose list does not answer in time are left out.
    pub(super) async fn listed_limits(&self, models: Vec<ModelRef>) -> Vec<ModelRow> {
        let requests = models.into_iter().map(|model| async {
            let limits = timeout(LIST_TIMEOUT, self.request_limits(&model)).await.ok()?.ok().flatten();
            Some(ModelRow { model, density: None, window: None, listed: Some(limits?) })
        });
        join_all(requests).await.into_iter().flatten().collect()
    }

    /// Sends a request to the model's Provider actor. Without an actor the receiver fails.
    fn request_limits(&self, model: &ModelRef) -> oneshot::Receiver<Option<ListedLimits>> {
        let (reply, limits) = oneshot::channel();
        let message = ProviderMsg::RequestLimits(Arc::clone(model.model()), reply);
        if self.parts.leases.gate(model).is_none_or(|gate| gate.actor.cast(message).is_err()) {
            tracing::debug!(%model, "a request for limits to a provider without an actor");
        }
        limits
    }
}
