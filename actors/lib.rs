//! The actors and the pure core of Hermod: everything that decides, and nothing that touches the world.
//!
//! A session's state is the fold of its records. The pure core says what an input means (as records), what a record
//! changes, and what ought to be in flight; the actors are the shell around it. See `ARCHITECTURE.md` for the tree.
#![warn(missing_docs)]

pub mod model;
#[doc(hidden)]
pub mod mutation;
pub mod port;
#[cfg(feature = "testkit")]
pub mod testkit;

mod active_deadline;
mod delegate_tool;
mod handlers;
mod hub;
mod look;
mod persistence;
mod policy;
mod provider;
mod runtime;
mod session;
mod supervisor;
mod todo_tool;
mod tool_executor;
mod turn;

pub use active_deadline::ActiveDeadline;
pub use handlers::StalledHandler;
pub use policy::delegation::DELEGATE_TASK;
pub use policy::todo::TODO;
pub use policy::{AnswerSource, Bill, Said, Visible, usage_anomaly};
pub use provider::{ModelStatus, ProviderStatus};
pub use runtime::{
    Defaults, FirstTask, KeyConflict, MAX_PICTURE_BYTES, MAX_PICTURES, Question, RunError, RunRequest,
    RunResult, Runtime, SessionChoice, Steered, TaskPart, Vitals, Watch, World, questions,
};
pub use session::{Accepted, NotAccepted};
pub use supervisor::{PartStatus, SessionPlace, SessionStatus, Terminated, Tree};
pub use tool_executor::ToolStatus;
pub use turn::{RaiseError, WaitTracker};
