//! Generates a simulation plan from a seed: the same seed gives the same plan.

use super::{
    begin::BeginPlan,
    context_pressure::ContextPressure,
    delegations::{plan_delegations, subagent_event},
    descriptions::DescriptionPlan,
    flushes::FlushPlan,
    loops::plan_loops,
    plan::{
        CallPlan, CommitFault, Downtime, FaultTrigger, ModelFault, PlannedEvent, PlannedFault, PlannedStep,
        PlannedTarget, ProcessConfig, RunPlan, SimulationPlan, ToolBehaviour, ToolKind,
    },
    seeded_rng::SeededRng,
    store_limits::plan_store_limits,
    titles::TitlePlan,
};
use crate::{ActorFault, JournalFault};
use hermod_actors::model::{Amounts, ApprovalDecision, InDoubtAction, LimitIncrease, Limits};

/// Milliseconds within which runs and timed faults start; about the duration of a run without faults.
const MAX_START_MS: u64 = 6_000;
/// Milliseconds that a jump moves the wall clock by at most.
const MAX_CLOCK_JUMP_MS: i64 = 3 * 3_600_000;

impl SimulationPlan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = SeededRng::new(seed);
        let process = ProcessConfig {
            disk_ms: dice.pick(&[0, 0, 1, 7, 150]),
            links: dice.pick(&[1, 1, 2]),
            leases: dice.pick(&[1, 2, 1_000]),
            tool_calls: dice.pick(&[1, 2, 1_000]),
            is_watched: dice.chance(50),
            idle_ms: dice.pick(&[1_000, 3_000, 60_000]),
        };
        let sessions = dice.between(1, 4);
        let runs = dice.pick(&[1, 1, 2, 2, 3, 4, 6]);
        let runs: Vec<RunPlan> = (0..runs).zip(0..).map(|(_, n)| run(&mut dice, n, sessions)).collect();
        let (mut runs, mut tasks) = (runs, Vec::new());
        if dice.chance(25) {
            runs.iter_mut().for_each(|run| tasks.extend(plan_delegations(&mut dice, run)));
        }
        let context_pressure = ContextPressure::of(seed, &mut runs);
        plan_loops(seed, &mut runs);
        let faults = dice.between(0, 6);
        let faults =
            (0..faults).zip(0..).map(|(_, n)| fault(&mut dice, n, (&runs, !tasks.is_empty()))).collect();
        let (store_limits, begin) = (plan_store_limits(seed), BeginPlan::of(seed));
        let (titles, flushes) = (TitlePlan::of(seed), FlushPlan::of(seed));
        // Pictures would fill the small windows of a plan with context pressure.
        let descriptions = DescriptionPlan::of(seed).filter(|_| context_pressure.is_none());
        Self {
            seed,
            process,
            runs,
            tasks,
            faults,
            context_pressure,
            store_limits,
            begin,
            titles,
            flushes,
            descriptions,
            is_whole: true,
        }
    }
}

fn run(dice: &mut SeededRng, n: usize, sessions: u64) -> RunPlan {
    let session = dice.index(usize::try_from(sessions).unwrap_or(1));
    let at_ms = if dice.chance(60) { 0 } else { dice.below(MAX_START_MS) };
    let steps = dice.pick(&[0, 1, 1, 2, 2, 4]);
    RunPlan {
        n,
        session,
        at_ms,
        is_keyed: dice.chance(80),
        limits: limits(dice),
        in_doubt: dice.pick(&[InDoubtAction::Tell, InDoubtAction::Ask, InDoubtAction::Retry]),
        approval_timeout_ms: dice.pick(&[100, 5_000, 3_600_000]),
        encoder_panics: dice.chance(3),
        delegation: None,
        raises: dice.chance(50).then(|| (dice.pick(&[1, 1, 3]), limit_increase(dice))),
        steps: (0..steps).map(|_| step(dice, true)).collect(),
        last: step(dice, false),
        loops: false,
    }
}

pub(super) fn limits(dice: &mut SeededRng) -> Limits {
    let mut limits = Limits { max_tokens: 300, ..Limits::default() };
    let mut some = |percent, from, to| dice.chance(percent).then(|| dice.between(from, to));
    limits.budget = Amounts {
        iterations: some(10, 1, 4),
        tokens: some(10, 300, 2_500),
        tool_calls: some(10, 1, 4),
        ..Amounts::default()
    };
    limits.wall_ms = some(7, 50, MAX_START_MS);
    limits.timeout_ms = some(7, 50, MAX_START_MS);
    limits
}

pub(super) fn step(dice: &mut SeededRng, acts: bool) -> PlannedStep {
    let mut step = PlannedStep { ms: dice.pick(&[1, 20, 300, 1_500]), ..PlannedStep::default() };
    while dice.chance(15) {
        step.faults.push(model_fault(dice));
    }
    let calls = if acts { dice.pick(&[1, 1, 2, 2, 3]) } else { 0 };
    step.calls = (0..calls).map(|n| call(dice, n)).collect();
    step
}

fn limit_increase(dice: &mut SeededRng) -> LimitIncrease {
    let budget = Amounts {
        iterations: Some(dice.between(1, 3)),
        tokens: Some(dice.between(300, 2_500)),
        tool_calls: Some(dice.between(1, 3)),
        ..Amounts::default()
    };
    LimitIncrease { budget, wall_ms: Some(dice.between(50, MAX_START_MS)) }
}

