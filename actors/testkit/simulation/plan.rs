//! The plan of a simulation: its types, and its text form. Runs and faults can be left out by number. `generate.rs`
//! makes it from a seed.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    begin::BeginPlan, context_pressure::ContextPressure, descriptions::DescriptionPlan, flushes::FlushPlan,
    titles::TitlePlan,
};
use crate::{ActorFault, JournalFault};
use hermod_actors::model::{ApprovalDecision, Delegation, InDoubtAction, LimitIncrease, Limits, StoreLimits};

/// The runs given to a runtime and the faults injected into it.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulationPlan {
    pub(super) seed: u64,
    pub(super) process: ProcessConfig,
    pub(super) runs: Vec<RunPlan>,
    /// Tasks that models delegate to subagents, at any depth. They are numbered after `runs` and never submitted.
    pub(super) tasks: Vec<RunPlan>,
    pub(super) faults: Vec<PlannedFault>,
    /// `Some` if views become too long.
    pub(super) context_pressure: Option<ContextPressure>,
    /// The limits of all runs together.
    pub(super) store_limits: StoreLimits,
    /// `Some` if sessions get titles.
    pub(super) titles: Option<TitlePlan>,
    /// `Some` if tasks have pictures that the models of the runs do not see.
    pub(super) descriptions: Option<DescriptionPlan>,
    /// `Some` if runs are flushed.
    pub(super) flushes: Option<FlushPlan>,
    /// What its runs wait for before they begin.
    pub(super) begin: BeginPlan,
    /// False if runs or faults were left out.
    pub(super) is_whole: bool,
}

/// Settings shared by all lives of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessConfig {
    /// Milliseconds of one commit.
    pub(super) disk_ms: u64,
    /// Length of a run's model chain.
    pub(super) links: usize,
    /// Limit of concurrent calls of each provider.
    pub(super) leases: usize,
    /// Limit of concurrent tool calls.
    pub(super) tool_calls: usize,
    /// Whether a client watches the sessions.
    pub(super) is_watched: bool,
    /// Milliseconds until an idle session's actor is passivated.
    pub(super) idle_ms: u64,
}

/// A task and the model's steps for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunPlan {
    /// Its number in the whole plan.
    pub(super) n: usize,
    pub(super) session: usize,
    /// When it is submitted.
    pub(super) at_ms: u64,
    /// True: submitted with a key, again until it is known to be accepted. False: submitted once.
    pub(super) is_keyed: bool,
    pub(super) limits: Limits,
    pub(super) in_doubt: InDoubtAction,
    /// Milliseconds a person has to answer an approval.
    pub(super) approval_timeout_ms: u64,
    /// Whether the encoder panics when it first sees the task.
    pub(super) encoder_panics: bool,
    /// What the run may delegate to subagents.
    pub(super) delegation: Option<Delegation>,
    /// Each time the run exhausts its limits they are raised by this increase, at most `u32` times.
    pub(super) raises: Option<(u32, LimitIncrease)>,
    /// The model's steps before its answer.
    pub(super) steps: Vec<PlannedStep>,
    /// The step that gives the answer: it has no calls.
    pub(super) last: PlannedStep,
    /// Whether the model repeats a call for a while before it.
    pub(super) loops: bool,
}

/// One step of a model: its faults, in order of the attempts, and the calls of the attempt that succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PlannedStep {
    pub(super) ms: u64,
    pub(super) faults: Vec<ModelFault>,
    pub(super) calls: Vec<CallPlan>,
    /// Calls that delegate tasks, in addition to `calls`.
    pub(super) delegations: Vec<PlannedDelegation>,
}

/// A call that delegates tasks to subagents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedDelegation {
    /// Numbers of the tasks.
    pub(super) tasks: Vec<usize>,
    /// Whether the model continues without waiting for them.
    pub(super) background: bool,
}

