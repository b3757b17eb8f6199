//! What happens in a simulation: a pure function of its seed, of which parts can be left out.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::context_pressure::ContextPressure;
use crate::{
    model::{ApprovalDecision, Delegation, InDoubtAction, LimitIncrease, Limits},
    testkit::{ActorFault, JournalFault},
};

/// All that is done to a runtime and what it is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationPlan {
    pub(super) seed: u64,
    pub(super) process: ProcessConfig,
    pub(super) runs: Vec<RunPlan>,
    /// What their models give to subagents, at whatever depth: numbered behind all runs, and like runs, but that nobody hands
    /// them in.
    pub(super) tasks: Vec<RunPlan>,
    pub(super) faults: Vec<PlannedFault>,
    /// Whether views become too long.
    pub(super) context_pressure: Option<ContextPressure>,
    /// Whether something was left out.
    pub(super) is_whole: bool,
}

/// What every life of the process is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessConfig {
    /// What a commit takes.
    pub(super) disk_ms: u64,
    /// How many models a run may ask.
    pub(super) links: usize,
    /// How many calls each of them may have at once.
    pub(super) leases: usize,
    /// How many tool calls may be under way.
    pub(super) tool_calls: usize,
    /// Whether somebody watches.
    pub(super) is_watched: bool,
    /// For how long a session with nothing to do keeps its actor.
    pub(super) idle_ms: u64,
}

/// A task and what the model makes of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunPlan {
    /// Its number in the whole plan.
    pub(super) n: usize,
    pub(super) session: usize,
    /// When it is handed in.
    pub(super) at_ms: u64,
    /// Whether it is handed in again, with its key, until it is known to be accepted; else it is only once.
    pub(super) is_keyed: bool,
    pub(super) limits: Limits,
    pub(super) in_doubt: InDoubtAction,
    /// What a person is given to answer.
    pub(super) approval_timeout_ms: u64,
    /// Whether the encoder panics when it first sees the task.
    pub(super) encoder_panics: bool,
    /// What it may give to subagents.
    pub(super) delegation: Option<Delegation>,
    /// By how much its limits are raised each time that it has used them up, so often.
    pub(super) raises: Option<(u32, LimitIncrease)>,
    /// What the model does, step by step; then it gives its answer.
    pub(super) steps: Vec<PlannedStep>,
    /// The way to the answer, which is a step without calls.
    pub(super) last: PlannedStep,
}

/// One step of a model: what goes wrong before, and the calls it asks for in the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PlannedStep {
    pub(super) ms: u64,
    pub(super) faults: Vec<ModelFault>,
    pub(super) calls: Vec<CallPlan>,
    /// The tasks that it gives away beside them.
    pub(super) delegations: Vec<PlannedDelegation>,
}

/// A call that gives tasks to subagents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedDelegation {
    /// By their numbers.
    pub(super) tasks: Vec<usize>,
    /// Whether the model goes on meanwhile.
    pub(super) background: bool,
}

/// What goes wrong with one attempt of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelFault {
    RateLimited(Option<u64>),
    Overloaded,
    Server,
    Network,
    /// There is no connection: nothing was sent.
    NotConnected,
    /// It breaks, and says how many tokens were written until then.
    FailedWithUsage(u64),
    IncompleteStream,
    Auth,
    Hang,
    Panic,
    /// It answers nothing.
    Empty,
    /// It thinks, and answers nothing.
    ReasoningOnly,
    /// Its text is cut off.
    Truncated,
    /// Its calls are cut off.
    TruncatedCalls,
    /// It calls a tool that does not exist.
    UnknownTool,
    /// It calls a tool with what is no JSON.
    Malformed,
    /// It refuses.
    Refused,
    /// It says far too much.
    TooLong,
    /// It answers well, and does not say what that used.
    NoUsage,
    /// It answers well, and says that this used what cannot be.
    WrongUsage,
}

/// One call that a model asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallPlan {
    pub(super) tool: ToolKind,
    pub(super) ms: u64,
    pub(super) behaviour: ToolBehaviour,
    /// Whether it is the same as the one before it.
    pub(super) is_twin: bool,
}

/// The tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// Pure.
    Look,
    /// Idempotent; writes to one place.
    Put,
    /// Once.
    Send,
    /// Once, and outlives its process.
    Build,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolBehaviour {
    Well,
    Fail,
    /// Its first attempt panics.
    PanicOnce,
    PanicAlways,
    Hang,
    /// It does not end when it is told to.
    IgnoreStop,
    /// Its arguments make the tool panic, once.
    PlanPanics,
}

/// Something that happens to the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedFault {
    /// Its number in the whole plan.
    pub(super) n: usize,
    pub(super) trigger: FaultTrigger,
}

/// See [`PlannedFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultTrigger {
    /// To a commit, counted from 1 over all lives.
    Commit(u64, CommitFault),
    /// After so many milliseconds, counted over all lives.
    At(u64, PlannedEvent),
}

