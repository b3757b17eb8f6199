//! The host: owns the store of a state directory, resolves what a front door asks for, and runs it.
//!
//! A front door is an interface of the program: the command line, or a service. It needs the host, `view` for what it
//! shows, and `control` to answer other processes. The host knows no front door: lines for people go to a [`NoteSink`],
//! and resumed runs are shown by a [`ResumeObserver`].

mod budget_limits;
mod client_commands;
mod conversation;
mod crash_trials;
mod endpoints;
mod error;
mod folders;
mod handover;
mod identifier;
mod model_choice;
mod new_run;
mod notes;
mod owned_store;
mod policy;
mod resume;
pub mod run_defaults;
mod sandbox_rules;
mod session_workspace;
mod signals;
mod start;
mod store_client;
mod submission;

pub use budget_limits::{BudgetLimits, millis, parse_count, parse_dollars, parse_duration};
pub use conversation::{ConversationChoice, ConversationTarget};
pub use crash_trials::{fail_crash_looping, first_trial};
pub(crate) use endpoints::endpoint;
pub use endpoints::{Endpoints, store_script};
pub use error::{HostError, StartError};
pub use folders::{
    WorkspaceChoice, configured_state_dir, create_state_dir, open, resolve_workspace, state_dir,
};
pub use handover::{FollowedRun, FollowedStep, HandoverError, OwnerConnection};
pub use identifier::Identifier;
pub use model_choice::{ModelSelection, OllamaProbe, RehearsalScript, discover, keep_script};
pub use new_run::{
    RunInput, SpecRequest, endpoints as run_endpoints, first_of_key, ignored_settings, new_spec,
};
pub use notes::NoteSink;
pub use owned_store::{OwnedStore, serve_commands};
pub use policy::policy_of;
pub use resume::{ResumeObserver, ResumeOutcome, ResumeRequest, Revival, resume_runs};
pub use sandbox_rules::sandbox_rules;
pub use signals::{ShutdownSignal, Signals};
pub(crate) use start::{HostDependencies, runtime};
pub use start::{RuntimeHost, ShutdownUrgency, start, start_write_only};
pub use store_client::{
    OwnerReply, RETRY_DELAY, StoreAccess, StoreClient, open_as_owner, unexpected_response,
};
pub use submission::{RunSubmitter, Submission, SubmissionOptions};
