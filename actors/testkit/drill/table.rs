use std::time::Duration;

use super::{Deed, Drill, Expect, Misdeed, Who};
use crate::{
    model::EffectClass,
    testkit::{JournalFault, Strike},
};

/// Kinds that no input can freeze, and why.
pub const NO_FREEZE: &[(&str, &str)] = &[
    ("Root", "handlers await nothing; it waits only for a child's `pre_start`, which does no I/O"),
    ("ProviderSupervisor", "handlers await nothing"),
    ("Provider", "handlers await nothing; calls are tasks of sessions"),
    ("ToolExecutor", "handlers await nothing; calls are tasks of sessions"),
    ("SessionSupervisor", "handlers await nothing; journals are read in tasks"),
    ("Session", "handlers await nothing; appends and calls answer by message"),
];

const PANICS: (&str, &str) = ("panic", "its handler panics");
const FAILS: (&str, &str) = ("error", "its handler returns an error");
const KILLED: (&str, &str) = ("error", "it is killed");

const COMPLETED: &str = "completed";
const REVIVED: &[&str] = &["session.revived", "model.failed", "model.started"];

/// Nothing is started again, and the victim goes on so.
const fn goes_on(records: &'static [&'static str], outcome: &'static str) -> Expect {
    Expect { restarted: &[], records, outcome, terminated: None }
}

/// This is started again, and nobody notices.
const fn restarted(part: &'static [(&'static str, u32)]) -> Expect {
    Expect { restarted: part, records: &[], outcome: COMPLETED, terminated: None }
}

/// The victim's session is revived.
const fn revived(part: &'static [(&'static str, u32)]) -> Expect {
    Expect { restarted: part, records: REVIVED, outcome: COMPLETED, terminated: None }
}

/// The runtime ends, and the next start goes on.
const fn ends(reason: &'static str) -> Expect {
    Expect { restarted: &[], records: &[], outcome: COMPLETED, terminated: Some(reason) }
}

const fn strike(
    kind: &'static str,
    (fault, how): (&'static str, &'static str),
    (who, strike): (Who, Strike),
    what: &'static str,
    expect: Expect,
) -> Drill {
    Drill { kind, fault, how, what, expect, waits: false, deed: Deed::Strike(who, strike) }
}

const fn call(
    kind: &'static str,
    (fault, how): (&'static str, &'static str),
    misdeed: Misdeed,
    what: &'static str,
    expect: Expect,
) -> Drill {
    Drill { kind, fault, how, what, expect, waits: false, deed: Deed::Call(misdeed) }
}

const fn frozen(
    kind: &'static str,
    how: &'static str,
    deed: Deed,
    what: &'static str,
    expect: Expect,
) -> Drill {
    Drill { kind, fault: "freeze", how, what, expect, waits: true, deed }
}

const ROOT_ENDS: &str = "the runtime ends (exit 70); the next start goes on with every run";
const STORE_ENDS: &str =
    "Root ends the runtime as a failed store (exit 74); the next start goes on with every run";
const BY_ROOT: &str = "Root starts it again; what was said meanwhile waits at its address";
const ALL_REVIVED: &str =
    "Root starts it again; it ends the tasks of all sessions and revives them from their journals";
const BY_SESSIONS: &str =
    "SessionSupervisor ends its tasks and revives it from its journal; the call is made again";

