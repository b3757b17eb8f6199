//! Folds the records of the feed into the totals that the metrics show. Pure: what is counted depends on the records alone,
//! and the actors count nothing.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::model::{
    AttemptId, Body, CallId, ModelAnswered, ModelFailed, ModelRef, ModelStarted, Price, Record, RunId, Usage,
};

use super::open_waits::OpenWaits;

/// Most models with series of their own. The configuration and the users choose models, and each costs memory in Prometheus.
const MAX_MODELS: usize = 200;
/// The name under which all further models are counted.
const OTHER_MODELS: &str = "other";

/// Totals of the records that were folded.
#[derive(Debug, Default)]
pub(super) struct RecordTotals {
    /// Accepted runs, by their origin: `client` or `subagent`.
    pub(super) accepted: BTreeMap<&'static str, u64>,
    /// Ended legs of runs, by outcome.
    pub(super) ended: BTreeMap<&'static str, u64>,
    /// Runs that were reopened with larger limits.
    pub(super) reopened: u64,
    /// By the name of the model.
    pub(super) models: BTreeMap<Arc<str>, ModelTotals>,
    /// Failed attempts of model calls, by provider and failure class.
    pub(super) failures: BTreeMap<(Arc<str>, &'static str), u64>,
    /// Ended tool calls, by status.
    pub(super) tool_calls: BTreeMap<&'static str, u64>,
    /// Views that were made shorter.
    pub(super) compactions: u64,
    /// Requests to persons.
    pub(super) approvals: u64,
    /// Openings of sessions that had been opened before.
    pub(super) revived: u64,
    /// Records that cannot be read.
    pub(super) unreadable: u64,
    /// Started attempts of model calls that may still cost something.
    attempts: BTreeMap<AttemptId, StartedAttempt>,
    /// What the open calls of unfinished runs wait for.
    waits: OpenWaits,
}

/// What the calls of one model add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ModelTotals {
    /// Answers to iterations.
    pub(super) iterations: u64,
    /// Usage, as reported.
    pub(super) usage: Usage,
    /// Cost in nano-dollars, as far as prices are known.
    pub(super) nano_usd: u64,
    /// Calls whose cost is unknown.
    pub(super) unpriced: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct StartedAttempt {
    model: Arc<str>,
    provider: Arc<str>,
    price: Option<Price>,
}

impl RecordTotals {
    /// Adds the next record of the feed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change no total")]
    pub(super) fn take(&mut self, record: &Record) {
        match &record.body {
            Body::RunAccepted(accepted) => {
                let origin = if accepted.parent.is_some() { "subagent" } else { "client" };
                *self.accepted.entry(origin).or_default() += 1;
            }
            Body::RunEnded(ended) => {
                *self.ended.entry(ended.ended.outcome.name()).or_default() += 1;
                self.forget(ended.run);
            }
            Body::RunReopened(_) => self.reopened += 1,
            Body::SessionRevived(_) => self.revived += 1,
            Body::ContextCompacted(_) => self.compactions += 1,
            Body::ModelStarted(started) | Body::AsideStarted(started) => self.on_started(started),
            Body::SummaryStarted(started) => self.on_started(&started.started),
            Body::ModelAnswered(answered) => self.on_answered(answered),
            Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) => {
                self.waits.remove(&answered.call);
                self.settle(answered.call.attempt(answered.attempt), answered.usage.as_ref());
                self.attempts.remove(&answered.call.attempt(answered.attempt));
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                self.on_failed(failed);
            }
            Body::ModelLate(late) if late.anomaly.is_none() => self.settle(late.id(), Some(&late.usage)),
            Body::ModelWaiting(waiting) => self.waits.insert(waiting.call, "reset"),
            Body::CallAdmitted(admitted) => self.waits.insert(admitted.call, "permit"),
            Body::CallStarted(started) => {
                let reason = if started.children.is_empty() { "tool" } else { "children" };
                self.waits.insert(started.call, reason);
            }
            Body::CallLost(lost) => self.waits.insert(lost.call, "permit"),
            // The row of the run tells that it waits for a person.
            Body::ApprovalRequested(requested) => {
                self.approvals += 1;
                self.waits.remove(&requested.call);
            }
            Body::ApprovalAnswered(answered) => self.waits.insert(answered.call, "permit"),
            Body::CallEnded(ended) => {
                self.waits.remove(&ended.call);
                *self.tool_calls.entry(ended.end.status.name()).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Number of open calls by what they wait for.
    pub(super) fn waits(&self) -> BTreeMap<&'static str, u64> {
        self.waits.counts().clone()
    }

    fn on_started(&mut self, started: &ModelStarted) {
        let model = self.name_of(&started.model);
        let is_other = *model == *OTHER_MODELS;
        let provider = if is_other { Arc::clone(&model) } else { Arc::clone(started.model.provider()) };
        self.attempts.insert(started.id(), StartedAttempt { model, provider, price: started.price });
        self.waits.insert(started.call, "model");
    }

    fn on_answered(&mut self, answered: &ModelAnswered) {
        let id = answered.call.attempt(answered.attempt);
        self.waits.remove(&answered.call);
        self.totals_of(id).iterations += 1;
        self.settle(id, answered.usage.as_ref());
        self.attempts.remove(&id);
    }

    /// The attempt stays known until the end of the run: its answer may come late.
    fn on_failed(&mut self, failed: &ModelFailed) {
        let id = failed.call.attempt(failed.attempt);
        match failed.retry_at {
            Some(_) => self.waits.insert(failed.call, "retry"),
            None => self.waits.remove(&failed.call),
        }
        let provider =
            self.attempts.get(&id).map_or_else(|| OTHER_MODELS.into(), |it| Arc::clone(&it.provider));
        *self.failures.entry((provider, failed.failure.class.name())).or_default() += 1;
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.settle(id, Some(usage));
        }
    }

