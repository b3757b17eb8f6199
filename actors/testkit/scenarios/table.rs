//! The table of fault scenarios, with the expected outcome of each.

use std::time::Duration;

use super::{AdapterFault, ExpectedOutcome, FaultAction, FaultScenario, FaultTarget};
use crate::{ActorFault, JournalFault};
use hermod_actors::model::EffectClass;

/// Kinds of actors that no input can freeze, each with the reason.
pub const NO_FREEZE: &[(&str, &str)] = &[
    ("Root", "handlers await nothing; it waits only for a child's `pre_start`, which does no I/O"),
    ("ProviderSupervisor", "handlers await nothing"),
    ("Provider", "handlers await nothing; its requests are tasks with a limit, calls are tasks of sessions"),
    ("ToolExecutor", "handlers await nothing; calls are tasks of sessions"),
    ("Compressor", "handlers await nothing; waits for leases and attempts are tasks of sessions"),
    ("SessionSupervisor", "handlers await nothing; journals are read in tasks"),
    ("Session", "handlers await nothing; appends and calls answer by message"),
];

const PANICS: (&str, &str) = ("panic", "its handler panics");
const FAILS: (&str, &str) = ("error", "its handler returns an error");
const KILLED: (&str, &str) = ("error", "it is killed");

const COMPLETED: &str = "completed";
const REVIVED: &[&str] = &["session.revived", "model.failed", "model.started"];

/// No actor restarts; the victim continues with these records.
const fn continues(records: &'static [&'static str], outcome: &'static str) -> ExpectedOutcome {
    ExpectedOutcome { restarted: &[], records, outcome, terminated: None }
}

/// The actors in `part` restart; every run completes.
const fn restarted(part: &'static [(&'static str, u32)]) -> ExpectedOutcome {
    ExpectedOutcome { restarted: part, records: &[], outcome: COMPLETED, terminated: None }
}

/// The actors in `part` restart; the victim's session is revived, and its run completes.
const fn revived(part: &'static [(&'static str, u32)]) -> ExpectedOutcome {
    ExpectedOutcome { restarted: part, records: REVIVED, outcome: COMPLETED, terminated: None }
}

/// The runtime ends for this reason; the runs complete after the next start.
const fn ends(reason: &'static str) -> ExpectedOutcome {
    ExpectedOutcome { restarted: &[], records: &[], outcome: COMPLETED, terminated: Some(reason) }
}

const fn actor_fault(
    kind: &'static str,
    (fault, how): (&'static str, &'static str),
    (target, strike): (FaultTarget, ActorFault),
    what: &'static str,
    expect: ExpectedOutcome,
) -> FaultScenario {
    FaultScenario { kind, fault, how, what, expect, waits: false, action: FaultAction::Actor(target, strike) }
}

const fn call_fault(
    kind: &'static str,
    (fault, how): (&'static str, &'static str),
    adapter_fault: AdapterFault,
    what: &'static str,
    expect: ExpectedOutcome,
) -> FaultScenario {
    FaultScenario { kind, fault, how, what, expect, waits: false, action: FaultAction::Call(adapter_fault) }
}

const fn freeze(
    kind: &'static str,
    how: &'static str,
    action: FaultAction,
    what: &'static str,
    expect: ExpectedOutcome,
) -> FaultScenario {
    FaultScenario { kind, fault: "freeze", how, what, expect, waits: true, action }
}

const ROOT_ENDS: &str = "the runtime ends (exit 70); the next start goes on with every run";
const STORE_ENDS: &str =
    "Root ends the runtime as a failed store (exit 74); the next start goes on with every run";
const BY_ROOT: &str = "Root starts it again; what was said meanwhile waits at its address";
const BY_COMPRESSOR: &str =
    "Root starts it again; sessions send their jobs again, and attempts under way continue";
const ALL_REVIVED: &str =
    "Root starts it again; it ends the tasks of all sessions and revives them from their journals";
const BY_SESSIONS: &str =
    "SessionSupervisor ends its tasks and revives it from its journal; the call is made again";

