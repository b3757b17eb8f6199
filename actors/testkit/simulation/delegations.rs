//! Generates from a seed what runs delegate to subagents.

use super::{
    generate::{limits, step},
    plan::{PlannedDelegation, PlannedEvent, PlannedTarget, RunPlan},
    seeded_rng::SeededRng,
};
use crate::ActorFault;
use hermod_actors::model::{Amounts, Delegation, Limits};

/// The first task number of run 0; the task numbers of each next run begin this much higher.
const TASK_NUMBER_STEP: usize = 1_000;
/// Maximum depth of a subagent.
const MAX_DEPTH: u32 = 2;
/// Maximum number of tasks of all subagents of a run, at any depth: plans test delegation, not load.
const MAX_TASKS: usize = 8;

/// Lets a run delegate tasks to subagents, and returns these tasks.
pub(super) fn plan_delegations(dice: &mut SeededRng, run: &mut RunPlan) -> Vec<RunPlan> {
    let mut tasks = Vec::new();
    if dice.chance(30) {
        return tasks;
    }
    run.delegation = Some(Delegation {
        depth: 0,
        max_depth: MAX_DEPTH,
        max_children: 3,
        iterations: dice.between(3, 10),
        shares_iterations: dice.chance(30),
        progress_ms: None,
    });
    if dice.chance(30) {
        run.limits.budget.children = Some(dice.pick(&[1, 2, 2, 4]));
    }
    add_delegations(dice, run, (0, &mut tasks));
    tasks
}

/// Adds delegations to the steps of a run at this depth, and recursively to those of its tasks.
fn add_delegations(dice: &mut SeededRng, run: &mut RunPlan, (depth, tasks): (u32, &mut Vec<RunPlan>)) {
    if run.steps.is_empty() {
        run.steps.push(step(dice, true));
    }
    let steps = run.steps.len();
    let calls = dice.pick(&[1, 1, 2]);
    for _ in 0..calls {
        let mut give = PlannedDelegation { tasks: Vec::new(), background: dice.chance(35) };
        for _ in 0..dice.pick(&[1, 1, 1, 2, 3]) {
            if tasks.len() >= MAX_TASKS {
                break;
            }
            let n = tasks.last().map_or((run.n + 1) * TASK_NUMBER_STEP, |last| last.n + 1);
            let mut task = task(dice, n, run);
            give.tasks.push(n);
            tasks.push(task.clone());
            if depth + 1 < MAX_DEPTH && dice.chance(40) {
                let index = tasks.len() - 1;
                add_delegations(dice, &mut task, (depth + 1, tasks));
                tasks[index] = task;
            }
        }
        let at = dice.index(steps);
        if !give.tasks.is_empty() {
            run.steps[at].delegations.push(give);
        }
    }
}

fn task(dice: &mut SeededRng, n: usize, of: &RunPlan) -> RunPlan {
    let steps = dice.pick(&[0, 0, 1, 1, 2]);
    let limits = Limits { timeout_ms: None, ..limits(dice) };
    RunPlan {
        n,
        limits: Limits { budget: Amounts { children: None, ..limits.budget }, ..limits },
        encoder_panics: dice.chance(3),
        delegation: None,
        raises: None,
        steps: (0..steps).map(|_| step(dice, true)).collect(),
        last: step(dice, false),
        loops: false,
        ..of.clone()
    }
}

/// A fault or a stop that concerns a subagent.
pub(super) fn subagent_event(dice: &mut SeededRng) -> PlannedEvent {
    let which = dice.index(MAX_TASKS);
    let how = dice.pick(&[ActorFault::Panic, ActorFault::Error, ActorFault::Kill]);
    match dice.below(10) {
        0..=2 => PlannedEvent::ActorFault(PlannedTarget::Subagent(which), how),
        3..=6 => PlannedEvent::FaultBeforeNotice(how),
        _ => PlannedEvent::StopSubagent(which),
    }
}
