//! Decisions of hooks, as records keep them.

use std::sync::Arc;

use hermod_actors::model::{HookDecision, HookPoint, HookRuling, HookedCall, HookedRun, HookedSummary};
use proptest::{prelude::*, sample::select};

use super::values::{Made, list, maybe, shared};

pub(crate) fn hook_decisions() -> Made<Arc<[HookDecision]>> {
    let point = select(vec![
        HookPoint::PreToolCall,
        HookPoint::PostToolCall,
        HookPoint::ToolResultPersist,
        HookPoint::BeforeRun,
        HookPoint::BeforeModelCall,
        HookPoint::MessageSending,
        HookPoint::BeforeCompaction,
    ]);
    let ruling = select(vec![
        HookRuling::Allowed,
        HookRuling::Replaced,
        HookRuling::Refused,
        HookRuling::Annotated,
        HookRuling::Failed,
    ]);
    let decision = (shared(), point, ruling, maybe(shared()))
        .prop_map(|(hook, point, ruling, reason)| HookDecision { hook, point, ruling, reason });
    list(decision.boxed()).prop_map(Into::into).boxed()
}

pub(crate) fn hooked_call() -> Made<Arc<HookedCall>> {
    (hook_decisions(), maybe(shared()))
        .prop_map(|(decisions, arguments)| Arc::new(HookedCall { decisions, arguments }))
        .boxed()
}

pub(crate) fn hooked_summary() -> Made<Arc<HookedSummary>> {
    (hook_decisions(), maybe(shared()))
        .prop_map(|(decisions, annotation)| Arc::new(HookedSummary { decisions, annotation }))
        .boxed()
}

pub(crate) fn hooked_run() -> Made<Arc<HookedRun>> {
    (hook_decisions(), maybe(shared()), maybe(shared()))
        .prop_map(|(decisions, input, context)| Arc::new(HookedRun { decisions, input, context }))
        .boxed()
}