/// All fault scenarios, in the order of the supervision tree.
pub const FAULT_SCENARIOS: &[FaultScenario] = &[
    actor_fault(
        "Root",
        PANICS,
        (FaultTarget::Root, ActorFault::Panic),
        ROOT_ENDS,
        ends("the Root actor died: it died without a word"),
    ),
    actor_fault(
        "Root",
        FAILS,
        (FaultTarget::Root, ActorFault::Error),
        ROOT_ENDS,
        ends("the Root actor died: it died without a word"),
    ),
    FaultScenario {
        kind: "Persistence",
        fault: "panic",
        how: "the journal panics in a commit",
        what: STORE_ENDS,
        expect: ends("the store takes no writes: the adapter panicked"),
        waits: false,
        action: FaultAction::Commit(JournalFault::Panic),
    },
    FaultScenario {
        kind: "Persistence",
        fault: "error",
        how: "a commit finds the disk full",
        what: STORE_ENDS,
        expect: ends("the store takes no writes: No space left on device (os error 28)"),
        waits: false,
        action: FaultAction::Commit(JournalFault::FullDisk),
    },
    actor_fault(
        "Persistence",
        KILLED,
        (FaultTarget::Persistence, ActorFault::Kill),
        "Root ends the runtime (exit 70); the next start goes on with every run",
        ends("the Persistence actor died: killed"),
    ),
    freeze(
        "Persistence",
        "every commit takes 1 s",
        FaultAction::Commit(JournalFault::Slow(Duration::from_secs(1))),
        "everybody waits; nothing is said that is not on disk, nothing is given up",
        continues(&[], COMPLETED),
    ),
    actor_fault(
        "ProviderSupervisor",
        PANICS,
        (FaultTarget::ProviderSupervisor, ActorFault::Panic),
        BY_ROOT,
        restarted(&[("ProviderSupervisor", 1)]),
    ),
    actor_fault(
        "ProviderSupervisor",
        FAILS,
        (FaultTarget::ProviderSupervisor, ActorFault::Error),
        BY_ROOT,
        restarted(&[("ProviderSupervisor", 1)]),
    ),
    actor_fault(
        "Provider",
        PANICS,
        (FaultTarget::Provider, ActorFault::Panic),
        "ProviderSupervisor starts it again; leases and open breakers stay, its statistics begin anew",
        restarted(&[("Provider test", 1)]),
    ),
    actor_fault(
        "Provider",
        FAILS,
        (FaultTarget::Provider, ActorFault::Error),
        "ProviderSupervisor starts it again; leases and open breakers stay, its statistics begin anew",
        restarted(&[("Provider test", 1)]),
    ),
    actor_fault(
        "ToolExecutor",
        PANICS,
        (FaultTarget::ToolExecutor, ActorFault::Panic),
        BY_ROOT,
        restarted(&[("ToolExecutor", 1)]),
    ),
    actor_fault(
        "ToolExecutor",
        FAILS,
        (FaultTarget::ToolExecutor, ActorFault::Error),
        BY_ROOT,
        restarted(&[("ToolExecutor", 1)]),
    ),
    actor_fault(
        "Compressor",
        PANICS,
        (FaultTarget::Compressor, ActorFault::Panic),
        BY_COMPRESSOR,
        restarted(&[("Compressor", 1)]),
    ),
    actor_fault(
        "Compressor",
        FAILS,
        (FaultTarget::Compressor, ActorFault::Error),
        BY_COMPRESSOR,
        restarted(&[("Compressor", 1)]),
    ),
    actor_fault(
        "SessionSupervisor",
        PANICS,
        (FaultTarget::SessionSupervisor, ActorFault::Panic),
        ALL_REVIVED,
        revived(&[("SessionSupervisor", 1)]),
    ),
    actor_fault(
        "SessionSupervisor",
        FAILS,
        (FaultTarget::SessionSupervisor, ActorFault::Error),
        ALL_REVIVED,
        revived(&[("SessionSupervisor", 1)]),
    ),
    actor_fault(
        "Session",
        PANICS,
        (FaultTarget::TargetSession, ActorFault::Panic),
        BY_SESSIONS,
        revived(&[("Session", 1)]),
    ),
    actor_fault(
        "Session",
        FAILS,
        (FaultTarget::TargetSession, ActorFault::Error),
        BY_SESSIONS,
        revived(&[("Session", 1)]),
    ),
    actor_fault(
        "Session",
        KILLED,
        (FaultTarget::TargetSession, ActorFault::Kill),
        BY_SESSIONS,
        revived(&[("Session", 1)]),
    ),
    FaultScenario {
        kind: "Session",
        fault: "panic",
        how: "its handler panics three times at the same step",
        what: "SessionSupervisor ends the run as failed(crash_loop) without it; the session goes on",
        expect: ExpectedOutcome {
            restarted: &[("Session", 3)],
            records: REVIVED,
            outcome: "failed (crash_loop: struck)",
            terminated: None,
        },
        waits: false,
        action: FaultAction::ActorThrice(ActorFault::Panic),
    },
    call_fault(
        "model call",
        ("panic", "the provider panics"),
        AdapterFault::ModelPanics,
        "the task's guard answers `lost`; the session records it and makes the next attempt",
        continues(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    call_fault(
        "model call",
        ("panic", "the encoder panics"),
        AdapterFault::EncoderPanics,
        "caught in the session; the call is lost, and its next attempt encodes all anew",
        continues(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    call_fault(
        "model call",
        ("error", "the provider answers 500"),
        AdapterFault::ModelFails,
        "the session records it and makes the next attempt after a pause of 250 to 500 ms",
        continues(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    freeze(
        "model call",
        "the provider never answers and keeps no deadline",
        FaultAction::Call(AdapterFault::ModelFreezes),
        "the watchdog drops it after 1,830 s; the run's time for one call is used up",
        continues(
            &["model.failed", "run.ended"],
            "failed (provider: timeout: the provider did not end the call within 1830 s)",
        ),
    ),
    call_fault(
        "tool call",
        ("panic", "`prepare` panics"),
        AdapterFault::PlanPanics,
        "caught; the model reads that the call was refused",
        continues(&["model.answered", "call.ended", "model.started"], COMPLETED),
    ),
    call_fault(
        "tool call",
        ("panic", "a repeatable tool panics"),
        AdapterFault::ToolPanics(EffectClass::Pure),
        "the task's guard answers `lost`; it is run again, at most three times",
        continues(&["call.lost", "call.started", "call.ended"], COMPLETED),
    ),
    call_fault(
        "tool call",
        ("panic", "a tool that must not be repeated panics"),
        AdapterFault::ToolPanics(EffectClass::Once),
        "the task's guard answers `lost`; the model reads that it is in doubt",
        continues(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    call_fault(
        "tool call",
        ("error", "the tool ends with an error"),
        AdapterFault::ToolFails,
        "the model reads the error",
        continues(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    freeze(
        "tool call",
        "the tool never ends",
        FaultAction::Call(AdapterFault::ToolFreezes),
        "the watchdog drops it after its limit (600 s by default); the model reads that it timed out",
        continues(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    freeze(
        "tool call",
        "the tool does not end when the run is stopped",
        FaultAction::Call(AdapterFault::ToolIgnoresStop),
        "the watchdog drops it after 3 s, and the run ends",
        continues(&["run.stopping", "call.ended", "run.ended"], "stopped (by command)"),
    ),
];
