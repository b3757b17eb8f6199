//! Loops in a simulation: models that repeat a call without end, and the invariant that the guard against loops keeps.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    answers::call_id,
    invariants::{FinalState, Violations},
    plan::{RunPlan, ToolBehaviour, ToolKind},
    seeded_rng::SeededRng,
};
use hermod_actors::model::{Body, CallId, CallStatus, RepetitionPattern, RunId, ToolCall};

/// Percentage of runs whose model repeats a call.
const PERCENT_OF_RUNS: u64 = 5;
/// How often it does, if nothing keeps it from that.
const MAX_REPETITIONS: usize = 16;
/// The name of the fault.
pub(super) const LOOP: &str = "model: repeats itself";

/// Chooses the runs of a seed whose models repeat a call.
pub(super) fn plan_loops(seed: u64, runs: &mut [RunPlan]) {
    // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
    let mut dice = SeededRng::new(seed.rotate_left(16) ^ u64::from(u16::MAX));
    runs.iter_mut().for_each(|run| run.loops = dice.chance(PERCENT_OF_RUNS));
}

/// Whether step `at` of a run repeats the call.
pub(super) const fn is_loop(run: &RunPlan, at: usize) -> bool {
    run.loops && at >= run.steps.len() && at < run.steps.len() + MAX_REPETITIONS
}

/// The repeated call, as step `at` makes it.
pub(super) fn call(run: &RunPlan, at: usize) -> ToolCall {
    let arguments = json!({"of": format!("{}.loop", run.n), "ms": 1, "does": ToolBehaviour::Well});
    let id = call_id((run.n, at), "loop");
    ToolCall { id, name: ToolKind::Look.name().into(), arguments: arguments.to_string() }
}

/// The calls that the answers of a run have repeated.
#[derive(Debug, Default)]
struct Row<'a> {
    /// The last call, by tool, arguments and result.
    last: Option<(&'a str, String, &'a str)>,
    iteration: u32,
    times: u32,
}

/// No run repeats the only call of its answers with the same result more often than the guard allows.
pub(super) fn loops_end(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for records in past.journals.values() {
        let (mut calls, mut rows) = (BTreeMap::<CallId, _>::new(), BTreeMap::<RunId, Row<'_>>::new());
        for record in records {
            match &record.body {
                Body::CallAdmitted(admitted) => {
                    calls.insert(admitted.call, (&*admitted.tool, admitted.arguments.to_string()));
                }
                Body::CallEnded(ended) if ended.end.status == CallStatus::Ok => {
                    let row = rows.entry(ended.call.run).or_default();
                    let (tool, arguments) = calls.get(&ended.call).cloned().unwrap_or_default();
                    let call = Some((tool, arguments, &*ended.end.content));
                    let is_same =
                        ended.call.n == 1 && row.last == call && row.iteration < ended.call.iteration;
                    row.times = if is_same { row.times + 1 } else { 1 };
                    (row.last, row.iteration) = (call, ended.call.iteration);
                    if row.times > RepetitionPattern::SameResult.stops_at() {
                        found.push(format!(
                            "{} repeats {:?} for the {}th time",
                            ended.call, row.last, row.times
                        ));
                    }
                }
                body @ (Body::CallEnded(_)
                | Body::MessageSteered(_)
                | Body::RunReopened(_)
                | Body::ChildEnded(_)) => drop(body.run().and_then(|run| rows.remove(&run))),
                _ => {}
            }
        }
    }
    found
}
