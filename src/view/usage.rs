//! View of what runs have used of models.

use std::collections::BTreeMap;

use hermod_actors::model::{AttemptId, Body, ModelRef, Record, RunSpec, Usage};
use serde::Serialize;
use utoipa::ToSchema;

use super::{account::PeriodUsageView, encoding, schema::Model};

/// What runs have used: `{models, runs, limits, next}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageView {
    /// By model, in the order of names.
    pub models: Vec<ModelUsageView>,
    /// Number of runs that are counted here, those of subagents included.
    pub runs: u64,
    /// What all runs of the store together may use in the present periods, the shortest first. Empty without such limits,
    /// and for a token that is limited to agents.
    pub limits: Vec<PeriodUsageView>,
    /// The `before` of the next part; `null` if there are no more runs. The parts are to be added up.
    #[schema(required)]
    pub next: Option<String>,
}

/// What was used of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelUsageView {
    /// The model.
    #[schema(value_type = Model)]
    pub model: ModelRef,
    /// Answers and failed attempts whose usage is known.
    pub calls: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from a cache, which may be part of those read.
    pub cached_tokens: u64,
    /// Tokens written to a cache.
    pub cache_write_tokens: u64,
    /// Dollars of the calls whose price is known.
    #[serde(serialize_with = "encoding::dollars_known::serialize")]
    #[schema(value_type = f64)]
    pub cost_usd: u64,
    /// Calls whose price is not known.
    pub unpriced_calls: u64,
}

/// Adds up what runs have used, record by record.
#[derive(Debug, Default)]
pub struct UsageFold(BTreeMap<ModelRef, ModelUsageView>);

/// The records of one run, from the first on.
#[derive(Debug)]
pub struct RunUsageFold<'f> {
    total: &'f mut UsageFold,
    spec: Option<RunSpec>,
    models: BTreeMap<AttemptId, ModelRef>,
}

impl UsageFold {
    /// Adds a run.
    pub const fn run(&mut self) -> RunUsageFold<'_> {
        RunUsageFold { total: self, spec: None, models: BTreeMap::new() }
    }

    /// All models.
    pub fn into_models(self) -> Vec<ModelUsageView> {
        self.0.into_values().collect()
    }
}

impl RunUsageFold<'_> {
    /// Adds the run's next record.
    #[expect(clippy::wildcard_enum_match_arm, reason = "`settled_usage` knows the other kinds")]
    pub fn take(&mut self, record: &Record) {
        match &record.body {
            Body::RunAccepted(accepted) => self.spec = Some((*accepted.spec).clone()),
            Body::ModelStarted(started) | Body::AsideStarted(started) => {
                self.models.insert(started.id(), started.model.clone());
            }
            Body::SummaryStarted(summary) => {
                self.models.insert(summary.started.id(), summary.started.model.clone());
            }
            // Its usage cannot be true.
            Body::ModelLate(late) if late.anomaly.is_some() => {}
            body => {
                if let Some((id, Some(usage))) = body.settled_usage() {
                    self.add(id, usage);
                }
            }
        }
    }

    fn add(&mut self, id: AttemptId, usage: &Usage) {
        let Some(model) = self.models.get(&id) else { return };
        let price = self.spec.as_ref().and_then(|spec| spec.profile_of(model).price);
        let cost = price.and_then(|price| price.cost(usage));
        let of_model =
            self.total.0.entry(model.clone()).or_insert_with(|| ModelUsageView::new(model.clone()));
        of_model.add(usage, cost);
    }
}

impl ModelUsageView {
    const fn new(model: ModelRef) -> Self {
        Self {
            model,
            calls: 0,
            input_tokens: 0,
            output_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 0,
            cost_usd: 0,
            unpriced_calls: 0,
        }
    }

    fn add(&mut self, usage: &Usage, cost: Option<u64>) {
        let add = |to: &mut u64, amount: u64| *to = to.saturating_add(amount);
        add(&mut self.calls, 1);
        add(&mut self.input_tokens, usage.input_total());
        add(&mut self.output_tokens, usage.output_total());
        add(&mut self.cached_tokens, usage.cached_tokens);
        add(&mut self.cache_write_tokens, usage.cache_write_tokens);
        add(&mut self.cost_usd, cost.unwrap_or(0));
        add(&mut self.unpriced_calls, u64::from(cost.is_none()));
    }
}
