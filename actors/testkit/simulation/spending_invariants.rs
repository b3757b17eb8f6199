//! Invariants of budget accounts, and of the usage that providers reported.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    answers::IMPOSSIBLE_TOKENS,
    invariants::{FinalState, Violations},
    titles::open_asides,
};
use hermod_actors::model::{
    AccountId, AttemptId, Body, Deadline, Failure, FailureClass, ModelStarted, RequestFate, RetryReason,
    RunId, Usage, UsageAnomaly,
};

/// The usage in a record: an accepted usage, else the anomaly that was rejected.
type RecordedUsage<'a> = (Option<Usage>, Option<&'a UsageAnomaly>);

/// Totals of a run's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunTotals {
    tokens: u64,
    iterations: u64,
    tool_calls: u64,
}

/// Each account's spent amounts equal the totals of its run's records and those of its subagents. An attempt costs what
/// the provider reported, or all that was reserved if it reported nothing. Nothing stays reserved in the end.
pub(super) fn add_up(past: &FinalState<'_>) -> Violations {
    let (totals, mut found) = run_totals(past);
    let workers = subagents_by_run(past);
    let open_asides = open_asides(past);
    for run in totals.keys().copied() {
        let sum = total(run, &totals, &workers);
        let Some(account) = past.inner.observations.accounts.get(&AccountId::from(run)) else {
            found.push(format!("{run} has no account"));
            continue;
        };
        let spent = RunTotals {
            tokens: account.spent.tokens.unwrap_or(0),
            iterations: account.spent.iterations.unwrap_or(0),
            tool_calls: account.spent.tool_calls.unwrap_or(0),
        };
        if spent != sum {
            found.push(format!("{run} has spent {spent:?}, and its records come to {sum:?}"));
        }
        // What a process that has ended has left open is settled when its session is opened again.
        let mut left = account.reserved;
        open_asides
            .values()
            .filter(|started| started.call.run == run)
            .for_each(|started| left.reduce(&started.reserved));
        if [left.tokens, left.iterations, left.tool_calls, left.children]
            .into_iter()
            .flatten()
            .any(|left| left > 0)
        {
            found.push(format!("{run} has ended with {left:?} reserved"));
        }
    }
    found
}

/// The subagents of each run, and whether each shares its iterations with the parent.
fn subagents_by_run(past: &FinalState<'_>) -> BTreeMap<RunId, Vec<(RunId, bool)>> {
    let mut workers = BTreeMap::<RunId, Vec<(RunId, bool)>>::new();
    for record in past.records() {
        if let Body::RunAccepted(accepted) = &record.body
            && let Some(parent) = accepted.parent
        {
            let shared = accepted.spec.delegation.is_some_and(|delegation| delegation.shares_iterations);
            workers.entry(parent.call.run).or_default().push((accepted.run, shared));
        }
    }
    workers
}

/// Totals of a run and of all its descendants.
fn total(
    run: RunId,
    totals: &BTreeMap<RunId, RunTotals>,
    workers: &BTreeMap<RunId, Vec<(RunId, bool)>>,
) -> RunTotals {
    let mut sum = totals.get(&run).copied().unwrap_or_default();
    for (worker, shared) in workers.get(&run).into_iter().flatten() {
        let more = total(*worker, totals, workers);
        sum.tokens += more.tokens;
        sum.tool_calls += more.tool_calls;
        sum.iterations += if *shared { more.iterations } else { 0 };
    }
    sum
}

