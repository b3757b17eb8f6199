//! The simulated policy, a pure function of a call's arguments, and the invariant of approvals.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    invariants::{FinalState, Violations},
    plan::{SimulationPlan, ToolKind},
};
use hermod_actors::{
    model::{AgentName, ApprovalDecision, ApprovalNeed, ApprovalScope, Body, CallId, RunId},
    port::{BadArguments, CallPolicy, CallVerdict, ProposedCall},
};

/// Of this number of calls one asks, in the plans with a policy that asks.
const CALLS_PER_QUESTION: u64 = 6;

/// Asks about some calls of a plan, and denies a few.
#[derive(Debug)]
pub(super) struct SimulatedPolicy {
    is_strict: bool,
}

impl SimulatedPolicy {
    /// The policy of a plan: every third one asks and denies.
    pub(super) fn new(plan: &SimulationPlan) -> Self {
        Self { is_strict: plan.seed().is_multiple_of(3) }
    }
}

impl CallPolicy for SimulatedPolicy {
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict {
        if !self.is_strict || ToolKind::ALL.iter().all(|kind| kind.name() != call.tool) {
            return CallVerdict::Allow;
        }
        match sum(&call.arguments["of"].to_string()) % (CALLS_PER_QUESTION * 4) {
            0 => CallVerdict::Deny(BadArguments::new(
                None,
                "the simulated policy denies it",
                "none".to_owned(),
            )),
            n if n.is_multiple_of(CALLS_PER_QUESTION) => CallVerdict::Ask(Arc::new(ApprovalNeed {
                rules: vec!["simulated".into()],
                allow_rules: vec![call.tool.into()],
                question: "May it start?".into(),
            })),
            _ => CallVerdict::Allow,
        }
    }
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// A call about which a person is asked before its start begins only after the approval. A call that the policy asks
/// about begins only after an approval of its own, or one of its run that covers it. A denied call never begins.
pub(super) fn starts_are_approved(past: &FinalState<'_>) -> Violations {
    past.journals.values().flat_map(|records| unapproved_starts(past, records)).collect()
}

/// What is known of the calls of one session, up to a record.
#[derive(Default)]
struct Approvals {
    verdicts: BTreeMap<CallId, CallVerdict>,
    rules: BTreeMap<CallId, Vec<Arc<str>>>,
    allowed: BTreeSet<CallId>,
    of_run: BTreeSet<(RunId, Arc<str>)>,
}

fn unapproved_starts(past: &FinalState<'_>, records: &[Arc<hermod_actors::model::Record>]) -> Vec<String> {
    let policy = SimulatedPolicy::new(past.plan);
    let (mut known, mut found) = (Approvals::default(), Vec::new());
    for record in records {
        match &record.body {
            Body::ModelAnswered(answered) if answered.flaw.is_none() => {
                for (call, n) in answered.message.calls.iter().zip(1..) {
                    let Ok(arguments) = serde_json::from_str(&call.arguments) else { continue };
                    let proposed = ProposedCall {
                        agent: &AgentName::default(),
                        tool: &call.name,
                        arguments: &arguments,
                        workspace: "",
                    };
                    known.verdicts.insert(CallId { n, ..answered.call }, policy.judge(&proposed));
                }
            }
            Body::ApprovalRequested(request) if request.attempt == 0 => {
                known.rules.insert(request.call, request.allow_rules.clone());
            }
            Body::ApprovalAnswered(answered) if answered.decision == ApprovalDecision::Allow => {
                known.allowed.insert(answered.call);
                let rules = known.rules.get(&answered.call).filter(|_| answered.scope != ApprovalScope::Once);
                let of_run = rules.into_iter().flatten().map(|rule| (answered.call.run, Arc::clone(rule)));
                known.of_run.extend(of_run);
            }
            Body::CallStarted(started) => {
                let call = started.call;
                let is_approved = match known.verdicts.get(&call) {
                    Some(CallVerdict::Deny(_)) => false,
                    Some(CallVerdict::Ask(need)) => {
                        known.allowed.contains(&call)
                            || need
                                .allow_rules
                                .iter()
                                .all(|rule| known.of_run.contains(&(call.run, Arc::clone(rule))))
                    }
                    Some(CallVerdict::Allow) | None => true,
                };
                if !is_approved {
                    found.push(format!("{call} began without its approval"));
                }
            }
            _ => {}
        }
    }
    found
}