/// What happens to a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitFault {
    /// The process ends before it is applied.
    CrashBefore(Downtime),
    /// The process ends when it is applied and nobody knows.
    CrashAfter(Downtime),
    /// It takes so long.
    Slow(u64),
    /// The store fails, and the runtime ends of that.
    Fails(JournalFault, Downtime),
    /// The store does not answer, and the process ends so much later. Whether it is applied.
    Hangs(bool, u64, Downtime),
    /// The process ends, and what it writes reaches the store when the next ones have begun so many commits.
    Strays(u64, Downtime),
}

/// Between two lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Downtime {
    pub(super) ms: u64,
    /// Whether the machine is started anew, so that commands end.
    pub(super) reboots: bool,
}

/// What happens at a time. Runs are named by their numbers, sessions by those of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedEvent {
    Crash(Downtime),
    Suspend(Downtime),
    ActorFault(PlannedTarget, ActorFault),
    /// The wall clock moves by so many milliseconds.
    ClockJump(i64),
    Stop(usize),
    /// Likewise, without letting its session go on for that.
    StopWithoutResume(usize),
    /// It is stopped while its model answers, and nobody can hear of either before a message to it is written.
    StopLate(usize),
    Steer(usize),
    /// The limits of a run are raised.
    Raise(usize, LimitIncrease),
    /// Likewise, without letting its session go on for that.
    RaiseWithoutResume(usize, LimitIncrease),
    /// A session is struck while something is on its way to disk of which another one is to hear.
    FaultBeforeNotice(ActorFault),
    /// One of the subagents that have not ended is stopped.
    StopSubagent(usize),
    /// A run is handed in again.
    Resubmit(usize),
    /// Whatever is asked is answered so.
    Decide(ApprovalDecision),
    /// Likewise, without letting sessions go on for that.
    DecideWithoutResume(ApprovalDecision),
    /// So many reads of records fail.
    Unreadable(usize),
}

/// Who is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedTarget {
    Root,
    Persistence,
    ProviderSupervisor,
    Provider,
    ToolExecutor,
    SessionSupervisor,
    /// The one with this number in the plan, if it is there.
    Session(usize),
    /// That of one of the subagents that have not ended.
    Subagent(usize),
}

impl PlannedEvent {
    /// Whether it waits for something that is asked.
    pub(super) const fn is_decision(self) -> bool {
        matches!(self, Self::Decide(_) | Self::DecideWithoutResume(_))
    }
}

impl SimulationPlan {
    /// The seed that it was made of.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How many runs and faults it has.
    pub const fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.faults.len())
    }

    /// The same with these runs and faults alone, by their numbers.
    #[must_use]
    pub fn restricted_to(mut self, runs: &[usize], faults: &[usize]) -> Self {
        self.runs.retain(|run| runs.contains(&run.n));
        self.faults.retain(|fault| faults.contains(&fault.n));
        self.is_whole = false;
        self
    }

    /// Whether subagents are planned.
    pub fn has_delegations(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The numbers of its runs and faults.
    pub fn numbers(&self) -> (Vec<usize>, Vec<usize>) {
        let runs = self.runs.iter().map(|run| run.n).collect();
        (runs, self.faults.iter().map(|fault| fault.n).collect())
    }

    pub(super) fn run(&self, n: usize) -> Option<&RunPlan> {
        self.runs.iter().chain(&self.tasks).find(|run| run.n == n)
    }

    /// How to get this plan again.
    pub fn replay(&self) -> String {
        if self.is_whole {
            return self.seed.to_string();
        }
        let (runs, faults) = self.numbers();
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        format!("{}:{}:{}", self.seed, list(&runs), list(&faults))
    }
}

/// Reads what [`SimulationPlan::replay`] says: a seed, or `seed:runs:faults` with the numbers of those that are left.
impl FromStr for SimulationPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a seed nor seed:runs:faults, as in 17:0,2:1");
        let list = |part: &str| {
            let numbers = part.split(',').filter(|number| !number.is_empty());
            numbers.map(|number| number.parse().map_err(|_| wrong())).collect::<Result<Vec<usize>, _>>()
        };
        let parts: Vec<&str> = text.trim().split(':').collect();
        let whole = |seed: &str| seed.parse().map(Self::of).map_err(|_| wrong());
        match parts[..] {
            [seed] => whole(seed),
            [seed, runs, faults] => Ok(whole(seed)?.restricted_to(&list(runs)?, &list(faults)?)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for SimulationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {:?}", self.seed, self.process)?;
        if let Some(squeeze) = &self.context_pressure {
            writeln!(f, "{squeeze:?}")?;
        }
        for run in self.runs.iter().chain(&self.tasks) {
            let RunPlan { n, session, at_ms, is_keyed: keyed, limits, in_doubt, .. } = run;
            let budget = limits.budget;
            writeln!(
                f,
                "run {n} in session {session} at {at_ms} ms, keyed: {keyed}, {in_doubt:?} for {} ms, {budget:?}, wall {:?}, timeout {:?}, encoder panics: {}, {:?}, more: {:?}",
                run.approval_timeout_ms,
                limits.wall_ms,
                limits.timeout_ms,
                run.encoder_panics,
                run.delegation,
                run.raises
            )?;
            for step in run.steps.iter().chain([&run.last]) {
                writeln!(f, "    {} ms {:?} {:?} {:?}", step.ms, step.faults, step.calls, step.delegations)?;
            }
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "fault {}: {:?}", fault.n, fault.trigger))
    }
}