/// Usage that was reported after the last forced end is booked, however late it came, unless its attempt was lost.
pub(super) fn reported_usage_is_booked(past: &FinalState<'_>) -> Violations {
    let mut settled = BTreeSet::new();
    for record in past.records() {
        match &record.body {
            Body::ModelAnswered(answered) => drop(settled.insert((answered.call, answered.attempt))),
            Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) => {
                settled.insert((answered.call, answered.attempt));
            }
            Body::ModelLate(late) => drop(settled.insert((late.call, late.attempt))),
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed)
                if is_lost(&failed.failure.class) =>
            {
                settled.insert((failed.call, failed.attempt));
            }
            _ => {}
        }
    }
    settled.extend(open_asides(past).into_keys().map(|id| (id.call, id.attempt)));
    let inner = past.inner;
    let reported = inner.model_calls.iter().filter_map(|call| Some((call, call.reported_usage?)));
    reported
        .filter(|(call, _)| inner.forced_end_at.is_none_or(|upset| upset < call.reported_at))
        .filter(|(call, _)| {
            !settled.contains(&(call.call, call.attempt)) && !past.is_force_failed(call.call.run)
        })
        .map(|(call, usage)| format!("{} attempt {} told {usage:?}", call.call, call.attempt))
        .collect()
}

/// Whether the outcome of the attempt is unknown.
const fn is_lost(class: &FailureClass) -> bool {
    matches!(class, FailureClass::Lost | FailureClass::Interrupted)
}

fn run_totals(past: &FinalState<'_>) -> (BTreeMap<RunId, RunTotals>, Violations) {
    let mut sums = TotalsBuilder {
        past,
        totals: BTreeMap::new(),
        violations: Violations::new(),
        model_calls: BTreeMap::new(),
        calls: BTreeSet::new(),
    };
    for record in past.records() {
        match &record.body {
            Body::CallStarted(started) => {
                sums.calls.insert(started.id());
            }
            Body::CallLost(lost) => {
                sums.call_ended(
                    AttemptId { call: lost.call, attempt: lost.attempt },
                    lost.reason != RetryReason::NeverStarted,
                );
            }
            Body::CallEnded(ended) => {
                sums.call_ended(AttemptId { call: ended.call, attempt: ended.attempt }, true);
            }
            Body::RunEnded(ended) => sums.run_ended(ended.run),
            body => sums.model(body),
        }
    }
    (sums.totals, sums.violations)
}

/// Totals of the records read so far.
struct TotalsBuilder<'a> {
    past: &'a FinalState<'a>,
    totals: BTreeMap<RunId, RunTotals>,
    violations: Violations,
    /// Started model attempts without an end. `calls` has those of tools.
    model_calls: BTreeMap<AttemptId, &'a ModelStarted>,
    calls: BTreeSet<AttemptId>,
}

