//! Observations about the models that a session calls. Folded from its records alone, on top of what the store knew
//! when the run was accepted.

use crate::{
    journal::IndexRow,
    model::{CallId, FailureClass, ModelRef, ModelRow, ModelStarted, RunId, TokenDensity, Usage},
    turn::{
        Turn,
        active_run::{ActiveRun, CurrentRun},
        decision::DecisionBuilder,
    },
};

/// Observations about one model.
#[derive(Debug, Clone)]
pub(super) struct ModelObservation {
    model: ModelRef,
    density: Option<TokenDensity>,
    window: Option<ObservedWindow>,
}

/// Observed context window of a model, in tokens.
#[derive(Debug, Clone, Copy)]
enum ObservedWindow {
    /// The provider has reported it.
    Reported(u64),
    /// The provider has refused a request for whose input this many tokens were reserved.
    Exceeded(u64),
}

impl Turn {
    fn observation(&self, model: &ModelRef) -> Option<&ModelObservation> {
        self.observations.iter().find(|learned| learned.model == *model)
    }

    /// Token density of this model's requests: observed, else of the run's spec, else the default.
    pub(super) fn density(&self, run: &ActiveRun, model: &ModelRef) -> TokenDensity {
        let own = self.observation(model).and_then(|learned| learned.density);
        own.or(run.spec.profile_of(model).density).unwrap_or_default()
    }

    /// The window of a model: the smaller of the known and the observed one.
    pub(super) fn window(&self, run: &ActiveRun, model: &ModelRef) -> Option<u64> {
        let found = self.observation(model).and_then(|learned| learned.window).map(|window| match window {
            ObservedWindow::Reported(tokens) | ObservedWindow::Exceeded(tokens) => tokens,
        });
        found.into_iter().chain(run.spec.profile_of(model).window).min()
    }

    /// Bytes that fit into the window of the first model of the run under way; `None` if unknown.
    pub fn window_bytes(&self) -> Option<u64> {
        let CurrentRun::Running(run) = &self.current else { return None };
        let model = run.spec.chain.first()?;
        Some(self.density(run, model).bytes(self.window(run, model)?))
    }

    /// Corrects the token density by the reported usage of a request.
    pub(super) fn observe_usage(&mut self, started: &ModelStarted, usage: Option<&Usage>) {
        let Some(usage) = usage else { return };
        self.correct_density(started, usage.input_total());
    }

    /// Notes the window after a refusal of a request as too long.
    pub(super) fn observe_too_long(&mut self, class: &FailureClass, call: CallId) {
        let FailureClass::ContextTooLong { limit } = class else { return };
        let CurrentRun::Running(run) = &self.current else { return };
        let Some(started) = run.started_of(call).cloned() else { return };
        let taken = self.density(run, &started.model).tokens(started.bytes);
        let asked = started.reserved.tokens.unwrap_or(0).saturating_sub(started.max_tokens);
        let named = limit.filter(|limit| *limit > 0);
        self.update_observation(&started.model, |learned| {
            learned.window = Some(named.map_or(ObservedWindow::Exceeded(asked), ObservedWindow::Reported));
        });
        // The request has more tokens than this, or it would have fitted.
        let least = named.unwrap_or(0).saturating_sub(started.max_tokens);
        if least > taken {
            self.correct_density(&started, least);
        }
    }

    fn correct_density(&mut self, started: &ModelStarted, tokens: u64) {
        let CurrentRun::Running(run) = &self.current else { return };
        let before = self.density(run, &started.model);
        let density = before.corrected(started.bytes, tokens);
        if density != before {
            self.update_observation(&started.model, |learned| learned.density = Some(density));
        }
    }

    fn update_observation(&mut self, model: &ModelRef, change: impl FnOnce(&mut ModelObservation)) {
        let known = self.observations.iter().position(|learned| learned.model == *model);
        let new = || ModelObservation { model: model.clone(), density: None, window: None };
        let mut learned = known.map_or_else(new, |at| self.observations.remove(at));
        change(&mut learned);
        self.observations.push_back(learned);
    }

    /// Observations about a run's models that the store did not have when the run was accepted.
    fn new_observations(&self, run: &ActiveRun) -> Vec<ModelRow> {
        let news = |model: ModelRef| {
            let (learned, traits) = (self.observation(&model), run.spec.profile_of(&model));
            let named = match learned.and_then(|learned| learned.window) {
                Some(ObservedWindow::Reported(tokens)) => Some(tokens),
                Some(ObservedWindow::Exceeded(_)) | None => None,
            };
            let density = learned.and_then(|learned| learned.density);
            let density = density.filter(|density| traits.density != Some(*density));
            let window = named.filter(|window| traits.window != Some(*window));
            let listed = traits.listed_limits;
            let has_news = density.is_some() || window.is_some() || listed.is_some();
            has_news.then_some(ModelRow { model, density, window, listed })
        };
        run.spec.models().into_iter().filter_map(news).collect()
    }
}

impl DecisionBuilder {
    /// Adds the run's new observations to the index, for later runs; called before its terminal record is folded.
    pub(super) fn index_observations(&mut self, run: RunId) {
        let Some(run) = self.run().filter(|current| current.id == run) else { return };
        let news = self.turn.new_observations(run);
        self.decision.index.extend(news.into_iter().map(IndexRow::Model));
    }
}
