//! Drills: one fault at a time in a runtime with three sessions at work, and what must come of it. A table, for the test
//! that checks it and the benchmark that prints it.

mod faulty_adapters;
mod run;
mod table;

use std::time::Duration;

use crate::{
    RuntimeEnd,
    model::EffectClass,
    testkit::{ActorFault, JournalFault},
};
pub use table::{FAULT_SCENARIOS, NO_FREEZE};

/// One fault.
#[derive(Debug)]
pub struct FaultScenario {
    /// The kind of actor or call.
    pub kind: &'static str,
    /// `panic`, `error` or `freeze`.
    pub fault: &'static str,
    /// How it is brought about.
    pub how: &'static str,
    /// What must come of it, in words.
    pub what: &'static str,
    /// The same, as it can be seen.
    pub expect: ExpectedOutcome,
    /// Whether it waits for limits, so that only virtual time is worth waiting for.
    pub waits: bool,
    action: FaultAction,
}

/// What must be seen after a drill.
#[derive(Debug)]
pub struct ExpectedOutcome {
    /// What was started again, and how often.
    pub restarted: &'static [(&'static str, u32)],
    /// The kinds of the victim's first records after the fault.
    pub records: &'static [&'static str],
    /// How the victim's run ends, at the latest after the next start.
    pub outcome: &'static str,
    /// What the runtime ends of, if it does.
    pub terminated: Option<&'static str>,
}

/// What was seen.
#[derive(Debug)]
pub struct ObservedOutcome {
    /// What was started again, and how often.
    pub restarted: Vec<(String, u32)>,
    /// The kinds of the victim's first three records after the fault.
    pub records: Vec<&'static str>,
    /// How the victim's run ended, at the latest after the next start.
    pub outcome: String,
    /// How the siblings' runs ended.
    pub siblings: Vec<String>,
    /// How many terminal records each run has.
    pub ends: Vec<usize>,
    /// What the runtime ended of, if it did.
    pub terminated: Option<RuntimeEnd>,
    /// From the fault to the next progress: of an actor that nobody waits for, its next answer; of the runtime's end, that
    /// it is said; of a slow store, the first acceptance; else the victim's next durable record.
    pub progress: Duration,
}

/// What is done in a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultAction {
    /// An actor is struck.
    Actor(FaultTarget, ActorFault),
    /// The victim's session is struck three times where it stands.
    ActorThrice(ActorFault),
    /// A call of the victim's goes wrong.
    Call(AdapterFault),
    /// A commit goes wrong.
    Commit(JournalFault),
}

/// Whom a strike meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultTarget {
    Root,
    Persistence,
    ProviderSupervisor,
    Provider,
    ToolExecutor,
    SessionSupervisor,
    TargetSession,
}

/// What an adapter does, once.
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
    /// It is stopped, and does not care.
    ToolIgnoresStop,
}
