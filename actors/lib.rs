//! The actors of Hermod and their public API: the shell around the pure core. It has no I/O except through the ports.
//!
//! A session's state is the fold of its records. The pure core is the crate `hermod-core`: it decides what an input
//! means (as records), what a record changes, and which actions are due. Its `model` and a few of its names are
//! exported here. See "The tree of actors" in `ARCHITECTURE.md`.
#![warn(missing_docs)]

#[cfg(feature = "testkit")]
pub mod doubles;
#[cfg(feature = "testkit")]
pub mod fault_injection;
pub mod port;

mod active_deadline;
mod builtin_tools;
mod compressor;
mod encodings;
mod handlers;
mod hub;
mod inspect;
mod persistence;
mod provider;
mod redaction;
mod runtime;
mod scheduler;
mod session;
mod supervisor;
mod tool_executor;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use hermod_core::model;
#[doc(hidden)]
pub use hermod_core::mutants;
use hermod_core::{policy, turn};

pub use active_deadline::ActiveDeadline;
pub use builtin_tools::message_tool;
pub use compressor::CompressorStatus;
pub use handlers::StalledHandler;
pub use policy::delegation::DELEGATE_TASK;
pub use policy::{
    AnswerSource, Bill, FinalText, HookTally, MEMORY_TOOL, SanitizedText, SummarizerStatus, spent_by_failure,
    usage_anomaly,
};
pub use policy::{clarify::CLARIFY, message::MESSAGE, shaping, todo::TODO};
#[doc(hidden)]
pub use policy::{message, schedule};
pub use provider::{ModelStatus, ProviderStatus};
pub use runtime::{
    ConversationEnd, ConversationPage, Defaults, FirstTask, HealthProbe, KeyConflict, MAX_IMAGE_BYTES,
    MAX_IMAGES, MAX_MESSAGE_BYTES, RecordFeed, RunError, RunRequest, RunResult, Runtime, RuntimeDependencies,
    ScheduleError, SessionChoice, SharedEntry, SharedEvent, SteerReceipt, TaskPart, Watch,
};
pub use scheduler::SchedulerHealth;
pub use session::{AcceptedRun, SubmitError};
pub use supervisor::{ChildStatus, RuntimeEnd, SessionCounts, SessionPhase, SessionStatus, SupervisionTree};
pub use tool_executor::{ToolClassStatus, ToolStatus};
pub use turn::{RaiseError, WaitTracker, open_approvals};

/// Locks a mutex and ignores poisoning: no update can be left half done, because each is one assignment, insertion or
/// removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