/// All drills, in the order of the tree.
pub const DRILLS: &[Drill] = &[
    strike(
        "Root",
        PANICS,
        (Who::Root, Strike::Panic),
        ROOT_ENDS,
        ends("the Root actor died: it died without a word"),
    ),
    strike(
        "Root",
        FAILS,
        (Who::Root, Strike::Error),
        ROOT_ENDS,
        ends("the Root actor died: it died without a word"),
    ),
    Drill {
        kind: "Persistence",
        fault: "panic",
        how: "the journal panics in a commit",
        what: STORE_ENDS,
        expect: ends("the store takes no writes: the adapter panicked"),
        waits: false,
        deed: Deed::Commit(JournalFault::Panic),
    },
    Drill {
        kind: "Persistence",
        fault: "error",
        how: "a commit finds the disk full",
        what: STORE_ENDS,
        expect: ends("the store takes no writes: No space left on device (os error 28)"),
        waits: false,
        deed: Deed::Commit(JournalFault::FullDisk),
    },
    strike(
        "Persistence",
        KILLED,
        (Who::Persistence, Strike::Kill),
        "Root ends the runtime (exit 70); the next start goes on with every run",
        ends("the Persistence actor died: killed"),
    ),
    frozen(
        "Persistence",
        "every commit takes 1 s",
        Deed::Commit(JournalFault::Slow(Duration::from_secs(1))),
        "everybody waits; nothing is said that is not on disk, nothing is given up",
        goes_on(&[], COMPLETED),
    ),
    strike(
        "ProviderSupervisor",
        PANICS,
        (Who::ProviderSupervisor, Strike::Panic),
        BY_ROOT,
        restarted(&[("ProviderSupervisor", 1)]),
    ),
    strike(
        "ProviderSupervisor",
        FAILS,
        (Who::ProviderSupervisor, Strike::Error),
        BY_ROOT,
        restarted(&[("ProviderSupervisor", 1)]),
    ),
    strike(
        "Provider",
        PANICS,
        (Who::Provider, Strike::Panic),
        "ProviderSupervisor starts it again; leases are not touched, its statistics begin anew",
        restarted(&[("Provider test", 1)]),
    ),
    strike(
        "Provider",
        FAILS,
        (Who::Provider, Strike::Error),
        "ProviderSupervisor starts it again; leases are not touched, its statistics begin anew",
        restarted(&[("Provider test", 1)]),
    ),
    strike(
        "ToolExecutor",
        PANICS,
        (Who::ToolExecutor, Strike::Panic),
        BY_ROOT,
        restarted(&[("ToolExecutor", 1)]),
    ),
    strike(
        "ToolExecutor",
        FAILS,
        (Who::ToolExecutor, Strike::Error),
        BY_ROOT,
        restarted(&[("ToolExecutor", 1)]),
    ),
    strike(
        "SessionSupervisor",
        PANICS,
        (Who::SessionSupervisor, Strike::Panic),
        ALL_REVIVED,
        revived(&[("SessionSupervisor", 1)]),
    ),
    strike(
        "SessionSupervisor",
        FAILS,
        (Who::SessionSupervisor, Strike::Error),
        ALL_REVIVED,
        revived(&[("SessionSupervisor", 1)]),
    ),
    strike("Session", PANICS, (Who::Victim, Strike::Panic), BY_SESSIONS, revived(&[("Session", 1)])),
    strike("Session", FAILS, (Who::Victim, Strike::Error), BY_SESSIONS, revived(&[("Session", 1)])),
    strike("Session", KILLED, (Who::Victim, Strike::Kill), BY_SESSIONS, revived(&[("Session", 1)])),
    Drill {
        kind: "Session",
        fault: "panic",
        how: "its handler panics three times at the same step",
        what: "SessionSupervisor ends the run as failed(crash_loop) without it; the session goes on",
        expect: Expect {
            restarted: &[("Session", 3)],
            records: REVIVED,
            outcome: "failed (crash_loop: struck)",
            terminated: None,
        },
        waits: false,
        deed: Deed::StrikeThrice(Strike::Panic),
    },
    call(
        "model call",
        ("panic", "the provider panics"),
        Misdeed::ModelPanics,
        "the task's guard answers `lost`; the session records it and makes the next attempt",
        goes_on(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    call(
        "model call",
        ("panic", "the encoder panics"),
        Misdeed::EncoderPanics,
        "caught in the session; the call is lost, and its next attempt encodes all anew",
        goes_on(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    call(
        "model call",
        ("error", "the provider answers 500"),
        Misdeed::ModelFails,
        "the session records it and makes the next attempt after a pause of 250 to 500 ms",
        goes_on(&["model.failed", "model.started", "model.answered"], COMPLETED),
    ),
    frozen(
        "model call",
        "the provider never answers and keeps no deadline",
        Deed::Call(Misdeed::ModelFreezes),
        "the watchdog drops it after 1,830 s; the run's time for one call is used up",
        goes_on(
            &["model.failed", "run.ended"],
            "failed (provider: timeout: the provider did not end the call within 1830 s)",
        ),
    ),
    call(
        "tool call",
        ("panic", "`plan` panics"),
        Misdeed::PlanPanics,
        "caught; the model reads that the call was refused",
        goes_on(&["model.answered", "call.ended", "model.started"], COMPLETED),
    ),
    call(
        "tool call",
        ("panic", "a repeatable tool panics"),
        Misdeed::ToolPanics(EffectClass::Pure),
        "the task's guard answers `lost`; it is run again, at most three times",
        goes_on(&["call.lost", "call.started", "call.ended"], COMPLETED),
    ),
    call(
        "tool call",
        ("panic", "a tool that must not be repeated panics"),
        Misdeed::ToolPanics(EffectClass::Once),
        "the task's guard answers `lost`; the model reads that it is in doubt",
        goes_on(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    call(
        "tool call",
        ("error", "the tool ends with an error"),
        Misdeed::ToolFails,
        "the model reads the error",
        goes_on(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    frozen(
        "tool call",
        "the tool never ends",
        Deed::Call(Misdeed::ToolFreezes),
        "the watchdog drops it after its limit (600 s by default); the model reads that it timed out",
        goes_on(&["call.ended", "model.started", "model.answered"], COMPLETED),
    ),
    frozen(
        "tool call",
        "the tool does not end when the run is stopped",
        Deed::Call(Misdeed::ToolIgnoresStop),
        "the watchdog drops it after 3 s, and the run ends",
        goes_on(&["run.stopping", "call.ended", "run.ended"], "stopped (by command)"),
    ),
];