impl<'a> TotalsBuilder<'a> {
    fn model(&mut self, body: &'a Body) {
        match body {
            Body::RunAccepted(accepted) => drop(self.totals.entry(accepted.run).or_default()),
            Body::ModelStarted(started) | Body::AsideStarted(started) => {
                self.model_calls.insert(started.id(), started);
            }
            Body::SummaryStarted(started) => {
                let started = &started.started;
                self.model_calls.insert(started.id(), started);
            }
            Body::ModelAnswered(answered) => {
                let usage = (answered.usage, answered.anomaly.as_deref());
                self.model_answered(AttemptId { call: answered.call, attempt: answered.attempt }, usage);
            }
            Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) => {
                let usage = (answered.usage, answered.anomaly.as_deref());
                self.model_answered(AttemptId { call: answered.call, attempt: answered.attempt }, usage);
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                let Some(started) =
                    self.model_calls.remove(&AttemptId { call: failed.call, attempt: failed.attempt })
                else {
                    return;
                };
                if !self.past.inner.observations.is_revoked(failed.call, failed.attempt) {
                    let reserved = started.reserved.tokens.unwrap_or(0);
                    self.spend(started, cost(&failed.failure, reserved));
                }
            }
            Body::ModelLate(late) => {
                let sum = self.totals.entry(late.call.run).or_default();
                let tokens = sum.tokens + late.usage.total();
                sum.tokens = tokens.saturating_sub(late.booked.tokens.unwrap_or(0));
                let usage = late.anomaly.is_none().then_some(late.usage);
                self.check_reported(late.id(), (usage, late.anomaly.as_deref()));
            }
            _ => {}
        }
    }

    fn model_answered(&mut self, id: AttemptId, reported: RecordedUsage<'_>) {
        let Some(started) = self.model_calls.remove(&id) else { return };
        let reserved = started.reserved.tokens.unwrap_or(0);
        self.spend(started, reported.0.map_or(reserved, |usage| usage.total()));
        self.check_reported(id, reported);
    }

    fn spend(&mut self, started: &ModelStarted, tokens: u64) {
        let sum = self.totals.entry(started.call.run).or_default();
        sum.iterations += started.reserved.iterations.unwrap_or(0);
        sum.tokens += tokens;
    }

    fn call_ended(&mut self, id: AttemptId, has_begun: bool) {
        let counts = self.calls.remove(&id)
            && has_begun
            && !self.past.inner.observations.is_revoked(id.call, id.attempt);
        self.totals.entry(id.call.run).or_default().tool_calls += u64::from(counts);
    }

    /// Attempts still open when a run ends, as in a force-failed run, cost all that was reserved.
    fn run_ended(&mut self, run: RunId) {
        let open: Vec<&ModelStarted> =
            self.model_calls.values().filter(|started| started.call.run == run).copied().collect();
        for started in open {
            self.model_calls.remove(&started.id());
            self.spend(started, started.reserved.tokens.unwrap_or(0));
        }
        let calls: Vec<_> =
            self.calls.iter().filter(|AttemptId { call, .. }| call.run == run).copied().collect();
        calls.into_iter().for_each(|id| self.call_ended(id, true));
    }

    /// Checks that a recorded usage equals the reported one, and that exactly the impossible ones are rejected.
    fn check_reported(
        &mut self,
        AttemptId { call, attempt }: AttemptId,
        (usage, anomaly): RecordedUsage<'_>,
    ) {
        let is_believed = usage.is_none_or(|usage| usage.total() < IMPOSSIBLE_TOKENS);
        if !is_believed || anomaly.is_some_and(|anomaly| anomaly.reported.total() < IMPOSSIBLE_TOKENS) {
            self.violations
                .push(format!("{call} attempt {attempt}: {usage:?} is believed, {anomaly:?} is not"));
        }
        let usage = usage.or(anomaly.map(|anomaly| anomaly.reported));
        let served_calls = &self.past.inner.model_calls;
        let is_it = |served: &&super::external_world::ServedModelCall| {
            (served.call, served.attempt) == (call, attempt)
        };
        if served_calls.iter().rfind(is_it).is_none_or(|served| served.reported_usage != usage) {
            self.violations.push(format!("{call} attempt {attempt} did not tell {usage:?}"));
        }
    }
}

/// Tokens that a failed attempt costs: the reported usage, else all that was reserved. Without a usage, a request that
/// was not sent, was rejected, or is not billed costs 0.
fn cost(failure: &Failure, reserved: u64) -> u64 {
    match (&failure.usage, failure.request) {
        (Some(usage), _) => usage.total(),
        (None, Some(RequestFate::NotSent | RequestFate::Rejected)) => 0,
        (None, None) if !is_billed(&failure.class) => 0,
        (None, Some(RequestFate::MayHaveRun) | None) => reserved,
    }
}

/// Whether an attempt with this failure may be billed, if the failure has neither usage nor request fate.
const fn is_billed(class: &FailureClass) -> bool {
    match class {
        FailureClass::Server
        | FailureClass::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
        | FailureClass::Network
        | FailureClass::IncompleteStream
        | FailureClass::ContentRefused
        | FailureClass::Cancelled
        | FailureClass::Lost
        | FailureClass::Interrupted => true,
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Timeout { which: Deadline::Connect }
        | FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ModelNotFound
        | FailureClass::NotSent => false,
    }
}
