//! Fault scenarios: one fault each in a runtime with three working sessions, and the expected outcome. The victim is
//! the first session, which session and call faults target; the other two are its siblings. A test checks the table,
//! and a benchmark prints it.

mod faulty_adapters;
mod run;
mod table;

use std::time::Duration;

use crate::{ActorFault, JournalFault};
use hermod_actors::{RuntimeEnd, model::EffectClass};
pub use table::{FAULT_SCENARIOS, NO_FREEZE};

/// One fault in one runtime, with its expected outcome.
#[derive(Debug)]
pub struct FaultScenario {
    /// The kind of actor or call that fails.
    pub kind: &'static str,
    /// `panic`, `error` or `freeze`.
    pub fault: &'static str,
    /// How the fault is caused, in words.
    pub how: &'static str,
    /// The expected outcome, in words.
    pub what: &'static str,
    /// The expected outcome, as a test can observe it.
    pub expect: ExpectedOutcome,
    /// True if the scenario waits for long delays or limits: run it under virtual time.
    pub waits: bool,
    action: FaultAction,
}

/// What must be observed after a scenario.
#[derive(Debug)]
pub struct ExpectedOutcome {
    /// Restarted actors by name, each with its number of restarts.
    pub restarted: &'static [(&'static str, u32)],
    /// The kinds of the victim's first records after the fault.
    pub records: &'static [&'static str],
    /// How the victim's run ends, in this runtime or after the next start.
    pub outcome: &'static str,
    /// Why the runtime ends; `None` if it continues.
    pub terminated: Option<&'static str>,
}

/// What was observed after a scenario.
#[derive(Debug)]
pub struct ObservedOutcome {
    /// Restarted actors by name, each with its number of restarts.
    pub restarted: Vec<(String, u32)>,
    /// The kinds of the victim's first records after the fault, at most three.
    pub records: Vec<&'static str>,
    /// How the victim's run ended, in this runtime or after the next start.
    pub outcome: String,
    /// How the siblings' runs ended.
    pub siblings: Vec<String>,
    /// Number of `run.ended` records of each run, the victim's first.
    pub ends: Vec<usize>,
    /// Why the runtime ended; `None` if it continued.
    pub terminated: Option<RuntimeEnd>,
    /// Time from the fault to the victim's next durable record, with these exceptions:
    ///
    /// - a provider, its supervisor, the tool executor or the Compressor failed: until its next answer
    /// - the runtime ends: until the end is reported
    /// - a slow store: from before the start to the first accepted run
    /// - a tool that ignores its stop: from the stop to the run's end
    pub progress: Duration,
}

/// The fault that a scenario causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultAction {
    /// An actor fails.
    Actor(FaultTarget, ActorFault),
    /// The victim's session fails three times at the same step.
    ActorThrice(ActorFault),
    /// One of the victim's calls fails.
    Call(AdapterFault),
    /// A commit fails.
    Commit(JournalFault),
}

/// The actor that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultTarget {
    Root,
    Persistence,
    ProviderSupervisor,
    Provider,
    ToolExecutor,
    Compressor,
    SessionSupervisor,
    TargetSession,
}

/// What an adapter does wrong, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AdapterFault {
    ModelPanics,
    ModelFails,
    ModelFreezes,
    EncoderPanics,
    PlanPanics,
    ToolPanics(EffectClass),
    ToolFails,
    ToolFreezes,
    /// The tool keeps running after it was stopped.
    ToolIgnoresStop,
}