/// The fault of one attempt of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelFault {
    RateLimited(Option<u64>),
    Overloaded,
    Server,
    Network,
    /// There is no connection: nothing was sent.
    NotConnected,
    /// The call fails, and the failure reports this number of output tokens.
    FailedWithUsage(u64),
    IncompleteStream,
    Auth,
    Hang,
    Panic,
    /// The answer is empty.
    Empty,
    /// The answer has reasoning only.
    ReasoningOnly,
    /// The text is truncated.
    Truncated,
    /// The calls are truncated.
    TruncatedCalls,
    /// The answer calls a tool that does not exist.
    UnknownTool,
    /// The answer calls a tool with arguments that are no JSON.
    Malformed,
    /// The model refuses.
    Refused,
    /// The answer is far too long.
    TooLong,
    /// A good answer without usage.
    NoUsage,
    /// A good answer with an impossible usage.
    WrongUsage,
}

/// One call that a model asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallPlan {
    pub(super) tool: ToolKind,
    pub(super) ms: u64,
    pub(super) behaviour: ToolBehaviour,
    /// Whether it equals the call before it.
    pub(super) is_twin: bool,
}

/// The kind of a simulated tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// A pure tool.
    Look,
    /// An idempotent tool that writes to one path.
    Put,
    /// A tool of effect class `Once`.
    Send,
    /// A tool of effect class `Once` whose command outlives the process.
    Build,
}

/// The behaviour of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolBehaviour {
    Well,
    Fail,
    /// The first attempt panics.
    PanicOnce,
    PanicAlways,
    Hang,
    /// The call ignores its cancellation.
    IgnoreStop,
    /// The tool panics the first time it plans these arguments.
    PlanPanics,
}

/// A fault injected into the runtime, or an order given to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedFault {
    /// Its number in the whole plan.
    pub(super) n: usize,
    pub(super) trigger: FaultTrigger,
}

/// When a [`PlannedFault`] occurs, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultTrigger {
    /// At a commit, counted from 1 over all lives.
    Commit(u64, CommitFault),
    /// At this time in milliseconds, counted over all lives.
    At(u64, PlannedEvent),
}

/// The fault of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitFault {
    /// The process crashes before the commit is applied.
    CrashBefore(Downtime),
    /// The process crashes after the commit is applied and before it is acknowledged.
    CrashAfter(Downtime),
    /// The commit takes this number of milliseconds.
    Slow(u64),
    /// The store fails for the rest of the life, and the runtime ends because of it.
    Fails(JournalFault, Downtime),
    /// The store does not answer, and the process crashes `u64` milliseconds later. `bool`: the commit is applied.
    Hangs(bool, u64, Downtime),
    /// The process crashes. Its batch reaches the store only when later lives have started `u64` more commits.
    Strays(u64, Downtime),
}

/// The time between two lives of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Downtime {
    pub(super) ms: u64,
    /// Whether the machine reboots, which ends all commands.
    pub(super) reboots: bool,
}

/// An event at a point in time. Runs and sessions are given by their numbers in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedEvent {
    Crash(Downtime),
    Suspend(Downtime),
    ActorFault(PlannedTarget, ActorFault),
    /// The wall clock jumps by this number of milliseconds.
    ClockJump(i64),
    Stop(usize),
    /// Stops a run without resuming its session.
    StopWithoutResume(usize),
    /// Stops a run while its model answers. Stop and answer both wait behind the slow commit of a message to the run.
    StopLate(usize),
    Steer(usize),
    /// Raises the limits of a run.
    Raise(usize, LimitIncrease),
    /// Raises the limits of a run without resuming its session.
    RaiseWithoutResume(usize, LimitIncrease),
    /// Injects a fault into a session while a commit that notifies another session is under way.
    FaultBeforeNotice(ActorFault),
    /// Stops one of the open subagents.
    StopSubagent(usize),
    /// Submits a run again.
    Resubmit(usize),
    /// Answers all pending approvals with this decision.
    Decide(ApprovalDecision),
    /// Answers all pending approvals without resuming their sessions.
    DecideWithoutResume(ApprovalDecision),
    /// The next `usize` reads of records fail.
    Unreadable(usize),
}

