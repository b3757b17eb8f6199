//! From a seed to a plan.

use super::{
    delegations::{delegates, of_subagent},
    dice::Dice,
    plan::{
        CallPlan, CommitFault, Does, Event, Fault, House, Kind, Mishap, Pause, Plan, RunPlan, Step, What, Who,
    },
    squeeze::Squeeze,
};
use crate::{
    model::{Amounts, Limits, Raised, Verdict, WhenInDoubt},
    testkit::{JournalFault, Strike},
};

/// Within this time, in milliseconds, the first things happen; it is about what a run without faults takes.
const SOON: u64 = 6_000;
/// The clock of the wall moves by at most so much.
const JUMP: i64 = 3 * 3_600_000;

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let house = House {
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
            runs.iter_mut().for_each(|run| tasks.extend(delegates(&mut dice, run)));
        }
        let squeeze = Squeeze::of(seed, &mut runs);
        let faults = dice.between(0, 6);
        let faults =
            (0..faults).zip(0..).map(|(_, n)| fault(&mut dice, n, (&runs, !tasks.is_empty()))).collect();
        Self { seed, house, runs, tasks, faults, squeeze, is_whole: true }
    }
}

fn run(dice: &mut Dice, n: usize, sessions: u64) -> RunPlan {
    let session = dice.index(usize::try_from(sessions).unwrap_or(1));
    let at_ms = if dice.chance(60) { 0 } else { dice.below(SOON) };
    let steps = dice.pick(&[0, 1, 1, 2, 2, 4]);
    RunPlan {
        n,
        session,
        at_ms,
        keyed: dice.chance(80),
        limits: limits(dice),
        in_doubt: dice.pick(&[WhenInDoubt::Tell, WhenInDoubt::Ask, WhenInDoubt::Retry]),
        patience_ms: dice.pick(&[100, 5_000, 3_600_000]),
        encoder_panics: dice.chance(3),
        delegation: None,
        more: dice.chance(50).then(|| (dice.pick(&[1, 1, 3]), raised(dice))),
        steps: (0..steps).map(|_| step(dice, true)).collect(),
        last: step(dice, false),
    }
}

pub(super) fn limits(dice: &mut Dice) -> Limits {
    let mut limits = Limits { max_tokens: 300, ..Limits::default() };
    let mut some = |percent, from, to| dice.chance(percent).then(|| dice.between(from, to));
    limits.budget = Amounts {
        iterations: some(10, 1, 4),
        tokens: some(10, 300, 2_500),
        tool_calls: some(10, 1, 4),
        ..Amounts::default()
    };
    limits.wall_ms = some(7, 50, SOON);
    limits.timeout_ms = some(7, 50, SOON);
    limits
}

pub(super) fn step(dice: &mut Dice, acts: bool) -> Step {
    let mut step = Step { ms: dice.pick(&[1, 20, 300, 1_500]), ..Step::default() };
    while dice.chance(15) {
        step.mishaps.push(mishap(dice));
    }
    let calls = if acts { dice.pick(&[1, 1, 2, 2, 3]) } else { 0 };
    step.calls = (0..calls).map(|n| call(dice, n)).collect();
    step
}

fn raised(dice: &mut Dice) -> Raised {
    let budget = Amounts {
        iterations: Some(dice.between(1, 3)),
        tokens: Some(dice.between(300, 2_500)),
        tool_calls: Some(dice.between(1, 3)),
        ..Amounts::default()
    };
    Raised { budget, wall_ms: Some(dice.between(50, SOON)) }
}

fn mishap(dice: &mut Dice) -> Mishap {
    dice.pick(&[
        Mishap::RateLimited(None),
        Mishap::RateLimited(Some(1_000)),
        Mishap::RateLimited(Some(90_000)),
        Mishap::RateLimited(Some(7_200_000)),
        Mishap::Overloaded,
        Mishap::Server,
        Mishap::Server,
        Mishap::Network,
        Mishap::Unreached,
        Mishap::Reported(9),
        Mishap::Cut,
        Mishap::Auth,
        Mishap::Hang,
        Mishap::Panic,
        Mishap::Empty,
        Mishap::Empty,
        Mishap::OnlyThought,
        Mishap::Part,
        Mishap::Part,
        Mishap::CutCalls,
        Mishap::UnknownTool,
        Mishap::Malformed,
        Mishap::Refused,
        Mishap::NoUsage,
        Mishap::NoUsage,
        Mishap::WrongUsage,
    ])
}

