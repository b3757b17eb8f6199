//! Adds up the cost of a run's model calls, with those for summaries: usage times price, from the records. Pure. What a
//! failed attempt is charged with is in `billing.rs`.

use std::{collections::BTreeMap, sync::Arc};

use crate::model::{AttemptId, Body, ModelRef, ModelStarted, Record, RunSpec, Usage};

/// Adds up the cost of one run's calls, record by record, at the prices that were known when it was accepted.
///
/// A failed attempt counts only if its provider reported a plausible usage. What a provider billed for the other failed
/// attempts is unknown and left out.
#[derive(Debug, Clone, Default)]
pub struct Bill {
    /// `None` until the record that accepted the run was added.
    spec: Option<Arc<RunSpec>>,
    models: BTreeMap<AttemptId, ModelRef>,
    nano_usd: u64,
    unpriced: Vec<ModelRef>,
}

impl Bill {
    /// Adds the run's next record.
    #[expect(clippy::wildcard_enum_match_arm, reason = "`settled_usage` knows the other kinds")]
    pub fn take(&mut self, record: &Record) {
        match &record.body {
            Body::RunAccepted(accepted) => self.spec = Some(Arc::clone(&accepted.spec)),
            Body::ModelStarted(started) | Body::AsideStarted(started) => self.add_model(started),
            Body::SummaryStarted(started) => self.add_model(&started.started),
            // The result came after its attempt was given up, and its usage cannot be true. It adds nothing.
            Body::ModelLate(late) if late.anomaly.is_some() => {}
            // A failure without a usage leaves the bill as it is.
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed)
                if failed.failure.usage.is_none() => {}
            body => {
                if let Some((id, usage)) = body.settled_usage() {
                    self.charge(id, usage);
                }
            }
        }
    }

    fn add_model(&mut self, started: &ModelStarted) {
        self.models.insert(started.id(), started.model.clone());
    }

    fn charge(&mut self, call: AttemptId, usage: Option<&Usage>) {
        let (Some(spec), Some(model)) = (&self.spec, self.models.get(&call)) else { return };
        let price = spec.profile_of(model).price;
        match usage.zip(price).and_then(|(usage, price)| price.cost(usage)) {
            Some(cost) => self.nano_usd = self.nano_usd.saturating_add(cost),
            None if self.unpriced.contains(model) => {}
            None => self.unpriced.push(model.clone()),
        }
    }

    /// The cost of the calls in nano-dollars, without failed attempts that reported no usage. `None` if the cost of any
    /// other call is unknown.
    pub fn nano_usd(&self) -> Option<u64> {
        (self.spec.is_some() && self.unpriced.is_empty()).then_some(self.nano_usd)
    }

    /// The models with calls of unknown cost, in the order of these calls. They have no price, or none for calls of
    /// that size. Or their provider reported no usage, or one that cannot be true.
    pub fn unpriced(&self) -> &[ModelRef] {
        &self.unpriced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Amounts, AssistantMessage, Attempt, CallId, FinishReason, Hash, Incarnation, ModelAnswered,
        ModelLate, ModelProfile, ModelStarted, Price, RunAccepted, RunId, Timestamp,
    };

    const RUN: RunId = RunId::from_bits(1);
    const PRICE: Price =
        Price { input: 1_000, output: 2_000, cache_read: 100, cache_write: 1_250, up_to: None };

    fn model(name: &str) -> ModelRef {
        ModelRef::new("p", name).unwrap()
    }

    fn record(body: Body) -> Record {
        Record { at: Timestamp(0), active_ms: 0, body }
    }

    /// A run whose chain has `a`, with the price above, and `b`, without a known price.
    fn accepted() -> Record {
        let spec = RunSpec {
            profiles: vec![
                ModelProfile { price: Some(PRICE), ..ModelProfile::default() },
                ModelProfile::default(),
            ],
            ..RunSpec::new(vec![model("a"), model("b")], "/w")
        };
        let (images, history) = (Arc::default(), Arc::default());
        let accepted = RunAccepted { images, history, ..RunAccepted::new(RUN, "hi", Arc::new(spec)) };
        record(Body::RunAccepted(Box::new(accepted)))
    }

    fn started(iteration: u32, attempt: Attempt, name: &str) -> Record {
        let started = ModelStarted {
            call: CallId { run: RUN, iteration, n: 0 },
            attempt,
            model: model(name),
            view_seq: 1,
            request_hash: Hash::of(b""),
            bytes: 0,
            images: 0,
            max_tokens: 1,
            prefix: None,
            reserved: Amounts::default(),
            period: None,
            price: None,
            incarnation: Incarnation::default(),
        };
        record(Body::ModelStarted(Arc::new(started)))
    }

    fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    fn answered(iteration: u32, attempt: Attempt, usage: Option<Usage>) -> Record {
        let call = CallId { run: RUN, iteration, n: 0 };
        let message = Arc::new(AssistantMessage::default());
        let answered = ModelAnswered {
            call,
            attempt,
            message,
            finish: FinishReason::Stop,
            flaw: None,
            fallback: None,
            usage,
            anomaly: None,
        };
        record(Body::ModelAnswered(Box::new(answered)))
    }

    #[track_caller]
    fn check(records: &[Record], cost: Option<u64>, unpriced: &[&str]) {
        let mut bill = Bill::default();
        records.iter().for_each(|record| bill.take(record));
        let names: Vec<&str> = bill.unpriced().iter().map(|model| &**model.model()).collect();
        assert_eq!((bill.nano_usd(), names.as_slice()), (cost, unpriced));
    }

    #[test]
    fn each_answer_costs_what_its_model_costs() {
        check(&[accepted()], Some(0), &[]);
        let first = [accepted(), started(1, 1, "a"), answered(1, 1, Some(usage(10, 5)))];
        check(&first, Some(20_000), &[]);
        let second = [started(2, 1, "a"), answered(2, 1, Some(usage(1, 0)))];
        check(&[first.as_slice(), &second].concat(), Some(21_000), &[]);
        let unknown = [started(2, 1, "b"), answered(2, 1, Some(usage(1, 0)))];
        check(
            &[first.as_slice(), &unknown, &[started(3, 1, "b"), answered(3, 1, None)]].concat(),
            None,
            &["b"],
        );
    }

    #[test]
    fn an_attempt_that_fell_back_is_not_charged_and_a_late_one_is() {
        let fell_back =
            [accepted(), started(1, 1, "b"), started(1, 2, "a"), answered(1, 2, Some(usage(1, 1)))];
        check(&fell_back, Some(3_000), &[]);
        let call = CallId { run: RUN, iteration: 1, n: 0 };
        let late = |attempt| ModelLate {
            call,
            attempt,
            usage: usage(2, 0),
            usd: None,
            booked: Amounts::default(),
            period: None,
            anomaly: None,
        };
        let late = |attempt| record(Body::ModelLate(late(attempt)));
        check(&[fell_back.as_slice(), &[late(1)]].concat(), None, &["b"]);
        check(&[fell_back.as_slice(), &[late(2)]].concat(), Some(5_000), &[]);
    }

    #[test]
    fn what_nobody_says_is_not_taken_as_zero() {
        check(&[accepted(), started(1, 1, "a"), answered(1, 1, None)], None, &["a"]);
        check(&[], None, &[]);
    }
}
