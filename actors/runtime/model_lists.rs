//! Limits from the providers' model lists: fetched before a run is accepted, for models with an unknown context window.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use tokio::time::timeout;

use crate::{
    model::{ListedLimits, ModelRef, ModelRow, RunSpec, Timestamp},
    runtime::Runtime,
};

/// Most time that a submission waits for the lists of its providers, all together.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Milliseconds until a list that answered is fetched again: a day.
const LIST_TTL_MS: u64 = 24 * 60 * 60 * 1_000;
/// Milliseconds until a list that did not answer is fetched again: ten minutes.
const UNANSWERED_TTL_MS: u64 = 10 * 60 * 1_000;

/// The models for which no list returned limits, with the time of the attempt.
#[derive(Debug, Default)]
pub(super) struct UnansweredLists(Mutex<HashMap<ModelRef, Timestamp>>);

impl UnansweredLists {
    fn is_recent(&self, model: &ModelRef, now: Timestamp) -> bool {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(model).is_some_and(|at| is_within(*at, now, UNANSWERED_TTL_MS))
    }

    fn add(&self, model: ModelRef, now: Timestamp) {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|_, at| is_within(*at, now, UNANSWERED_TTL_MS));
        models.insert(model, now);
    }
}

/// Whether `now` is less than `ms` milliseconds after `at`, and not before it.
fn is_within(at: Timestamp, now: Timestamp, ms: u64) -> bool {
    at <= now && now.ms_since(at) < ms
}

impl Runtime {
    /// The models of a run whose limits must be fetched: their window is unknown, and no recent fetch was made.
    pub(super) fn models_to_list(&self, spec: &RunSpec, rows: &[ModelRow]) -> Vec<ModelRef> {
        let now = self.handles.wiring.clock.at();
        let is_asked = |model: &ModelRef| {
            let row = rows.iter().find(|row| row.model == *model);
            let is_named =
                spec.profile_of(model).window.is_some() || row.is_some_and(|row| row.window.is_some());
            let listed = row.and_then(|row| row.listed);
            let is_fresh = listed.is_some_and(|listed| is_within(listed.at, now, LIST_TTL_MS));
            !is_named && !is_fresh && !self.unanswered.is_recent(model, now)
        };
        spec.models().into_iter().filter(is_asked).collect()
    }

    /// The limits that lists tell of these models now. Models whose list does not answer in time are left out.
    pub(super) async fn fetch_listed_limits(&self, models: Vec<ModelRef>) -> Vec<ModelRow> {
        let asked = models.into_iter().map(|model| async {
            let endpoint = self.handles.wiring.leases.endpoint(&model);
            let limits = match endpoint {
                Some(endpoint) => {
                    timeout(LIST_TIMEOUT, endpoint.model_limits(model.model())).await.ok().flatten()
                }
                None => None,
            };
            let at = self.handles.wiring.clock.at();
            let Some(limits) = limits else {
                self.unanswered.add(model, at);
                return None;
            };
            tracing::debug!(%model, ?limits, "what its provider lists");
            Some(ModelRow { model, density: None, window: None, listed: Some(ListedLimits { at, limits }) })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}
