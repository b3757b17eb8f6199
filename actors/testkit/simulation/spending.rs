//! What must hold of accounts.

use std::collections::BTreeMap;

use super::judge::{Found, Past};
use crate::model::{AccountId, Attempt, Body, CallId, Deadline, FailureClass, ModelStarted, RunId, WhyAgain};

/// What a run's records come to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    tokens: u64,
    iterations: u64,
    tool_calls: u64,
}

/// Every account is spent by what its run's records come to: by what a provider has told of each attempt, or by all that
/// was reserved for it where nothing was told. Nothing is reserved in the end.
pub(super) fn add_up(past: &Past<'_>) -> Found {
    let (sums, mut found) = sums(past);
    for (run, sum) in sums {
        let Some(account) = past.inner.book.accounts.get(&AccountId::from(run)) else {
            found.push(format!("{run} has no account"));
            continue;
        };
        let spent = Sum {
            tokens: account.spent.tokens.unwrap_or(0),
            iterations: account.spent.iterations.unwrap_or(0),
            tool_calls: account.spent.tool_calls.unwrap_or(0),
        };
        if spent != sum {
            found.push(format!("{run} has spent {spent:?}, and its records come to {sum:?}"));
        }
        let left = account.reserved;
        if [left.tokens, left.iterations, left.tool_calls].into_iter().flatten().any(|left| left > 0) {
            found.push(format!("{run} has ended with {left:?} reserved"));
        }
    }
    found
}

fn sums(past: &Past<'_>) -> (BTreeMap<RunId, Sum>, Found) {
    let (mut sums, mut found) = (BTreeMap::<RunId, Sum>::new(), Found::new());
    let mut open: BTreeMap<(CallId, Attempt), &ModelStarted> = BTreeMap::new();
    let mut calls: BTreeMap<(CallId, Attempt), ()> = BTreeMap::new();
    for record in past.records() {
        let Some(sum) = record.body.run().map(|run| sums.entry(run).or_default()) else { continue };
        match &record.body {
            Body::ModelStarted(started) => drop(open.insert((started.call, started.attempt), started)),
            Body::ModelAnswered(answered) => {
                let Some(started) = open.remove(&(answered.call, answered.attempt)) else { continue };
                sum.iterations += started.reserved.iterations.unwrap_or(0);
                sum.tokens +=
                    answered.usage.map_or(started.reserved.tokens.unwrap_or(0), |usage| usage.total());
                if told(past, (answered.call, answered.attempt)) != Some(answered.usage) {
                    found.push(format!(
                        "{} attempt {} did not tell {:?}",
                        answered.call, answered.attempt, answered.usage
                    ));
                }
            }
            Body::ModelFailed(failed) => {
                let Some(started) = open.remove(&(failed.call, failed.attempt)) else { continue };
                if past.inner.book.was_revoked(failed.call, failed.attempt) {
                    continue;
                }
                sum.iterations += started.reserved.iterations.unwrap_or(0);
                sum.tokens +=
                    if is_billed(&failed.failure.class) { started.reserved.tokens.unwrap_or(0) } else { 0 };
            }
            Body::LateSettled(late) => {
                sum.tokens =
                    (sum.tokens + late.usage.total()).saturating_sub(late.booked.tokens.unwrap_or(0));
                if told(past, (late.call, late.attempt)) != Some(Some(late.usage)) {
                    found.push(format!(
                        "{} attempt {} did not tell {:?}",
                        late.call, late.attempt, late.usage
                    ));
                }
            }
            Body::CallStarted(started) => drop(calls.insert((started.call, started.attempt), ())),
            Body::CallLost(lost) => {
                calls.remove(&(lost.call, lost.attempt));
                sum.tool_calls += u64::from(lost.why != WhyAgain::NeverBegun);
            }
            Body::CallEnded(ended) if calls.remove(&(ended.call, ended.attempt)).is_some() => {
                sum.tool_calls += u64::from(!past.inner.book.was_revoked(ended.call, ended.attempt));
            }
            // Of a run that others have ended, all that was reserved is spent.
            Body::RunEnded(ended) => {
                for (_, started) in open.iter().filter(|((call, _), _)| call.run == ended.run) {
                    sum.tokens += started.reserved.tokens.unwrap_or(0);
                    sum.iterations += started.reserved.iterations.unwrap_or(0);
                }
                sum.tool_calls +=
                    u64::try_from(calls.keys().filter(|(call, _)| call.run == ended.run).count())
                        .unwrap_or(0);
                open.retain(|(call, _), _| call.run != ended.run);
                calls.retain(|(call, _), ()| call.run != ended.run);
            }
            _ => {}
        }
    }
    (sums, found)
}

/// What a provider said of an attempt, if it was asked.
fn told(past: &Past<'_>, id: (CallId, Attempt)) -> Option<Option<crate::model::Usage>> {
    past.inner.asked.iter().rfind(|asked| (asked.call, asked.attempt) == id).map(|asked| asked.told)
}

/// Whether a failed attempt may have cost something.
const fn is_billed(class: &FailureClass) -> bool {
    match class {
        FailureClass::Server
        | FailureClass::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
        | FailureClass::Network
        | FailureClass::Cut
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
        | FailureClass::ModelNotFound => false,
    }
}