/// The actor that receives a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlannedTarget {
    Root,
    Persistence,
    ProviderSupervisor,
    Provider,
    ToolExecutor,
    Compressor,
    SessionSupervisor,
    /// The session with this number in the plan, if its actor is live.
    Session(usize),
    /// The session of one of the open subagents.
    Subagent(usize),
}

impl PlannedEvent {
    /// Whether the event waits for a pending approval.
    pub(super) const fn is_decision(self) -> bool {
        matches!(self, Self::Decide(_) | Self::DecideWithoutResume(_))
    }
}

impl SimulationPlan {
    /// The seed the plan was generated from.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of runs and of faults.
    pub const fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.faults.len())
    }

    /// Keeps only the runs and faults with these numbers.
    #[must_use]
    pub fn restricted_to(mut self, runs: &[usize], faults: &[usize]) -> Self {
        self.runs.retain(|run| runs.contains(&run.n));
        self.faults.retain(|fault| faults.contains(&fault.n));
        self.is_whole = false;
        self
    }

    /// Whether the plan has tasks for subagents.
    pub fn has_delegations(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// The numbers of the plan's runs and faults.
    pub fn numbers(&self) -> (Vec<usize>, Vec<usize>) {
        let runs = self.runs.iter().map(|run| run.n).collect();
        (runs, self.faults.iter().map(|fault| fault.n).collect())
    }

    /// The pictures of the run with this number.
    pub(super) fn images(&self, run: usize) -> Vec<bytes::Bytes> {
        self.descriptions.as_ref().map_or_else(Vec::new, |_| DescriptionPlan::images(run))
    }

    pub(super) fn run(&self, n: usize) -> Option<&RunPlan> {
        self.runs.iter().chain(&self.tasks).find(|run| run.n == n)
    }

    /// Text that parses to this plan again: a seed, or `seed:runs:faults` if runs or faults were left out.
    pub fn replay(&self) -> String {
        if self.is_whole {
            return self.seed.to_string();
        }
        let (runs, faults) = self.numbers();
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        format!("{}:{}:{}", self.seed, list(&runs), list(&faults))
    }
}

/// Parses the text of [`SimulationPlan::replay`]: a seed, or `seed:runs:faults` with the numbers of those to keep.
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
        if self.store_limits != StoreLimits::default() {
            writeln!(f, "{:?}", self.store_limits)?;
        }
        if let Some(titles) = &self.titles {
            writeln!(f, "{titles:?}")?;
        }
        if let Some(descriptions) = &self.descriptions {
            writeln!(f, "{descriptions:?}")?;
        }
        if let Some(flushes) = &self.flushes {
            writeln!(f, "{flushes:?}")?;
        }
        if self.begin.has_rules() {
            writeln!(f, "{:?}", self.begin)?;
        }
        for run in self.runs.iter().chain(&self.tasks) {
            let RunPlan { n, session, at_ms, is_keyed: keyed, limits, in_doubt, .. } = run;
            let budget = limits.budget;
            writeln!(
                f,
                "run {n} in session {session} at {at_ms} ms, keyed: {keyed}, {in_doubt:?} for {} ms, {budget:?}, wall {:?}, timeout {:?}, encoder panics: {}, {:?}, more: {:?}, loops: {}",
                run.approval_timeout_ms,
                limits.wall_ms,
                limits.timeout_ms,
                run.encoder_panics,
                run.delegation,
                run.raises,
                run.loops
            )?;
            for step in run.steps.iter().chain([&run.last]) {
                writeln!(f, "    {} ms {:?} {:?} {:?}", step.ms, step.faults, step.calls, step.delegations)?;
            }
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "fault {}: {:?}", fault.n, fault.trigger))
    }
}