fn model_fault(dice: &mut SeededRng) -> ModelFault {
    dice.pick(&[
        ModelFault::RateLimited(None),
        ModelFault::RateLimited(Some(1_000)),
        ModelFault::RateLimited(Some(90_000)),
        ModelFault::RateLimited(Some(7_200_000)),
        ModelFault::Overloaded,
        ModelFault::Server,
        ModelFault::Server,
        ModelFault::Network,
        ModelFault::NotConnected,
        ModelFault::FailedWithUsage(9),
        ModelFault::IncompleteStream,
        ModelFault::Auth,
        ModelFault::Hang,
        ModelFault::Panic,
        ModelFault::Empty,
        ModelFault::Empty,
        ModelFault::ReasoningOnly,
        ModelFault::Truncated,
        ModelFault::Truncated,
        ModelFault::TruncatedCalls,
        ModelFault::UnknownTool,
        ModelFault::Malformed,
        ModelFault::Refused,
        ModelFault::NoUsage,
        ModelFault::NoUsage,
        ModelFault::WrongUsage,
    ])
}

fn call(dice: &mut SeededRng, n: u64) -> CallPlan {
    let does = if dice.chance(80) {
        ToolBehaviour::Well
    } else {
        dice.pick(&[
            ToolBehaviour::Fail,
            ToolBehaviour::PanicOnce,
            ToolBehaviour::PanicOnce,
            ToolBehaviour::PanicAlways,
            ToolBehaviour::Hang,
            ToolBehaviour::IgnoreStop,
            ToolBehaviour::PlanPanics,
        ])
    };
    CallPlan {
        tool: dice.pick(&[
            ToolKind::Look,
            ToolKind::Put,
            ToolKind::Send,
            ToolKind::Send,
            ToolKind::Build,
            ToolKind::Build,
        ]),
        ms: dice.pick(&[0, 5, 200, 200, 1_000, 8_000]),
        behaviour: does,
        is_twin: n > 0 && dice.chance(10),
    }
}

fn fault(dice: &mut SeededRng, n: usize, (runs, delegates): (&[RunPlan], bool)) -> PlannedFault {
    let what = if delegates && dice.chance(20) {
        FaultTrigger::At(dice.below(MAX_START_MS), subagent_event(dice))
    } else if dice.chance(45) {
        FaultTrigger::Commit(dice.between(1, 30), commit_fault(dice))
    } else {
        FaultTrigger::At(dice.below(MAX_START_MS), event(dice, runs))
    };
    PlannedFault { n, trigger: what }
}

fn downtime(dice: &mut SeededRng) -> Downtime {
    Downtime { ms: dice.pick(&[0, 10, 700, 5_000, 60_000]), reboots: dice.chance(15) }
}

fn commit_fault(dice: &mut SeededRng) -> CommitFault {
    match dice.below(11) {
        0..=2 => CommitFault::CrashBefore(downtime(dice)),
        3..=5 => CommitFault::CrashAfter(downtime(dice)),
        6 => CommitFault::Slow(dice.pick(&[50, 2_000, 30_000])),
        7 => CommitFault::Hangs(dice.chance(50), dice.pick(&[0, 300, 5_000]), downtime(dice)),
        8 => CommitFault::Strays(dice.between(1, 3), downtime(dice)),
        _ => {
            let fault = dice.pick(&[
                JournalFault::Error,
                JournalFault::FullDisk,
                JournalFault::AmbiguousWritten,
                JournalFault::AmbiguousUnwritten,
                JournalFault::Panic,
            ]);
            CommitFault::Fails(fault, downtime(dice))
        }
    }
}

fn event(dice: &mut SeededRng, runs: &[RunPlan]) -> PlannedEvent {
    let some = |dice: &mut SeededRng| runs[dice.index(runs.len())].n;
    match dice.below(33) {
        0..=3 => PlannedEvent::Crash(downtime(dice)),
        4 | 5 => PlannedEvent::Suspend(downtime(dice)),
        6..=9 => PlannedEvent::ActorFault(
            PlannedTarget::Session(runs[dice.index(runs.len())].session),
            dice.pick(&[ActorFault::Panic, ActorFault::Error, ActorFault::Kill]),
        ),
        10..=12 => {
            let targets = [
                PlannedTarget::Root,
                PlannedTarget::Persistence,
                PlannedTarget::ProviderSupervisor,
                PlannedTarget::Provider,
                PlannedTarget::ToolExecutor,
                PlannedTarget::Compressor,
                PlannedTarget::SessionSupervisor,
                PlannedTarget::SessionSupervisor,
            ];
            PlannedEvent::ActorFault(
                dice.pick(&targets),
                dice.pick(&[ActorFault::Panic, ActorFault::Error, ActorFault::Kill]),
            )
        }
        13 | 14 => {
            let by = i64::try_from(dice.below(MAX_CLOCK_JUMP_MS.unsigned_abs())).unwrap_or(MAX_CLOCK_JUMP_MS);
            PlannedEvent::ClockJump(if dice.chance(50) { by } else { -by })
        }
        15 | 16 => PlannedEvent::Stop(some(dice)),
        17 | 18 => PlannedEvent::Steer(some(dice)),
        19 | 20 => PlannedEvent::Resubmit(some(dice)),
        21 | 22 => PlannedEvent::Decide(dice.pick(&[ApprovalDecision::Allow, ApprovalDecision::Deny])),
        23 => PlannedEvent::StopWithoutResume(some(dice)),
        24 => {
            PlannedEvent::DecideWithoutResume(dice.pick(&[ApprovalDecision::Allow, ApprovalDecision::Deny]))
        }
        25..=28 => PlannedEvent::StopLate(some(dice)),
        29 | 30 => PlannedEvent::Raise(some(dice), limit_increase(dice)),
        31 => PlannedEvent::RaiseWithoutResume(some(dice), limit_increase(dice)),
        _ => PlannedEvent::Unreadable(dice.index(3) + 1),
    }
}
