//! An arbitrary body of each kind.

use hermod_actors::model::{
    ApprovalAnswered, ApprovalDecision, ApprovalRequested, ApprovalScope, Body, BudgetRaised, CallEnded,
    CallLost, CallStarted, ChildEnded, DecisionSource, DropReason, Kind, MemoryRefusal, MemorySave,
    MemorySaved, MessageCollected, MessageDropped, MessageSteered, ModelLate, ModelWaiting, RetryReason,
    RunBegun, RunEnded, RunExhausted, RunReopened, RunStopping, RunVerified, SessionOpened, SessionRevived,
    SummaryStarted,
};
use proptest::{prelude::*, sample::select};

use super::{
    hooks::{hooked_run, hooked_summary},
    parts::{
        accepted, admitted, allowance, answered, aside_answered, call_end, child, compacted, ended, failed,
        miss, not_answered, place, raised, repetition, started, todo,
    },
    queues::queue_overrides,
    values::{
        Made, account, agent, amounts, anomaly, call, hash, images, incarnation, list, maybe, number, run,
        shared, small, text, time, usage,
    },
};

/// Bodies of a kind. Exhaustive: a kind without a strategy does not compile.
pub(crate) fn body(kind: Kind) -> Made<Body> {
    match kind {
        Kind::SessionOpened => session_opened(),
        Kind::SessionRevived => (incarnation(), text())
            .prop_map(|(incarnation, boot)| Body::SessionRevived(SessionRevived { incarnation, boot }))
            .boxed(),
        Kind::RunAccepted => accepted().prop_map(|body| Body::RunAccepted(Box::new(body))).boxed(),
        Kind::RunStopping => {
            (run(), ended()).prop_map(|(run, ended)| Body::RunStopping(RunStopping { run, ended })).boxed()
        }
        Kind::RunEnded => run_ended(),
        Kind::RunExhausted => (run(), allowance())
            .prop_map(|(run, refusal)| Body::RunExhausted(RunExhausted { run, refusal }))
            .boxed(),
        Kind::RunReopened => (run(), small(), raised())
            .prop_map(|(run, leg, by)| Body::RunReopened(RunReopened { run, leg, increase: by }))
            .boxed(),
        Kind::BudgetRaised => (run(), raised())
            .prop_map(|(run, by)| Body::BudgetRaised(BudgetRaised { run, increase: by }))
            .boxed(),
        Kind::RunVerified => (call(), list(miss()))
            .prop_map(|(call, misses)| Body::RunVerified(RunVerified { call, misses }))
            .boxed(),
        Kind::ModelStarted => started().prop_map(Body::ModelStarted).boxed(),
        Kind::ModelAnswered => answered().prop_map(|body| Body::ModelAnswered(Box::new(body))).boxed(),
        Kind::ModelFailed => failed().prop_map(Body::ModelFailed).boxed(),
        Kind::ModelLate => late_settled(),
        Kind::ModelWaiting => model_waiting(),
        Kind::ContextCompacted => compacted().prop_map(|body| Body::ContextCompacted(Box::new(body))).boxed(),
        Kind::SummaryStarted => summary_started(),
        Kind::SummaryAnswered => aside_answered().prop_map(Body::SummaryAnswered).boxed(),
        Kind::SummaryFailed => failed().prop_map(Body::SummaryFailed).boxed(),
        Kind::AsideStarted => started().prop_map(Body::AsideStarted).boxed(),
        Kind::AsideAnswered => aside_answered().prop_map(Body::AsideAnswered).boxed(),
        Kind::AsideFailed => failed().prop_map(Body::AsideFailed).boxed(),
        Kind::MemorySaved => memory_saved(),
        Kind::CallAdmitted => admitted().prop_map(Body::CallAdmitted).boxed(),
        Kind::CallStarted => call_started(),
        Kind::CallEnded => (call(), small(), call_end(), maybe(repetition()))
            .prop_map(|(call, attempt, end, repetition)| {
                Body::CallEnded(CallEnded { call, attempt, end, repetition })
            })
            .boxed(),
        Kind::CallLost => call_lost(),
        Kind::MessageSteered => (run(), shared(), run(), maybe(hash()))
            .prop_map(|(run, text, followup_run, request_hash)| {
                Body::MessageSteered(MessageSteered { run, text, followup_run, request_hash })
            })
            .boxed(),
        Kind::MessageCollected => message_collected(),
        Kind::MessageDropped => message_dropped(),
        Kind::RunBegun => (run(), maybe(hooked_run()))
            .prop_map(|(run, hooks)| Body::RunBegun(RunBegun { run, hooks }))
            .boxed(),
        Kind::ApprovalRequested => approval_requested().prop_map(Body::ApprovalRequested).boxed(),
        Kind::ApprovalAnswered => approval_answered(),
        Kind::ChildEnded => child_ended(),
        Kind::TodoChanged => todo().prop_map(Body::TodoChanged).boxed(),
        Kind::QueueChanged => queue_overrides().prop_map(Body::QueueChanged).boxed(),
    }
}