    /// Adds the usage of an attempt; `None` if it is not known.
    fn settle(&mut self, id: AttemptId, usage: Option<&Usage>) {
        let price = self.attempts.get(&id).and_then(|attempt| attempt.price);
        let cost = usage.zip(price).and_then(|(usage, price)| price.cost(usage));
        let totals = self.totals_of(id);
        if let Some(usage) = usage {
            totals.usage.add(usage);
        }
        match cost {
            Some(cost) => totals.nano_usd = totals.nano_usd.saturating_add(cost),
            None => totals.unpriced += 1,
        }
    }

    fn totals_of(&mut self, id: AttemptId) -> &mut ModelTotals {
        let model = self.attempts.get(&id).map_or_else(|| OTHER_MODELS.into(), |it| Arc::clone(&it.model));
        self.models.entry(model).or_default()
    }

    /// The name under which a model is counted.
    fn name_of(&mut self, model: &ModelRef) -> Arc<str> {
        let name: Arc<str> = model.to_string().into();
        let is_counted = self.models.contains_key(&name) || self.models.len() < MAX_MODELS;
        let name = if is_counted { name } else { OTHER_MODELS.into() };
        self.models.entry(Arc::clone(&name)).or_default();
        name
    }

    /// Forgets the calls of a run that has ended.
    fn forget(&mut self, run: RunId) {
        let (first, last) =
            (CallId { run, iteration: 0, n: 0 }, CallId { run, iteration: u32::MAX, n: u32::MAX });
        self.waits.forget(run);
        let attempts = first.attempt(0)..=last.attempt(u32::MAX);
        self.attempts.extract_if(attempts, |_, _| true).for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        Amounts, ApprovalAnswered, ApprovalDecision, ApprovalScope, AssistantMessage, CallEnd, CallEnded,
        CallStatus, DecisionSource, Failure, FailureClass, FinishReason, Hash, Incarnation, ModelLate,
        Outcome, OutcomeDetail, RunAccepted, RunEnded, RunSpec, Timestamp,
    };

    use super::*;

    const RUN: RunId = RunId::from_bits(1);
    const PRICE: Price =
        Price { input: 1_000, output: 2_000, cache_read: 100, cache_write: 1_250, up_to: None };
    const USAGE: Usage = Usage {
        input_tokens: 10,
        output_tokens: 5,
        unlisted_reasoning_tokens: 0,
        cached_tokens: 4,
        cache_write_tokens: 0,
        is_invalid: false,
    };

    const fn call(iteration: u32, n: u32) -> CallId {
        CallId { run: RUN, iteration, n }
    }

    fn accepted() -> Body {
        let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
        Body::RunAccepted(Box::new(RunAccepted::new(RUN, "hi", spec)))
    }

    fn started(iteration: u32, attempt: u32, model: &str, price: Option<Price>) -> Body {
        Body::ModelStarted(Arc::new(ModelStarted {
            call: call(iteration, 0),
            attempt,
            model: model.parse().unwrap(),
            view_seq: 1,
            request_hash: Hash::of(b""),
            bytes: 0,
            images: 0,
            max_tokens: 1,
            prefix: None,
            reserved: Amounts::default(),
            period: None,
            price,
            incarnation: Incarnation::default(),
        }))
    }

