//! Observations about the models that a session calls: token density and context window. Folded from the session's
//! records alone, on top of what the store knew when the run was accepted. Also the rows with which the store keeps
//! them for later runs.

use imbl::Vector;

use crate::model::{
    Body, FailureClass, ModelFailed, ModelRef, ModelRow, ModelStarted, RunSpec, TokenDensity, Usage,
};

/// What a session has observed of the models that it called.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelObservations(Vector<ModelObservation>);

/// Observations about one model.
#[derive(Debug, Clone)]
struct ModelObservation {
    model: ModelRef,
    density: Option<TokenDensity>,
    window: Option<ObservedWindow>,
}

/// Observed context window of a model, in tokens.
#[derive(Debug, Clone, Copy)]
enum ObservedWindow {
    /// The provider has reported it.
    Reported(u64),
    /// The provider has refused a request as too long, without naming its window. This many tokens were reserved for
    /// the input.
    Exceeded(u64),
}

impl ModelObservations {
    /// Folds the end of an attempt of a model call or summary call; `started` is that attempt.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds tell nothing about a model")]
    pub(super) fn apply(&mut self, body: &Body, started: &ModelStarted, spec: &RunSpec) {
        match body {
            Body::ModelAnswered(_) | Body::SummaryAnswered(_) | Body::AsideAnswered(_) => {
                if let Some((_, Some(usage))) = body.settled_usage() {
                    self.correct_density(started, spec, Usage::input_total(usage));
                }
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                self.on_failed(failed, started, spec);
            }
            _ => {}
        }
    }

    fn of(&self, model: &ModelRef) -> Option<&ModelObservation> {
        self.0.iter().find(|observation| observation.model == *model)
    }

    /// Token density of this model's requests: observed, else of the run's spec, else the default.
    pub(super) fn density(&self, spec: &RunSpec, model: &ModelRef) -> TokenDensity {
        let observed = self.of(model).and_then(|observation| observation.density);
        observed.or(spec.profile_of(model).density).unwrap_or_default()
    }

    /// The window of a model: the smaller of the known and the observed one.
    pub(super) fn window(&self, spec: &RunSpec, model: &ModelRef) -> Option<u64> {
        let found = self.of(model).and_then(|observation| observation.window).map(|window| match window {
            ObservedWindow::Reported(tokens) | ObservedWindow::Exceeded(tokens) => tokens,
        });
        found.into_iter().chain(spec.profile_of(model).window).min()
    }

    /// Folds a failure: if the request was too long, it tells the window, and perhaps a higher density.
    fn on_failed(&mut self, failed: &ModelFailed, started: &ModelStarted, spec: &RunSpec) {
        let FailureClass::ContextTooLong { limit } = &failed.failure.class else { return };
        let estimated = self.density(spec, &started.model).tokens(started.bytes);
        let input_tokens = started.reserved.tokens.unwrap_or(0).saturating_sub(started.max_tokens);
        let reported = limit.filter(|limit| *limit > 0);
        self.update(&started.model, |observation| {
            observation.window =
                Some(reported.map_or(ObservedWindow::Exceeded(input_tokens), ObservedWindow::Reported));
        });
        // The input has more tokens than this, or it would have fitted.
        let minimum = reported.unwrap_or(0).saturating_sub(started.max_tokens);
        if minimum > estimated {
            self.correct_density(started, spec, minimum);
        }
    }

    fn correct_density(&mut self, started: &ModelStarted, spec: &RunSpec, tokens: u64) {
        let before = self.density(spec, &started.model);
        let density = before.corrected(started.bytes, tokens);
        if density != before {
            self.update(&started.model, |observation| observation.density = Some(density));
        }
    }

    fn update(&mut self, model: &ModelRef, change: impl FnOnce(&mut ModelObservation)) {
        let known = self.0.iter().position(|observation| observation.model == *model);
        let new = || ModelObservation { model: model.clone(), density: None, window: None };
        let mut observation = known.map_or_else(new, |at| self.0.remove(at));
        change(&mut observation);
        self.0.push_back(observation);
    }

    /// Observations about a run's models that the store did not have when the run was accepted.
    pub(super) fn new_rows(&self, spec: &RunSpec) -> Vec<ModelRow> {
        let row = |model: ModelRef| {
            let (observation, profile) = (self.of(&model), spec.profile_of(&model));
            let window = observation.and_then(|observation| observation.window);
            let reported =
                if let Some(ObservedWindow::Reported(tokens)) = window { Some(tokens) } else { None };
            let density = observation.and_then(|observation| observation.density);
            let density = density.filter(|density| profile.density != Some(*density));
            let window = reported.filter(|window| profile.window != Some(*window));
            let listed = profile.listed_limits;
            let is_new = density.is_some() || window.is_some() || listed.is_some();
            is_new.then_some(ModelRow { model, density, window, listed })
        };
        spec.models().into_iter().filter_map(row).collect()
    }
}