fn call(dice: &mut Dice, n: u64) -> CallPlan {
    let does = if dice.chance(80) {
        Does::Well
    } else {
        dice.pick(&[
            Does::Fail,
            Does::PanicOnce,
            Does::PanicOnce,
            Does::PanicAlways,
            Does::Hang,
            Does::IgnoreStop,
            Does::PlanPanics,
        ])
    };
    CallPlan {
        tool: dice.pick(&[Kind::Look, Kind::Put, Kind::Send, Kind::Send, Kind::Build, Kind::Build]),
        ms: dice.pick(&[0, 5, 200, 200, 1_000, 8_000]),
        does,
        is_twin: n > 0 && dice.chance(10),
    }
}

fn fault(dice: &mut Dice, n: usize, (runs, delegates): (&[RunPlan], bool)) -> Fault {
    let what = if delegates && dice.chance(20) {
        What::At(dice.below(SOON), of_subagent(dice))
    } else if dice.chance(45) {
        What::Commit(dice.between(1, 30), commit_fault(dice))
    } else {
        What::At(dice.below(SOON), event(dice, runs))
    };
    Fault { n, what }
}

fn pause(dice: &mut Dice) -> Pause {
    Pause { ms: dice.pick(&[0, 10, 700, 5_000, 60_000]), reboots: dice.chance(15) }
}

fn commit_fault(dice: &mut Dice) -> CommitFault {
    match dice.below(11) {
        0..=2 => CommitFault::CrashBefore(pause(dice)),
        3..=5 => CommitFault::CrashAfter(pause(dice)),
        6 => CommitFault::Slow(dice.pick(&[50, 2_000, 30_000])),
        7 => CommitFault::Hangs(dice.chance(50), dice.pick(&[0, 300, 5_000]), pause(dice)),
        8 => CommitFault::Strays(dice.between(1, 3), pause(dice)),
        _ => {
            let fault = dice.pick(&[
                JournalFault::Error,
                JournalFault::FullDisk,
                JournalFault::AmbiguousWritten,
                JournalFault::AmbiguousUnwritten,
                JournalFault::Panic,
            ]);
            CommitFault::Fails(fault, pause(dice))
        }
    }
}

fn event(dice: &mut Dice, runs: &[RunPlan]) -> Event {
    let some = |dice: &mut Dice| runs[dice.index(runs.len())].n;
    match dice.below(33) {
        0..=3 => Event::Crash(pause(dice)),
        4 | 5 => Event::Suspend(pause(dice)),
        6..=9 => Event::Strike(
            Who::Session(runs[dice.index(runs.len())].session),
            dice.pick(&[Strike::Panic, Strike::Error, Strike::Kill]),
        ),
        10..=12 => {
            let who = [
                Who::Root,
                Who::Persistence,
                Who::ProviderSupervisor,
                Who::Provider,
                Who::ToolExecutor,
                Who::SessionSupervisor,
                Who::SessionSupervisor,
            ];
            Event::Strike(dice.pick(&who), dice.pick(&[Strike::Panic, Strike::Error, Strike::Kill]))
        }
        13 | 14 => {
            let by = i64::try_from(dice.below(JUMP.unsigned_abs())).unwrap_or(JUMP);
            Event::Jump(if dice.chance(50) { by } else { -by })
        }
        15 | 16 => Event::Stop(some(dice)),
        17 | 18 => Event::Steer(some(dice)),
        19 | 20 => Event::Again(some(dice)),
        21 | 22 => Event::Decide(dice.pick(&[Verdict::Allow, Verdict::Deny])),
        23 => Event::StopAtRest(some(dice)),
        24 => Event::DecideAtRest(dice.pick(&[Verdict::Allow, Verdict::Deny])),
        25..=28 => Event::StopLate(some(dice)),
        29 | 30 => Event::Raise(some(dice), raised(dice)),
        31 => Event::RaiseAtRest(some(dice), raised(dice)),
        _ => Event::Unreadable(dice.index(3) + 1),
    }
}