    fn answered(iteration: u32, attempt: u32, usage: Option<Usage>) -> Body {
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: call(iteration, 0),
            attempt,
            message: Arc::new(AssistantMessage::default()),
            finish: FinishReason::Stop,
            flaw: None,
            fallback: None,
            usage,
            anomaly: None,
        }))
    }

    fn failed(iteration: u32, attempt: u32, retry_at: Option<Timestamp>) -> Body {
        let failure = Failure::new(FailureClass::Overloaded, "busy");
        Body::ModelFailed(ModelFailed {
            call: call(iteration, 0),
            attempt,
            failure,
            retry_at,
            fallback: None,
        })
    }

    fn late(iteration: u32, attempt: u32) -> Body {
        let (call, usd, booked) = (call(iteration, 0), None, Amounts::default());
        Body::ModelLate(ModelLate { call, attempt, usage: USAGE, usd, booked, period: None, anomaly: None })
    }

    fn tool_ended() -> Body {
        let end = CallEnd { status: CallStatus::Error, ..CallEnd::ok("x") };
        Body::CallEnded(CallEnded { call: call(1, 1), attempt: 1, end, repetition: None })
    }

    fn ended(outcome: Outcome) -> Body {
        let ended = OutcomeDetail { outcome, cause: None };
        Body::RunEnded(RunEnded { run: RUN, ended, iterations: 1, usage: USAGE })
    }

    fn fold(bodies: Vec<Body>) -> RecordTotals {
        let mut totals = RecordTotals::default();
        for body in bodies {
            totals.take(&Record { at: Timestamp(0), active_ms: 0, body });
        }
        totals
    }

    #[track_caller]
    fn check_models(bodies: Vec<Body>, expect: &[(&str, ModelTotals)]) {
        let totals = fold(bodies);
        let models: Vec<_> = totals.models.iter().map(|(name, totals)| (&**name, *totals)).collect();
        assert_eq!(models, expect);
    }

    #[track_caller]
    fn check_waits(bodies: Vec<Body>, expect: &[(&'static str, u64)]) {
        assert_eq!(fold(bodies).waits().into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn calls_are_counted_for_the_model_that_was_called() {
        let once = ModelTotals { iterations: 1, usage: USAGE, nano_usd: 16_400, unpriced: 0 };
        check_models(vec![started(1, 1, "p/m", Some(PRICE)), answered(1, 1, Some(USAGE))], &[("p/m", once)]);
        let unpriced = ModelTotals { nano_usd: 0, unpriced: 1, ..once };
        let priceless = vec![started(1, 1, "p/m", None), answered(1, 1, Some(USAGE))];
        check_models(priceless, &[("p/m", unpriced)]);
        let unreported = vec![started(1, 1, "p/m", Some(PRICE)), answered(1, 1, None)];
        check_models(unreported, &[("p/m", ModelTotals { usage: Usage::default(), ..unpriced })]);
        // A fallback answers, and the answer of the first model comes late.
        let given_up = vec![
            started(1, 1, "p/a", Some(PRICE)),
            failed(1, 1, None),
            started(1, 2, "p/b", Some(PRICE)),
            answered(1, 2, Some(USAGE)),
            late(1, 1),
        ];
        check_models(given_up, &[("p/a", ModelTotals { iterations: 0, ..once }), ("p/b", once)]);
        // The run's calls are forgotten with its end.
        let after_end =
            vec![started(1, 1, "p/a", Some(PRICE)), failed(1, 1, None), ended(Outcome::Stopped), late(1, 1)];
        let unknown = ModelTotals { iterations: 0, ..unpriced };
        check_models(after_end, &[("other", unknown), ("p/a", ModelTotals::default())]);
    }

    #[test]
    fn the_number_of_models_is_bounded() {
        let model = |n: u32| [started(n, 1, &format!("p/m{n}"), None), answered(n, 1, None)];
        let totals = fold((0..1_000).flat_map(model).collect());
        assert_eq!(totals.models.len(), MAX_MODELS + 1);
        assert_eq!(totals.models["other"].iterations, 800);
        assert_eq!(totals.attempts.len(), 0);
    }

    #[test]
    fn runs_are_counted_by_outcome() {
        let totals = fold(vec![accepted(), ended(Outcome::BudgetExhausted), ended(Outcome::Completed)]);
        assert_eq!(totals.accepted, BTreeMap::from([("client", 1)]));
        assert_eq!(totals.ended, BTreeMap::from([("budget_exhausted", 1), ("completed", 1)]));
        assert_eq!(fold(vec![tool_ended()]).tool_calls, BTreeMap::from([("error", 1)]));
        let failures = fold(vec![started(1, 1, "p/m", None), failed(1, 1, None)]).failures;
        assert_eq!(failures, BTreeMap::from([(("p".into(), "overloaded"), 1)]));
    }

    #[test]
    fn an_open_call_waits_for_one_thing() {
        check_waits(vec![started(1, 1, "p/m", None)], &[("model", 1)]);
        check_waits(vec![started(1, 1, "p/m", None), answered(1, 1, None)], &[]);
        check_waits(vec![started(1, 1, "p/m", None), failed(1, 1, Some(Timestamp(9)))], &[("retry", 1)]);
        check_waits(vec![started(1, 1, "p/m", None), failed(1, 1, None)], &[]);
        let decided = ApprovalAnswered {
            call: call(1, 1),
            decision: ApprovalDecision::Allow,
            by: DecisionSource::Person,
            scope: ApprovalScope::Once,
        };
        check_waits(vec![Body::ApprovalAnswered(decided.clone())], &[("permit", 1)]);
        check_waits(vec![Body::ApprovalAnswered(decided.clone()), tool_ended()], &[]);
        check_waits(vec![Body::ApprovalAnswered(decided), ended(Outcome::Stopped)], &[]);
    }
}