fn summary_started() -> Made<Body> {
    (started(), place(), place(), maybe(hooked_summary()))
        .prop_map(|(started, call_end, summary_end, hooks)| {
            Body::SummaryStarted(Box::new(SummaryStarted { started, call_end, summary_end, hooks }))
        })
        .boxed()
}

fn message_collected() -> Made<Body> {
    (run(), run(), shared(), images(), time(), maybe(hash()))
        .prop_map(|(run, message, text, images, until, request_hash)| {
            Body::MessageCollected(MessageCollected { run, message, text, images, until, request_hash })
        })
        .boxed()
}

fn message_dropped() -> Made<Body> {
    (run(), maybe(run()), any::<u32>(), maybe(shared()), maybe(hash()))
        .prop_map(|(message, run, cap, excerpt, request_hash)| {
            let reason = DropReason::QueueFull { cap };
            Body::MessageDropped(MessageDropped { message, run, reason, excerpt, request_hash })
        })
        .boxed()
}

fn session_opened() -> Made<Body> {
    (shared(), agent(), shared(), incarnation(), text())
        .prop_map(|(key, agent, prompt, incarnation, boot)| {
            Body::SessionOpened(SessionOpened { key, agent, prompt, incarnation, boot })
        })
        .boxed()
}

fn run_ended() -> Made<Body> {
    (run(), ended(), small(), usage())
        .prop_map(|(run, ended, iterations, usage)| {
            Body::RunEnded(RunEnded { run, ended, iterations, usage })
        })
        .boxed()
}

fn late_settled() -> Made<Body> {
    (call(), small(), usage(), maybe(number()), (amounts(), maybe(account())), anomaly())
        .prop_map(|(call, attempt, usage, usd, (booked, period), anomaly)| {
            Body::ModelLate(ModelLate { call, attempt, usage, usd, booked, period, anomaly })
        })
        .boxed()
}

fn model_waiting() -> Made<Body> {
    (call(), small(), time(), list(not_answered()))
        .prop_map(|(call, attempt, until, skipped)| {
            Body::ModelWaiting(ModelWaiting { call, attempt, until, skipped: skipped.into() })
        })
        .boxed()
}

fn call_started() -> Made<Body> {
    (call(), small(), incarnation(), shared(), list(child()))
        .prop_map(|(call, attempt, incarnation, boot, children)| {
            let children = children.into();
            Body::CallStarted(CallStarted { call, attempt, incarnation, boot, children })
        })
        .boxed()
}

fn call_lost() -> Made<Body> {
    let why = select(vec![
        RetryReason::Lost,
        RetryReason::Interrupted,
        RetryReason::NeverStarted,
        RetryReason::InDoubt,
    ]);
    (call(), small(), why)
        .prop_map(|(call, attempt, why)| Body::CallLost(CallLost { call, attempt, reason: why }))
        .boxed()
}

pub(crate) fn approval_requested() -> Made<ApprovalRequested> {
    let rules = || proptest::collection::vec(text().prop_map(std::sync::Arc::from), 0..3);
    (call(), small(), text(), time(), (rules(), rules(), any::<bool>()))
        .prop_map(|(call, attempt, question, expires_at, (rules, allow_rules, wants_text))| {
            ApprovalRequested { call, attempt, question, rules, allow_rules, wants_text, expires_at }
        })
        .boxed()
}

fn approval_answered() -> Made<Body> {
    let verdict = select(vec![ApprovalDecision::Allow, ApprovalDecision::Deny]);
    let by = select(vec![DecisionSource::Person, DecisionSource::Expiry]);
    let scope = select(vec![ApprovalScope::Once, ApprovalScope::Run, ApprovalScope::Always]);
    (call(), verdict, by, scope)
        .prop_map(|(call, decision, by, scope)| {
            Body::ApprovalAnswered(ApprovalAnswered { call, decision, by, scope })
        })
        .boxed()
}

fn child_ended() -> Made<Body> {
    (call(), child(), ended(), shared(), small(), usage())
        .prop_map(|(call, child, ended, told, iterations, usage)| {
            Body::ChildEnded(Box::new(ChildEnded { call, child, ended, result: told, iterations, usage }))
        })
        .boxed()
}

fn memory_saved() -> Made<Body> {
    let refusal = (small(), text()).prop_map(|(n, reason)| MemoryRefusal { n, reason }).boxed();
    (call(), small(), small(), list(refusal))
        .prop_map(|(call, added, present, refused)| {
            Body::MemorySaved(MemorySaved { call, save: MemorySave { added, present, refused } })
        })
        .boxed()
}
